//! Definitions: what MCP servers say about their tools, and what is accepted of that.

use crate::clock::Timestamp;
use crate::text::visible::escaped_lines;
use crate::vocabulary;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The fields of a definition that the model or an approver reads.
const FIELDS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

/// The definition of a tool, as its server lists it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDefinition {
    /// The name of the tool in holdpoint.
    pub tool_name: String,
    /// The hash of the definition, its server included.
    pub hash: String,
    /// The definition, as canonical JSON.
    pub text: String,
}

/// A listed tool that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableTool {
    /// The name of the server.
    pub server: String,
    /// The name of the tool at the server, in a form that can be read.
    pub tool: String,
    /// The reason.
    pub why: String,
}

/// A definition that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The name of the tool in holdpoint.
    pub tool_name: String,
    /// The hash of the definition.
    pub hash: String,
    /// The actor.
    pub by: String,
    /// The time of the acceptance.
    pub at: Timestamp,
}

/// Whether the definition of a tool is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// The tool is not one of an MCP server, or its definition is the accepted one.
    Accepted,
    /// The definition is not accepted. A call that the policy would let run asks.
    Unaccepted(Arc<Unaccepted>),
}

/// A definition that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unaccepted {
    /// Why it is not.
    pub cause: DefinitionCause,
    /// The hash of the definition.
    pub hash: String,
    /// How the definition differs from the accepted one, or from none.
    pub changes: Vec<DefinitionChange>,
}

vocabulary! {
    /// Why a definition is not accepted.
    pub enum DefinitionCause {
        /// Another definition of the tool is accepted.
        Changed = "changed",
        /// No definition of the tool was ever accepted.
        New = "new",
        /// What is accepted could not be read, or the listing could not be recorded.
        Unknown = "unknown",
    }
}

/// A field of a definition that differs from the accepted one. The texts are for people: characters that hide or reverse
/// text are replaced by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionChange {
    /// The name of the field.
    pub field: &'static str,
    /// The accepted value, if there is one.
    pub accepted: Option<String>,
    /// The value now, if there is one.
    pub current: Option<String>,
}

impl Acceptance {
    /// Returns the definition if it is not accepted.
    pub fn unaccepted(&self) -> Option<&Unaccepted> {
        match self {
            Self::Accepted => None,
            Self::Unaccepted(unaccepted) => Some(unaccepted),
        }
    }
}

impl Unaccepted {
    /// Returns a listed definition that differs from the accepted one with this text, or from none.
    pub fn new(listed: &ListedDefinition, cause: DefinitionCause, accepted: Option<&str>) -> Self {
        let (before, now) = (accepted.map(fields).unwrap_or_default(), fields(&listed.text));
        let change = |field| {
            let value = |fields: &Map<String, Value>| fields.get(field).filter(|it| !it.is_null()).cloned();
            let (before, now) = (value(&before), value(&now));
            let readable = |value: Option<Value>| value.map(|value| readable(&value));
            (before != now).then(|| DefinitionChange {
                field,
                accepted: readable(before),
                current: readable(now),
            })
        };
        Self { cause, hash: listed.hash.clone(), changes: FIELDS.into_iter().filter_map(change).collect() }
    }

    /// Returns the reason for which calls of the tool ask.
    pub fn reason(&self, tool: &str) -> String {
        match self.cause {
            DefinitionCause::Changed => {
                format!("the MCP server of {tool} has changed the definition, and no operator accepted it")
            }
            DefinitionCause::New => {
                format!("{tool} is new at its MCP server, and no operator accepted its definition")
            }
            DefinitionCause::Unknown => {
                format!("whether the definition of {tool} is accepted could not be read")
            }
        }
    }
}

/// Returns the fields of a definition. A stored text that cannot be read has none, so everything counts as changed.
fn fields(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap_or_default()
}

fn readable(value: &Value) -> String {
    match value {
        Value::String(text) => escaped_lines(text),
        value => escaped_lines(&serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> ListedDefinition {
        ListedDefinition { tool_name: "s__t".to_owned(), hash: "h".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn the_changes_of_a_definition_are_its_fields_that_differ() {
        let before = r#"{"annotations":null,"description":"Reads.","inputSchema":{"type":"object"},"name":"t","title":"T"}"#;
        let now = r#"{"annotations":{"readOnlyHint":true},"description":"Reads.\u202e\n","inputSchema":{"type":"object"},"name":"t","title":null}"#;
        let change = |field, accepted: Option<&str>, current: Option<&str>| DefinitionChange {
            field,
            accepted: accepted.map(str::to_owned),
            current: current.map(str::to_owned),
        };
        assert_eq!(
            Unaccepted::new(&listed(now), DefinitionCause::Changed, Some(before)).changes,
            [
                change("title", Some("T"), None),
                change("description", Some("Reads."), Some("Reads.\\u{202e}\n")),
                change("annotations", None, Some("{\n  \"readOnlyHint\": true\n}")),
            ]
        );
        let new = Unaccepted::new(&listed(before), DefinitionCause::New, None);
        assert_eq!(
            new.changes.iter().map(|change| change.field).collect::<Vec<_>>(),
            ["name", "title", "description", "inputSchema"]
        );
        let unreadable = Unaccepted::new(&listed(before), DefinitionCause::Changed, Some("{"));
        assert_eq!(unreadable.changes, new.changes);
    }
}
