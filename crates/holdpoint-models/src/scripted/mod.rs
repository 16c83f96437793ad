//! A demo model without a network. It understands a few sentences about the demo tools, calls the tools and
//! reports the results.
//!
//! The same conversation always gets the same answer: the model keeps no state between requests, and uses no
//! clock and no randomness. `sentence` parses the sentences of a user, `calls` collects the calls of the
//! conversation, and `report` describes their outcomes.

mod calls;
mod report;
mod sentence;

use super::{LanguageModel, ModelError, ModelEvent, ModelMessage, ModelRequest, ToolChoice};
use calls::{PastCall, history, is_note};
use futures::stream::{self, BoxStream, StreamExt as _};
use holdpoint_core::message::Usage;
use holdpoint_core::turn::FinishReason;
use sentence::{SentenceForm, SentenceMeaning};

/// The id of the model, and of its provider.
const SCRIPTED: &str = "scripted";

/// The answer to a sentence that the model does not understand: the list of the sentences that it
/// understands.
pub const FORMS: &str = "I am a scripted demo model. I understand these sentences only:

- list files
- read notes.txt
- write hello to notes.txt
- delete notes.txt
- what happened

Sentences can be joined: list files and delete notes.txt. \
Put a name with spaces in quotes: read \"my notes.txt\".";

const LIST: &str = "list_files";
const READ: &str = "read_file";
const WRITE: &str = "write_file";
const DELETE: &str = "delete_file";

/// The scripted model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scripted;

impl Scripted {
    /// Returns the model. The model has no settings.
    pub const fn new() -> Self {
        Self
    }
}

impl LanguageModel for Scripted {
    fn id(&self) -> &str {
        SCRIPTED
    }

    fn provider(&self) -> &str {
        SCRIPTED
    }

    fn stream(&self, request: &ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        stream::iter(events(request).into_iter().map(Ok)).boxed()
    }
}

fn events(request: &ModelRequest) -> Vec<ModelEvent> {
    let (text, forms) = answer(request);
    let pieces = text.split_inclusive(char::is_whitespace);
    let mut events: Vec<_> = pieces.map(|piece| ModelEvent::Text(piece.to_owned())).collect();
    let mut output_tokens = tokens(&text);
    let reason = if forms.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    let numbers = history(&request.messages).len().saturating_add(1)..;
    for ((index, form), number) in forms.into_iter().enumerate().zip(numbers) {
        let (provider_call_id, tool_name) = (format!("{SCRIPTED}-{number}"), form.tool.clone());
        events.push(ModelEvent::CallStarted { index, provider_call_id, tool_name });
        let arguments = form.input.to_string();
        output_tokens = output_tokens.saturating_add(tokens(&arguments));
        let arguments: Vec<char> = arguments.chars().collect();
        for piece in arguments.chunks(arguments.len().div_ceil(3).max(1)) {
            events.push(ModelEvent::CallArguments { index, delta: piece.iter().collect() });
        }
        events.push(ModelEvent::CallFinished { index });
    }
    let usage = Some(Usage { input_tokens: read_tokens(request), output_tokens });
    events.push(ModelEvent::Finished { reason, usage, provider_state: None });
    events
}

/// Counts the words of a text, which count as tokens here. The input tokens are those of the instructions
/// and of the texts of all messages, without the inputs of calls and the definitions of tools. The output
/// tokens are those of the text and of the inputs of calls.
fn tokens(text: &str) -> u64 {
    u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX)
}

fn read_tokens(request: &ModelRequest) -> u64 {
    let texts = request.messages.iter().map(|message| match message {
        ModelMessage::User(text) => text,
        ModelMessage::Assistant { text, .. } | ModelMessage::Tool { text, .. } => text,
    });
    texts.chain(&request.system).map(|text| tokens(text)).fold(0, u64::saturating_add)
}

/// Returns the text of the answer and its calls.
fn answer(request: &ModelRequest) -> (String, Vec<SentenceForm>) {
    let messages = &request.messages;
    // The place of the first call to report on. If the answers of the last step just arrived, this is the
    // last step. Otherwise it is the first note after the last step.
    let is_step = |message: &_| matches!(message, ModelMessage::Assistant { .. });
    let last_step = messages.iter().rposition(is_step);
    let begin = match messages.iter().rev().find(|message| !is_note(message)) {
        Some(ModelMessage::User(sentence)) => return reply(sentence, request),
        Some(ModelMessage::Tool { .. }) => last_step.unwrap_or(0),
        _ => last_step.map_or(0, |step| step.saturating_add(1)),
    };
    let calls = history(messages);
    let news: Vec<_> = calls.iter().filter(|call| call.at >= begin).map(PastCall::report).collect();
    (if news.is_empty() { FORMS.to_owned() } else { news.join("\n\n") }, Vec::new())
}

fn reply(sentence: &str, request: &ModelRequest) -> (String, Vec<SentenceForm>) {
    let forms = match SentenceMeaning::of(sentence) {
        None => return (FORMS.to_owned(), Vec::new()),
        Some(SentenceMeaning::WhatHappened) => return (report::all(&history(&request.messages)), Vec::new()),
        Some(SentenceMeaning::Calls(forms)) => forms,
    };
    let mut called = Vec::new();
    for form in forms {
        match offered(&form.tool, request) {
            Some(tool) => called.push(SentenceForm { tool: tool.to_owned(), ..form }),
            None => {
                let tool = form.tool;
                return (format!("The tool {tool} is not available here, so I do nothing."), Vec::new());
            }
        }
    }
    let intents: Vec<_> = called.iter().map(|form| form.intent.as_str()).collect();
    (format!("I will {}.", intents.join(" and ")), called)
}

/// Returns the offered tool of this name, or the only one with this name at an MCP server.
fn offered<'a>(tool: &str, request: &'a ModelRequest) -> Option<&'a str> {
    let may_call = request.tool_choice == ToolChoice::Auto;
    let names = || request.tools.iter().filter(|_| may_call).map(|tool| tool.name.as_str());
    let at_server = |name: &&str| name.split_once("__").is_some_and(|(_, own)| own == tool);
    names().find(|name| *name == tool).or_else(|| {
        let mut at_servers = names().filter(at_server);
        at_servers.next().filter(|_| at_servers.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelCall, Speaker, ToolDefinition};
    use serde_json::{Value, json};
    use std::sync::Arc;

    pub(super) fn user(text: &str) -> ModelMessage {
        ModelMessage::User(text.to_owned())
    }

    /// Returns a step with these calls, each as id, tool and inputs.
    pub(super) fn step(calls: &[(&str, &str, Value)]) -> ModelMessage {
        let calls = calls.iter().map(|(id, tool, value)| {
            let (id, tool_name) = ((*id).to_owned(), (*tool).to_owned());
            ModelCall { id, tool_name, input: value.as_object().unwrap().clone() }
        });
        let (text, calls) = ("I will.".to_owned(), calls.collect());
        ModelMessage::Assistant { text, calls, speaker: Speaker::Another }
    }

    pub(super) fn tool_result(id: &str, tool: &str, text: &str) -> ModelMessage {
        let (call_id, tool_name, text) = (id.to_owned(), tool.to_owned(), text.to_owned());
        ModelMessage::Tool { call_id, tool_name, text }
    }

    pub(super) fn events_of(messages: &[ModelMessage], tools: &[&str]) -> Vec<ModelEvent> {
        let tools = tools.iter().map(|&name| {
            let (name, description) = (name.to_owned(), String::new());
            Arc::new(ToolDefinition { name, description, input_schema: json!({}) })
        });
        let (messages, tools) = (messages.to_vec(), tools.collect());
        let events = Scripted::new().stream(&ModelRequest {
            system: None,
            messages,
            tools,
            tool_choice: ToolChoice::Auto,
        });
        futures::executor::block_on(events.map(Result::unwrap).collect())
    }

    /// Returns the text of an answer without calls.
    pub(super) fn text_of(events: &[ModelEvent]) -> String {
        let (last, pieces) = events.split_last().unwrap();
        assert!(matches!(last, ModelEvent::Finished { reason: FinishReason::Stop, usage: Some(_), .. }));
        let text = |event: &ModelEvent| match event {
            ModelEvent::Text(piece) => piece.clone(),
            other => panic!("{other:?}"),
        };
        pieces.iter().map(text).collect()
    }

    pub(super) const ALL: [&str; 4] = [LIST, READ, WRITE, DELETE];

    #[test]
    fn a_call_is_announced_and_streamed_in_deltas() {
        let history = [
            user("list files"),
            step(&[("scripted-1", LIST, json!({}))]),
            tool_result("scripted-1", LIST, r#"{"files":[]}"#),
            step(&[]),
            user("list files and delete né.txt"),
        ];
        let brief = |event: &ModelEvent| match event {
            ModelEvent::Text(piece) => piece.clone(),
            ModelEvent::CallStarted { index, provider_call_id, .. } => format!("{index} {provider_call_id}"),
            ModelEvent::CallArguments { index, delta } => format!("{index} {delta}"),
            ModelEvent::CallFinished { index } => format!("{index} whole"),
            other => format!("{other:?}"),
        };
        let briefs: Vec<_> = events_of(&history, &ALL).iter().map(brief).collect();
        let end = "Finished { reason: ToolCalls, \
                   usage: Some(Usage { input_tokens: 12, output_tokens: 10 }), provider_state: None }";
        let expected = "I |will |list |the |files |and |delete |né.txt.\
                        |0 scripted-2|0 {|0 }|0 whole\
                        |1 scripted-3|1 {\"path|1 \":\"né.|1 txt\"}|1 whole|";
        assert_eq!(briefs.join("|"), format!("{expected}{end}"));
        let without = text_of(&events_of(&history, &[LIST]));
        assert_eq!(without, "The tool delete_file is not available here, so I do nothing.");
    }

    #[test]
    fn the_only_tool_of_this_name_at_an_mcp_server_is_called_too() {
        let called = |tools: &[&str]| {
            let events = events_of(&[user("list files")], tools);
            events.into_iter().find_map(|event| match event {
                ModelEvent::CallStarted { tool_name, .. } => Some(tool_name),
                _ => None,
            })
        };
        assert_eq!(called(&["x__list_files", "x__read_file"]).as_deref(), Some("x__list_files"));
        assert_eq!(called(&["x__list_files", "list_files"]).as_deref(), Some("list_files"));
        assert_eq!(called(&["x__list_files", "y__list_files"]), None);
    }
}
