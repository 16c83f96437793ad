//! What the SDK's own server made a page show, recorded: `tests/wire/golden`.

use super::page::Page;
use serde_json::{Value, json};
use std::path::Path;

impl Page {
    /// Shows what was recorded, up to ids and words.
    pub(super) fn looks_like(&self, recording: &str) {
        let path = format!("tests/wire/golden/v4/{recording}.messages.json");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let recorded: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let messages = recorded["messages"].as_array().unwrap();
        assert_eq!(outline(&self.messages), outline(messages), "left: here; right: recorded");
        assert_eq!(self.error.is_some(), recorded["status"] == "error");
        let finish = self.finishes.last().map(|finish| &finish["finishReason"]);
        let recorded = &recorded["onFinish"]["finishReason"];
        assert_eq!(finish.unwrap_or(&Value::Null), recorded);
    }
}

/// What stays of messages without their ids and words.
fn outline(messages: &[Value]) -> Vec<Value> {
    let part = |part: &Value| match part["type"].as_str().unwrap() {
        "tool-invocation" => {
            let call = &part["toolInvocation"];
            let fields: Vec<_> = call.as_object().unwrap().keys().collect();
            json!([call["state"], call["step"], fields, call["result"].get("error").is_some()])
        }
        other => json!(other),
    };
    let message = |message: &Value| {
        let words = |it: &Value| it["validated"].clone();
        let annotations = message["annotations"].as_array();
        let invocations = message["toolInvocations"].as_array();
        json!({
            "role": message["role"],
            "parts": message["parts"].as_array().unwrap().iter().map(part).collect::<Vec<_>>(),
            "has content": message["content"] != "",
            "thinks": message.get("reasoning").is_some(),
            "calls": invocations.map(Vec::len),
            "annotations": annotations.map(|all| all.iter().map(words).collect::<Vec<_>>()),
        })
    };
    messages.iter().map(message).collect()
}
