//! The conversation and the tools as the server reads them: JSON, written here and not by rig.
//!
//! Every message goes out as it is stored, in its order, with its ids and its empty texts. How a message is
//! written depends on that message alone.

use crate::llm::{ModelCall, ModelMessage, ModelRequest, ToolDefinition};
use rig_core::completion::CompletionRequest;
use serde_json::Value;

/// The request as rig takes it.
pub(super) fn question(request: ModelRequest) -> CompletionRequest {
    let ModelRequest { system, messages, tools } = request;
    let system = system.map(|text| object([("role", "system".into()), ("content", text.into())]));
    let messages = system.into_iter().chain(messages.into_iter().map(message)).collect();
    let mut raw = vec![("messages", Value::Array(messages))];
    if !tools.is_empty() {
        raw.push(("tools", tools.iter().map(|definition| tool(definition)).collect()));
    }
    // rig wants a prompt; `messages` takes its place.
    CompletionRequest::new("-").additional_params(raw.into_iter().collect::<Value>())
}

fn message(message: ModelMessage) -> Value {
    match message {
        ModelMessage::User(text) => object([("role", "user".into()), ("content", text.into())]),
        ModelMessage::Assistant { text, calls, provider_state: _ } => {
            // `null` where there are calls only: some servers put an empty text into the model's prompt.
            let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
            let mut said = vec![("role", "assistant".into()), ("content", content)];
            if !calls.is_empty() {
                said.push(("tool_calls", calls.into_iter().map(call).collect()));
            }
            said.into_iter().collect()
        }
        ModelMessage::Tool { call_id, tool_name: _, text } => {
            object([("role", "tool".into()), ("tool_call_id", call_id.into()), ("content", text.into())])
        }
    }
}

fn call(call: ModelCall) -> Value {
    let arguments = Value::Object(call.input).to_string();
    let function = object([("name", call.tool_name.into()), ("arguments", arguments.into())]);
    object([("id", call.id.into()), ("type", "function".into()), ("function", function)])
}

fn tool(tool: &ToolDefinition) -> Value {
    let function = object([
        ("name", tool.name.as_str().into()),
        ("description", tool.description.as_str().into()),
        ("parameters", tool.input_schema.clone()),
    ]);
    object([("type", "function".into()), ("function", function)])
}

/// Unlike `json!` this moves the values: histories are long.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    fields.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::fake_server::ask;
    use super::*;
    use serde_json::json;

    #[rustfmt::skip]
    #[tokio::test]
    async fn the_conversation_goes_out_as_it_is() {
        let id = format!("{}|x", "long".repeat(20));
        let input = json!({"b": 1, "a": 2}).as_object().cloned().unwrap();
        let call = |id: &str| ModelCall { id: id.into(), tool_name: "go".into(), input: input.clone() };
        let tool = |id: &str| ModelMessage::Tool { call_id: id.into(), tool_name: "go".into(), text: "".into() };
        let calls = vec![call(&id), call("2")];
        let said = ModelMessage::Assistant { text: "".into(), calls, provider_state: Some(json!(1)) };
        let user = |text: &str| ModelMessage::User(text.into());
        let messages = vec![user("a"), user("b"), said, tool(&id), tool("2")];
        let request = ModelRequest { system: Some("s".into()), messages, tools: vec![] };
        let (body, said) = ask(request, "HTTP/1.1 401 No\r\n\r\n{\"error\":\"not sk-1\"}".into()).await;
        assert_eq!(said, "upstream: status 401: not [key]");

        let function = json!({"name": "go", "arguments": r#"{"b":1,"a":2}"#});
        assert_eq!(body, json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": function}, {"id": "2", "type": "function", "function": function},
            ]},
            {"role": "tool", "tool_call_id": id, "content": ""}, {"role": "tool", "tool_call_id": "2", "content": ""},
        ]}));
    }
}
