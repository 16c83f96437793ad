//! The facts in a stream. Only complete lines count, wherever the stream was cut.

use crate::json::JsonPointer;
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Lines for pages of AI SDK 4.
    DataV1,
    /// Events for pages of AI SDK 6.
    UiV6,
}

impl Dialect {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DataV1 => "data-v1",
            Self::UiV6 => "ui-v6",
        }
    }
}

/// One fact about a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fact {
    pub(crate) call: String,
    pub(crate) kind: FactKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FactKind {
    /// The call is stored, with these inputs.
    Stored { tool: String, inputs: Value },
    /// The call is held.
    Pending,
    /// The state of the call, by its name in `data-v1`.
    State(String),
    /// The call succeeded with this output.
    Output(Value),
    /// The call ended without an output.
    Error(String),
}

/// The facts and the text of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StreamContent {
    pub(crate) message_id: Option<String>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) text: String,
    /// Whether the stream has the end of the turn.
    pub(crate) finished: bool,
    pub(crate) failure: Option<String>,
}

impl StreamContent {
    /// Reads the received text of a stream.
    pub(crate) fn of(dialect: Dialect, text: &str) -> Self {
        let mut content = Self::default();
        // The last line may be incomplete.
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        for line in complete.lines().filter(|line| !line.is_empty()) {
            match dialect {
                Dialect::DataV1 => content.line(line),
                Dialect::UiV6 => content.event(line),
            }
        }
        content
    }

    /// Returns the calls that the stream shows as pending.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &str> {
        let is_pending = |fact: &&Fact| match &fact.kind {
            FactKind::Pending => true,
            FactKind::State(state) => state == "pending",
            _ => false,
        };
        self.facts.iter().filter(is_pending).map(|fact| fact.call.as_str())
    }

    fn fact(&mut self, value: &Value, kind: FactKind) {
        if let Some(call) = value.at("/toolCallId").as_str() {
            self.facts.push(Fact { call: call.to_owned(), kind });
        }
    }

    fn line(&mut self, line: &str) {
        let Some((code, json)) = line.split_once(':') else { return };
        let Ok(value) = serde_json::from_str::<Value>(json) else { return };
        match code {
            "f" => self.message_id = text(value.at("/messageId")),
            "0" => self.text.push_str(value.as_str().unwrap_or_default()),
            "9" => {
                let tool = text(value.at("/toolName")).unwrap_or_default();
                self.fact(&value, FactKind::Stored { tool, inputs: value.at("/args").clone() });
            }
            "8" => {
                for entry in value.as_array().into_iter().flatten() {
                    let state = text(entry.at("/validated")).unwrap_or_default();
                    self.fact(entry, FactKind::State(state));
                }
            }
            "a" => {
                let result = value.at("/result");
                let error = result.as_object().filter(|fields| fields.len() == 1);
                let kind = match error.and_then(|fields| fields.get("error")?.as_str()) {
                    Some(error) => FactKind::Error(error.to_owned()),
                    None => FactKind::Output(result.clone()),
                };
                self.fact(&value, kind);
            }
            "d" => self.finished = true,
            "3" => self.failure = text(&value),
            _ => {}
        }
    }

    fn event(&mut self, line: &str) {
        let Some(data) = line.strip_prefix("data: ") else { return };
        let Ok(chunk) = serde_json::from_str::<Value>(data) else { return };
        match chunk.at("/type").as_str().unwrap_or_default() {
            "start" => self.message_id = text(chunk.at("/messageId")),
            "text-delta" => self.text.push_str(chunk.at("/delta").as_str().unwrap_or_default()),
            "tool-input-available" => {
                let tool = text(chunk.at("/toolName")).unwrap_or_default();
                self.fact(&chunk, FactKind::Stored { tool, inputs: chunk.at("/input").clone() });
            }
            "tool-approval-request" => self.fact(&chunk, FactKind::Pending),
            "tool-output-available" => self.fact(&chunk, FactKind::Output(chunk.at("/output").clone())),
            "tool-output-error" => {
                let error = text(chunk.at("/errorText")).unwrap_or_default();
                self.fact(&chunk, FactKind::Error(error));
            }
            "tool-output-denied" => self.fact(&chunk, FactKind::Error("denied".to_owned())),
            "finish" => self.finished = true,
            "error" => self.failure = text(chunk.at("/errorText")),
            _ => {}
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_and_events_have_the_same_facts() {
        let lines = concat!(
            "f:{\"messageId\":\"m\"}\n0:\"Hel\"\n0:\"lo\"\n",
            "9:{\"toolCallId\":\"c\",\"toolName\":\"pay\",\"args\":{\"n\":1}}\n",
            "a:{\"toolCallId\":\"c\",\"result\":{\"paid\":1}}\n",
            "a:{\"toolCallId\":\"e\",\"result\":{\"error\":\"no\"}}\n",
            "d:{\"finishReason\":\"stop\"}\n"
        );
        let events = concat!(
            "data: {\"type\":\"start\",\"messageId\":\"m\"}\n\n",
            "data: {\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"Hello\"}\n\n",
            "data: {\"type\":\"tool-input-available\",\"toolCallId\":\"c\",\"toolName\":\"pay\",\"input\":{\"n\":1}}\n\n",
            "data: {\"type\":\"tool-output-available\",\"toolCallId\":\"c\",\"output\":{\"paid\":1}}\n\n",
            "data: {\"type\":\"tool-output-error\",\"toolCallId\":\"e\",\"errorText\":\"no\"}\n\n",
            "data: {\"type\":\"finish\"}\n\n"
        );
        let content = StreamContent::of(Dialect::DataV1, lines);
        assert_eq!(content, StreamContent::of(Dialect::UiV6, events));
        assert_eq!((content.text.as_str(), content.finished), ("Hello", true));
        assert_eq!(content.facts[1].kind, FactKind::Output(json!({"paid": 1})));
    }

    #[test]
    fn an_incomplete_last_line_is_ignored() {
        let cut =
            "0:\"a\"\n8:[{\"toolCallId\":\"c\",\"validated\":\"pending\"}]\n8:[{\"toolCallId\":\"d\",\"val";
        let content = StreamContent::of(Dialect::DataV1, cut);
        assert_eq!(content.pending().collect::<Vec<_>>(), ["c"]);
        assert!(!content.finished);
        let request =
            "data: {\"type\":\"tool-approval-request\",\"approvalId\":\"c\",\"toolCallId\":\"c\"}\n\n";
        assert_eq!(StreamContent::of(Dialect::UiV6, request).pending().collect::<Vec<_>>(), ["c"]);
    }
}
