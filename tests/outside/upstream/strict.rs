//! Threads at servers that take one order of messages only: whatever happens in a thread, its next request is one that
//! a strict server takes. The table of the rules is `valid_history::rules`, and the server of these tests has them all.

use super::{Stage, on_each_wire};
use holdpoint_testkit::ui::{ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{
    Ending, Entry, RawResponse, ResponseAction, ScriptedAnswer, Wire, conversation, is_id_for_all,
};
use serde_json::{Value, json};

/// The messages of a request, as they were written.
fn messages(body: &Value) -> Vec<String> {
    let list = ["messages", "input", "contents"].iter().find_map(|list| body[list].as_array()).unwrap();
    list.iter().map(Value::to_string).collect()
}

fn note(words: &str) -> String {
    json!({ "note": words }).to_string()
}

impl Stage {
    fn requests_so_far(&self) -> usize {
        self.upstream.requests().len()
    }

    /// Asserts that the thread takes two more messages, and that each of its requests since this one repeats the
    /// messages of the request before it byte for byte.
    async fn continues(&self, thread: &str, since: usize, what: &str) {
        for _ in 0..2 {
            self.next_turn_works(thread).await;
        }
        self.only_grew(since, what);
    }

    fn only_grew(&self, since: usize, what: &str) {
        let bodies: Vec<_> = self.upstream.requests()[since..].iter().map(|it| messages(&it.body)).collect();
        for pair in bodies.windows(2) {
            assert!(
                pair[1].starts_with(&pair[0]),
                "{:?}, {what}: sent messages have changed: {pair:#?}",
                self.wire
            );
        }
    }

    fn call(&self, id: &str, tool: &str) {
        self.upstream.answers(&ScriptedAnswer::call_on(self.wire, id, tool, &[&note("1")]));
    }
}

async fn a_thread_continues_at_a_strict_server_after_each_kind_of_turn(wire: Wire) {
    let stage = Stage::with(wire, json!({ "max_steps": 2 })).await;
    let client = &stage.app.client;

    let since = stage.requests_so_far();
    let (thread, _, id) = stage.held(&ScriptedAnswer::call_on(wire, "r-1", "pay", &[&note("1")])).await;
    assert_eq!(client.reject(&id).await.body["state"], "rejected");
    stage.continues(&thread, since, "a rejection, and other words").await;

    let since = stage.requests_so_far();
    let (thread, _, id) = stage.held(&ScriptedAnswer::call_on(wire, "w-1", "pay", &[&note("1")])).await;
    stage.next_turn_works(&thread).await;
    assert_eq!(client.approve(&id).await.body["state"], "succeeded");
    stage.continues(&thread, since, "words while a call waits, and a late outcome").await;

    let since = stage.requests_so_far();
    stage.call("f-1", "look");
    stage.upstream.then(RawResponse::refuses(400, "{}"));
    let (thread, turn) = stage.run_turn().await;
    turn.failed_with("upstream_error");
    stage.continues(&thread, since, "a failure after an outcome").await;

    let since = stage.requests_so_far();
    stage.upstream.then(RawResponse::refuses(400, "{}")).then(RawResponse::refuses(400, "{}"));
    let (thread, _) = stage.run_turn().await;
    stage.run_turn_in(&thread).await;
    stage.continues(&thread, since, "two failed turns").await;

    let since = stage.requests_so_far();
    stage.upstream.then(RawResponse::streams(wire, vec![ResponseAction::Hang]));
    let thread = client.thread().await;
    let listener = stage.listens(&thread).await;
    stage.upstream.wait_for_requests(since + 1).await;
    stage.stops(listener).await;
    stage.continues(&thread, since, "a stop before the first byte").await;

    let since = stage.requests_so_far();
    stage.call("t-1", "look");
    stage.upstream.words("Seen.");
    let (thread, _) = stage.run_turn().await;
    stage.upstream.words("No tools here.");
    let turn = client.turn(&thread, &json!({ "content": "and?", "tool_selection": [] })).await;
    assert_eq!(turn.text(), "No tools here.", "{}", turn.raw);
    stage.continues(&thread, since, "a turn without tools").await;
}
on_each_wire!(side by side a_thread_continues_at_a_strict_server_after_each_kind_of_turn);

async fn an_edit_and_a_regenerate_continue_at_a_strict_server(wire: Wire) {
    let stage = Stage::on(wire).await;
    let client = &stage.app.client;
    stage.call("e-1", "look");
    stage.upstream.then(RawResponse::refuses(400, "{}"));
    client.ui_turn(&ui_submit("chat-1", &[ui_user("u1", "go")])).await;
    // The answer to `u1` has an outcome and no words. Then `u2` fails as well, and is edited.
    stage.upstream.then(RawResponse::refuses(400, "{}"));
    let both = [ui_user("u1", "go"), ui_user("u2", "and?")];
    client.ui_turn(&ui_submit("chat-1", &both)).await;
    stage.upstream.words("Edited.");
    let edited = [ui_user("u1", "go"), ui_user("u2", "and now?")];
    let turn = client.ui_turn(&ui_submit_at("chat-1", &edited, "u2")).await;
    assert_eq!(turn.text(), "Edited.", "{}", turn.raw);
    stage.upstream.words("Again.");
    let again = json!({ "id": "chat-1", "messages": edited, "trigger": "regenerate-message" });
    let turn = client.ui_turn(&again).await;
    assert_eq!(turn.text(), "Again.", "{}", turn.raw);
    let requests = stage.upstream.requests();
    assert_eq!(messages(&requests[4].body), messages(&requests[3].body), "the same question");
}
on_each_wire!(side by side an_edit_and_a_regenerate_continue_at_a_strict_server);

/// Whether a request forbids the model to call a tool.
fn forbids_calls(wire: Wire, body: &Value) -> bool {
    match wire.facts().forbids_calls {
        Some(forbids_calls) => forbids_calls(body),
        None => body.get("tools").is_none() && body.get("tool_choice").is_none(),
    }
}

async fn the_last_step_has_the_same_tools_and_may_not_call_them(wire: Wire) {
    let stage = Stage::with(wire, json!({ "max_steps": 1 })).await;
    let since = stage.requests_so_far();
    stage.call("l-1", "look");
    stage.upstream.words("Enough.");
    let (thread, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "Enough.", "{}", turn.raw);
    let requests = stage.upstream.requests();
    let [first, last] = &requests[..] else { panic!("{requests:#?}") };
    assert!(!forbids_calls(wire, &first.body), "{}", first.body);
    assert!(forbids_calls(wire, &last.body), "{}", last.body);
    if wire.facts().forbids_calls.is_some() {
        assert_eq!(first.body["tools"], last.body["tools"], "the server's cache begins with the tools");
    }
    stage.continues(&thread, since, "the limit of steps").await;
    assert!(!forbids_calls(wire, &stage.upstream.last()), "the limit is one of each message");

    // A model that calls a tool all the same fails the run, and the thread takes more messages.
    stage.call("l-2", "look");
    stage.call("l-3", "look");
    let turn = stage.run_turn_in(&thread).await;
    turn.failed_with("step_limit");
    stage.continues(&thread, since, "a call after the last step").await;
}
on_each_wire!(side by side the_last_step_has_the_same_tools_and_may_not_call_them);

async fn without_tools_a_request_has_a_stub_of_each_tool_that_was_called(wire: Wire) {
    let stage = Stage::on(wire).await;
    stage.call("s-1", "look");
    stage.upstream.words("Seen.");
    let (thread, _) = stage.run_turn().await;
    stage.upstream.words("No.").words("None.");
    let none = json!({ "content": "and?", "tool_selection": [] });
    stage.app.client.turn(&thread, &none).await;
    let path = wire.path("m-1");
    let body = stage.upstream.last();
    let expected: &[&str] = if wire.facts().forbids_calls.is_some() { &["look"] } else { &[] };
    assert_eq!(conversation(&path, &body).unwrap().tools, expected, "{body}");
    assert!(forbids_calls(wire, &body), "{body}");
    // A conversation without calls needs no tools, and no word about them: some servers refuse the one without the
    // other.
    let fresh = stage.app.client.thread().await;
    stage.app.client.turn(&fresh, &none).await;
    let body = stage.upstream.last();
    for field in ["tools", "tool_choice", "toolConfig"] {
        assert_eq!(body.get(field), None, "{body}");
    }
}
on_each_wire!(side by side without_tools_a_request_has_a_stub_of_each_tool_that_was_called);

async fn ids_that_holdpoint_makes_are_ids_that_every_server_takes(wire: Wire) {
    let stage = Stage::on(wire).await;
    for _ in 0..3 {
        let answer = ScriptedAnswer::on(wire)
            .call("same", "look", &[&note("1")])
            .call("same", "look", &[&note("2")])
            .call("", "look", &[&note("3")])
            .ends(Ending::Calls);
        stage.upstream.answers(&answer);
    }
    stage.upstream.words("Seen.");
    let (thread, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "Seen.", "{}", turn.raw);
    stage.continues(&thread, 0, "ids of this server").await;
    let entries = conversation(&wire.path("m-1"), &stage.upstream.last()).unwrap().entries;
    let ids = entries.iter().filter_map(|entry| match entry {
        Entry::Calls { calls, .. } => Some(calls.iter().filter_map(|call| call.id.clone())),
        _ => None,
    });
    let ids: Vec<String> = ids.flatten().collect();
    let (own, others): (Vec<_>, Vec<_>) = ids.iter().partition(|id| is_id_for_all(id));
    assert_eq!((own.len(), others), (8, vec![&"same".to_owned()]), "{ids:?}");
}
on_each_wire!(side by side ids_that_holdpoint_makes_are_ids_that_every_server_takes);
