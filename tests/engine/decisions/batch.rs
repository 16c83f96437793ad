//! Several decisions in one request: each has the result that it would have alone, and none replaces another.

use futures::future::join_all;
use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{
    Answer, Client, Cluster, DisconnectKind, Embedded, JsonFields, Leaver, call, eventually,
    postgres_if_chosen,
};
use serde_json::{Value, json};
use std::time::Duration;

const PATH: &str = "/qa/validate_tools";

async fn validate_all(client: &Client, decisions: &[Value]) -> Answer {
    client.post(PATH, &json!({ "decisions": decisions })).await
}

fn yes(id: &str) -> Value {
    json!({ "toolCallId": id, "isValidated": true })
}

fn no(id: &str) -> Value {
    json!({ "toolCallId": id, "isValidated": false })
}

#[track_caller]
fn results(answer: &Answer) -> Vec<Value> {
    answer.has_status(200);
    answer.body.list("results").clone()
}

/// Creates a thread with one step of these calls, all held. Returns the thread and the ids of the calls.
async fn held_together(app: &Embedded, tool: &str, notes: &[String]) -> (String, Vec<String>) {
    let thread = app.client.thread().await;
    let calls: Vec<_> = notes.iter().map(|note| call(note, tool, &json!({ "note": note }))).collect();
    app.scene.calls(&calls);
    let ids = app.client.send_message(&thread, "go").await.pending();
    assert_eq!(ids.len(), notes.len());
    (thread, ids)
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// A server with bearer tokens, whose client is `ann`. The tool `refuse` requires an approver other than the
/// requester.
async fn office() -> Embedded {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let chief = vec!["chief".to_owned()];
        let other_person = ToolRules { other_person: true, approve_roles: chief, ..ToolRules::default() };
        config.tools.rules.insert("refuse".to_owned(), other_person);
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    app
}

/// One decision for each possible result, on calls created for it.
async fn every_way(app: &mut Embedded) -> Vec<Value> {
    let ann = app.client.clone();
    let held = async |tool| app.held(tool, "10").await.1;
    let mut decisions = vec![
        json!({ "toolCallId": "no-id", "isValidated": true }),
        yes("01890a5d-ac96-774b-bcce-b302099a8057"),
        yes(&held("refuse").await),
        yes(&held("pay").await),
        json!({ "toolCallId": held("pay").await, "isValidated": false, "reason": "not today" }),
        json!({ "toolCallId": held("pay").await, "isValidated": true, "validatedInputs": { "note": "9" } }),
        json!({ "toolCallId": held("pay").await, "isValidated": true, "validatedInputs": { "note": 9 } }),
        json!({ "toolCallId": held("pay").await, "isValidated": true, "inputHash": "0".repeat(64) }),
        yes(&held("break").await),
    ];
    let rejected = held("pay").await;
    ann.reject(&rejected).await;
    decisions.extend([no(&rejected)]);
    let rejected = held("pay").await;
    ann.reject(&rejected).await;
    let cancelled = held("pay").await;
    ann.post(&format!("/tool_calls/{cancelled}/cancel"), &Value::Null).await;
    let expired = held("pay").await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{expired}'");
    app.rows.change(&overdue).await.unwrap();
    app.client = ann.as_user("acme", "bob", &[]);
    let foreign = app.held("pay", "10").await.1;
    app.client = ann;
    decisions.extend([yes(&rejected), yes(&cancelled), yes(&expired), yes(&foreign)]);
    decisions
}

/// The result of a decision within a batch, derived from its response alone.
fn as_one_of_several(decision: &Value, alone: &Answer) -> Value {
    let mut one = json!({ "toolCallId": decision["toolCallId"], "status": alone.status });
    let fields = one.as_object_mut().unwrap();
    fields.extend(alone.body.as_object().unwrap().clone());
    if alone.header("idempotent-replayed") == Some("true") {
        fields.insert("idempotentReplayed".to_owned(), json!(true));
    }
    one
}

/// The result without the fields that differ from call to call.
fn without_ids_and_times(mut result: Value) -> Value {
    result["toolCallId"].take();
    if let Some(decision) = result.pointer_mut("/error/details/decision/at") {
        decision.take();
    }
    result
}

#[tokio::test]
async fn c3_each_decision_of_a_batch_has_the_result_that_it_has_alone() {
    let mut app = office().await;
    let alone = every_way(&mut app).await;
    let together = every_way(&mut app).await;
    let mut expected = Vec::new();
    for decision in &alone {
        let answer = app.client.validate(decision).await;
        expected.push(without_ids_and_times(as_one_of_several(decision, &answer)));
    }
    let statuses: Vec<&Value> = expected.iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, [404, 404, 403, 200, 200, 200, 422, 409, 200, 200, 409, 409, 409, 404]);

    let results = results(&validate_all(&app.client, &together).await);
    for (decision, result) in together.iter().zip(&results) {
        assert_eq!(result["toolCallId"], decision["toolCallId"], "in the order of the request");
    }
    let results: Vec<Value> = results.into_iter().map(without_ids_and_times).collect();
    assert_eq!(results, expected);

    // The written rows are the same too, and each tool ran once per approval.
    let written = async |decisions: &[Value]| {
        let mut rows = Vec::new();
        for id in decisions.iter().map(|decision| decision.text("toolCallId")) {
            for columns in [
                format!(
                    "state, validated, validated_inputs, decided_by FROM tool_calls WHERE tool_call_id = '{id}'"
                ),
                format!(
                    "actor, verdict, edited, input_hash, reason, surface FROM decisions WHERE tool_call_id = '{id}'"
                ),
                format!("type, actor FROM events WHERE tool_call_id = '{id}' ORDER BY event_id"),
            ] {
                rows.push(app.rows.all(&format!("SELECT {columns}")).await);
            }
        }
        rows
    };
    assert_eq!(written(&together).await, written(&alone).await);
    let mut ran = app.ledger.lines();
    ran.sort_unstable();
    assert_eq!(ran, ["break 10", "break 10", "pay 10", "pay 10", "pay 9", "pay 9"]);
}

#[tokio::test]
async fn a_call_that_has_not_finished_in_time_is_202_and_delays_no_other_decision() {
    let app = Embedded::with(|config| config.approval.wait = Duration::ZERO).await;
    let [alone, together] = [app.held("wait_for_me", "10").await.1, app.held("wait_for_me", "10").await.1];
    let rejected = app.held("pay", "10").await.1;
    let expected = app.client.approve(&alone).await;
    expected.has(202, "state", "executing");
    let results = results(&validate_all(&app.client, &[yes(&together), no(&rejected)]).await);
    let as_alone = as_one_of_several(&yes(&alone), &expected);
    assert_eq!(without_ids_and_times(results[0].clone()), without_ids_and_times(as_alone));
    assert_eq!((&results[1]["status"], &results[1]["state"]), (&json!(200), &json!("rejected")));
    app.ledger.release.add_permits(2);
    for id in [&alone, &together] {
        app.client.becomes(id, "succeeded").await;
    }
}

#[tokio::test]
async fn fifty_calls_of_a_batch_run_concurrently_and_are_awaited_together() {
    let app = Embedded::with(|config| config.limits.calls_per_step = 50).await;
    let (thread, ids) = held_together(&app, "wait_for_me", &numbered(50)).await;
    let decisions: Vec<Value> = ids.iter().map(|id| yes(id)).collect();
    let let_go = async {
        let all = async || (app.ledger.lines().len() == 50).then_some(());
        eventually("all have begun, and none has ended", all).await;
        app.ledger.release.add_permits(50);
    };
    let (answer, ()) = futures::join!(validate_all(&app.client, &decisions), let_go);
    for (n, result) in results(&answer).iter().enumerate() {
        let reported = json!({ "toolCallId": ids[n], "status": 200, "success": true, "state": "succeeded",
                           "result": json!({ "waited": n.to_string() }).to_string(), "waitsForPage": true });
        assert_eq!(*result, reported);
    }
    assert_eq!(app.ledger.lines().len(), 50);
    assert_eq!(app.rows.count("decisions").await, 50);
    app.scene.answers("All waited.");
    assert_eq!(app.client.resume(&thread).await.text(), "All waited.");

    let again = results(&validate_all(&app.client, &decisions).await);
    assert!(again.iter().all(|result| result["idempotentReplayed"] == true), "{again:?}");
    assert_eq!(app.ledger.lines().len(), 50);
}

/// The number of connections acquired from the urgent pool.
async fn urgent_connections(app: &Embedded) -> u64 {
    let scrape = app.client.http.get(app.client.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let sample = "holdpoint_database_wait_seconds_count{pool=\"urgent\"} ";
    scrape.lines().find_map(|line| line.strip_prefix(sample)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn awaiting_many_calls_leaves_the_urgent_connections_to_other_requests() {
    const SLOW: usize = 40;
    let app = Embedded::with(|config| {
        config.limits.calls_per_step = SLOW;
        config.database.max_connections = 4;
        // No execution renews its lease within the test.
        config.approval.lease = Duration::from_secs(3600);
    })
    .await;
    let (_, slow) = held_together(&app, "wait_for_me", &numbered(SLOW)).await;
    let others = app.held("pay", "10").await.1;
    let decisions: Vec<Value> = slow.iter().map(|id| yes(id)).collect();
    let decide_beside = async {
        let all = async || (app.ledger.lines().len() == SLOW).then_some(());
        eventually("all have begun", all).await;
        let before = urgent_connections(&app).await;
        assert_eq!(app.client.approve(&others).await.body["state"], "succeeded");
        let taken = urgent_connections(&app).await - before;
        assert!(taken < 20, "{taken} for one decision, its outcome, and the polls of waiting deciders");
        app.ledger.release.add_permits(SLOW);
    };
    let (answer, ()) = futures::join!(validate_all(&app.client, &decisions), decide_beside);
    assert!(results(&answer).iter().all(|result| result["state"] == "succeeded"));
}

#[tokio::test]
async fn a_malformed_batch_decides_nothing_and_the_error_names_the_field() {
    let app = Embedded::with(|config| config.limits.batch = 3).await;
    let (_, ids) = held_together(&app, "pay", &numbered(4)).await;
    let [a, b, c, d] = &ids[..] else { panic!("{ids:?}") };
    let posted = |decisions: &[Value]| json!({ "decisions": decisions }).to_string();
    let (yes_a, yes_b) = (yes(a), yes(b));
    let cases = [
        (posted(&[]), "decisions: expected 1 to 3"),
        (posted(&[yes(a), yes(b), yes(c), yes(d)]), "decisions: expected 1 to 3"),
        (posted(&[yes(a), yes(b), no(a)]), "decisions[2].toolCallId: expected another call"),
        (posted(&[yes(a), json!({ "isValidated": true })]), "decisions[1].toolCallId: missing"),
        (posted(&[yes(a), json!({ "toolCallId": b })]), "decisions[1].isValidated: missing"),
        (posted(&[yes(a), json!({ "toolCallId": null, "isValidated": true })]), "decisions[1].toolCallId: "),
        (posted(&[yes(a), json!({ "toolCallId": b, "isValidated": "true" })]), "decisions[1].isValidated: "),
        (
            posted(&[yes(a), json!({ "toolCallId": b, "isValidated": true, "validatedInputs": [] })]),
            "decisions[1].validatedInputs: ",
        ),
        (
            posted(&[yes(a), json!({ "toolCallId": b, "isValidated": true, "state": "succeeded" })]),
            "decisions[1].state: ",
        ),
        (
            posted(&[yes(a), json!({ "toolCallId": b, "isValidated": false, "reason": "x".repeat(2001) })]),
            "decisions[1].reason: ",
        ),
        (
            format!(
                r#"{{"decisions":[{yes_a},{{"toolCallId":"{b}","isValidated":false,"isValidated":true}}]}}"#
            ),
            "decisions[1]: the key \"isValidated\" appears twice",
        ),
        (
            format!(r#"{{"decisions":[{yes_a}],"decisions":[{yes_b}]}}"#),
            "the key \"decisions\" appears twice",
        ),
        (
            format!(
                r#"{{"decisions":[{yes_a},{{"toolCallId":"{b}","isValidated":true,"reason":"\u0000"}}]}}"#
            ),
            "decisions[1].reason: ",
        ),
        (format!(r#"{{"decisions":[{yes_a}],"all":true}}"#), "all: unknown field"),
        (format!(r#"{{"decisions":{yes_a}}}"#), "decisions: "),
        (format!(r#"{{"decisions":[{yes_a},[]]}}"#), "decisions[1]"),
        (format!(r#"{{"decisions":[{yes_a},null]}}"#), "decisions[1]"),
        (format!("[{yes_a}]"), "body: "),
        (yes_a.to_string(), "toolCallId: unknown field"),
        ("{}".to_owned(), "decisions: missing"),
        (String::new(), "body: "),
    ];
    for (body, output) in cases {
        let answer = app.client.post_raw(PATH, body.clone()).await;
        assert_eq!(answer.failure(), (400, "bad_request"), "{body}");
        assert!(answer.message().contains(output), "{body}: {}", answer.message());
    }
    assert_eq!(app.rows.count("decisions").await, 0);
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 4);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let whole = results(&validate_all(&app.client, &[yes(a), no(b), yes(c)]).await);
    assert_eq!(whole.iter().filter(|result| result["status"] == 200).count(), 3);
}

#[tokio::test]
async fn calls_of_one_thread_are_decided_together_and_the_model_reads_them_all() {
    let app = Embedded::start().await;
    let (thread, ids) = held_together(&app, "pay", &numbered(3)).await;
    let results = results(&validate_all(&app.client, &[no(&ids[1]), yes(&ids[2]), yes(&ids[0])]).await);
    let states: Vec<&Value> = results.iter().map(|result| &result["state"]).collect();
    assert_eq!(states, ["rejected", "succeeded", "succeeded"]);
    app.scene.answers("Two paid.");
    let turn = app.client.resume(&thread).await;
    assert_eq!((turn.text().as_str(), turn.pending().len()), ("Two paid.", 0));
    let mut ran = app.ledger.lines();
    ran.sort_unstable();
    assert_eq!(ran, ["pay 0", "pay 2"]);
}

#[tokio::test]
async fn batches_over_the_same_calls_in_opposite_orders_do_not_deadlock() {
    const CALLS: usize = 20;
    let url = postgres_if_chosen().await;
    let change = |config: &mut Config| {
        config.limits.calls_per_step = CALLS;
        if let Some(url) = &url {
            config.database.url = url.clone().into();
        }
    };
    let app = Embedded::with(change).await;
    // On Postgres the other clients use another process, as far as the database can tell.
    let other = if url.is_some() { Some(Embedded::with(change).await) } else { None };
    let others = other.as_ref().map_or(&app.client, |other| &other.client);
    for _ in 0..4 {
        let (_, ids) = held_together(&app, "pay", &numbered(CALLS)).await;
        let forwards: Vec<Value> = ids.iter().map(|id| yes(id)).collect();
        let backwards: Vec<Value> = ids.iter().rev().map(|id| no(id)).collect();
        let sent =
            [(&app.client, &forwards), (others, &backwards), (&app.client, &backwards), (others, &forwards)];
        let answers = join_all(sent.map(|(client, decisions)| validate_all(client, decisions))).await;
        for id in &ids {
            let reported = answers.iter().flat_map(results).filter(|result| result["toolCallId"] == **id);
            let reported: Vec<Value> = reported.collect();
            let fresh =
                reported.iter().filter(|one| one["status"] == 200 && one.get("idempotentReplayed").is_none());
            assert_eq!(fresh.count(), 1, "one of them decided: {reported:?}");
            let same = reported.iter().filter(|one| one["status"] == 200).count();
            let refused = reported.iter().filter(|one| one["error"]["code"] == "already_decided").count();
            assert_eq!((same, refused), (2, 2), "{reported:?}");
        }
    }
    let approved = app.rows.count("tool_calls WHERE state = 'succeeded'").await;
    let ran = app.ledger.lines().len() + other.as_ref().map_or(0, |other| other.ledger.lines().len());
    assert_eq!(i64::try_from(ran).unwrap(), approved, "each approval ran once");
    assert_eq!(app.rows.count("decisions").await, i64::try_from(4 * CALLS).unwrap());
}

#[tokio::test]
async fn a_batch_is_decided_completely_when_its_client_disconnects() {
    let app = Embedded::start().await;
    for how in DisconnectKind::ALL {
        let slow = app.held("wait_for_me", &format!("{how:?}")).await.1;
        let (_, ids) = held_together(&app, "pay", &numbered(6)).await;
        let mut decisions = vec![yes(&slow)];
        decisions.extend(ids.iter().enumerate().map(|(n, id)| if n % 2 == 0 { yes(id) } else { no(id) }));
        let client = Leaver::sends(&app.client, how, PATH, &json!({ "decisions": decisions })).await;
        let started = async || (app.client.call(&slow).await["state"] == "executing").then_some(());
        eventually("the first has begun", started).await;
        let _connection = client.leaves().await;
        for (n, id) in ids.iter().enumerate() {
            app.client.becomes(id, if n % 2 == 0 { "succeeded" } else { "rejected" }).await;
        }
        app.ledger.release.add_permits(1);
        app.client.becomes(&slow, "succeeded").await;
    }
    assert_eq!(app.ledger.lines().len(), 4 * DisconnectKind::ALL.len());
}

#[tokio::test]
async fn each_decision_of_a_batch_counts_against_the_decision_rate_limit() {
    let app = Embedded::with(|config| config.limits.decisions_per_minute = Some(2)).await;
    let (_, ids) = held_together(&app, "pay", &numbered(3)).await;
    let alone = async |id: &str| app.client.approve(id).await;
    let results = results(&validate_all(&app.client, &[yes(&ids[0]), yes("no-id"), yes(&ids[1])]).await);
    let statuses: Vec<&Value> = results.iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, [200, 404, 429]);
    assert_eq!(results[2]["error"]["code"], "rate_limited");
    let seconds = results[2]["retryAfter"].as_u64().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    let refused = alone(&ids[2]).await;
    assert_eq!((refused.status, &refused.body["error"]), (429, &results[2]["error"]));
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 2);
}

#[tokio::test]
async fn on_postgres_each_decision_of_a_batch_is_503_while_the_database_is_down() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (_, ids) = held_together(&app, "pay", &numbered(2)).await;
    cluster.stop_now();
    let decisions = [yes(&ids[0]), no(&ids[1])];
    for result in results(&validate_all(&app.client, &decisions).await) {
        let reported = (&result["status"], &result["error"]["code"], &result["retryAfter"]);
        assert_eq!(reported, (&json!(503), &json!("unavailable"), &json!(1)));
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    cluster.start_again();
    let again = async || {
        let results = results(&validate_all(&app.client, &decisions).await);
        results.iter().all(|result| result["status"] == 200).then_some(())
    };
    eventually("asking again is safe, and is answered", again).await;
    assert_eq!(app.ledger.lines(), ["pay 0"]);
}
