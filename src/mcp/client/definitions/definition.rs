//! The definitions that a server lists. A server may be hostile, so each definition is checked before its schema is
//! compiled.

use crate::mcp::client::definitions::input_schema;
use holdpoint_core::json::canonical::{canonical_hash, canonical_json};
use holdpoint_core::text::cut;
use holdpoint_core::text::visible::{escaped, escaped_lines, show_texts};
use rmcp::model::Tool;
use serde_json::{Value, json};

/// Maximum size of one definition, in bytes of JSON, with a hash in place of a long output schema.
const DEFINITION_BYTES_MAX: usize = 64 * 1024;
/// In place of a long output schema in the kept text.
const OUTPUT_SCHEMA_HASH: &str = "a long schema with the hash ";
/// Maximum length of a title, in bytes.
const TITLE_BYTES_MAX: usize = 120;
/// Begins the hashed text, so that the hash of a definition is the hash of nothing else.
const LABEL: &str = "holdpoint.mcp.tool.v1";

/// A tool as its server defines it: everything that the model or an approver reads of it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::mcp) struct Definition {
    /// The name at the server.
    pub(in crate::mcp) name: String,
    /// The name for people, if the server gives one.
    pub(in crate::mcp) title: Option<String>,
    /// What the tool does.
    pub(in crate::mcp) description: String,
    pub(in crate::mcp) input_schema: Value,
    /// The hash of the whole definition.
    pub(in crate::mcp) hash: String,
    /// The whole definition, as canonical JSON.
    pub(in crate::mcp) text: String,
    /// The number of patterns in the schema of the inputs.
    pub(in crate::mcp) patterns: usize,
}

impl Definition {
    /// Reads what a server lists. The error is the reason why the tool cannot be used.
    pub(in crate::mcp) fn of(server: &str, tool: &Tool) -> Result<Self, String> {
        let Tool { name, title, description, input_schema, output_schema, annotations, .. } = tool;
        let mut whole = json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input_schema,
            "outputSchema": output_schema,
            "annotations": annotations,
        });
        let hash = canonical_hash(&json!([LABEL, server, whole]));
        let mut text = canonical_json(&whole);
        if text.len() > DEFINITION_BYTES_MAX && output_schema.is_some() {
            // Outputs are not checked, so a long output schema does no harm, and its hash is as good as the whole.
            let hash = canonical_hash(&json!(output_schema));
            if let Value::Object(whole) = &mut whole {
                whole.insert("outputSchema".to_owned(), format!("{OUTPUT_SCHEMA_HASH}{hash}").into());
            }
            text = canonical_json(&whole);
        }
        if text.len() > DEFINITION_BYTES_MAX {
            return Err(format!("its definition is longer than {DEFINITION_BYTES_MAX} bytes"));
        }
        let (mut input_schema, patterns) = input_schema::checked(input_schema)?;
        show_texts(&mut input_schema);
        let description = description.as_deref().or(title.as_deref()).unwrap_or(name);
        let shown = title.as_deref().or_else(|| annotations.as_ref()?.title.as_deref());
        Ok(Self {
            name: name.to_string(),
            title: shown.map(|title| escaped(&cut(title.trim().to_owned(), TITLE_BYTES_MAX))),
            description: escaped_lines(description),
            input_schema: Value::Object(input_schema),
            hash,
            text,
            patterns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_model_or_an_approver_reads_changes_the_hash() {
        let of = |changes: Value| {
            let mut tool = json!({ "name": "t", "description": "d", "inputSchema": { "type": "object" } });
            tool.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            Definition::of("s", &serde_json::from_value(tool).unwrap()).unwrap()
        };
        let first = of(json!({}));
        assert_eq!(of(json!({ "_meta": { "a": 1 } })), first);
        for changes in [
            json!({ "name": "u" }),
            json!({ "title": "T" }),
            json!({ "description": "D" }),
            json!({ "inputSchema": { "type": "object", "properties": {} } }),
            json!({ "outputSchema": { "type": "object" } }),
            json!({ "annotations": { "readOnlyHint": true } }),
        ] {
            assert_ne!(of(changes).hash, first.hash);
        }
        let long = of(json!({ "outputSchema": { "description": "x".repeat(DEFINITION_BYTES_MAX) } }));
        let longer = of(json!({ "outputSchema": { "description": "x".repeat(DEFINITION_BYTES_MAX + 1) } }));
        assert!(long.text.len() < 1_000 && longer.text != long.text && longer.hash != long.hash);
        let hidden = of(json!({ "description": "d\u{e0041}\n",
            "inputSchema": { "type": "object", "properties": { "a": { "description": "x\u{202e}" } } } }));
        assert_eq!(hidden.description, "d\\u{e0041}\n");
        assert_eq!(hidden.input_schema["properties"]["a"]["description"], "x\\u{202e}");
    }
}
