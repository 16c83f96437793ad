//! Grants that say in facts what they cover: inputs, waiting calls, an end and a number of uses.

use super::{child, events_of, grants, made, state_of};
use futures::future::join_all;
use holdpoint::config::{Config, RememberInputs};
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, Weigh, call, probes};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};
use time::OffsetDateTime;
use time::macros::format_description;

/// Approves a call and asks the server to remember what `scope` says.
async fn remember(client: &Client, call: &str, scope: &Value) -> Answer {
    client.validate(&json!({ "toolCallId": call, "isValidated": true, "remember": scope })).await
}

/// Approves a call, which leaves a grant and runs. Returns what the answer says about the grant.
async fn granted(client: &Client, call: &str, scope: &Value) -> Value {
    let answer = remember(client, call, scope).await;
    answer.has(200, "state", "succeeded");
    answer.body["remembered"].clone()
}

/// The state in which a new call of the tool is stored.
async fn state(app: &Embedded, thread: &str, note: &str) -> String {
    made(app, thread, "pay", note).await.text("state").to_owned()
}

#[tokio::test]
async fn a_grant_with_conditions_covers_only_the_inputs_that_meet_them() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "/srv/data/a").await;
    let scope = json!({ "when": [{ "argument": "/note", "under": "/srv/data" }] });
    let remembered = granted(&app.client, &first, &scope).await;
    let all = grants(&app.client, &thread).await;
    let [grant] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((&grant["when"], &grant["free"]), (&scope["when"], &json!([])));
    assert_eq!(remembered, json!({ "grant": grant["grant_id"], "approved": [], "left": [] }));

    let covered = made(&app, &thread, "pay", "/srv/data/b").await;
    let source = json!(format!("remembered:{}", grant.text("grant_id")));
    assert_eq!(state_of(&covered), [&json!("succeeded"), &json!("system:policy"), &source]);
    for outside in
        ["/srv/data/../etc/passwd", "/srv/database", "/srv/data", "srv/data/c", "/srv/data/%2e%2e/x"]
    {
        assert_eq!(state(&app, &thread, outside).await, "pending", "{outside}");
    }
    assert_eq!(app.ledger.lines(), ["pay /srv/data/a", "pay /srv/data/b"]);

    // The policy in force names the grant, and still asks.
    let policy = app.client.get(&format!("/sessions/{thread}/policy")).await.body;
    let tools = policy.list("tools");
    let pay = tools.iter().find(|tool| tool["tool_name"] == "pay").unwrap();
    assert_eq!((&pay["verdict"], &pay["grants"][0]["when"]), (&json!("ask"), &scope["when"]));
}

#[tokio::test]
async fn numbers_lists_and_origins_bound_a_grant() {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    tools.register(Weigh(app.ledger.clone())).unwrap();
    let app = app.redeploy(tools).await;
    let thread = app.client.thread().await;
    let weigh = async |amount: Value| {
        app.scene
            .calls(&[call(&format!("w{amount}"), "weigh", &json!({ "amount": amount }))])
            .answers("I see.");
        let turn = app.client.send_message(&thread, &format!("weigh {amount}")).await;
        app.scene.forget();
        app.client.call(turn.all('9')[0].text("toolCallId")).await
    };
    let first = weigh(json!(7)).await;
    let scope =
        json!({ "when": [{ "argument": "/amount", "above": 5 }, { "argument": "/amount", "below": 10 }] });
    granted(&app.client, first.text("tool_call_id"), &scope).await;
    for (amount, expected) in [(json!(9.5), "succeeded"), (json!(10), "pending"), (json!(5), "pending")] {
        assert_eq!(weigh(amount.clone()).await["state"], expected, "{amount}");
    }
    for (test, inside, outside) in [
        (json!({ "in": ["a", "b"] }), "b", "c"),
        (json!({ "equal": "d" }), "d", "D"),
        (
            json!({ "origin": "https://api.example.com" }),
            "https://api.example.com/x",
            "https://api.example.com.evil.example/",
        ),
    ] {
        let thread = app.client.thread().await;
        let id = app.hold_in(&thread, "pay", inside).await;
        let mut condition = test.clone();
        condition["argument"] = json!("/note");
        granted(&app.client, &id, &json!({ "when": [condition] })).await;
        assert_eq!(state(&app, &thread, inside).await, "succeeded", "{test}");
        assert_eq!(state(&app, &thread, outside).await, "pending", "{test}");
    }
}

#[tokio::test]
async fn the_conditions_name_every_argument_and_hold_for_the_inputs_that_run() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "7").await;
    for (scope, status, message) in [
        (json!({}), 422, "remember: expected either inputs or when"),
        (json!({ "inputs": "any", "when": [] }), 422, "remember: expected either inputs or when"),
        (json!({ "inputs": "any", "free": ["/note"] }), 422, "remember.free: expected it with when"),
        (
            json!({ "when": [{ "argument": "/note" }] }),
            422,
            "remember.when[0]: expected exactly one of above, below, equal, in, under, origin",
        ),
        (
            json!({ "when": [{ "argument": "/note", "equal": "7", "under": "a" }] }),
            422,
            "remember.when[0]: expected exactly one of",
        ),
        (
            json!({ "when": [{ "argument": "note", "equal": "7" }] }),
            422,
            "remember.when[0].argument: expected a JSON pointer",
        ),
        (
            json!({ "when": [{ "argument": "/note", "under": "../a" }] }),
            422,
            "remember.when[0].under: expected the path of a folder",
        ),
        (
            json!({ "when": [{ "argument": "/note", "origin": "example.com" }] }),
            422,
            "remember.when[0].origin: expected an origin",
        ),
        (
            json!({ "when": [{ "argument": "/note", "matches": "7*" }] }),
            400,
            "remember.when[0].matches: unknown field",
        ),
        (json!({ "inputs": "any", "uses": 0 }), 422, "remember.uses: expected 1 to 1000000"),
        (json!({ "inputs": "any", "until": "tomorrow" }), 422, "remember.until: expected a time"),
        (
            json!({ "inputs": "any", "waiting": { "x": "a" } }),
            422,
            "remember.waiting: expected the ids of calls",
        ),
        (json!({ "inputs": "some" }), 400, "remember.inputs: unknown variant"),
        // Null is no word for no limit.
        (json!({ "inputs": "any", "uses": null }), 400, "remember.uses: "),
        (json!({ "inputs": "any", "until": null }), 400, "remember.until: "),
        (json!({ "inputs": null, "when": [] }), 400, "remember.inputs: "),
        (json!({ "when": [{ "argument": "/note", "under": null }] }), 400, "remember.when[0].under: "),
        (
            json!({ "inputs": "any", "until": "2020-01-01T00:00:00Z" }),
            422,
            "remember.until: expected a time that is not over",
        ),
        (json!({ "when": [] }), 422, "remember.when: expected a condition on /note, or /note in free"),
        (
            json!({ "when": [{ "argument": "/note", "equal": "8" }] }),
            422,
            "remember.when[0]: expected a condition that the inputs of the call meet",
        ),
        (
            json!({ "when": [{ "argument": "/other", "equal": "8" }], "free": ["/note"] }),
            422,
            "remember.when[0]: expected a condition that",
        ),
    ] {
        let refused = remember(&app.client, &id, &scope).await;
        assert_eq!(refused.status, status, "{scope} {:?}", refused.body);
        assert!(refused.message().starts_with(message), "{scope} {}", refused.message());
    }
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.rows.count("grants").await, 0);
    // The inputs that run are those of the edit.
    let scope = json!({ "when": [{ "argument": "/note", "equal": "8" }] });
    let edited = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "8" }, "remember": scope });
    assert_eq!(app.client.validate(&edited).await.body["state"], "succeeded");
    assert_eq!(state(&app, &thread, "7").await, "pending");
    assert_eq!(state(&app, &thread, "8").await, "succeeded");
    // An argument that is free may have any value.
    let (thread, id) = app.held("pay", "7").await;
    granted(&app.client, &id, &json!({ "when": [], "free": ["/note"] })).await;
    assert_eq!(state(&app, &thread, "9").await, "succeeded");
}

#[tokio::test]
async fn a_grant_is_never_wider_than_the_server_remembers() {
    let app = Embedded::with(|config| config.approval.remember_inputs = RememberInputs::Equal).await;
    let (thread, id) = app.held("pay", "1").await;
    for (scope, place) in [
        (json!({ "inputs": "any" }), "remember.inputs"),
        (json!({ "when": [{ "argument": "/note", "in": ["1", "2"] }] }), "remember.when"),
    ] {
        let refused = remember(&app.client, &id, &scope).await;
        assert_eq!(refused.failure(), (422, "not_remembered"), "{scope}");
        let expected =
            format!("{place}: expected equal inputs, as approval.remember_inputs of this server says");
        assert_eq!(refused.message(), expected);
    }
    granted(&app.client, &id, &json!({ "inputs": "equal" })).await;
    assert_eq!(state(&app, &thread, "2").await, "pending");
    assert_eq!(state(&app, &thread, "1").await, "succeeded");
}

#[tokio::test]
async fn a_grant_with_conditions_is_ignored_once_inputs_must_be_equal() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "1").await;
    granted(&app.client, &id, &json!({ "when": [{ "argument": "/note", "in": ["1", "2"] }] })).await;
    let tools = probes(&app.ledger);
    let equal = |config: &mut Config| config.approval.remember_inputs = RememberInputs::Equal;
    let app = app.redeploy_with(tools, equal).await;
    assert_eq!(state(&app, &thread, "1").await, "pending");
}

/// The decision names the waiting calls that the person was shown, each with its hash. A call that it does not name keeps
/// waiting, and so does one whose hash is another.
#[tokio::test]
async fn only_the_waiting_calls_that_the_approval_names_are_approved_with_it() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let notes = ["1", "2", "3", "4"];
    app.scene.calls(&notes.map(|note| call(&format!("p-{note}"), "pay", &json!({ "note": note }))));
    let ids = app.client.send_message(&thread, "pay all").await.pending();
    let hash = async |id: &str| app.client.call(id).await["input_hash"].clone();
    let below = child(&app.client, &thread).await;
    let in_child = app.hold_in(&below, "pay", "5").await;
    let (_, elsewhere) = app.held("pay", "6").await;
    let (named, child_hash, else_hash) = (hash(&ids[1]).await, hash(&in_child).await, hash(&elsewhere).await);
    let waiting =
        json!({ &ids[1]: named, &ids[2]: "0".repeat(64), &in_child: child_hash, &elsewhere: else_hash });
    let scope = json!({ "inputs": "any", "uses": 1, "waiting": waiting });
    let remembered = granted(&app.client, &ids[0], &scope).await;
    let sorted = |ids: &[&String]| {
        let mut ids: Vec<String> = ids.iter().map(|id| (*id).clone()).collect();
        ids.sort();
        json!(ids)
    };
    assert_eq!(remembered["approved"], sorted(&[&ids[1], &in_child]));
    assert_eq!(remembered["left"], sorted(&[&ids[2], &elsewhere]));
    let source = json!(format!("remembered:{}", remembered.text("grant")));
    for id in [&ids[1], &in_child] {
        let call = app.client.becomes(id, "succeeded").await;
        assert_eq!(state_of(&call), [&json!("succeeded"), &json!("user:local"), &source]);
        assert_eq!(events_of(&app, id, "tool.approved").await[0]["source"], source);
    }
    for id in [&ids[2], &ids[3], &elsewhere] {
        assert_eq!(app.client.call(id).await["state"], "pending");
    }
    // The calls that were shown are no uses.
    assert_eq!(grants(&app.client, &thread).await[0]["uses_left"], 1);
    assert_eq!(made(&app, &below, "pay", "7").await["state"], "succeeded");
    assert_eq!(made(&app, &below, "pay", "8").await["state"], "pending");
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
}

#[tokio::test]
async fn of_many_calls_at_once_as_many_run_as_the_grant_has_uses() {
    let app = Embedded::start().await;
    let (root, first) = app.held("pay", "0").await;
    granted(&app.client, &first, &json!({ "inputs": "any", "uses": 3 })).await;
    let mut threads = Vec::new();
    for _ in 0..6 {
        threads.push(child(&app.client, &root).await);
    }
    for n in 1..=6 {
        let calls = [n * 10, n * 10 + 1]
            .map(|note| call(&format!("p{note}"), "pay", &json!({ "note": note.to_string() })));
        app.scene.calls(&calls);
    }
    for _ in 0..6 {
        app.scene.answers("I see.");
    }
    join_all(threads.iter().map(|thread| app.client.send_message(thread, "pay"))).await;
    let by_grant = "tool_calls WHERE state = 'succeeded' AND NOT held";
    assert_eq!(app.rows.count(by_grant).await, 3);
    assert_eq!(app.rows.count("tool_calls WHERE state NOT IN ('succeeded', 'pending')").await, 0);
    assert_eq!(
        app.rows.all("SELECT uses, uses_left FROM grants").await,
        [json!({ "uses": 3, "uses_left": 0 })]
    );
    assert_eq!(app.ledger.lines().len(), 4);
}

/// The moment after this time, with as many digits as the moments of the server have.
fn in_time(after: Duration) -> String {
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    (OffsetDateTime::UNIX_EPOCH + UNIX_EPOCH.elapsed().unwrap() + after).format(form).unwrap()
}

#[tokio::test]
async fn a_grant_covers_no_call_after_its_time() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "0").await;
    let text = in_time(Duration::from_secs(3));
    granted(&app.client, &first, &json!({ "inputs": "any", "until": text })).await;
    let at = |call: &Value| call.text("created_at").to_owned();
    let mut n = 0;
    let last = loop {
        n += 1;
        let call = made(&app, &thread, "pay", &n.to_string()).await;
        if call["state"] == "pending" {
            break call;
        }
        assert!(at(&call) < text, "{call:?}");
    };
    assert!(at(&last) >= text, "{last:?}");
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
    // A grant without an end takes its place.
    granted(&app.client, last.text("tool_call_id"), &json!({ "inputs": "any" })).await;
    assert_eq!(state(&app, &thread, "more").await, "succeeded");
    assert_eq!(app.rows.count("grants WHERE revoked_at IS NULL").await, 1);
}

#[tokio::test]
async fn a_later_grant_about_the_same_inputs_replaces_the_one_before() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let calls = ["1", "2"].map(|note| call(note, "pay", &json!({ "note": note })));
    app.scene.calls(&calls);
    let ids = app.client.send_message(&thread, "pay").await.pending();
    granted(&app.client, &ids[0], &json!({ "inputs": "any" })).await;
    granted(&app.client, &ids[1], &json!({ "inputs": "any", "uses": 1 })).await;
    let all = grants(&app.client, &thread).await;
    let [grant] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((&grant["uses"], &grant["uses_left"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn the_card_of_a_call_has_the_grant_that_it_left_or_used_until_it_is_revoked() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    let second = app.hold_in(&thread, "pay", "2").await;
    let hash = app.client.call(&second).await["input_hash"].clone();
    granted(&app.client, &first, &json!({ "inputs": "equal", "waiting": { &second: hash } })).await;
    let card = async |id: &str| app.client.get(&format!("/approvals/{id}")).await.body;
    let grant = grants(&app.client, &thread).await.remove(0);
    assert_eq!(card(&first).await["grant"], grant);
    // The other inputs are not covered, so the call waits, and has no grant.
    assert_eq!(
        (&card(&second).await["state"], &card(&second).await["grant"]),
        (&json!("pending"), &Value::Null)
    );
    granted(&app.client, &second, &json!({ "inputs": "any" })).await;
    let id = grant.text("grant_id");
    app.client.delete(&format!("/sessions/{thread}/grants/{id}")).await.has_status(204);
    assert_eq!(card(&first).await["grant"], Value::Null);
    assert_ne!(card(&second).await["grant"], Value::Null);
}

#[tokio::test]
async fn the_other_routes_take_the_same_object() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    let path = format!("/sessions/{thread}/approvals/{first}");
    let scope = json!({ "when": [{ "argument": "/note", "in": ["1", "2"] }] });
    let once = app.client.post(&path, &json!({ "decision": "allow_once", "remember": scope })).await;
    assert_eq!((once.status, once.message()), (422, "remember: expected it with the decision allow_session"));
    let wrong = json!({ "decision": "allow_session", "remember": { "when": [{ "argument": "/note", "equal": "3" }] } });
    let refused = app.client.post(&path, &wrong).await;
    refused.has_status(422);
    assert!(refused.message().starts_with("remember.when[0]: expected"), "{}", refused.message());
    app.scene.answers("Paid.");
    let yes = app.client.post(&path, &json!({ "decision": "allow_session", "remember": scope })).await;
    assert_eq!((yes.status, &yes.body["remembered"]["approved"]), (200, &json!([])));
    let run = app.client.becomes(&first, "succeeded").await.text("run_id").to_owned();
    app.client.run_becomes(&run, "completed").await;
    assert_eq!(state(&app, &thread, "2").await, "succeeded");
    let id = app.hold_in(&thread, "pay", "3").await;
    let bad = json!({ "toolCallId": id, "isValidated": true, "remember": { "inputs": "any", "uses": 0 } });
    let decided = app.client.post("/qa/validate_tools", &json!({ "decisions": [bad] })).await;
    let result = &decided.body["results"][0];
    assert_eq!((decided.status, &result["status"]), (200, &json!(422)), "{result}");
    assert_eq!(result["error"]["message"], "remember.uses: expected 1 to 1000000");
    let good = json!({ "toolCallId": id, "isValidated": true, "remember": { "inputs": "any", "uses": 1 } });
    let decided = app.client.post("/qa/validate_tools", &json!({ "decisions": [good] })).await;
    assert_eq!(decided.body["results"][0]["remembered"]["left"], json!([]));
}

#[tokio::test]
async fn a_tool_has_a_bounded_number_of_grants_in_a_session() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    for from in (0..100).step_by(10) {
        let calls: Vec<_> = (from..from + 10)
            .map(|n| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() })))
            .collect();
        app.scene.calls(&calls);
        let ids = app.client.send_message(&thread, &format!("pay {from}")).await.pending();
        for id in &ids {
            granted(&app.client, id, &json!({ "inputs": "equal" })).await;
        }
        app.scene.forget();
    }
    let id = app.hold_in(&thread, "pay", "more").await;
    let refused = remember(&app.client, &id, &json!({ "inputs": "equal" })).await;
    assert_eq!(
        (refused.status, refused.message()),
        (422, "remember: expected fewer than 100 grants of the tool in the session")
    );
    assert_eq!(app.client.approve(&id).await.status, 200, "without a grant");
}

#[tokio::test]
async fn each_waiting_call_that_an_approval_names_counts_as_a_decision() {
    let app = Embedded::with(|config| config.limits.decisions_per_minute = Some(2)).await;
    let (thread, first) = app.held("pay", "1").await;
    let mut waiting = json!({});
    for note in ["2", "3", "4"] {
        let id = app.hold_in(&thread, "pay", note).await;
        waiting[&id] = app.client.call(&id).await["input_hash"].clone();
    }
    let remembered = granted(&app.client, &first, &json!({ "inputs": "any", "waiting": waiting })).await;
    assert_eq!(remembered.list("approved").len(), 1);
    for left in remembered.list("left") {
        assert_eq!(app.client.call(left.as_str().unwrap()).await["state"], "pending");
    }
    assert_eq!(remembered.list("left").len(), 2);
}
