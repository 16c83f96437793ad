//! Provider state: it is returned to its provider after days and restarts, and to no other provider.

use holdpoint_testkit::wires::strict::{ANNOUNCED, DONE, SEALED, Strict, StrictServer, THOUGHTS};
use holdpoint_testkit::wires::{WIRES, on_each_wire};
use holdpoint_testkit::{Client, Entry, Home, Process, RecordedRequest, Turn, Wire};
use serde_json::Value;

fn start(home: &Home, model: &Strict, sealer: &StrictServer, name: &str) -> Process {
    home.start(sealer.wire.facts().provider, name, &model.base_url(), "{}")
}

/// Asks for a call that requires approval. Returns the call.
async fn held(home: &Home, client: &Client, thread: &str, sealer: &StrictServer) -> String {
    std::fs::write(home.file("old.txt"), "old").unwrap();
    let turn = client.send_message(thread, "remove old.txt").await;
    let thoughts = if sealer.thinks { "g" } else { "" };
    // On some wires, empty arguments have no deltas.
    assert_eq!(turn.codes().replace('c', ""), format!("f{thoughts}0bb99a8ed"), "{}", turn.raw);
    assert_eq!(turn.text(), ANNOUNCED);
    if sealer.thinks {
        assert_eq!(turn.joined('g'), THOUGHTS);
    }
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    id.clone()
}

async fn approve(home: &Home, client: &Client, id: &str) {
    let approved = client.approve(id).await;
    assert_eq!((approved.status, &approved.body["state"]), (200, &Value::from("succeeded")));
    assert!(!home.file("old.txt").exists());
}

fn done(turn: &Turn) {
    assert_eq!((turn.text().as_str(), turn.all('3').len()), (DONE, 0), "{}", turn.raw);
}

async fn provider_state_returns_after_a_hold_and_a_restart(wire: Wire) {
    for sealer in wire.facts().strict_servers {
        let (home, model) = (Home::new().await, Strict::start(sealer).await);
        let mut server = start(&home, &model, sealer, "thinker");
        let thread = server.client.thread().await;
        let id = held(&home, &server.client, &thread, sealer).await;
        server.kill();

        let mut server = start(&home, &model, sealer, "thinker");
        approve(&home, &server.client, &id).await;
        server.kill();

        let mut server = start(&home, &model, sealer, "thinker");
        done(&server.client.resume(&thread).await);
        server.kill();

        let server = start(&home, &model, sealer, "thinker");
        done(&server.client.send_message(&thread, "thanks").await);
        let requests = model.finish(&[]);
        assert_whole_conversation(&requests[2]);
        each_change_is_refused(sealer, &requests).await;
    }
}
on_each_wire!(provider_state_returns_after_a_hold_and_a_restart);

/// The model is strict: it refuses the request if any one seal is changed.
async fn each_change_is_refused(sealer: &'static StrictServer, requests: &[RecordedRequest]) {
    let model = Strict::start(sealer).await;
    let client = Client::new(String::new());
    let ask = async |requests: &RecordedRequest, body: &Value| {
        client.send(client.http.post(model.url(requests)).json(body)).await.status
    };
    let [first, second, _] = requests else { panic!("{requests:#?}") };
    assert_eq!(ask(first, &first.body).await, 200);
    let seals = seals(&second.body, String::new());
    assert!(!seals.is_empty());
    for (place, pointer) in seals.iter().enumerate() {
        let mut body = second.body.clone();
        let seal = body.pointer_mut(pointer).unwrap();
        *seal = seal.as_str().unwrap().replacen(SEALED, "Sealed", 1).into();
        assert_eq!(ask(second, &body).await, 400, "{place}: {pointer}");
    }
    assert_eq!(ask(second, &second.body).await, 200);
    let refused: Vec<_> = (1..=seals.len()).map(|place| (place, 400)).collect();
    model.finish(&refused);
}

/// The pointers of the seals within this value.
fn seals(value: &Value, pointer: String) -> Vec<String> {
    match value {
        Value::String(text) if text.contains(SEALED) => vec![pointer],
        Value::Array(values) => {
            let each = values.iter().enumerate();
            each.flat_map(|(at, value)| seals(value, format!("{pointer}/{at}"))).collect()
        }
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| seals(value, format!("{pointer}/{name}"))).collect()
        }
        _ => Vec::new(),
    }
}

async fn provider_state_returns_when_its_model_returns(wire: Wire) {
    for sealer in wire.facts().strict_servers {
        let (home, model) = (Home::new().await, Strict::start(sealer).await);
        let mut server = start(&home, &model, sealer, "thinker");
        let thread = server.client.thread().await;
        let id = held(&home, &server.client, &thread, sealer).await;
        approve(&home, &server.client, &id).await;
        server.kill();

        let mut server = start(&home, &model, sealer, "successor");
        done(&server.client.resume(&thread).await);
        server.kill();

        let server = start(&home, &model, sealer, "thinker");
        done(&server.client.send_message(&thread, "thanks").await);
        let requests = model.finish(&[]);
        let [_, without, with] = &requests[..] else { panic!("{requests:#?}") };
        nothing_sealed(without);
        assert!(!seals(&with.body, String::new()).is_empty());
        assert_whole_conversation(with);
    }
}
on_each_wire!(provider_state_returns_when_its_model_returns);

async fn provider_state_is_not_sent_to_another_model(wire: Wire) {
    for sealer in wire.facts().strict_servers {
        let (home, model) = (Home::new().await, Strict::start(sealer).await);
        let mut server = start(&home, &model, sealer, "thinker");
        let thread = server.client.thread().await;
        let id = held(&home, &server.client, &thread, sealer).await;
        server.kill();

        let server = start(&home, &model, sealer, "successor");
        approve(&home, &server.client, &id).await;
        done(&server.client.resume(&thread).await);
        done(&server.client.send_message(&thread, "thanks").await);
        let requests = model.finish(&[]);
        let [_, second, third] = &requests[..] else { panic!("{requests:#?}") };
        nothing_sealed(second);
        assert_whole_conversation(third);
    }
}
on_each_wire!(provider_state_is_not_sent_to_another_model);

/// Another server that would accept the state of this one as its own. If there is none, the same kind of
/// server at another address.
fn next_of_the_same_form(sealer: &'static StrictServer) -> &'static StrictServer {
    let wires = WIRES.iter().filter(|wire| wire.facts().state_form == sealer.wire.facts().state_form);
    let servers: Vec<&StrictServer> = wires.flat_map(|wire| wire.facts().strict_servers).collect();
    let at = servers.iter().position(|server| std::ptr::eq(*server, sealer)).unwrap();
    servers[(at + 1) % servers.len()]
}

async fn provider_state_is_not_sent_to_another_server(wire: Wire) {
    for sealer in wire.facts().strict_servers {
        let next = next_of_the_same_form(sealer);
        let (home, model) = (Home::new().await, Strict::start(sealer).await);
        let mut server = start(&home, &model, sealer, "thinker");
        let thread = server.client.thread().await;
        let id = held(&home, &server.client, &thread, sealer).await;
        server.kill();

        let successor = Strict::start(next).await;
        let server = start(&home, &successor, next, "thinker");
        approve(&home, &server.client, &id).await;
        done(&server.client.resume(&thread).await);
        done(&server.client.send_message(&thread, "thanks").await);
        assert_eq!(model.finish(&[]).len(), 1);
        let requests = successor.finish(&[]);
        let [second, third] = &requests[..] else { panic!("{requests:#?}") };
        nothing_sealed(second);
        assert_whole_conversation(third);
    }
}
on_each_wire!(provider_state_is_not_sent_to_another_server);

/// Asserts that the conversation is complete and contains no seal of the first model.
fn nothing_sealed(requests: &RecordedRequest) {
    assert_eq!(seals(&requests.body, String::new()), Vec::<String>::new());
    let [Entry::Words { .. }, Entry::Calls { text, calls }, Entry::Answers(answers)] =
        &requests.conversation().entries[..]
    else {
        panic!("{requests:#?}")
    };
    assert_eq!(text, ANNOUNCED);
    let calls: Vec<_> = calls.iter().map(|call| call.tool.as_str()).collect();
    assert_eq!((calls, answers.len()), (vec!["list_files", "delete_file"], 2));
}

/// Asserts that the conversation is complete, whichever model wrote which part.
fn assert_whole_conversation(requests: &RecordedRequest) {
    let [
        _,
        Entry::Calls { .. },
        Entry::Answers(_),
        Entry::Words { text: output, .. },
        Entry::Words { text: thanks, .. },
    ] = &requests.conversation().entries[..]
    else {
        panic!("{requests:#?}")
    };
    assert_eq!((output.as_str(), thanks.as_str()), (DONE, "thanks"));
}
