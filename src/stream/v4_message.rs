//! Messages as AI SDK 4 holds them: what `useChat`'s `initialMessages` take, cards included.
//!
//! The form is that of `@ai-sdk/ui-utils` 1.2 (`UIMessage`), as its client folds a `data-v1` stream.

use crate::domain::call::ToolCall;
use crate::domain::message::{Body, Message, Part, Step};
use crate::domain::turn::Shown;
use serde_json::{Map, Value, json};

/// One message in that form.
pub(crate) fn v4_message(message: &Message) -> Value {
    let created_at = message.created_at.to_rfc3339();
    match &message.body {
        Body::User(text) => json!({
            "id": message.client_id.clone().unwrap_or_else(|| message.id.to_string()),
            "role": "user",
            "content": text,
            "createdAt": created_at,
            "parts": [{ "type": "text", "text": text }],
        }),
        Body::Assistant(steps) => {
            let mut folded = Folded::default();
            for step in steps {
                folded.step(step);
            }
            let mut whole = json!({
                "id": message.id,
                "role": "assistant",
                "content": folded.content,
                "createdAt": created_at,
                "parts": folded.parts,
            });
            if let Some(fields) = whole.as_object_mut() {
                folded.optional(fields);
            }
            whole
        }
    }
}

#[derive(Default)]
struct Folded {
    content: String,
    reasoning: String,
    parts: Vec<Value>,
    invocations: Vec<Value>,
    annotations: Vec<Value>,
}

impl Folded {
    fn step(&mut self, step: &Step) {
        self.parts.push(json!({ "type": "step-start" }));
        for part in &step.parts {
            match part {
                Part::Text { text } => {
                    self.content.push_str(text);
                    self.parts.push(json!({ "type": "text", "text": text }));
                }
                Part::Reasoning { text } => {
                    self.reasoning.push_str(text);
                    let details = json!([{ "type": "text", "text": text }]);
                    self.parts.push(json!({ "type": "reasoning", "reasoning": text, "details": details }));
                }
                Part::ToolCall { tool_call_id } => {
                    if let Some(call) = step.calls.iter().find(|call| call.id == *tool_call_id) {
                        self.call(call, step.n);
                    }
                }
            }
        }
    }

    fn call(&mut self, call: &ToolCall, step: i32) {
        let mut invocation = json!({
            "state": "call",
            "step": step,
            "toolCallId": call.id,
            "toolName": call.name,
            "args": call.shown_input(),
        });
        if let (Some(shown), Some(fields)) = (Shown::of(call), invocation.as_object_mut()) {
            fields.insert("state".to_owned(), json!("result"));
            fields.insert("result".to_owned(), shown.into_result());
        }
        if call.held {
            let word = call.state.validation_word();
            self.annotations.push(json!({ "toolCallId": call.id, "validated": word }));
        }
        self.parts.push(json!({ "type": "tool-invocation", "toolInvocation": invocation.clone() }));
        self.invocations.push(invocation);
    }

    /// What a client has only where there is any.
    fn optional(self, fields: &mut Map<String, Value>) {
        if !self.reasoning.is_empty() {
            fields.insert("reasoning".to_owned(), json!(self.reasoning));
        }
        if !self.invocations.is_empty() {
            fields.insert("toolInvocations".to_owned(), json!(self.invocations));
        }
        if !self.annotations.is_empty() {
            fields.insert("annotations".to_owned(), json!(self.annotations));
        }
    }
}
