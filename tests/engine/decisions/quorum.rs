//! `approvals`: tools that require several approvers.

use futures::future::join_all;
use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::ui::{ui_answer, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, call, eventually, postgres, probes};
use serde_json::{Value, json};
use std::time::Duration;

/// `pay` requires this many approvals, of which the requester may give one; `refuse` requires as many from
/// others.
fn wanting(people: u8) -> impl FnOnce(&mut Config) {
    move |config| {
        with_tokens(config);
        let approve_roles = vec!["chief".to_owned()];
        let rules = ToolRules { approve_roles, approvals: people, ..ToolRules::default() };
        config.tools.rules.insert("refuse".to_owned(), ToolRules { other_person: true, ..rules.clone() });
        config.tools.rules.insert("pay".to_owned(), rules);
    }
}

/// A server whose client is `alice` of `acme`.
async fn office(people: u8) -> Embedded {
    let mut app = Embedded::with(wanting(people)).await;
    app.client = alice(&app);
    app
}

fn alice(app: &Embedded) -> Client {
    app.client.as_user("acme", "alice", &[])
}

fn chief(app: &Embedded, user: &str) -> Client {
    app.client.as_user("acme", user, &["chief"])
}

/// Asserts the response to an approval below the quorum: its text, and whether the same approval was stored
/// before.
#[track_caller]
fn waits_for(more: &str, again: bool, id: &str, answer: &Answer) {
    let result = format!("Approved. {more} to approve it before it runs.");
    let expected = json!({ "success": false, "result": result, "toolCallId": id, "state": "pending",
                           "waitsForPage": true });
    assert_eq!((answer.status, &answer.body), (202, &expected));
    assert_eq!(answer.header("idempotent-replayed"), again.then_some("true"));
}

const ONE_MORE: &str = "One more person has";

/// The votes on a call and whether each decided it, sorted.
async fn votes(app: &Embedded, id: &str) -> Vec<(String, String, bool)> {
    let rows = app
        .rows
        .all(&format!("SELECT actor, verdict, final FROM decisions WHERE tool_call_id = '{id}'"))
        .await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let is_final = |value: &Value| value.as_bool().unwrap_or_else(|| value == 1);
    let mut votes: Vec<_> = rows
        .iter()
        .map(|row| (text(&row["actor"]), text(&row["verdict"]), is_final(&row["final"])))
        .collect();
    votes.sort();
    votes
}

fn vote(actor: &str, verdict: &str, is_final: bool) -> (String, String, bool) {
    (format!("user:{actor}"), verdict.to_owned(), is_final)
}

/// The call in this person's list: whether their approval would count, the quorum, and the approvers so far.
async fn listed(client: &Client, state: &str, id: &str) -> (bool, Value, Value) {
    let inbox = client.get(&format!("/approvals?state={state}")).await.body;
    let call = inbox.list("results").iter().find(|call| call["tool_call_id"] == id).unwrap().clone();
    (call["can_decide"].as_bool().unwrap(), call["required"].clone(), call["approved_by"].clone())
}

fn edited(id: &str, note: &str) -> Value {
    json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": note } })
}

#[tokio::test]
async fn a_call_runs_once_its_quorum_of_approvers_is_reached() {
    let app = office(3).await;
    let (carol, dora, erik) = (chief(&app, "carol"), chief(&app, "dora"), chief(&app, "erik"));
    let (_, id) = app.held("pay", "10").await;
    let before = app.rows.count("events").await;
    waits_for("2 more people have", false, &id, &carol.approve(&id).await);
    waits_for("2 more people have", true, &id, &carol.approve(&id).await);
    assert_eq!(listed(&carol, "pending", &id).await, (false, json!(3), json!(["user:carol"])));
    assert_eq!(listed(&dora, "pending", &id).await, (true, json!(3), json!(["user:carol"])));
    // The requester is one of the approvers.
    waits_for(ONE_MORE, false, &id, &app.client.approve(&id).await);
    let call = app.client.call(&id).await;
    assert_eq!(
        (&call["state"], &call["validated"], call.get("decision")),
        (&json!("pending"), &Value::Null, None)
    );
    assert_eq!(app.rows.count("events").await, before + 2, "two votes, and nothing has happened to the call");
    assert_eq!(app.rows.count("events WHERE type = 'tool.voted'").await, 2);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let done = dora.approve(&id).await;
    assert_eq!((done.status, &done.body["result"]), (200, &json!("{\"paid\":\"10\"}")));
    for late in [&erik, &carol] {
        let again = late.approve(&id).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    }
    assert_eq!(app.client.call(&id).await["decision"]["by"], "user:dora");
    let all =
        [vote("alice", "approve", false), vote("carol", "approve", false), vote("dora", "approve", true)];
    assert_eq!(votes(&app, &id).await, all);
    let who = json!(["user:carol", "user:alice", "user:dora"]);
    assert_eq!(listed(&erik, "succeeded", &id).await, (false, json!(3), who.clone()));
    let event =
        format!("SELECT actor, data FROM events WHERE tool_call_id = '{id}' AND type = 'tool.approved'");
    let [event] = &app.rows.all(&event).await[..] else { panic!("it was approved once") };
    let data: Value = serde_json::from_str(event.text("data")).unwrap();
    assert_eq!((&event["actor"], &data["approved_by"]), (&json!("user:dora"), &who));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn one_rejection_is_final_whatever_approvals_exist() {
    let app = office(3).await;
    let (carol, dora) = (chief(&app, "carol"), chief(&app, "dora"));
    for (n, (who, by)) in [(&app.client, "alice"), (&carol, "carol"), (&dora, "dora")].into_iter().enumerate()
    {
        let (_, id) = app.held("pay", &n.to_string()).await;
        assert_eq!((app.client.approve(&id).await.status, carol.approve(&id).await.status), (202, 202));
        let rejected = who.reject(&id).await;
        assert_eq!((rejected.status, &rejected.body["state"]), (200, &json!("rejected")), "{by}");
        assert!(votes(&app, &id).await.contains(&vote(by, "reject", true)));
        let late = dora.approve(&id).await;
        late.failed_with(409, "already_decided");
        assert_eq!(late.body["error"]["details"]["decision"]["by"], format!("user:{by}"));
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approval_below_the_quorum_prevents_no_cancel_delete_or_expiry() {
    let app = office(2).await;
    let (_, cancelled) = app.held("pay", "1").await;
    let (thread, deleted) = app.held("pay", "2").await;
    for id in [&cancelled, &deleted] {
        waits_for(ONE_MORE, false, id, &app.client.approve(id).await);
    }
    let answer = app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &json!({})).await;
    answer.has(200, "state", "cancelled");
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    for id in [&cancelled, &deleted] {
        assert_eq!(votes(&app, id).await, [vote("alice", "approve", false), vote("alice", "cancel", true)]);
    }
    let (_, late) = app.held("pay", "3").await;
    waits_for(ONE_MORE, false, &late, &app.client.approve(&late).await);
    let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{late}'");
    assert_eq!(app.rows.change(&over).await, Ok(1));
    assert_eq!(chief(&app, "carol").approve(&late).await.code(), "expired");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn an_approval_counts_only_for_its_inputs() {
    let app = office(2).await;
    let (carol, dora) = (chief(&app, "carol"), chief(&app, "dora"));
    let (_, id) = app.held("pay", "10").await;
    waits_for(ONE_MORE, false, &id, &carol.approve(&id).await);
    waits_for(ONE_MORE, false, &id, &dora.validate(&edited(&id, "9")).await);
    waits_for(ONE_MORE, true, &id, &dora.validate(&edited(&id, "9")).await);
    waits_for(ONE_MORE, false, &id, &app.client.validate(&edited(&id, "8")).await);
    assert_eq!(listed(&dora, "pending", &id).await, (true, json!(2), json!(["user:carol"])), "as proposed");
    // Inputs without a change are as proposed, and invalid inputs count as no approval.
    waits_for(ONE_MORE, true, &id, &carol.validate(&edited(&id, "10")).await);
    dora.validate(&json!({ "toolCallId": id, "isValidated": true, "validatedInputs": {} }))
        .await
        .has_status(422);
    assert_eq!(app.rows.count(&format!("decisions WHERE tool_call_id = '{id}'")).await, 3);
    let done = carol.validate(&edited(&id, "9")).await;
    assert_eq!((done.status, &done.body["validatedInputs"]), (200, &json!({ "note": "9" })));
    assert_eq!(listed(&carol, "succeeded", &id).await.2, json!(["user:dora", "user:carol"]));
    assert_eq!(app.client.approve(&id).await.code(), "already_decided", "as proposed is another decision");
    assert_eq!(app.ledger.lines(), ["pay 9"]);
}

#[tokio::test]
async fn the_requester_is_no_approver_where_another_person_is_required() {
    let app = office(2).await;
    let (carol, dora) = (chief(&app, "carol"), chief(&app, "dora"));
    let (_, id) = app.held("refuse", "10").await;
    app.client.approve(&id).await.has_status(403);
    app.client.as_user("acme", "alice", &["chief"]).approve(&id).await.has_status(403);
    waits_for(ONE_MORE, false, &id, &carol.approve(&id).await);
    assert_eq!(dora.approve(&id).await.body["state"], "failed", "it ran");
    assert_eq!(app.ledger.lines(), ["refuse 10"]);
}

#[tokio::test]
async fn quorum_and_eligible_approvers_are_evaluated_at_each_approval() {
    let app = office(2).await;
    let ((_, fewer), (_, more), (_, others)) =
        (app.held("pay", "1").await, app.held("pay", "2").await, app.held("pay", "3").await);
    for id in [&fewer, &more] {
        waits_for(ONE_MORE, false, id, &chief(&app, "carol").approve(id).await);
    }
    waits_for(ONE_MORE, false, &others, &app.client.approve(&others).await);
    let tools = probes(&app.ledger);
    let mut app = app.redeploy_with(tools, wanting(3)).await;
    waits_for(ONE_MORE, false, &more, &chief(&app, "dora").approve(&more).await);
    assert_eq!(chief(&app, "erik").approve(&more).await.body["state"], "succeeded");
    // The requester had approved; now the approvers must be others.
    let tools = probes(&app.ledger);
    app = app
        .redeploy_with(tools, |config| {
            wanting(2)(config);
            config.tools.rules.get_mut("pay").unwrap().other_person = true;
        })
        .await;
    waits_for(ONE_MORE, false, &others, &chief(&app, "carol").approve(&others).await);
    assert_eq!(chief(&app, "dora").approve(&others).await.body["state"], "succeeded");
    let tools = probes(&app.ledger);
    app = app.redeploy_with(tools, wanting(1)).await;
    assert_eq!(
        chief(&app, "carol").approve(&fewer).await.body["state"],
        "succeeded",
        "the same again is enough now"
    );
    assert_eq!(votes(&app, &fewer).await, [vote("carol", "approve", false), vote("carol", "approve", true)]);
    assert_eq!(app.ledger.lines(), ["pay 2", "pay 3", "pay 1"]);
}

#[tokio::test]
async fn each_decision_of_a_batch_reports_its_missing_approvals() {
    let app = office(2).await;
    let carol = chief(&app, "carol");
    let (_, two) = app.held("pay", "1").await;
    let (_, one) = app.held("wait_for_me", "2").await;
    let (_, last) = app.held("pay", "3").await;
    app.client.approve(&last).await;
    app.ledger.release.add_permits(1);
    let yes = |id: &str| json!({ "toolCallId": id, "isValidated": true });
    let body = json!({ "decisions": [yes(&two), yes(&last), { "toolCallId": one, "isValidated": false }] });
    let answer = carol.post("/qa/validate_tools", &body).await;
    let reported = answer.body.list("results");
    let words = format!("Approved. {ONE_MORE} to approve it before it runs.");
    let waits = json!({ "toolCallId": two, "status": 202, "success": false, "state": "pending",
                        "result": words, "waitsForPage": true });
    assert_eq!((answer.status, &reported[0]), (200, &waits));
    assert_eq!((&reported[1]["status"], &reported[1]["state"]), (&json!(200), &json!("succeeded")));
    assert_eq!(reported[2]["status"], 404, "of no tool that carol approves");
    let again = carol.post("/qa/validate_tools", &json!({ "decisions": [yes(&two)] })).await;
    assert_eq!(again.body["results"][0]["idempotentReplayed"], true);
    assert_eq!(app.client.call(&one).await["state"], "pending");
}

#[tokio::test]
async fn twenty_concurrent_approvers_run_a_call_once() {
    for round in 0..3 {
        let app = office(2).await;
        let (_, id) = app.held("pay", "10").await;
        let people: Vec<Client> = (0..20).map(|n| chief(&app, &format!("chief{n}"))).collect();
        let answers = join_all(people.iter().map(|person| person.approve(&id))).await;
        let waited: Vec<_> = answers.iter().filter(|answer| answer.status == 202).collect();
        assert_eq!(waited.len(), 1, "{round}: the first waits for the second: {answers:?}");
        waits_for(ONE_MORE, false, &id, waited[0]);
        for answer in answers.iter().filter(|answer| answer.status != 202) {
            answer.has(200, "state", "succeeded");
        }
        let news = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_none());
        assert_eq!(news.count(), 2);
        let votes = votes(&app, &id).await;
        assert_eq!((votes.len(), votes.iter().filter(|vote| vote.2).count()), (2, 1), "{votes:?}");
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}

#[tokio::test]
async fn twenty_approvers_at_two_processes_run_a_call_once_on_postgres() {
    let url = postgres().await;
    let at = |config: &mut Config| {
        wanting(3)(config);
        config.database.url = url.clone().into();
    };
    let (mut here, there) = (Embedded::with(at).await, Embedded::with(at).await);
    here.client = alice(&here);
    let (_, id) = here.held("pay", "10").await;
    let people = (0..20).map(|n| chief(if n % 2 == 0 { &here } else { &there }, &format!("chief{n}")));
    let answers = join_all(people.map(async |person| person.approve(&id).await)).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 202).count(), 2, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 18, "{answers:?}");
    let votes = votes(&here, &id).await;
    assert_eq!((votes.len(), votes.iter().filter(|vote| vote.2).count()), (3, 1), "{votes:?}");
    assert_eq!([here.ledger.lines(), there.ledger.lines()].concat(), ["pay 10"]);
}

#[tokio::test]
async fn one_person_in_ten_tabs_is_one_approver() {
    let app = office(2).await;
    let (_, id) = app.held("pay", "10").await;
    let tabs: Vec<Client> = (0..10).map(|_| chief(&app, "carol")).collect();
    let answers = join_all(tabs.iter().map(|tab| tab.approve(&id))).await;
    let news = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_none()).count();
    assert_eq!((news, answers.iter().filter(|answer| answer.status == 202).count()), (1, 10), "{answers:?}");
    assert_eq!(votes(&app, &id).await, [vote("carol", "approve", false)]);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
}

#[tokio::test]
async fn two_concurrent_approvals_and_a_rejection_have_consistent_responses() {
    const CALLS: usize = 12;
    let app = office(2).await;
    let (carol, dora, erik) = (chief(&app, "carol"), chief(&app, "dora"), chief(&app, "erik"));
    let thread = app.client.thread().await;
    let requested: Vec<_> =
        (0..CALLS).map(|n| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() }))).collect();
    app.scene.calls(&requested);
    let ids = app.client.send_message(&thread, "pay them all").await.pending();
    assert_eq!(ids.len(), CALLS);
    let all = ids.iter().enumerate().map(async |(n, id)| {
        // Chance determines the first decider; the order rotates from call to call.
        match n % 3 {
            0 => {
                let (one, two, no) = tokio::join!(carol.approve(id), dora.approve(id), erik.reject(id));
                (one, two, no)
            }
            1 => {
                let (no, one, two) = tokio::join!(erik.reject(id), carol.approve(id), dora.approve(id));
                (one, two, no)
            }
            _ => {
                let (one, no, two) = tokio::join!(carol.approve(id), erik.reject(id), dora.approve(id));
                (one, two, no)
            }
        }
    });
    let mut paid = 0;
    for (id, (one, two, no)) in ids.iter().zip(join_all(all).await) {
        let call = app.client.call(id).await;
        let finals: Vec<_> = votes(&app, id).await.into_iter().filter(|vote| vote.2).collect();
        let [(_, verdict, _)] = &finals[..] else { panic!("one decides: {finals:?}") };
        let statuses = [one.status, two.status];
        if verdict == "approve" {
            paid += 1;
            assert_eq!(call["state"], "succeeded");
            no.failed_with(409, "already_decided");
            assert!(statuses == [202, 200] || statuses == [200, 202], "{statuses:?}");
        } else {
            assert_eq!((&call["state"], no.status), (&json!("rejected"), 200));
            assert!(!statuses.contains(&200), "{statuses:?}");
            let before = statuses.iter().filter(|status| **status == 202).count();
            assert!(before <= 1 && statuses.iter().all(|status| [202, 409].contains(status)), "{statuses:?}");
        }
    }
    assert_eq!(app.ledger.lines().len(), paid);
}

#[tokio::test]
async fn a_page_that_approves_below_the_quorum_shows_the_request_again_and_does_not_post() {
    let app = office(2).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[
        call("p1", "pay", &json!({ "note": "10" })),
        call("p2", "mumble", &json!({ "note": "11" })),
    ]);
    let words = [ui_user("u", "pay and mumble")];
    let turn = app.client.ui_turn_in(&thread, &ui_submit(&thread, &words)).await;
    let (message, calls) = (turn.message_id().to_owned(), turn.pending());
    let [pay, mumble] = &calls[..] else { panic!("{}", turn.raw) };
    let answers = [ui_answer(pay, "pay", true), ui_answer(mumble, "mumble", true)];
    let body = ui_submit_at(&thread, &[ui_user("u", "x"), ui_assistant(&message, &json!(answers))], &message);
    for _ in 0..2 {
        // The approval part is open again, so the page waits for a click, as it did at first.
        let turn = app.client.ui_turn_in(&thread, &body).await;
        assert_eq!((turn.status, turn.pending()), (200, vec![pay.clone()]), "{}", turn.raw);
        assert_eq!(turn.one("tool-output-available")["toolCallId"], mumble.as_str(), "{}", turn.raw);
        assert_eq!(turn.one("finish")["finishReason"], "tool-calls");
    }
    assert_eq!(votes(&app, pay).await, [vote("alice", "approve", false)]);
    assert_eq!(chief(&app, "carol").approve(pay).await.body["state"], "succeeded");
    app.scene.answers("Paid.");
    let turn = app.client.ui_turn_in(&thread, &body).await;
    assert_eq!(turn.text(), "Paid.", "{}", turn.raw);
    assert_eq!(app.scene.requests().len(), 2, "the model was asked only when all had ended");
    assert_eq!(app.ledger.lines(), ["mumble 11", "pay 10"]);
}

#[tokio::test]
async fn an_approval_below_the_quorum_is_answered_at_once() {
    let mut app = Embedded::with(|config| {
        wanting(2)(config);
        config.approval.wait = Duration::from_secs(3600);
    })
    .await;
    app.client = alice(&app);
    let (thread, id) = app.held("pay", "10").await;
    waits_for(ONE_MORE, false, &id, &app.client.approve(&id).await);
    // Resuming meanwhile requests the approval again and calls no model.
    let turn = app.client.resume(&thread).await;
    assert_eq!(turn.pending(), std::slice::from_ref(&id), "{}", turn.raw);
    assert_eq!(app.scene.requests().len(), 1);
    chief(&app, "carol").approve(&id).await;
    let done = async || Some(app.ledger.lines()).filter(|lines| lines == &["pay 10"]);
    eventually("it ran", done).await;
}
