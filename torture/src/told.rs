//! The facts in a stream. Only complete lines count, wherever the stream was cut.

use crate::json::At;
use serde_json::Value;

/// The dialect of a page.
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
    pub(crate) said: Said,
}

/// The content of a fact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
    /// The call is stored, with these inputs.
    Stored { tool: String, inputs: Value },
    /// The call is held.
    Pending,
    /// The state of the call, in a word of `data-v1`.
    Stands(String),
    /// The call succeeded with this output.
    Output(Value),
    /// The call ended without an output.
    Error(String),
}

/// The facts and the text of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) message_id: Option<String>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) text: String,
    /// Whether the stream has the end of the turn.
    pub(crate) finished: bool,
    pub(crate) failure: Option<String>,
}

impl Told {
    /// Reads the received text of a stream.
    pub(crate) fn of(dialect: Dialect, text: &str) -> Self {
        let mut told = Self::default();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines().filter(|line| !line.is_empty()) {
            match dialect {
                Dialect::DataV1 => told.line(line),
                Dialect::UiV6 => told.event(line),
            }
        }
        told
    }

    /// Returns the calls that the stream shows as pending.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &str> {
        let stands = |fact: &&Fact| match &fact.said {
            Said::Pending => true,
            Said::Stands(word) => word == "pending",
            _ => false,
        };
        self.facts.iter().filter(stands).map(|fact| fact.call.as_str())
    }

    fn fact(&mut self, value: &Value, said: Said) {
        if let Some(call) = value.at("/toolCallId").as_str() {
            self.facts.push(Fact { call: call.to_owned(), said });
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
                self.fact(&value, Said::Stored { tool, inputs: value.at("/args").clone() });
            }
            "8" => {
                for entry in value.as_array().into_iter().flatten() {
                    let word = text(entry.at("/validated")).unwrap_or_default();
                    self.fact(entry, Said::Stands(word));
                }
            }
            "a" => {
                let result = value.at("/result");
                let error = result.as_object().filter(|fields| fields.len() == 1);
                let said = match error.and_then(|fields| fields.get("error")?.as_str()) {
                    Some(error) => Said::Error(error.to_owned()),
                    None => Said::Output(result.clone()),
                };
                self.fact(&value, said);
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
                self.fact(&chunk, Said::Stored { tool, inputs: chunk.at("/input").clone() });
            }
            "tool-approval-request" => self.fact(&chunk, Said::Pending),
            "tool-output-available" => self.fact(&chunk, Said::Output(chunk.at("/output").clone())),
            "tool-output-error" => {
                let error = text(chunk.at("/errorText")).unwrap_or_default();
                self.fact(&chunk, Said::Error(error));
            }
            "tool-output-denied" => self.fact(&chunk, Said::Error("denied".to_owned())),
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
    fn lines_and_events_tell_the_same() {
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
        let told = Told::of(Dialect::DataV1, lines);
        assert_eq!(told, Told::of(Dialect::UiV6, events));
        assert_eq!((told.text.as_str(), told.finished), ("Hello", true));
        assert_eq!(told.facts[1].said, Said::Output(json!({"paid": 1})));
    }

    #[test]
    fn what_was_cut_off_was_not_told() {
        let cut =
            "0:\"a\"\n8:[{\"toolCallId\":\"c\",\"validated\":\"pending\"}]\n8:[{\"toolCallId\":\"d\",\"val";
        let told = Told::of(Dialect::DataV1, cut);
        assert_eq!(told.pending().collect::<Vec<_>>(), ["c"]);
        assert!(!told.finished);
        let asked =
            "data: {\"type\":\"tool-approval-request\",\"approvalId\":\"c\",\"toolCallId\":\"c\"}\n\n";
        assert_eq!(Told::of(Dialect::UiV6, asked).pending().collect::<Vec<_>>(), ["c"]);
    }
}
