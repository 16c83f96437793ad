//! Commits without a response: a retry reports the actual result, whether or not the commit was made, and
//! nothing happens twice.

use super::{assert_unavailable, question};
use holdpoint::config::Config;
use holdpoint_testkit::ui::{ui_answer, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{CommitFate, Embedded, JsonFields, Proxy, Rows, UNKNOWN, call, eventually, postgres};
use serde_json::{Value, json};
use std::time::Duration;

/// A server that reaches its database through a proxy, and direct access to its rows.
struct Deployment {
    proxy: Proxy,
    app: Embedded,
    rows: Rows,
}

impl Deployment {
    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let url = postgres().await;
        let (proxy, through) = Proxy::before(&url).await;
        let app = Embedded::with(|config| {
            config.database.url = through.into();
            // The sweeper does not run during the test.
            config.approval.sweep = Duration::from_secs(3600);
            change(config);
        })
        .await;
        Self { proxy, app, rows: Rows::open(&url).await }
    }

    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A server whose sweeper soon finds interrupted work.
    async fn swept(lease: Duration) -> Self {
        Self::with(|config| {
            config.approval.lease = lease;
            config.approval.sweep = Duration::from_millis(50);
        })
        .await
    }

    async fn state(&self, id: &str) -> Value {
        self.rows.all(&format!("SELECT state FROM tool_calls WHERE tool_call_id = '{id}'")).await[0]["state"]
            .clone()
    }

    /// Waits until a call is approved and the server claims it no more by itself, and lets the next claim
    /// succeed.
    async fn unclaimed(&self, id: &str) {
        // The server claims the call with the decision, and once more after it.
        let refused = async || (self.rows.refused_claims().await == 2).then_some(());
        eventually("both claims are refused", refused).await;
        assert_eq!(self.state(id).await, "approved");
        self.rows.allow_claims().await;
    }

    /// The number of events by type, in the order of each type's first event.
    async fn events(&self, of: &str) -> Vec<(String, i64)> {
        let sql = format!(
            "SELECT type, count(*) AS times FROM events
             WHERE type LIKE '{of}.%' AND type <> 'tool.decision_refused' GROUP BY type ORDER BY min(event_id)"
        );
        let events = self.rows.all(&sql).await;
        let event = |event: &Value| (event.text("type").to_owned(), event["times"].as_i64().unwrap());
        events.iter().map(event).collect()
    }

    fn assert_struck(&self) {
        assert!(self.proxy.has_struck(), "the commit went through unharmed");
    }
}

fn once(events: &[&str]) -> Vec<(String, i64)> {
    events.iter().map(|event| ((*event).to_owned(), 1)).collect()
}

const DECIDED_AND_RUN: [&str; 5] =
    ["tool.called", "tool.requires_approval", "tool.approved", "tool.started", "tool.succeeded"];

/// The commit of an approval that claims nothing meets this fault.
async fn a_decision_is_asked_again(commit: CommitFate) {
    let deployment = Deployment::new().await;
    let app = &deployment.app;
    let (thread, id) = app.held("pay", "10").await;
    deployment.rows.forbid_claims().await;
    deployment.proxy.strike("tool.approved", commit);
    assert_unavailable(&app.client.approve(&id).await);
    deployment.assert_struck();
    deployment.rows.allow_claims().await;
    let made = commit != CommitFate::Lost;
    assert_eq!(deployment.state(&id).await, if made { "approved" } else { "pending" });
    assert_eq!(app.ledger.lines(), Vec::<String>::new(), "a call whose decision is in doubt does not run");

    if made {
        assert_eq!(app.client.reject(&id).await.code(), "already_decided");
    }
    let again = app.client.approve(&id).await;
    again.has(200, "state", "succeeded");
    assert_eq!(again.header("idempotent-replayed"), made.then_some("true"));
    assert_eq!(deployment.rows.count("decisions").await, 1);
    assert_eq!(deployment.events("tool").await, once(&DECIDED_AND_RUN));
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_a_decision_with_a_lost_commit_response_is_replayed_and_runs_once() {
    a_decision_is_asked_again(CommitFate::Made).await;
}

#[tokio::test]
async fn on_postgres_a_decision_with_a_silent_commit_is_replayed_and_runs_once() {
    a_decision_is_asked_again(CommitFate::MadeInSilence).await;
}

#[tokio::test]
async fn on_postgres_a_decision_whose_commit_is_lost_is_made_by_the_retry() {
    a_decision_is_asked_again(CommitFate::Lost).await;
}

/// The commit of a claim meets this fault: alone, or together with the approval. The tool still runs once, and
/// the rows record one attempt.
async fn a_claim_is_looked_up(commit: CommitFate, alone: bool) {
    let deployment = Deployment::with(|config| config.approval.lease = Duration::from_secs(20)).await;
    let app = &deployment.app;
    let (thread, id) = app.held("pay", "10").await;
    let approved = if alone {
        deployment.rows.forbid_claims().await;
        let claim = async {
            deployment.unclaimed(&id).await;
            deployment.proxy.strike("tool.started", commit);
            // A repeated approval claims the call.
            app.client.approve(&id).await
        };
        let (approved, repeated) = tokio::join!(app.client.approve(&id), claim);
        assert_eq!((repeated.status, &repeated.body), (200, &approved.body));
        approved
    } else {
        deployment.proxy.strike("tool.started", commit);
        app.client.approve(&id).await
    };
    deployment.assert_struck();
    approved.has(200, "state", "succeeded");
    assert_eq!(
        deployment.rows.all("SELECT exec_attempt FROM tool_calls").await,
        [json!({ "exec_attempt": 1 })]
    );
    assert_eq!(deployment.events("tool").await, once(&DECIDED_AND_RUN));
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_a_claim_with_a_lost_commit_response_is_found_by_its_process_and_runs_once() {
    a_claim_is_looked_up(CommitFate::Made, true).await;
}

#[tokio::test]
async fn on_postgres_a_claim_with_a_silent_commit_is_found_by_its_process_and_runs_once() {
    a_claim_is_looked_up(CommitFate::MadeInSilence, true).await;
}

#[tokio::test]
async fn on_postgres_an_approval_with_a_lost_commit_response_is_found_by_its_process_and_runs_once() {
    a_claim_is_looked_up(CommitFate::Made, false).await;
}

#[tokio::test]
async fn on_postgres_an_approval_with_a_silent_commit_is_found_by_its_process_and_runs_once() {
    a_claim_is_looked_up(CommitFate::MadeInSilence, false).await;
}

#[tokio::test]
async fn on_postgres_an_approval_whose_commit_is_lost_with_its_claim_is_made_by_the_retry() {
    let deployment = Deployment::new().await;
    let app = &deployment.app;
    let (thread, id) = app.held("pay", "10").await;
    deployment.proxy.strike("tool.started", CommitFate::Lost);
    assert_unavailable(&app.client.approve(&id).await);
    deployment.assert_struck();
    assert_eq!(deployment.state(&id).await, "pending");
    assert_eq!(deployment.rows.count("decisions").await, 0);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());

    let again = app.client.approve(&id).await;
    again.has(200, "state", "succeeded");
    assert_eq!(again.header("idempotent-replayed"), None, "nothing was decided before");
    assert_eq!(deployment.events("tool").await, once(&DECIDED_AND_RUN));
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_a_call_cancelled_while_its_claim_is_in_doubt_does_not_run() {
    let deployment = Deployment::with(|config| config.approval.lease = Duration::from_secs(20)).await;
    let app = &deployment.app;
    let (_, id) = app.held("pay", "10").await;
    deployment.proxy.strike("tool.started", CommitFate::MadeInSilence);
    let cancel = async {
        let claimed = async || (deployment.state(&id).await == "executing").then_some(());
        eventually("the claim is made", claimed).await;
        app.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await
    };
    let (approved, cancelled) = tokio::join!(app.client.approve(&id), cancel);
    deployment.assert_struck();
    approved.has(200, "state", "interrupted");
    cancelled.has(200, "state", "interrupted");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn on_postgres_a_claim_whose_commit_is_lost_runs_nothing_until_the_next_claim() {
    let deployment = Deployment::with(|config| {
        config.approval.wait = Duration::ZERO;
        // The sweeper claims a call that stays approved for a lease. Here only a repeat of the approval does.
        config.approval.lease = Duration::from_secs(20);
    })
    .await;
    let app = &deployment.app;
    let (thread, id) = app.held("pay", "10").await;
    deployment.rows.forbid_claims().await;
    app.client.approve(&id).await.has_status(202);
    deployment.unclaimed(&id).await;
    deployment.proxy.strike("tool.started", CommitFate::Lost);
    let approved = app.client.approve(&id).await;
    approved.has(202, "state", "executing");
    eventually("the claim is struck", async || deployment.proxy.has_struck().then_some(())).await;
    assert_eq!(deployment.state(&id).await, "approved");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    // Another repeat of the approval is the next to claim the call.
    assert!(matches!(app.client.approve(&id).await.status, 200 | 202));
    app.client.becomes(&id, "succeeded").await;
    assert_eq!(
        deployment.rows.all("SELECT exec_attempt FROM tool_calls").await,
        [json!({ "exec_attempt": 1 })]
    );
    assert_eq!(deployment.events("tool").await, once(&DECIDED_AND_RUN));
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_an_outcome_whose_commit_is_in_doubt_is_written_once_and_reported() {
    for commit in [CommitFate::Made, CommitFate::Lost] {
        let deployment = Deployment::new().await;
        let app = &deployment.app;
        let (thread, id) = app.held("pay", "10").await;
        deployment.proxy.strike("tool.succeeded", commit);
        let approved = app.client.approve(&id).await;
        deployment.assert_struck();
        assert_eq!((approved.status, &approved.body["state"]), (200, &json!("succeeded")), "{commit:?}");
        assert_eq!(app.client.call(&id).await["output"], json!({ "paid": "10" }));
        assert_eq!(deployment.events("tool").await, once(&DECIDED_AND_RUN), "{commit:?}");
        app.scene.answers("Paid.");
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}

/// The outcome of a call that is approved in the post of a page, and the resume of its run, are one commit.
#[tokio::test]
async fn on_postgres_an_outcome_whose_commit_with_the_resumed_run_is_in_doubt_is_written_once() {
    for commit in [CommitFate::Made, CommitFate::Lost] {
        // The request has a second to store the outcome.
        let deployment = Deployment::swept(Duration::from_secs(3)).await;
        let app = &deployment.app;
        let thread = app.client.thread().await;
        app.scene.calls(&[call("a", "pay", &json!({ "note": "10" }))]);
        let requested = ui_user("u", "pay");
        let held =
            app.client.ui_turn_in(&thread, &ui_submit(&thread, std::slice::from_ref(&requested))).await;
        let answer = ui_assistant(held.message_id(), &json!([ui_answer(&held.pending()[0], "pay", true)]));
        let body = ui_submit_at(&thread, &[requested, answer], held.message_id());
        deployment.proxy.strike("tool.succeeded", commit);
        let refused = app.client.ui_turn_in(&thread, &body).await;
        deployment.assert_struck();
        assert_eq!(refused.refused(), (503, "unavailable".to_owned()), "{commit:?}: {}", refused.raw);
        app.client.becomes(&held.pending()[0], "succeeded").await;

        // A run that no process executes is closed when its lease expires.
        let closed =
            async || (deployment.rows.count("runs WHERE status = 'running'").await == 0).then_some(());
        eventually("no run is running", closed).await;
        app.scene.answers("Paid.");
        let resumed = app.client.ui_turn_in(&thread, &body).await;
        assert_eq!(resumed.text(), "Paid.", "{commit:?}: {}", resumed.raw);
        assert_eq!(deployment.events("tool").await, once(&DECIDED_AND_RUN), "{commit:?}");
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}

/// The ids of the calls that a reloaded thread shows as pending.
async fn shown_as_pending(app: &Embedded, thread: &str) -> Vec<String> {
    let messages = app.client.messages(thread).await;
    let parts = messages.iter().flat_map(|message| message.list("parts"));
    let pending = parts.filter(|part| part["tool_call"]["state"] == "pending");
    pending.map(|part| part["tool_call"].text("tool_call_id").to_owned()).collect()
}

#[tokio::test]
async fn on_postgres_a_hold_whose_commit_is_in_doubt_is_stored_once_and_shown() {
    // The database is silent for longer than the shorter lease.
    let (long, short) = (Duration::from_secs(20), Duration::from_secs(3));
    for (commit, lease) in
        [(CommitFate::Made, long), (CommitFate::Lost, long), (CommitFate::MadeInSilence, short)]
    {
        let deployment = Deployment::with(|config| config.approval.lease = lease).await;
        let app = &deployment.app;
        let thread = app.client.thread().await;
        app.scene.calls(&[call("a", "pay", &json!({ "note": "10" }))]);
        deployment.proxy.strike("tool.requires_approval", commit);
        let turn = app.client.send_message(&thread, "pay").await;
        deployment.assert_struck();
        let [id] = &turn.pending()[..] else { panic!("{commit:?}: {}", turn.raw) };
        assert!(turn.codes().ends_with("8ed"), "{commit:?}: {}", turn.raw);

        assert_eq!(shown_as_pending(app, &thread).await, [id.as_str()], "{commit:?}");
        assert_eq!(app.client.resume(&thread).await.pending(), [id.as_str()], "{commit:?}");
        assert_eq!(app.scene.requests().len(), 1, "the model is not asked while the call is pending");
        assert_eq!(deployment.events("run").await, once(&["run.started", "run.waiting"]), "{commit:?}");
        assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
        app.scene.answers("Paid.");
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
        assert_eq!(app.ledger.lines(), ["pay 10"]);
    }
}

#[tokio::test]
async fn on_postgres_a_hold_beside_a_call_that_runs_whose_commit_is_lost_is_requested_again() {
    let deployment = Deployment::new().await;
    let app = &deployment.app;
    let thread = app.client.thread().await;
    let both = [call("l", "look", &json!({ "note": "1" })), call("a", "pay", &json!({ "note": "10" }))];
    app.scene.calls(&both);
    deployment.proxy.strike("tool.requires_approval", CommitFate::Lost);
    let broken = app.client.send_message(&thread, "pay").await;
    deployment.assert_struck();
    assert_eq!(broken.pending(), Vec::<String>::new(), "{}", broken.raw);
    broken.failed_with("internal");
    assert_eq!(shown_as_pending(app, &thread).await, Vec::<String>::new());
    assert_eq!(deployment.rows.count("tool_calls").await, 0);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());

    app.scene.calls(&both);
    let again = app.client.resume(&thread).await;
    let [id] = &again.pending()[..] else { panic!("{}", again.raw) };
    assert_eq!(app.client.approve(id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["look 1", "pay 10"]);
}

#[tokio::test]
async fn on_postgres_a_complete_answer_with_a_lost_commit_response_is_delivered() {
    let deployment = Deployment::new().await;
    let app = &deployment.app;
    let thread = app.client.thread().await;
    app.scene.answers("Good day.");
    deployment.proxy.strike("Good day.", CommitFate::Made);
    let turn = app.client.send_message(&thread, "hello").await;
    deployment.assert_struck();
    assert_eq!(turn.text(), "Good day.");
    assert_eq!((turn.all('3').len(), &turn.one('d')["finishReason"]), (0, &json!("stop")), "{}", turn.raw);
    assert_eq!(deployment.events("run").await, once(&["run.started", "run.completed"]));

    assert_eq!(app.client.resume(&thread).await.refused(), (409, "nothing_to_continue".to_owned()));
    assert_eq!(app.scene.requests().len(), 1, "the model is not asked after a complete answer");
}

#[tokio::test]
async fn on_postgres_an_ungated_call_with_a_lost_commit_response_never_runs() {
    let deployment = Deployment::swept(Duration::from_secs(1)).await;
    let app = &deployment.app;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "look", &json!({ "note": "1" }))]);
    deployment.proxy.strike("tool.called", CommitFate::Made);
    let broken = app.client.send_message(&thread, "look").await;
    deployment.assert_struck();
    broken.failed_with("internal");
    let over =
        async || (deployment.rows.count("tool_calls WHERE state = 'interrupted'").await == 1).then_some(());
    eventually("its lease is over", over).await;
    assert_eq!(deployment.rows.all("SELECT result FROM tool_calls").await, [json!({ "result": UNKNOWN })]);
    app.scene.answers("I do not know whether I looked.");
    assert_eq!(app.client.resume(&thread).await.text(), "I do not know whether I looked.");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

async fn a_question_is_posted_again(commit: CommitFate) {
    let deployment = Deployment::swept(Duration::from_secs(1)).await;
    let app = &deployment.app;
    deployment.proxy.strike("run.started", commit);
    let refused = app.client.turn_by_id(&question()).await;
    deployment.assert_struck();
    assert_eq!(refused.refused(), (503, "unavailable".to_owned()), "{}", refused.raw);
    // The request to the model leaves before the commit. Its answer is dropped.
    let early = app.scene.requests().len();
    assert!(early <= 1, "{early}");
    let made = i64::from(commit == CommitFate::Made);
    assert_eq!(deployment.rows.count("runs").await, made);

    // A run that no process executes is closed when its lease expires.
    let closed = async || (deployment.rows.count("runs WHERE status = 'running'").await == 0).then_some(());
    eventually("no run is running", closed).await;
    app.scene.answers("Hello.");
    let again = app.client.turn_by_id(&question()).await;
    assert_eq!(again.text(), "Hello.", "{}", again.raw);
    assert_eq!(deployment.rows.count("messages WHERE role = 'user'").await, 1, "one message, posted twice");
    assert_eq!(deployment.rows.count("threads").await, 1);
    assert_eq!(deployment.rows.count("message_steps WHERE status = 'complete'").await, 1, "{}", again.raw);
    assert_eq!(app.scene.requests().len(), early + 1);
}

#[tokio::test]
async fn on_postgres_a_question_with_a_lost_commit_response_is_stored_once_when_posted_again() {
    a_question_is_posted_again(CommitFate::Made).await;
}

#[tokio::test]
async fn on_postgres_a_question_whose_commit_is_lost_is_accepted_when_posted_again() {
    a_question_is_posted_again(CommitFate::Lost).await;
}

/// A request finds the run, whose commit is made, while the request that started it still waits for the response.
#[tokio::test]
async fn on_postgres_a_stream_of_a_turn_whose_start_is_in_doubt_has_an_end() {
    let deployment = Deployment::new().await;
    let app = &deployment.app;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    deployment.proxy.strike("run.started", CommitFate::MadeInSilence);
    let attached = async {
        let is_made = async || (deployment.rows.count("runs").await == 1).then_some(());
        eventually("the run is in the database", is_made).await;
        let path = format!("/qa/chat_streamed/{thread}");
        app.client.read(app.client.http.get(app.client.url(&path))).await
    };
    let (refused, attached) = tokio::join!(app.client.send_message(&thread, "hello"), attached);
    deployment.assert_struck();
    assert_eq!(refused.refused(), (503, "unavailable".to_owned()), "{}", refused.raw);
    assert_eq!((attached.status, attached.all('3').len()), (200, 1), "{}", attached.raw);
}

#[tokio::test]
async fn on_postgres_the_end_of_a_turn_whose_commit_is_in_doubt_is_written_once_and_streamed() {
    for commit in [CommitFate::Made, CommitFate::Lost] {
        let deployment = Deployment::new().await;
        let app = &deployment.app;
        let thread = app.client.thread().await;
        app.scene.calls(&[call("a", "pay", &json!({ "note": "10" }))]);
        deployment.proxy.strike("run.waiting", commit);
        let turn = app.client.send_message(&thread, "pay").await;
        deployment.assert_struck();
        let [id] = &turn.pending()[..] else { panic!("{commit:?}: {}", turn.raw) };
        assert!(turn.codes().ends_with("8ed"), "{commit:?}: {}", turn.raw);
        assert_eq!(app.client.reject(id).await.body["state"], "rejected");
        app.scene.answers("Well.");
        deployment.proxy.strike("run.completed", commit);
        let turn = app.client.resume(&thread).await;
        deployment.assert_struck();
        assert!(turn.codes().ends_with("f0ed"), "{commit:?}: {}", turn.raw);
        let expected = once(&["run.started", "run.waiting", "run.resumed", "run.completed"]);
        assert_eq!(deployment.events("run").await, expected, "{commit:?}");
        assert_eq!(deployment.rows.all("SELECT status FROM runs").await, [json!({ "status": "completed" })]);
    }
}
