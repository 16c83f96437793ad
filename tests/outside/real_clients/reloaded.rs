//! After a stream has ended, a page has to hold the same messages as after a reload.

use super::page::{Page, Version, reload_as};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Map, Value, json};

impl Page {
    /// The page holds the same messages as after a reload.
    pub(super) async fn equals_reload(&self, app: &Embedded) {
        self.equals_reload_but_for(app, &[]).await;
    }

    /// The same, except for the outcomes of these calls: they were decided or edited outside the streams of
    /// the page.
    pub(super) async fn equals_reload_but_for(&self, app: &Embedded, outside: &[String]) {
        let reloaded = reload_as(app, &self.dialect.format).await;
        if !self.version.is_ui() {
            let here = data(&self.messages, &self.data, outside);
            assert_eq!(here, data(&reloaded, &[], outside), "left: data of the page; right: reloaded");
        }
        let comparable = |messages: &[Value]| {
            let each = messages.iter().map(|message| match self.version {
                Version::V4 => v4(message, outside),
                _ => ui(message, outside, &self.answered),
            });
            each.filter(|message| message["parts"] != json!([])).collect::<Vec<Value>>()
        };
        let (held, reloaded) = (comparable(&self.messages), comparable(&reloaded));
        assert_eq!(held, reloaded, "left: held by {:?}; right: reloaded", self.version);
    }
}

/// The last data part of each kind about each call: those in the messages, then those beside them.
fn data(messages: &[Value], beside: &[Value], outside: &[String]) -> Map<String, Value> {
    let within = messages.iter().flat_map(|message| message["data"].as_array().into_iter().flatten());
    let all = within.chain(beside).filter(|part| !is_outside(&part["data"], outside));
    all.map(|part| (format!("{} {}", part["type"], part["id"]), part.clone())).collect()
}

fn is_outside(call: &Value, outside: &[String]) -> bool {
    outside.iter().any(|id| call["toolCallId"] == *id)
}

fn remove(value: &mut Value, fields: &[&str]) {
    for field in fields {
        value.as_object_mut().unwrap().remove(*field);
    }
}

/// A message of 4 without the fields that may differ: the page's own ids and times, all but the last
/// annotation of a call, calls with incomplete arguments, and the states of calls that were decided
/// elsewhere.
fn v4(message: &Value, outside: &[String]) -> Value {
    let mut message = message.clone();
    let at = &message["createdAt"];
    assert!(at.as_str().is_some_and(|at| at.ends_with('Z')), "{message}");
    // A live page has the data beside its messages.
    remove(&mut message, &["createdAt", "revisionId", "data"]);
    // An answer has the id of the database.
    if message["role"] == "user" {
        remove(&mut message, &["id"]);
    }
    let forget = |invocation: &mut Value| {
        if is_outside(invocation, outside) {
            remove(invocation, &["state", "args", "result"]);
        }
    };
    let parts = message["parts"].as_array_mut().unwrap();
    parts.retain(|part| part["toolInvocation"]["state"] != "partial-call");
    parts.iter_mut().filter_map(|part| part.get_mut("toolInvocation")).for_each(forget);
    if let Some(invocations) = message.get_mut("toolInvocations").and_then(Value::as_array_mut) {
        invocations.retain(|invocation| invocation["state"] != "partial-call");
        invocations.iter_mut().for_each(forget);
        if invocations.is_empty() {
            remove(&mut message, &["toolInvocations"]);
        }
    }
    if let Some(annotations) = message.get("annotations").cloned() {
        let mut last = Map::new();
        for annotation in annotations.as_array().unwrap() {
            if !is_outside(annotation, outside) {
                let id = annotation.text("toolCallId");
                last.insert(id.to_owned(), annotation.clone());
            }
        }
        message["annotations"] = json!(last);
    }
    message
}

/// A message of 5 to 7 without the fields that may differ: the stream's own ids of reasoning parts, calls
/// with incomplete inputs, an empty step that failed (a client shows its start after the next change to the
/// message), and the states of calls that were decided elsewhere. No chunk carries the fact that a person
/// answered, or the reason: only that person's page has noted both, and the reason of an approval is stored
/// nowhere. A decision about a call of an earlier message is reported in a later one, and whether an answer of the
/// page came late is known to that page alone. The id of a user message is the page's own, and is compared.
fn ui(message: &Value, outside: &[String], answered: &[String]) -> Value {
    let mut message = message.clone();
    let parts = message["parts"].as_array_mut().unwrap();
    let own: Vec<Value> = parts.iter().map(|part| part["toolCallId"].clone()).collect();
    let here = |part: &Value| own.contains(&part["id"]) && !is_outside(&part["data"], outside);
    parts.retain(|part| part["type"] != "data-tool-decision" || here(part));
    for part in parts.iter_mut().filter(|part| part["type"] == "data-tool-decision") {
        remove(&mut part["data"], &["late"]);
    }
    parts.retain(|part| part["state"] != "input-streaming");
    let begins = |part: Option<&Value>| part.is_none_or(|part| part["type"] == "step-start");
    let said_nothing: Vec<bool> =
        (0..parts.len()).map(|at| begins(parts.get(at)) && begins(parts.get(at + 1))).collect();
    let mut said_nothing = said_nothing.into_iter();
    parts.retain(|_| said_nothing.next() == Some(false));
    for part in parts {
        if part["type"] == "reasoning" {
            remove(part, &["id"]);
        }
        let noted = answered.iter().any(|id| part["toolCallId"] == *id);
        if let Some(approval) = part.get_mut("approval") {
            match noted {
                true if approval["approved"] == true => remove(approval, &["reason"]),
                true => {}
                false => remove(approval, &["approved", "reason"]),
            }
        }
        if is_outside(part, outside) {
            remove(part, &["state", "input", "output", "errorText", "approval"]);
        }
        if is_outside(&part["data"], outside) {
            remove(part, &["data"]);
        }
    }
    message
}
