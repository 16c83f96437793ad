//! The requests of a page, in the form that each server takes.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The form of a server's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Chat completions: the fake model itself, and the floors.
    OpenAi,
    /// The server on the AI SDK.
    AiSdk,
    /// holdpoint, as a page of AI SDK 7 posts.
    Holdpoint,
}

/// The call that a stream asks to approve.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldCall {
    message_id: String,
    tool_call_id: String,
    approval_id: String,
}

impl Wire {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::OpenAi => "/v1/chat/completions",
            Self::AiSdk => "/api/chat",
            Self::Holdpoint => "/qa/chat_streamed",
        }
    }

    /// Returns the request with a message of the user.
    pub(crate) fn message(self, chat: &str, id: &str, text: &str) -> Value {
        let message = json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] });
        match self {
            Self::OpenAi => json!({
                "model": "bench-model",
                "stream": true,
                "stream_options": { "include_usage": true },
                "messages": [{ "role": "user", "content": text }],
            }),
            Self::AiSdk => json!({ "id": chat, "message": message }),
            Self::Holdpoint => json!({ "id": chat, "trigger": "submit-message", "messages": [message] }),
        }
    }

    /// Returns the request that approves a call: the message of the assistant with an answer in its tool part.
    pub(crate) fn approval(self, chat: &str, held: &HeldCall) -> Value {
        let HeldCall { message_id, tool_call_id, approval_id } = held;
        let message = json!({ "id": message_id, "role": "assistant", "parts": [
            { "type": "step-start" },
            {
                "type": "tool-delete_file",
                "toolCallId": tool_call_id,
                "state": "approval-responded",
                "input": { "path": "/srv/data/file.txt", "reason": "cleanup" },
                "approval": { "id": approval_id, "approved": true },
            },
        ]});
        match self {
            Self::OpenAi | Self::AiSdk => json!({ "id": chat, "message": message }),
            Self::Holdpoint => json!({
                "id": chat,
                "trigger": "submit-message",
                "messageId": message_id,
                "messages": [message],
            }),
        }
    }
}

impl HeldCall {
    /// Finds the held call in a UI message stream.
    pub(crate) fn of_stream(body: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(body)?;
        let field = |kind: &str, name: &str| {
            let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let mut events = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
            let event = events.find(|event| event.get("type").is_some_and(|found| found == kind));
            let found = event.as_ref().and_then(|event| event.get(name)?.as_str()).map(str::to_owned);
            found.with_context(|| format!("no {name} of an event {kind} in: {text}"))
        };
        Ok(Self {
            message_id: field("start", "messageId")?,
            tool_call_id: field("tool-approval-request", "toolCallId")?,
            approval_id: field("tool-approval-request", "approvalId")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_call_is_found_in_its_stream() {
        let stream = concat!(
            "data: {\"type\":\"start\",\"messageId\":\"m\"}\n\n",
            "data: {\"type\":\"tool-approval-request\",\"approvalId\":\"a\",\"toolCallId\":\"c\"}\n\n",
            "data: [DONE]\n\n",
        );
        let held = HeldCall::of_stream(stream.as_bytes()).unwrap();
        let [message_id, tool_call_id, approval_id] = ["m", "c", "a"].map(str::to_owned);
        assert_eq!(held, HeldCall { message_id, tool_call_id, approval_id });
        assert!(HeldCall::of_stream(b"data: [DONE]\n\n").is_err());
    }
}
