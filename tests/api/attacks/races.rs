//! B: repeated, concurrent, late and stale decisions.

use super::{FORGED, UNKNOWN_ID, assert_server_works, everything, operations};
use futures::future::join_all;
use holdpoint_testkit::{
    Answer, Client, Deployment, DisconnectKind, Embedded, JsonFields, Leaver, call, empty_postgres,
    eventually,
};
use reqwest::Method;
use serde_json::{Value, json};

/// The number of concurrent deciders.
const MANY: usize = 100;

/// Asserts that all successful answers report the same outcome and that at most one of them made the
/// decision. Returns the number of successful answers.
fn assert_same_outcome(answers: &[RetriedAnswer], outcome: &Value) -> usize {
    let same: Vec<_> = answers.iter().filter(|(answer, _)| answer.status == 200).collect();
    assert!(same.iter().all(|(answer, _)| answer.body == *outcome), "{same:#?}");
    let fresh = same.iter().filter(|(answer, _)| answer.header("idempotent-replayed").is_none()).count();
    // A decider that retried after a 503 may have decided with its first request.
    let retried = answers.iter().any(|(_, times)| *times > 1);
    assert!(fresh == 1 || (fresh == 0 && retried), "{fresh} answers are not replays");
    for (answer, _) in answers.iter().filter(|(answer, _)| answer.status != 200) {
        answer.failed_with(409, "already_decided");
    }
    same.len()
}

/// An answer and its number of attempts: a 503 from a busy server means that a retry is safe.
type RetriedAnswer = (Answer, usize);

async fn decide_all(clients: &[&Client], id: &str, yes: impl Fn(usize) -> bool) -> Vec<RetriedAnswer> {
    let deciders = (0..MANY).map(|n| {
        let client = clients[n % clients.len()];
        let yes = yes(n);
        async move {
            let mut times = 1;
            loop {
                let answer = if yes { client.approve(id).await } else { client.reject(id).await };
                if answer.status != 503 {
                    return (answer, times);
                }
                times += 1;
                assert!(times < 50, "the server stays busy");
            }
        }
    });
    join_all(deciders).await
}

#[tokio::test]
async fn b1_a_hundred_concurrent_identical_decisions_are_one_decision() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    let answers = decide_all(&[&app.client], &id, |_| true).await;
    assert_eq!(assert_same_outcome(&answers, &answers[0].0.body), MANY);
    assert_eq!(answers[0].0.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
    assert_eq!(app.rows.count("decisions").await, 1);
    for kind in ["tool.approved", "tool.started", "tool.succeeded"] {
        assert_eq!(app.rows.count(&format!("events WHERE type = '{kind}'")).await, 1, "{kind}");
    }
}

#[tokio::test]
async fn b2_fifty_approvals_and_fifty_rejections_at_once_have_one_winner() {
    let app = Embedded::start().await;
    for note in ["1", "2"] {
        let (_, id) = app.held("pay", note).await;
        // The order is left to chance; alternating verdicts vary which one is sent first.
        let answers = decide_all(&[&app.client], &id, |n| (n % 2 == 0) == (note == "1")).await;
        one_won(&answers, &app.client.call(&id).await);
    }
    let yes = app.rows.count("decisions WHERE verdict = 'approve'").await;
    assert_eq!(app.rows.count("decisions").await, 2);
    assert_eq!(i64::try_from(app.ledger.lines().len()).unwrap(), yes);
}

/// Asserts that half of the deciders get the outcome and the other half a conflict that names the decision.
fn one_won(answers: &[RetriedAnswer], call: &Value) {
    let (won, _) = answers.iter().find(|(answer, _)| answer.status == 200).unwrap();
    assert_eq!(won.body["state"], call["state"]);
    assert_eq!(assert_same_outcome(answers, &won.body), MANY / 2);
    for (loser, _) in answers.iter().filter(|(answer, _)| answer.status == 409) {
        assert_eq!(loser.body["error"]["details"]["decision"], call["decision"]);
    }
}

#[tokio::test]
async fn b1_b2_on_postgres_concurrent_decisions_at_three_processes_have_one_winner() {
    let deployment = Deployment::on_postgres().await;
    // A long lease, so that no process looks dead on a busy machine.
    let start = || deployment.start_with("30s", &[("HOLDPOINT_APPROVAL__LEASE", "30s")]);
    let servers = [start(), start(), start()];
    let clients = [&servers[0].client, &servers[1].client, &servers[2].client];
    deployment.release();
    let rows = deployment.rows().await;
    let id = deployment.hold(clients[0], &clients[0].thread().await, "all").await;
    let answers = decide_all(&clients, &id, |_| true).await;
    assert_eq!(assert_same_outcome(&answers, &answers[0].0.body), MANY);
    assert_eq!(deployment.ledger(), ["transfer all", "transfer all done"]);
    for kind in ["tool.approved", "tool.started", "tool.succeeded"] {
        assert_eq!(rows.count(&format!("events WHERE type = '{kind}'")).await, 1, "{kind}");
    }
    let mut effects = 1;
    for note in ["1", "2"] {
        let id = deployment.hold(clients[1], &clients[1].thread().await, note).await;
        let answers = decide_all(&clients, &id, |n| (n / 3 % 2 == 0) == (note == "1")).await;
        let call = clients[2].call(&id).await;
        let (won, _) = answers.iter().find(|(answer, _)| answer.status == 200).unwrap();
        assert_same_outcome(&answers, &won.body);
        effects += usize::from(call["state"] == "succeeded");
        assert_eq!(rows.count(&format!("decisions WHERE tool_call_id = '{id}'")).await, 1);
    }
    assert_eq!(deployment.ledger().len(), 2 * effects, "each effect once, with its end");
}

#[tokio::test]
async fn b3_a_finished_call_cannot_be_decided_again() {
    let app = Embedded::with(|config| config.tools.timeout = std::time::Duration::from_millis(200)).await;
    let mut ended = Vec::new();
    for (tool, note, end) in [
        ("pay", "1", "rejected"),
        ("pay", "2", "expired"),
        ("pay", "3", "cancelled"),
        ("pay", "4", "succeeded"),
        ("refuse", "5", "failed"),
        ("wait_for_me", "6", "interrupted"),
    ] {
        let (_, id) = app.held(tool, note).await;
        match end {
            "rejected" => drop(app.client.reject(&id).await),
            "cancelled" => drop(app.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await),
            "expired" => {
                let over = format!("UPDATE tool_calls SET expires_at = 1 WHERE tool_call_id = '{id}'");
                assert_eq!(app.rows.change(&over).await, Ok(1));
                app.client.approve(&id).await;
            }
            _ => drop(app.client.approve(&id).await),
        }
        app.client.becomes(&id, end).await;
        ended.push((id, end));
    }
    let (before, ran) = (everything(&app).await, app.ledger.lines());
    for (id, end) in &ended {
        let edited = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "all" } });
        let decided = matches!(*end, "succeeded" | "failed" | "interrupted");
        let mut answers = vec![app.client.validate(&edited).await];
        answers.push(if decided { app.client.reject(id).await } else { app.client.approve(id).await });
        if matches!(*end, "expired" | "cancelled") {
            answers.push(app.client.reject(id).await);
        }
        for answer in answers {
            let code = if matches!(*end, "expired" | "cancelled") { *end } else { "already_decided" };
            assert_eq!(answer.failure(), (409, code), "{end}: {:?}", answer.body);
            assert_eq!(answer.body["error"]["details"]["state"], *end);
        }
    }
    assert_eq!(everything(&app).await, before);
    assert_eq!(app.ledger.lines(), ran);
}

/// Gives the database its own clock, ahead of the machine's clock by the number of hours in a row.
const OTHER_CLOCK: [&str; 3] = [
    "CREATE TABLE ahead (hours INTEGER NOT NULL); INSERT INTO ahead VALUES (0)",
    "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
         'SELECT pg_catalog.clock_timestamp() + (SELECT hours FROM public.ahead) * interval ''1 hour'''",
    "DO 'BEGIN EXECUTE format(''ALTER DATABASE %I SET search_path = public, pg_catalog'', current_database()); END'",
];

#[tokio::test]
async fn b13_on_postgres_the_database_clock_decides_whether_a_call_has_expired() {
    let url = empty_postgres().await;
    let rows = holdpoint_testkit::Rows::open(&url).await;
    for change in OTHER_CLOCK {
        rows.change(change).await.unwrap();
    }
    let app = Embedded::with(|config| {
        config.database.url = url.clone().into();
        config.approval.sweep = std::time::Duration::from_secs(3600);
    })
    .await;
    // The pending TTL is 24 hours; the machine's clock does not move.
    let (_, late) = app.held("pay", "1").await;
    let (_, early) = app.held("pay", "2").await;
    assert_eq!(rows.change("UPDATE ahead SET hours = 23").await, Ok(1));
    assert_eq!(app.client.approve(&early).await.body["state"], "succeeded");
    assert_eq!(rows.change("UPDATE ahead SET hours = 25").await, Ok(1));
    let answer = app.client.approve(&late).await;
    answer.failed_with(409, "expired");
    // A call that is requested under the shifted clock gets the whole 24 hours.
    let (_, next) = app.held("pay", "3").await;
    assert_eq!(rows.change("UPDATE ahead SET hours = 48").await, Ok(1));
    assert_eq!(app.client.approve(&next).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 2", "pay 3"]);
}

/// Percent-encodes a text for a path.
fn in_path(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[tokio::test]
async fn b15_an_id_has_one_spelling_on_every_route() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let run = app.client.run_of(&id).await;
    let before = everything(&app).await;
    let spelt = |id: &str| {
        vec![
            UNKNOWN_ID.to_owned(),
            id.to_uppercase(),
            format!("{{{id}}}"),
            format!("urn:uuid:{id}"),
            id.replace('-', ""),
            format!("{id} "),
            format!(" {id}"),
            format!("{id}\0"),
            format!("{id}\n"),
            format!("{id}/"),
            format!("{id}/../{id}"),
            format!("{id},{id}"),
            format!("{id}'--"),
            format!("\u{feff}{id}"),
            id.replace('0', "\u{ff10}"),
            "0".repeat(10_000),
            format!("{id}{}", " ".repeat(10_000)),
            "null".to_owned(),
        ]
    };
    let mut routes = 0;
    for (method, path, takes_body) in operations() {
        if path.ends_with("/result") {
            // The id is a part of a signed URL. `callbacks_refused` changes it.
            continue;
        }
        let names = [
            ("{thread_id}", &thread),
            ("{session_id}", &thread),
            ("{run_id}", &run),
            ("{tool_call_id}", &id),
        ];
        for (name, wrong) in names.into_iter().filter(|(name, _)| path.contains(name)) {
            routes += 1;
            let mut bodies: Vec<(u16, Value)> = Vec::new();
            for spelling in spelt(wrong) {
                let mut deployment = path.replace(name, &in_path(&spelling));
                for (other, right) in names {
                    deployment = deployment.replace(other, right);
                }
                let url = app.client.url(&deployment);
                let mut request =
                    app.client.http.request(Method::from_bytes(method.as_bytes()).unwrap(), url);
                if takes_body {
                    request = request.json(&match path.as_str() {
                        "/threads/{thread_id}" => json!({ "title": FORGED }),
                        "/runs/{run_id}/approve" | "/runs/{run_id}/reject" => json!({ "tool_call_id": id }),
                        "/sessions/{session_id}/approvals/{tool_call_id}" => json!({ "decision": "deny" }),
                        "/tool_calls/{tool_call_id}/renew" => json!({ "permit": FORGED }),
                        "/tool_calls/{tool_call_id}/settle" => {
                            json!({ "permit": FORGED, "outcome": "unknown" })
                        }
                        "/tool_calls/{tool_call_id}/preview" => json!({ "validated_inputs": {} }),
                        "/tool_calls/{tool_call_id}/resolve" => {
                            json!({ "outcome": "failed", "error": FORGED })
                        }
                        "/tool_calls/{tool_call_id}/extend" => json!({ "expires_in": 172_800 }),
                        "/approvals/{tool_call_id}/delegate" => {
                            json!({ "to": FORGED, "until": "2100-01-01T00:00:00Z", "reason": FORGED })
                        }
                        _ => json!({}),
                    });
                }
                let answer = app.client.send(request).await;
                assert_eq!(answer.failure(), (404, "not_found"), "{method} {path} {spelling:?}");
                bodies.push((answer.status, answer.body));
            }
            bodies.dedup();
            assert_eq!(bodies.len(), 1, "{method} {path}: one and the same body");
        }
    }
    assert!(routes >= 10, "{routes}");
    for spelling in spelt(&id) {
        let answer = app.client.approve(&spelling).await;
        let expected = if spelling.contains('\0') { (400, "bad_request") } else { (404, "not_found") };
        assert_eq!(answer.failure(), expected, "{spelling:?}");
    }
    assert_eq!(everything(&app).await, before);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    assert_server_works(&app).await;
}

/// The number of connections that open and disappear.
const STORM: usize = 500;

#[tokio::test]
async fn b18_decisions_acknowledged_in_a_connection_storm_survive_a_crash() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start_with("30s", &[("HOLDPOINT_DATABASE__MAX_CONNECTIONS", "2")]);
    deployment.release();
    let client = server.client.clone();
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(deployment.hold(&client, &client.thread().await, &format!("{n}")).await);
    }
    let storm = async {
        for batch in 0..STORM / 50 {
            let opened = (0..50).map(|n| {
                let (client, body) =
                    (&client, json!({ "id": format!("storm-{batch}-{n}"), "content": "hello" }));
                async move {
                    Leaver::sends(client, DisconnectKind::Rst, "/qa/chat_streamed", &body)
                        .await
                        .leaves()
                        .await
                }
            });
            join_all(opened).await;
        }
    };
    let decisions = async {
        let mut answered = Vec::new();
        for (n, id) in ids.iter().enumerate() {
            // A decider that gets a 503 retries.
            let decided = async || {
                let answer = if n % 2 == 0 { client.approve(id).await } else { client.reject(id).await };
                assert!(matches!(answer.status, 200 | 503), "{:?}", answer.body);
                (answer.status == 200).then_some(answer.body)
            };
            answered.push(eventually("the decision is taken", decided).await);
        }
        answered
    };
    let ((), answered) = tokio::join!(storm, decisions);
    server.kill();

    let after = deployment.start("30s");
    for (id, answered) in ids.iter().zip(&answered) {
        let call = after.client.call(id).await;
        assert_eq!((&call["state"], &call["result"]), (&answered["state"], &answered["result"]));
    }
    let ran: Vec<_> =
        (0..10).step_by(2).flat_map(|n| [format!("transfer {n}"), format!("transfer {n} done")]).collect();
    assert_eq!(deployment.ledger(), ran, "each once");
}

#[tokio::test]
async fn b19_the_number_of_held_calls_is_limited_however_many_the_model_makes() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let pay = |n: usize| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() }));
    // More calls than the hard limit fail the turn, and none of them is stored.
    app.scene.calls(&(0..500).map(pay).collect::<Vec<_>>());
    let turn = app.client.send_message(&thread, "pay them all").await;
    assert_eq!((turn.pending().len(), turn.all('3').len()), (0, 1));
    assert_eq!(app.rows.count("tool_calls").await, 0);
    // At most 16 calls of a step and 50 calls of a thread are held.
    let mut pending = 0;
    for round in 0..5 {
        app.scene.calls(&(0..100).map(|n| pay(round * 100 + n)).collect::<Vec<_>>());
        if pending == 50 {
            app.scene.answers("Enough.");
        }
        let held = app.client.send_message(&thread, "pay these").await.pending().len();
        assert_eq!(held, (50 - pending).min(16), "{round}");
        pending += held;
    }
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 50);
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 50);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    // No request approves all calls at once: each call is decided by its own id.
    let found = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'pending' ORDER BY 1").await;
    let first = found[0].text("tool_call_id");
    app.client.approve(first).await.has_status(200);
    for body in [
        json!({ "toolCallId": "*", "isValidated": true }),
        json!({ "toolCallId": "all", "isValidated": true }),
    ] {
        app.client.validate(&body).await.has_status(404);
    }
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 49);
    assert_eq!(app.ledger.lines().len(), 1);
}
