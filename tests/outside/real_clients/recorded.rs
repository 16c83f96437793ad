//! Recordings of pages against the SDK's own server: `tests/wire/golden`.

use super::page::{Page, Version, words};
use holdpoint_testkit::JsonFields;
use serde_json::{Value, json};
use std::path::Path;

impl Page {
    /// The page shows what was recorded of its version, up to ids and texts.
    pub(super) fn looks_like(&self, recording: &str) {
        self.looks_like_version(self.version, recording);
    }

    /// The same for a page that was stopped: on a real socket its last part is incomplete.
    pub(super) fn stopped_like(&self, recording: &str) {
        let mut stopped = recorded(self.version, recording);
        for part in stopped["messages"][1]["parts"].as_array_mut().unwrap() {
            if self.version.is_ui() && part["type"] == "text" {
                part["state"] = json!("streaming");
            }
        }
        self.looks_like_this(&stopped);
    }

    /// The same with the recording of another version, if the SDK's own server of this version had no answer
    /// to record.
    pub(super) fn looks_like_version(&self, version: Version, recording: &str) {
        self.looks_like_this(&recorded(version, recording));
    }

    fn looks_like_this(&self, recorded: &Value) {
        let messages = recorded.list("messages");
        assert_eq!(outline(&self.messages), outline(messages), "left: here; right: recorded");
        assert_eq!(self.error.is_some(), recorded["status"] == "error");
        let finish = self.finishes.last().unwrap_or(&Value::Null);
        for field in ["isAbort", "isDisconnect", "isError", "finishReason"] {
            // The first releases of 5 refuse a finish reason, so pages of 5 get none.
            if (self.version, field) != (Version::V5, "finishReason") {
                assert_eq!(finish[field], recorded["onFinish"][field], "{field}");
            }
        }
    }
}

fn recorded(version: Version, recording: &str) -> Value {
    let path = format!("tests/wire/golden/v{}/{recording}.messages.json", version.number());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Messages without their ids and texts, and without the data parts that only this server sends.
fn outline(messages: &[Value]) -> Vec<Value> {
    let message = |message: &Value| {
        let words_of = |it: &Value| it["validated"].clone();
        let annotations = message["annotations"].as_array();
        let invocations = message["toolInvocations"].as_array();
        json!({
            "role": message["role"],
            "parts": message.list("parts").iter().filter(is_recorded).map(part).collect::<Vec<_>>(),
            "says something": !words(message).is_empty(),
            "thinks": message.get("reasoning").is_some(),
            "calls": invocations.map(Vec::len),
            "annotations": annotations.map(|all| all.iter().map(words_of).collect::<Vec<_>>()),
        })
    };
    messages.iter().map(message).collect()
}

fn is_recorded(part: &&Value) -> bool {
    part["type"] != "data-tool-hold" && part["type"] != "data-tool-decision"
}

/// The outline of a part. It omits `metadata`, which carries the usage in every answer here and in no
/// recorded one, and `providerMetadata`, which stays with the server.
fn part(part: &Value) -> Value {
    let kind = part.text("type");
    if kind == "tool-invocation" {
        let call = &part["toolInvocation"];
        let fields: Vec<_> = call.as_object().unwrap().keys().collect();
        return json!([call["state"], call["step"], fields, call["result"].get("error").is_some()]);
    }
    if kind.starts_with("tool-") {
        let approval = &part["approval"];
        return json!({
            "state": part["state"],
            // An unreadable input is no input here, and `rawInput` in some of the recordings.
            "input": part.get("input").or(part.get("rawInput")).is_some(),
            "output": part.get("output").is_some(),
            "error": part.get("errorText").is_some(),
            "approval": approval.is_object().then(|| json!([approval["approved"], approval.get("reason").is_some()])),
        });
    }
    if let Some(name) = kind.strip_prefix("data-") {
        return json!([name, part["data"]["validated"]]);
    }
    json!([kind, part["state"]])
}
