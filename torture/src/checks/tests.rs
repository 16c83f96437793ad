//! Each check with correct records, and with records that break only its promise.

mod interruptions;
mod remote;

use super::*;
use crate::checks::case::hash;
use crate::record::{Answer, DeedKind, FINAL_READ, Span, Surface, Verdict};
use crate::rows::{
    CallRow, DecisionRow, EventRow, MessageRow, RunRow, SentRow, StepRow, ThreadCounts, ThreadRow,
};
use crate::stream::{Dialect, Fact, FactKind, StreamContent};
use serde_json::{Value, json};

/// The id of a call that was held, approved by ann, and ran. The times are in microseconds, one second apart.
const CALL: &str = "c1";
const SECOND: i64 = 1_000_000;

fn span(started: i64, ended: i64) -> Span {
    Span { started: started * SECOND, ended: ended * SECOND }
}

fn call(id: &str) -> CallRow {
    CallRow {
        tool_call_id: id.to_owned(),
        thread_id: "t".to_owned(),
        message_id: "m".to_owned(),
        step: 0,
        wire_call_id: "call_0".to_owned(),
        name: "pay".to_owned(),
        arguments: r#"{"n":1,"then":"ok"}"#.to_owned(),
        held: true,
        idempotent: false,
        state: "succeeded".to_owned(),
        validated: Some(true),
        validated_inputs: None,
        decided_by: Some("user:ann".to_owned()),
        decided_at: Some(2 * SECOND),
        expires_at: Some(10 * SECOND),
        exec_id: Some("x".to_owned()),
        exec_attempt: 1,
        lease_until: None,
        child_run_id: None,
        result_deadline: None,
        cancel_requested_at: None,
        output: Some(r#"{"n":1}"#.to_owned()),
        result: Some(r#"{"n":1}"#.to_owned()),
        finished_at: Some(5 * SECOND),
    }
}

fn event(kind: &str, at: i64) -> EventRow {
    EventRow {
        kind: kind.to_owned(),
        at: at * SECOND,
        actor: "user:ann".to_owned(),
        tool_call_id: Some(CALL.to_owned()),
        data: "{}".to_owned(),
    }
}

fn line(what: &str, at: i64) -> LedgerLine {
    LedgerLine {
        what: what.to_owned(),
        call: CALL.to_owned(),
        nth: None,
        key: CALL.to_owned(),
        tool: "pay".to_owned(),
        args_sha256: hash(&json!({"n": 1, "then": "ok"})),
        schema_hash: "schema".to_owned(),
        tenant: Some("acme".to_owned()),
        user: Some("owner".to_owned()),
        seen_state: (what == "start").then(|| "executing".to_owned()),
        seen_validated: (what == "start").then_some(true),
        at: at * SECOND,
        pid: 7,
        outcome: (what == "end").then(|| "ok".to_owned()),
    }
}

fn decision_request(actor: &str, verdict: Verdict, status: u16, body: Value) -> DecisionRequest {
    DecisionRequest {
        call: CALL.to_owned(),
        actor: actor.to_owned(),
        replica: 0,
        surface: Surface::One,
        verdict,
        span: span(2, 6),
        answer: Answer::Received { status, body, replayed: false },
    }
}

fn observation(started: i64, ended: i64, state: &str, validated: Option<bool>) -> Observation {
    Observation {
        call: CALL.to_owned(),
        replica: 0,
        route: "tool_calls",
        span: span(started, ended),
        state: state.to_owned(),
        validated,
        edit: None,
        result: (state == "succeeded").then(|| r#"{"n":1}"#.to_owned()),
    }
}

fn turn(kinds: Vec<FactKind>) -> Turn {
    let facts = kinds.into_iter().map(|kind| Fact { call: CALL.to_owned(), kind }).collect();
    let content =
        StreamContent { message_id: Some("m".to_owned()), facts, finished: true, ..StreamContent::default() };
    Turn {
        thread: "t".to_owned(),
        replica: 0,
        dialect: Dialect::DataV1,
        attached: false,
        span: span(1, 6),
        status: 200,
        content,
        cut: None,
    }
}

fn plan() -> Value {
    json!({ "role": "user", "content": r#"{"conversation":"t1","number":1,"steps":[]}"# })
}

fn model_request(more: &[Value]) -> ModelRequest {
    let messages = [&[plan()], more].concat();
    ModelRequest { at: 6 * SECOND, conversation: "t1".to_owned(), messages, refusal: None }
}

fn answered_call(text: &str) -> Vec<Value> {
    let function = json!({ "name": "pay", "arguments": "{}" });
    let call = json!({ "id": "call_0", "type": "function", "function": function });
    vec![
        json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
        json!({ "role": "tool", "tool_call_id": "call_0", "content": text }),
    ]
}

fn start(pid: u32, what: &str) -> Deed {
    let what = what.to_owned();
    Deed { at: 0, until: 0, kind: DeedKind::Start, replica: Some(0), pid: Some(pid), what }
}

/// Records without a violation.
fn valid_records() -> Records {
    let result = r#"{"n":1}"#;
    let done = json!({ "success": true, "result": result, "toolCallId": CALL, "state": "succeeded" });
    let hash = hash(&json!(["pay", { "n": 1, "then": "ok" }, "schema"]));
    let decision = DecisionRow {
        tool_call_id: CALL.to_owned(),
        actor: "user:ann".to_owned(),
        verdict: "approve".to_owned(),
        is_final: true,
        input_hash: hash,
        surface: "rest".to_owned(),
        at: 2 * SECOND,
    };
    let in_force = json!({ "by": "user:ann", "decision": "approve" });
    let refused = json!({ "error": { "code": "already_decided", "details": { "decision": in_force } } });
    let sent = SentRow { tool_call_id: CALL.to_owned(), n: 0, text: result.to_owned() };
    let rows = Rows {
        calls: vec![call(CALL)],
        decisions: vec![decision],
        events: ["tool.called", "tool.requires_approval", "tool.approved", "tool.started", "tool.succeeded"]
            .into_iter()
            .zip([1, 1, 2, 3, 5])
            .map(|(kind, at)| event(kind, at))
            .collect(),
        sent: vec![sent],
        runs: vec![RunRow { run_id: "r".to_owned(), status: "completed".to_owned() }],
        threads: vec![ThreadRow {
            thread_id: "t".to_owned(),
            tenant_id: "acme".to_owned(),
            user_id: "owner".to_owned(),
        }],
        counts: vec![ThreadCounts {
            thread_id: "t".to_owned(),
            messages: 2,
            bytes: 100,
            true_messages: 2,
            true_bytes: 100,
        }],
        messages: vec![MessageRow {
            thread_id: "t".to_owned(),
            content: plan()["content"].as_str().map(str::to_owned),
        }],
        steps: vec![StepRow {
            message_id: "m".to_owned(),
            n: 0,
            parts: json!([{ "type": "text", "text": "I call." }]).to_string(),
        }],
    };
    let nothing =
        json!({ "error": { "code": "not_found", "message": "There is nothing here, or nothing for you." } });
    let stored = FactKind::Stored { tool: "pay".to_owned(), inputs: json!({"n": 1, "then": "ok"}) };
    let mut streamed =
        turn(vec![stored, FactKind::State("pending".to_owned()), FactKind::Output(json!({"n": 1}))]);
    streamed.content.text = "I call.".to_owned();
    Records {
        began: 0,
        rows,
        ledger: vec![line("start", 3), line("effect", 4), line("end", 4)],
        hits: Vec::new(),
        decision_requests: vec![
            decision_request("user:ann", Verdict::Approve(None), 200, done),
            decision_request("user:bob", Verdict::Reject, 409, refused),
        ],
        observations: vec![
            observation(1, 2, "pending", None),
            observation(2, 3, "approved", Some(true)),
            Observation { route: FINAL_READ, ..observation(8, 9, "succeeded", Some(true)) },
        ],
        turns: vec![streamed],
        intrusions: vec![Intrusion {
            call: CALL.to_owned(),
            route: "GET".to_owned(),
            at: 0,
            status: 404,
            body: nothing,
        }],
        model_requests: vec![model_request(&[]), model_request(&answered_call(result))],
        deeds: vec![start(7, "")],
        logs: Vec::new(),
        broken: Vec::new(),
        request_counts: HashMap::new(),
        wires: (0, 0),
    }
}

/// Returns the ids of the promises that a change of the records breaks.
fn broken(change: impl FnOnce(&mut Records)) -> Vec<&'static str> {
    let mut records = valid_records();
    change(&mut records);
    let mut ids: Vec<&str> = all(&records).iter().map(|violation| violation.id).collect();
    ids.dedup();
    ids
}

#[test]
fn correct_records_break_no_promise() {
    assert_eq!(all(&valid_records()), []);
}

#[test]
fn an_effect_before_the_approval_is_found() {
    assert_eq!(broken(|it| it.ledger[0].seen_state = Some("approved".to_owned())), ["S1"]);
    assert_eq!(broken(|it| it.ledger[0].seen_state = Some("absent".to_owned())), ["S1"]);
    assert_eq!(broken(|it| it.ledger[0].seen_validated = None), ["S1"]);
    assert!(broken(|it| it.ledger[0].at = SECOND).contains(&"S1"));
    // A process that was paused for a lease between the claim and the start of the tool.
    let zombie = |it: &mut Records| {
        it.ledger.iter_mut().for_each(|line| line.at += 3 * SECOND);
        it.ledger[0].seen_state = Some("interrupted".to_owned());
    };
    assert_eq!(broken(zombie), Vec::<&str>::new());
    assert_eq!(broken(|it| it.ledger[0].seen_state = Some("interrupted".to_owned())), ["S1"]);
}

#[test]
fn a_second_execution_is_found() {
    assert_eq!(broken(|it| it.ledger.push(line("start", 5))), ["S2", "S7"]);
    assert_eq!(broken(|it| it.ledger[1].key = "another".to_owned()), ["S2"]);
    // An idempotent call may run again, after another claim.
    let again = |it: &mut Records| {
        it.rows.calls[0].idempotent = true;
        it.rows.calls[0].exec_attempt = 2;
        it.rows
            .events
            .push(EventRow { data: r#"{"state":"approved"}"#.to_owned(), ..event("tool.interrupted", 4) });
        it.rows.events.push(event("tool.started", 4));
        it.ledger.push(line("start", 5));
    };
    assert_eq!(broken(again), Vec::<&str>::new());
    let not_idempotent = |it: &mut Records| {
        again(it);
        it.rows.calls[0].idempotent = false;
    };
    assert_eq!(broken(not_idempotent), ["S2", "S5", "SQL"]);
}

#[test]
fn other_inputs_another_tool_and_another_user_are_found() {
    assert_eq!(broken(|it| it.ledger[0].args_sha256 = hash(&json!({"n": 2}))), ["S3"]);
    assert_eq!(broken(|it| it.ledger[0].tool = "note".to_owned()), ["S3"]);
    assert_eq!(broken(|it| it.ledger[0].tenant = Some("globex".to_owned())), ["S3"]);
}

#[test]
fn an_execution_of_a_call_that_never_began_is_found() {
    assert!(broken(|it| it.rows.calls[0].state = "rejected".to_owned()).contains(&"S6"));
    assert_eq!(
        broken(|it| it.ledger.push(LedgerLine { call: "nowhere".to_owned(), ..line("start", 3) })),
        ["S6"]
    );
}

#[test]
fn a_run_without_a_claim_is_found() {
    assert!(broken(|it| it.ledger[0].at = 5 * SECOND / 2).contains(&"S7"));
}

#[test]
fn decisions_that_do_not_agree_with_the_row_are_found() {
    assert!(broken(|it| it.rows.decisions[0].actor = "user:bob".to_owned()).contains(&"S4"));
    assert!(broken(|it| it.rows.decisions.clear()).contains(&"S4"));
    assert_eq!(broken(|it| it.rows.calls[0].decided_at = Some(SECOND)), ["S4"]);
    let two = |it: &mut Records| {
        let other = DecisionRow { actor: "user:bob".to_owned(), ..it.rows.decisions[0].clone() };
        it.rows.decisions.push(other);
    };
    assert!(broken(two).contains(&"S4"));
}

#[test]
fn an_illegal_transition_is_found() {
    assert_eq!(broken(|it| drop(it.rows.events.remove(2))), ["S5"]);
    assert_eq!(broken(|it| it.rows.events.push(event("tool.failed", 6))), ["S5"]);
    assert!(broken(|it| it.rows.events.push(event("tool.started", 6))).contains(&"A1"));
    // The order of the times is not the order of the transitions.
    assert_eq!(broken(|it| it.rows.events[3].at = 0), Vec::<&str>::new());
}

#[test]
fn a_lost_acknowledged_decision_is_found() {
    let lost = |it: &mut Records| {
        it.decision_requests[1].answer =
            Answer::Received { status: 200, body: json!({"state": "rejected"}), replayed: false };
    };
    assert!(broken(lost).contains(&"D1"));
    // A decision without an acknowledgement may be lost.
    assert_eq!(
        broken(|it| it.decision_requests[1].answer = Answer::Unknown(String::new())),
        Vec::<&str>::new()
    );
}

#[test]
fn a_lost_or_stuck_call_is_found() {
    assert!(broken(|it| it.rows.calls[0].state = "executing".to_owned()).contains(&"D2"));
    assert_eq!(broken(|it| it.rows.runs[0].status = "running".to_owned()), ["D2"]);
    assert!(broken(|it| it.turns[0].content.facts[0].call = "lost".to_owned()).contains(&"D2"));
    assert_eq!(broken(|it| it.observations[0].call = "lost".to_owned()), ["D2"]);
}

#[test]
fn a_wrong_outcome_is_found() {
    assert_eq!(broken(|it| it.ledger.truncate(1)), ["D3"]);
    assert_eq!(broken(|it| it.ledger[2].outcome = Some("fail".to_owned())), ["D3"]);
    assert!(broken(|it| it.observations[2].state = "failed".to_owned()).contains(&"D3"));
    assert_eq!(broken(|it| drop(it.observations.pop())), ["D3"]);
    assert!(broken(|it| it.rows.calls[0].output = Some(r#"{"n":2}"#.to_owned())).contains(&"D3"));
    let not_run = |it: &mut Records| {
        let row = &mut it.rows.calls[0];
        (row.state, row.output) = ("failed".to_owned(), None);
        row.result = Some("The tool failed: it did not run".to_owned());
        it.ledger.truncate(1);
    };
    assert!(broken(not_run).contains(&"D3"));
}

#[test]
fn a_stream_that_differs_from_the_rows_is_found() {
    let other = FactKind::Stored { tool: "pay".to_owned(), inputs: json!({"n": 5}) };
    assert_eq!(broken(|it| it.turns[0].content.facts[0].kind = other), ["D4"]);
    assert_eq!(broken(|it| it.rows.calls[0].message_id = "another".to_owned()), ["D4"]);
    assert_eq!(broken(|it| it.turns[0].content.text = "I rest.".to_owned()), ["D4"]);
    assert_eq!(broken(|it| it.turns[0].content.text = "I c".to_owned()), ["D4"]);
    assert_eq!(broken(|it| it.turns[0].content.facts.clear()), ["D4"]);
    assert_eq!(broken(|it| it.turns[0].content.finished = false), ["D4"]);
    let nothing_to_read = |it: &mut Records| {
        let nothing = Turn { attached: true, content: StreamContent::default(), ..it.turns[0].clone() };
        it.turns.push(nothing);
    };
    assert_eq!(broken(nothing_to_read), Vec::<&str>::new());
    assert_eq!(broken(|it| it.turns[0].content.facts[2].kind = FactKind::Output(json!({"n": 2}))), ["D5"]);
    assert_eq!(broken(|it| it.turns[0].content.facts[2].kind = FactKind::Error("no".to_owned())), ["D5"]);
}

#[test]
fn a_history_that_is_malformed_untrue_or_changed_is_found() {
    assert_eq!(broken(|it| it.model_requests[1].refusal = Some("two answers".to_owned())), ["H1"]);
    assert_eq!(broken(|it| it.model_requests[1].messages[2]["content"] = "it failed".into()), ["H2", "H3"]);
    assert_eq!(broken(|it| it.rows.sent[0].text = "it failed".to_owned()), ["H3"]);
    let changed = |it: &mut Records| {
        let mut other = model_request(&answered_call(r#"{"n":1}"#));
        other.messages[1]["content"] = "I had written".into();
        other.messages.push(json!({ "role": "user", "content": "and now?" }));
        it.model_requests.push(other);
    };
    assert_eq!(broken(changed), ["H3"]);
}

#[test]
fn an_outcome_in_front_of_a_sent_message_is_found_unless_the_message_was_posted_again() {
    let user = |content: &str| json!({ "role": "user", "content": content });
    let (posted, outcome) = (user("and now?"), user("[tool outcome] pay, call call_0: done"));
    let requests = |first: &[Value], second: &[Value]| {
        let with = |more: &[Value]| model_request(&[&answered_call(r#"{"n":1}"#), more].concat());
        let both = [with(first), with(second)];
        broken(|it| it.model_requests.extend(both))
    };
    let again = [outcome.clone(), json!({ "role": "assistant", "content": "(no reply)" }), posted.clone()];
    assert_eq!(requests(std::slice::from_ref(&posted), &again), Vec::<&str>::new());
    let other = [outcome.clone(), user("and then?")];
    assert_eq!(requests(std::slice::from_ref(&posted), &other), ["H3"]);
    let answered = [posted.clone(), json!({ "role": "assistant", "content": "Nothing." })];
    assert_eq!(requests(&answered, &[again.as_slice(), &answered[1..]].concat()), ["H3"]);
    let more = [user("[tool outcome] pay, call call_1: done"), outcome.clone()];
    assert_eq!(requests(&[outcome], &more), ["H3"]);
}

#[test]
fn an_outcome_that_is_reported_twice_is_found() {
    let note = json!({ "role": "user", "content": "[tool outcome] pay, call call_0: done" });
    let once = [answered_call(r#"{"n":1}"#), vec![note.clone()]].concat();
    assert_eq!(broken(|it| it.model_requests.push(model_request(&once))), Vec::<&str>::new());
    let twice = [once, vec![note]].concat();
    assert_eq!(broken(|it| it.model_requests.push(model_request(&twice))), ["N1"]);
}

#[test]
fn an_answer_that_is_not_the_one_in_force_is_found() {
    let answered_with = |status, body| {
        move |it: &mut Records| {
            it.decision_requests[0].answer = Answer::Received { status, body, replayed: true };
        }
    };
    assert_eq!(broken(answered_with(200, json!({ "state": "succeeded", "result": "another" }))), ["C1"]);
    let in_force = json!({ "by": "user:ann", "decision": "approve" });
    let refused = json!({ "error": { "code": "already_decided", "details": { "decision": in_force } } });
    assert_eq!(broken(answered_with(409, refused)), ["C1", "C3"]);
    let repeats = |it: &mut Records, replayed| {
        let Answer::Received { body, .. } = it.decision_requests[0].answer.clone() else { unreachable!() };
        let answer = Answer::Received { status: 200, body, replayed };
        it.decision_requests.push(DecisionRequest {
            actor: "user:eve".to_owned(),
            answer,
            ..it.decision_requests[0].clone()
        });
    };
    assert_eq!(broken(|it| repeats(it, false)), ["C1"]);
    assert_eq!(broken(|it| repeats(it, true)), Vec::<&str>::new());
    let bob = json!({ "by": "user:bob", "decision": "reject" });
    let wrong = json!({ "error": { "code": "already_decided", "details": { "decision": bob } } });
    let other = |it: &mut Records| {
        it.decision_requests[1].answer = Answer::Received { status: 409, body: wrong, replayed: false };
    };
    assert_eq!(broken(other), ["C1"]);
}

#[test]
fn a_state_that_goes_back_is_found() {
    assert_eq!(broken(|it| it.observations.push(observation(4, 5, "pending", None))), ["C2"]);
    assert_eq!(broken(|it| it.observations.push(observation(2, 5, "rejected", Some(false)))), ["C2"]);
    assert!(broken(|it| it.observations.push(observation(10, 11, "executing", Some(true)))).contains(&"C2"));
    assert_eq!(
        broken(|it| it
            .observations
            .push(Observation { edit: Some(json!({})), ..observation(3, 4, "approved", Some(true)) })),
        ["C2"]
    );
    let back = |it: &mut Records| {
        it.observations.insert(2, observation(3, 4, "interrupted", Some(true)));
        it.observations.insert(3, observation(5, 6, "executing", Some(true)));
    };
    assert_eq!(broken(back), ["C2"]);
    // A read that began before the decision may be answered after the decision.
    assert_eq!(broken(|it| it.observations.push(observation(1, 5, "pending", None))), Vec::<&str>::new());
}

#[test]
fn a_refused_decision_that_takes_effect_is_found() {
    let refused = |it: &mut Records, status| {
        let body = json!({ "error": { "code": "stale" } });
        it.decision_requests[0].answer = Answer::Received { status, body, replayed: false };
    };
    assert_eq!(broken(|it| refused(it, 409)), ["C3"]);
    assert_eq!(broken(|it| refused(it, 404)), ["C1", "C3"]);
    // A build that lacks the tool shows the call only to its owner.
    let without = |it: &mut Records| {
        refused(it, 404);
        it.deeds[0].what = "--seed 1 --without pay".to_owned();
    };
    assert_eq!(broken(without), ["C3"]);
    let on_the_page = |it: &mut Records| {
        refused(it, 409);
        it.rows.decisions[0].surface = "stream".to_owned();
    };
    assert_eq!(broken(on_the_page), Vec::<&str>::new());
}

#[test]
fn a_decision_out_of_time_is_found() {
    assert_eq!(broken(|it| it.rows.calls[0].expires_at = Some(SECOND)), ["C4"]);
}

#[test]
fn an_answer_to_another_user_is_found() {
    assert_eq!(broken(|it| it.intrusions[0].status = 200), ["T1"]);
    assert_eq!(broken(|it| it.intrusions[0].body = json!({ "error": { "code": "expired" } })), ["T1"]);
    assert_eq!(broken(|it| it.intrusions[0].status = 503), Vec::<&str>::new());
}

#[test]
fn an_undecided_schema_is_found() {
    assert_eq!(broken(|it| it.ledger[0].schema_hash = "another".to_owned()), ["V1"]);
}

#[test]
fn an_early_reap_is_found() {
    let resumed = |it: &mut Records, at: i64| {
        let actor = "system:sweeper".to_owned();
        it.rows.events.push(EventRow { actor, at, ..event("tool.interrupted", 0) });
    };
    assert_eq!(broken(|it| resumed(it, 9 * SECOND / 2)), ["I2"]);
    assert_eq!(broken(|it| resumed(it, 11 * SECOND / 2)), Vec::<&str>::new());
    // A single server knows at its start that the previous server has ended.
    let after_a_kill = |it: &mut Records| {
        resumed(it, 9 * SECOND / 2);
        let at = 4 * SECOND;
        it.deeds.push(Deed { at, until: at, kind: DeedKind::Kill, ..start(7, "") });
    };
    assert_eq!(broken(after_a_kill), Vec::<&str>::new());
}

#[test]
fn rows_that_the_schema_would_refuse_are_found() {
    assert_eq!(broken(|it| it.rows.calls[0].lease_until = Some(1)), ["SQL"]);
    let owned = broken(|it| {
        it.rows.calls[0].lease_until = Some(1);
        it.rows.calls[0].result_deadline = Some(1);
    });
    assert_eq!(owned, ["SQL"]);
    assert!(broken(|it| it.rows.calls[0].validated = None).contains(&"SQL"));
    assert_eq!(broken(|it| it.rows.counts[0].bytes = 99), ["R1"]);
    assert_eq!(broken(|it| it.rows.counts[0].messages = 3), ["R1"]);
    assert!(broken(|it| it.rows.calls[0].output = None).contains(&"SQL"));
}

#[test]
fn a_refused_turn_of_the_owner_is_found() {
    assert_eq!(broken(|it| it.turns[0].status = 404), ["E"]);
    assert_eq!(broken(|it| it.turns[0].status = 409), Vec::<&str>::new());
}

#[test]
fn a_server_that_ends_by_itself_is_found() {
    let died = |it: &mut Records| {
        it.deeds.push(Deed { at: SECOND, until: SECOND, kind: DeedKind::Died, ..start(7, "exit status: 1") });
    };
    assert_eq!(broken(died), ["E"]);
    let at_a_failpoint = |it: &mut Records| {
        died(it);
        let (point, action) = ("after:other".to_owned(), Some("die".to_owned()));
        it.hits.push(FailpointHit { at: SECOND, pid: 7, point, call: None, action });
    };
    assert_eq!(broken(at_a_failpoint), Vec::<&str>::new());
}

#[test]
fn every_guard_of_the_schema_is_known_by_its_error() {
    const GUARDS: &str = concat!(
        include_str!("../../../migrations/src/m0001_initial/guards_sqlite.sql"),
        include_str!("../../../migrations/src/m0001_initial/guards_postgres.sql")
    );
    let errors: Vec<&str> = GUARDS
        .lines()
        .filter(|line| line.contains("RAISE"))
        .filter_map(|line| line.split('\'').nth(1))
        .collect();
    assert!(errors.len() > 20, "{errors:?}");
    for error in errors {
        let line = LogLine { at: 0, replica: 0, text: format!("error returned from database: {error}") };
        assert_eq!(broken(|it| it.logs.push(line)), ["G"], "{error}");
    }
}

#[test]
fn errors_in_the_logs_are_found() {
    let log_line = |text: &str| LogLine { at: 0, replica: 0, text: text.to_owned() };
    let refusal = log_line("error returned from database: a decision is final");
    assert_eq!(broken(|it| it.logs.push(refusal)), ["G"]);
    let own = log_line(r#"{"message":"something panicked","at":"crates/holdpoint-store/src/lib.rs:1:1"}"#);
    assert_eq!(broken(|it| it.logs.push(own)), ["P"]);
    let tool = log_line(r#"{"message":"something panicked","at":"torture/src/bin/server/tools.rs:1:1"}"#);
    assert_eq!(broken(|it| it.logs.push(tool)), Vec::<&str>::new());
    assert_eq!(broken(|it| it.broken.push((0, "500".to_owned()))), ["E"]);
}
