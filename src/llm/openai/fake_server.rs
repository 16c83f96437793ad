//! For the tests: a server of one answer, so that what is tested is what goes over the wire, with rig between.

use super::{OpenAi, OpenAiConfig};
use crate::llm::{LanguageModel, ModelError, ModelEvent, ModelMessage, ModelRequest};
use futures::stream::StreamExt;
use serde_json::{Value, json};
use std::io::{Read, Write};

/// Puts the request to a server that answers with these bytes: what it read, and what the model said.
pub(super) async fn ask(request: ModelRequest, answer: String) -> (Value, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (mut read, mut piece) = (Vec::new(), [0; 4096]);
        while !read.ends_with(b"\"stream\":true}") {
            let bytes = client.read(&mut piece).unwrap();
            read.extend_from_slice(&piece[..bytes]);
        }
        client.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(read).unwrap()
    });
    let api_key = Some("sk-1".to_owned().into());
    let model = OpenAi::new(OpenAiConfig { id: "m".to_owned(), base_url, api_key }).unwrap();
    let said = model.stream(request).map(|event| match event {
        Ok(ModelEvent::Text(text) | ModelEvent::Reasoning(text)) => text,
        Ok(ModelEvent::CallStarted { index, provider_call_id, tool_name }) => {
            format!("{index}={tool_name}#{provider_call_id}")
        }
        Ok(ModelEvent::CallArguments { index, delta }) => format!("{index}+{delta}"),
        Ok(ModelEvent::CallFinished { index }) => format!("{index}."),
        Ok(ModelEvent::Finished { reason, usage, .. }) => {
            format!("{}/{}", reason.as_str(), usage.unwrap_or_default().output_tokens)
        }
        Err(ModelError::Upstream(said)) => format!("upstream: {said}"),
        Err(ModelError::Malformed(said)) => format!("malformed: {said}"),
    });
    let said: Vec<String> = said.collect().await;
    let read = server.join().unwrap();
    let (head, body) = read.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions ") && head.contains("Bearer sk-1"), "{head}");
    (serde_json::from_str(body).unwrap(), said.join(" "))
}

/// What the model said when the server streams these events: `index,id,name,arguments`, a finish reason, or
/// JSON, with a space between.
#[rustfmt::skip]
pub(super) async fn answered(events: &str) -> String {
    let events = events.split(' ').map(|event| match *event.split(',').collect::<Vec<_>>() {
        _ if event.starts_with(['{', '[']) => format!("data: {event}\n\n"),
        [index, id, name, arguments] => format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [
            {"index": index.parse::<u64>().ok(), "id": id, "function": {"name": name, "arguments": arguments}}]}}]})),
        _ => format!("data: {}\n\n", json!({"choices": [{"delta": {}, "finish_reason": event}]})),
    });
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{}", events.collect::<String>());
    let request = ModelRequest { system: None, messages: vec![ModelMessage::User("hi".into())], tools: vec![] };
    ask(request, answer).await.1
}
