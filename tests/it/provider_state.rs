//! Provider state: it is returned to its provider after days and restarts, and to no other provider.

use crate::support::strict::{ANNOUNCED, DONE, SEALED, STRICT, Strict, StrictWire, THOUGHTS};
use crate::support::{Asked, Client, Entry, Home, Process, Turn};
use serde_json::Value;

/// One test per way of sealing. The first number is the wire of the model; the second is another server that
/// would accept the state of the first as its own, because its wire has the same format.
macro_rules! on_each_wire {
    ($($test:ident),* $(,)?) => {
        on_each_wire!(@ deepseek 0 1 [$($test),*]);
        on_each_wire!(@ openrouter 1 2 [$($test),*]);
        on_each_wire!(@ google_for_openai 2 0 [$($test),*]);
        on_each_wire!(@ responses 3 4 [$($test),*]);
        on_each_wire!(@ anthropic 4 5 [$($test),*]);
        on_each_wire!(@ gemini 5 3 [$($test),*]);
        on_each_wire!(@ ollama 6 6 [$($test),*]);
    };
    (@ $wire:ident $own:literal $next:literal [$($test:ident),*]) => {
        mod $wire {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::STRICT[$own], &super::STRICT[$next]).await;
            })*
        }
    };
}

on_each_wire![
    provider_state_returns_after_a_hold_and_a_restart,
    provider_state_returns_when_its_model_returns,
    provider_state_is_not_sent_to_another_model,
    provider_state_is_not_sent_to_another_server,
];

/// A server with this model.
fn start(home: &Home, model: &Strict, wire: &StrictWire, name: &str) -> Process {
    home.start(wire.provider, name, &model.base_url(), "{}")
}

/// Asks for a call that requires approval. Returns the call.
async fn held(home: &Home, client: &Client, thread: &str, wire: &StrictWire) -> String {
    std::fs::write(home.file("old.txt"), "old").unwrap();
    let turn = client.say(thread, "remove old.txt").await;
    let thoughts = if wire.thinks { "g" } else { "" };
    // On some wires, empty arguments have no deltas.
    assert_eq!(turn.codes().replace('c', ""), format!("f{thoughts}0bb99a8ed"), "{}", turn.raw);
    assert_eq!(turn.text(), ANNOUNCED);
    if wire.thinks {
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

async fn provider_state_returns_after_a_hold_and_a_restart(wire: &'static StrictWire, _: &StrictWire) {
    let (home, model) = (Home::new().await, Strict::start(wire).await);
    let mut server = start(&home, &model, wire, "thinker");
    let thread = server.client.thread().await;
    let id = held(&home, &server.client, &thread, wire).await;
    server.kill();

    let mut server = start(&home, &model, wire, "thinker");
    approve(&home, &server.client, &id).await;
    server.kill();

    let mut server = start(&home, &model, wire, "thinker");
    done(&server.client.go_on(&thread).await);
    server.kill();

    let server = start(&home, &model, wire, "thinker");
    done(&server.client.say(&thread, "thanks").await);
    let asked = model.finish(&[]);
    assert_whole_conversation(&asked[2]);
    each_change_is_refused(wire, &asked).await;
}

/// The model is strict: it refuses the request if any one seal is changed.
async fn each_change_is_refused(wire: &'static StrictWire, asked: &[Asked]) {
    let model = Strict::start(wire).await;
    let client = Client::new(String::new());
    let ask = async |asked: &Asked, body: &Value| {
        client.send(client.http.post(model.url(asked)).json(body)).await.status
    };
    let [first, second, _] = asked else { panic!("{asked:#?}") };
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

async fn provider_state_returns_when_its_model_returns(wire: &'static StrictWire, _: &StrictWire) {
    let (home, model) = (Home::new().await, Strict::start(wire).await);
    let mut server = start(&home, &model, wire, "thinker");
    let thread = server.client.thread().await;
    let id = held(&home, &server.client, &thread, wire).await;
    approve(&home, &server.client, &id).await;
    server.kill();

    let mut server = start(&home, &model, wire, "successor");
    done(&server.client.go_on(&thread).await);
    server.kill();

    let server = start(&home, &model, wire, "thinker");
    done(&server.client.say(&thread, "thanks").await);
    let asked = model.finish(&[]);
    let [_, without, with] = &asked[..] else { panic!("{asked:#?}") };
    nothing_sealed(without);
    assert!(!seals(&with.body, String::new()).is_empty());
    assert_whole_conversation(with);
}

async fn provider_state_is_not_sent_to_another_model(wire: &'static StrictWire, _: &StrictWire) {
    let (home, model) = (Home::new().await, Strict::start(wire).await);
    let mut server = start(&home, &model, wire, "thinker");
    let thread = server.client.thread().await;
    let id = held(&home, &server.client, &thread, wire).await;
    server.kill();

    let server = start(&home, &model, wire, "successor");
    approve(&home, &server.client, &id).await;
    done(&server.client.go_on(&thread).await);
    done(&server.client.say(&thread, "thanks").await);
    let asked = model.finish(&[]);
    let [_, second, third] = &asked[..] else { panic!("{asked:#?}") };
    nothing_sealed(second);
    assert_whole_conversation(third);
}

async fn provider_state_is_not_sent_to_another_server(wire: &'static StrictWire, next: &'static StrictWire) {
    let (home, model) = (Home::new().await, Strict::start(wire).await);
    let mut server = start(&home, &model, wire, "thinker");
    let thread = server.client.thread().await;
    let id = held(&home, &server.client, &thread, wire).await;
    server.kill();

    let successor = Strict::start(next).await;
    let server = start(&home, &successor, next, "thinker");
    approve(&home, &server.client, &id).await;
    done(&server.client.go_on(&thread).await);
    done(&server.client.say(&thread, "thanks").await);
    assert_eq!(model.finish(&[]).len(), 1);
    let asked = successor.finish(&[]);
    let [second, third] = &asked[..] else { panic!("{asked:#?}") };
    nothing_sealed(second);
    assert_whole_conversation(third);
}

/// Asserts that the conversation is complete and contains no seal of the first model.
fn nothing_sealed(asked: &Asked) {
    assert_eq!(seals(&asked.body, String::new()), Vec::<String>::new());
    let [Entry::Words { .. }, Entry::Calls { text, calls }, Entry::Answers(answers)] =
        &asked.conversation().said[..]
    else {
        panic!("{asked:#?}")
    };
    assert_eq!(text, ANNOUNCED);
    let calls: Vec<_> = calls.iter().map(|call| call.tool.as_str()).collect();
    assert_eq!((calls, answers.len()), (vec!["list_files", "delete_file"], 2));
}

/// Asserts that the conversation is complete, whichever model wrote which part.
fn assert_whole_conversation(asked: &Asked) {
    let [
        _,
        Entry::Calls { .. },
        Entry::Answers(_),
        Entry::Words { text: said, .. },
        Entry::Words { text: thanks, .. },
    ] = &asked.conversation().said[..]
    else {
        panic!("{asked:#?}")
    };
    assert_eq!((said.as_str(), thanks.as_str()), (DONE, "thanks"));
}
