//! Names of tools that the servers of a wire refuse, and the names that the tools get there.
//!
//! The name depends on the own name and on the wire alone, so a conversation is always written with the same names. The name
//! that a model calls is read as the tool of the request that was sent with it.

use super::schema::SchemaRules;
use crate::{ModelEvent, ModelMessage, ModelRequest, ToolDefinition};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest name that every server accepts.
const NAME_MAX: usize = 64;
/// Begins a name whose first character is refused.
const PREFIX: char = '_';

/// The names of the tools that were sent with another name, by that name.
#[derive(Debug, Default)]
pub(super) struct SentNames(BTreeMap<String, String>);

impl SentNames {
    /// Returns a request in which refused names are changed, and what they were. A tool whose changed name is too long, or
    /// is that of another tool, keeps its name, and the wire leaves the tool out.
    pub(super) fn of<'a>(request: &'a ModelRequest, rules: &SchemaRules) -> (Cow<'a, ModelRequest>, Self) {
        let is_refused = |name: &str| !rules.accepts_name(name);
        let has_refused = |message: &ModelMessage| names(message).any(is_refused);
        let mut sent = Self::default();
        let tools_refused = request.tools.iter().any(|tool| is_refused(&tool.name));
        if !tools_refused && !request.messages.iter().any(has_refused) {
            return (Cow::Borrowed(request), sent);
        }
        let mut request = request.clone();
        let taken: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
        for tool in request.tools.iter_mut().filter(|tool| is_refused(&tool.name)) {
            let name = prefixed(&tool.name);
            if name.len() <= NAME_MAX && rules.accepts_name(&name) && !taken.contains(&name) {
                let own = std::mem::replace(
                    tool,
                    Arc::new(ToolDefinition { name: name.clone(), ..(**tool).clone() }),
                );
                sent.0.insert(name, own.name.clone());
            }
        }
        for message in &mut request.messages {
            for name in names_mut(message).filter(|name| is_refused(name)) {
                *name = prefixed(name);
            }
        }
        (Cow::Owned(request), sent)
    }

    /// Gives a call its own name back.
    pub(super) fn read(&self, mut event: ModelEvent) -> ModelEvent {
        if let ModelEvent::CallStarted { tool_name, .. } = &mut event
            && let Some(own) = self.0.get(tool_name)
        {
            tool_name.clone_from(own);
        }
        event
    }
}

fn prefixed(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns the names of tools in a message.
fn names(message: &ModelMessage) -> impl Iterator<Item = &str> {
    let (calls, answered) = match message {
        ModelMessage::User(_) => (&[][..], None),
        ModelMessage::Assistant { calls, .. } => (calls.as_slice(), None),
        ModelMessage::Tool { tool_name, .. } => (&[][..], Some(tool_name)),
    };
    calls.iter().map(|call| &call.tool_name).chain(answered).map(String::as_str)
}

fn names_mut(message: &mut ModelMessage) -> impl Iterator<Item = &mut String> {
    let (calls, answered) = match message {
        ModelMessage::User(_) => (&mut [][..], None),
        ModelMessage::Assistant { calls, .. } => (calls.as_mut_slice(), None),
        ModelMessage::Tool { tool_name, .. } => (&mut [][..], Some(tool_name)),
    };
    calls.iter_mut().map(|call| &mut call.tool_name).chain(answered)
}

#[cfg(test)]
mod tests {
    use super::super::gemini::TOOLS as GEMINI;
    use super::super::openai::TOOLS as OPENAI;
    use super::*;
    use crate::{ModelCall, Speaker, ToolChoice};
    use serde_json::{Map, json};

    fn request(tools: &[&str]) -> ModelRequest {
        let tool = |name: &&str| {
            let (name, description) = ((*name).to_owned(), String::new());
            Arc::new(ToolDefinition { name, description, input_schema: json!({}) })
        };
        let call = ModelCall { id: "c".to_owned(), tool_name: "3d".to_owned(), input: Map::new() };
        let (text, speaker) = (String::new(), Speaker::Another);
        let messages = vec![
            ModelMessage::Assistant { text: text.clone(), calls: vec![call], speaker },
            ModelMessage::Tool { call_id: "c".to_owned(), tool_name: "3d".to_owned(), text },
        ];
        let tools = tools.iter().map(tool).collect();
        ModelRequest { system: None, messages, tools, tool_choice: ToolChoice::Auto }
    }

    fn tools(request: &ModelRequest) -> Vec<&str> {
        request.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    fn read(sent: &SentNames, name: &str) -> String {
        let event =
            ModelEvent::CallStarted { index: 0, provider_call_id: String::new(), tool_name: name.to_owned() };
        match sent.read(event) {
            ModelEvent::CallStarted { tool_name, .. } => tool_name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_refused_name_is_changed_everywhere_and_read_as_the_tool_that_it_was() {
        let given = request(&["3d", "-dash", "_b", "look"]);
        let (changed, sent) = SentNames::of(&given, &GEMINI);
        assert_eq!(tools(&changed), ["_3d", "_-dash", "_b", "look"]);
        assert!(changed.messages.iter().all(|message| names(message).eq(["_3d"])));
        assert_eq!(
            ["_3d", "_-dash", "_b", "3d", "other"].map(|name| read(&sent, name)),
            ["3d", "-dash", "_b", "3d", "other"]
        );
        let (same, sent) = SentNames::of(&given, &OPENAI);
        assert!(matches!(same, Cow::Borrowed(_)) && sent.0.is_empty());
    }

    #[test]
    fn two_tools_never_get_one_name() {
        let long = format!("3{}", "d".repeat(63));
        let given = request(&["3d", "_3d", &long]);
        let (changed, sent) = SentNames::of(&given, &GEMINI);
        assert_eq!(tools(&changed), ["3d", "_3d", &long], "the wire leaves the first and the last out");
        assert_eq!(read(&sent, "_3d"), "_3d");
    }
}
