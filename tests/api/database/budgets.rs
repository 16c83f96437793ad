//! What the work of a server costs: statements and transactions, and on Postgres the waits for the database. On Postgres
//! a transaction makes several changes with one statement.
//!
//! The costs of a request and its turn leave out the numbering of events and the looks of background tasks. An
//! idle server has no such exception.

use holdpoint::config::{Config, Webhook, WebhookBody};
use holdpoint_testkit::ui::{ui_answer, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{
    Cost, Deployment, Embedded, Process, Proxy, Purpose, Rows, Scene, StatementLog, Transactions, call,
    eventually, postgres, probes,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The most that each part of a round may cost on Postgres.
const PLAIN_TURN: Cost = Cost { statements: 4, transactions: 2, round_trips: 8 };
const HELD_TURN: Cost = Cost { statements: 5, transactions: 2, round_trips: 9 };
const DECISION: Cost = Cost { statements: 4, transactions: 2, round_trips: 8 };
const CONTINUATION: Cost = Cost { statements: 5, transactions: 2, round_trips: 9 };
/// A decision in the post of a page, and the continuation in the same stream: both, and the look for the held call. The
/// outcome is stored with the resumed run.
const POSTED_DECISION: Cost = Cost { statements: 10, transactions: 4, round_trips: 16 };
const ROUND: Cost = Cost { statements: 14, transactions: 6, round_trips: 26 };
/// The same on SQLite, where a statement makes one change, and nothing waits for a round trip. Each transaction with texts
/// has a statement that adds them to the counts of the thread.
const PLAIN_TURN_ON_SQLITE: Cost = on_sqlite(12);
const HELD_TURN_ON_SQLITE: Cost = on_sqlite(14);
const DECISION_ON_SQLITE: Cost = on_sqlite(9);
const CONTINUATION_ON_SQLITE: Cost = on_sqlite(12);
const ROUND_ON_SQLITE: Cost = Cost { transactions: 6, ..on_sqlite(35) };
/// The most that one renewal of a lease may cost.
const RENEWAL: Cost = Cost { statements: 1, transactions: 1, round_trips: 3 };
/// The claim of a worker: the look for an approved call, and the claim of a server's own tool.
const CLAIM: Cost = Cost { statements: 4, transactions: 2, round_trips: 6 };
/// The settlement of a worker: that of a server's own tool.
const SETTLEMENT: Cost = Cost { statements: 2, transactions: 1, round_trips: 4 };
/// The renewal of a worker, which proves its right first.
const WORKER_RENEWAL: Cost = Cost { statements: 2, transactions: 1, round_trips: 4 };
/// A claim that finds no call.
const EMPTY_CLAIM: Cost = Cost { statements: 1, transactions: 1, round_trips: 1 };
/// The most statements that an idle server executes in a second.
const IDLE: f64 = 1.0;
/// The same on SQLite, which has no notifications: every second one statement looks for the events of commands that
/// run beside the server.
const IDLE_ON_SQLITE: f64 = 1.5;
/// The most statements with which a transaction on SQLite numbers its events.
const NUMBERING: usize = 2;
/// The time in which the statements of an idle server are counted: two sweeps, or three. At a multiple of their interval the third
/// would be in or out by chance, and too large a part of the count.
const IDLE_TIME: Duration = Duration::from_secs(13);
/// The number of times that a part is measured. A slow machine may add a draft or a look.
const TRIES: usize = 3;

const fn on_sqlite(statements: usize) -> Cost {
    Cost { statements, transactions: 2, round_trips: 0 }
}

/// A server on SQLite whose statements are logged.
pub(crate) struct LoggedServer {
    deployment: Deployment,
    pub(crate) server: Process,
    log: StatementLog,
    pub(crate) rows: Rows,
}

impl LoggedServer {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let deployment = Deployment::on_sqlite();
        let settings =
            [&[("HOLDPOINT_APPROVAL__SWEEP", "5s"), ("HOLDPOINT_APPROVAL__LEASE", "30s")], settings].concat();
        let (server, log) = deployment.start_logged(&settings);
        let rows = deployment.rows().await;
        Self { deployment, server, log, rows }
    }

    /// The transactions since the last call, once the server has nothing more to do.
    pub(crate) async fn took(&mut self) -> Transactions {
        let done = async || {
            let busy = "runs WHERE status = 'running' OR EXISTS (
                SELECT 1 FROM tool_calls WHERE state IN ('approved', 'executing'))";
            if self.rows.count(busy).await > 0 { None } else { self.log.take() }
        };
        eventually("the server is done", done).await
    }

    /// A part of a round: its transactions without those of other tasks.
    pub(crate) async fn part(&mut self) -> Transactions {
        let part = self.took().await.with(Purpose::Work);
        assert!(!part.0.is_empty(), "the statements are logged");
        assert!(part.0.iter().all(|transaction| transaction.numbering() <= NUMBERING), "{part}");
        part
    }
}

/// A server whose transactions are recorded.
pub(crate) struct RecordedServer {
    pub(crate) app: Embedded,
    proxy: Proxy,
    pub(crate) rows: Rows,
}

impl RecordedServer {
    pub(crate) async fn start(change: impl FnOnce(&mut holdpoint::config::Config)) -> Self {
        let url = postgres().await;
        let (proxy, through) = Proxy::before(&url).await;
        let app = Embedded::with(|config| {
            config.database.url = through.into();
            change(config);
        })
        .await;
        Self { app, proxy, rows: Rows::open(&url).await }
    }

    /// The transactions since the last call, once the server has nothing more to do.
    pub(crate) async fn took(&self) -> Transactions {
        let done = async || {
            let numbered = self.rows.count("events WHERE seq IS NULL").await == 0;
            (numbered && self.proxy.recording.is_quiet()).then_some(())
        };
        eventually("the server is done", done).await;
        self.proxy.recording.take()
    }

    /// A part of a round: its transactions without those of other tasks.
    pub(crate) async fn part(&self) -> Transactions {
        self.took().await.with(Purpose::Work)
    }
}

/// The post of a page of AI SDK 4 with this first message.
fn posted(chat: &str, words: &str) -> Value {
    json!({ "id": chat, "messages": [{ "id": format!("{chat}-1"), "createdAt": "2026-01-01T00:00:00.000Z",
        "role": "user", "content": words, "parts": [{ "type": "text", "text": words }] }] })
}

/// How often each transaction updates this table.
fn updates(transactions: &Transactions, table: &str) -> Vec<usize> {
    let update = format!(r#"UPDATE "holdpoint"."{table}""#);
    let updates = |statements: &[String]| statements.iter().map(|text| text.matches(&update).count()).sum();
    transactions.0.iter().map(|one| updates(&one.statements)).collect()
}

/// Asserts that each part is within its budget, at least in one of its tries.
fn assert_within(parts: &[(&str, Cost, Vec<Transactions>)]) {
    let over = parts.iter().filter_map(|(what, budget, tries)| {
        let least = tries.iter().map(Transactions::cost).reduce(Cost::least).unwrap();
        println!("{what}: {least:?}");
        let shown = || format!("{what}: {least:?} is over {budget:?}{}\n", tries[0]);
        (!least.fits(*budget)).then(shown)
    });
    let over: String = over.collect();
    assert!(over.is_empty(), "{over}");
}

#[tokio::test]
async fn on_postgres_a_turn_in_a_new_thread_is_within_its_budget() {
    let server = RecordedServer::start(|_| {}).await;
    let mut tries = Vec::new();
    for n in 0..TRIES {
        server.app.scene.answers("Hello.");
        server.took().await;
        let turn = server.app.client.turn_by_id(&posted(&format!("chat{n}"), "hello")).await;
        tries.push(server.part().await);
        assert_eq!(turn.text(), "Hello.", "{}", turn.raw);
    }
    assert_within(&[("a turn", PLAIN_TURN, tries)]);
}

#[tokio::test]
async fn on_postgres_the_parts_of_a_round_with_a_decision_are_within_their_budgets() {
    let server = RecordedServer::start(|_| {}).await;
    let client = &server.app.client;
    let (mut holds, mut decisions, mut continuations, mut rounds) = (vec![], vec![], vec![], vec![]);
    for n in 0..TRIES {
        let chat = format!("chat{n}");
        server.app.scene.calls(&[call("a", "pay", &json!({ "note": "10" }))]).answers("Paid.");
        server.took().await;
        let held = client.turn_by_id(&posted(&chat, "pay")).await;
        let hold = server.part().await;
        let decided = client.approve(&held.pending()[0]).await;
        let decision = server.part().await;
        // The page resumes without a message.
        let resume = client.http.get(client.url(&format!("/qa/chat_streamed?chatId={chat}")));
        let resumed = client.read(resume).await;
        let continuation = server.part().await;
        decided.has(200, "state", "succeeded");
        assert_eq!(resumed.text(), "Paid.", "{}", resumed.raw);
        let round = Transactions([hold.0.clone(), decision.0.clone(), continuation.0.clone()].concat());
        assert_eq!(updates(&round, "threads").iter().max(), Some(&1), "once in a transaction: {round}");
        assert_eq!(updates(&round, "messages").iter().max(), Some(&0), "the rows of messages stay: {round}");
        rounds.push(round);
        holds.push(hold);
        decisions.push(decision);
        continuations.push(continuation);
    }
    assert_within(&[
        ("a turn that ends in a hold", HELD_TURN, holds),
        ("a decision", DECISION, decisions),
        ("a continuation", CONTINUATION, continuations),
        ("a round", ROUND, rounds),
    ]);
}

/// The script of a turn with three steps.
fn three_steps(scene: &Scene) {
    scene.calls(&[call("a", "look", &json!({ "note": "1" }))]);
    scene.calls(&[call("b", "look", &json!({ "note": "2" }))]).answers("Seen.");
}

#[tokio::test]
async fn on_postgres_a_turn_reads_the_history_once_and_then_a_step_at_a_time() {
    let server = RecordedServer::start(|_| {}).await;
    let thread = server.app.client.thread().await;
    server.app.scene.answers("Hello.");
    server.app.client.send_message(&thread, "hello").await;
    three_steps(&server.app.scene);
    server.took().await;
    assert_eq!(server.app.client.send_message(&thread, "look").await.text(), "Seen.");
    let turn = server.part().await;
    let selects = |table: &str| {
        let first =
            |text: &String| text.split_once(" FROM ").is_some_and(|(_, from)| from.starts_with(table));
        let reads = |text: &&String| text.starts_with("SELECT") && first(text);
        turn.0.iter().flat_map(|one| &one.statements).filter(reads).count()
    };
    assert_eq!(
        [r#""holdpoint"."messages" "#, r#""holdpoint"."message_steps" "#].map(selects),
        [1, 2],
        "the history, and the two steps before the last: {turn}"
    );
}

#[tokio::test]
async fn on_postgres_a_decision_in_the_post_of_a_page_costs_no_more_than_decision_and_continuation() {
    let server = RecordedServer::start(|_| {}).await;
    let client = &server.app.client;
    let mut posts = Vec::new();
    for n in 0..TRIES {
        let thread = client.thread().await;
        server.app.scene.calls(&[call("a", "pay", &json!({ "note": "10" }))]).answers("Paid.");
        let requested = ui_user(&format!("u{n}"), "pay");
        let held = client.ui_turn_in(&thread, &ui_submit(&thread, std::slice::from_ref(&requested))).await;
        server.took().await;
        let answer = ui_answer(&held.pending()[0], "pay", true);
        let message = ui_assistant(held.message_id(), &json!([answer]));
        let body = ui_submit_at(&thread, &[requested, message], held.message_id());
        let resumed = client.ui_turn_in(&thread, &body).await;
        posts.push(server.part().await);
        assert_eq!(resumed.text(), "Paid.", "{}", resumed.raw);
    }
    assert_within(&[("a decision in a post", POSTED_DECISION, posts)]);
}

#[tokio::test]
async fn on_postgres_the_resumer_looks_for_runs_less_often_than_calls_end() {
    let server = RecordedServer::start(|_| {}).await;
    let client = &server.app.client;
    let thread = client.thread().await;
    let notes: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let calls: Vec<_> = notes.iter().map(|note| call(note, "pay", &json!({ "note": note }))).collect();
    server.app.scene.calls(&calls);
    let pending = client.send_message(&thread, "pay").await.pending();
    server.took().await;
    let began = Instant::now();
    for id in &pending {
        assert_eq!(client.approve(id).await.body["state"], "succeeded");
    }
    let looks = server.took().await.with(Purpose::Look);
    let looks = looks.0.iter().filter(|look| look.statements.iter().any(|text| text.contains("children")));
    let (looks, time) = (looks.count(), began.elapsed());
    assert!(looks > 0, "the looks are recorded");
    assert!(looks as u128 <= time.as_millis() / 20 + 2, "{looks} looks in {time:?}");
}

#[tokio::test]
async fn on_sqlite_the_parts_of_a_round_with_a_decision_are_within_their_budgets() {
    let mut sqlite = LoggedServer::start(&[]).await;
    sqlite.deployment.release();
    let client = sqlite.server.client.clone();
    let (mut turns, mut holds, mut decisions, mut continuations, mut rounds) =
        (vec![], vec![], vec![], vec![], vec![]);
    for n in 0..TRIES {
        sqlite.took().await;
        let turn = client.turn_by_id(&posted(&format!("plain{n}"), "hello")).await;
        turns.push(sqlite.part().await);
        assert_eq!(turn.text(), "hello", "{}", turn.raw);
        let chat = format!("chat{n}");
        let held = client.turn_by_id(&posted(&chat, &format!("transfer {n}"))).await;
        let hold = sqlite.part().await;
        let decided = client.approve(&held.pending()[0]).await;
        let decision = sqlite.part().await;
        let resume = client.http.get(client.url(&format!("/qa/chat_streamed?chatId={chat}")));
        let resumed = client.read(resume).await;
        let continuation = sqlite.part().await;
        decided.has(200, "state", "succeeded");
        assert!(resumed.text().contains("transferred"), "{}", resumed.raw);
        rounds.push(Transactions([hold.0.clone(), decision.0.clone(), continuation.0.clone()].concat()));
        holds.push(hold);
        decisions.push(decision);
        continuations.push(continuation);
    }
    assert_within(&[
        ("a turn", PLAIN_TURN_ON_SQLITE, turns),
        ("a turn that ends in a hold", HELD_TURN_ON_SQLITE, holds),
        ("a decision", DECISION_ON_SQLITE, decisions),
        ("a continuation", CONTINUATION_ON_SQLITE, continuations),
        ("a round", ROUND_ON_SQLITE, rounds),
    ]);
}

#[tokio::test]
async fn on_postgres_renewals_of_leases_are_within_their_budget() {
    let server = RecordedServer::start(|config| config.approval.lease = Duration::from_secs(3)).await;
    let renewals = async |update: &'static str| {
        server.proxy.recording.take();
        let renewals = async || {
            let mut renewals = server.proxy.recording.so_far();
            renewals.0.retain(|transaction| transaction.executes(update));
            (renewals.0.len() >= TRIES).then_some(renewals)
        };
        eventually("the lease is renewed", renewals).await
    };
    // The turn waits for its model.
    let gate = server.app.scene.gate();
    server.app.scene.calls(&[call("a", "wait_for_me", &json!({ "note": "1" }))]);
    let body = posted("chat", "wait");
    let turn = server.app.client.turn_by_id(&body);
    let of_turn = async {
        let renewals = renewals(r#"UPDATE "holdpoint"."runs" SET "lease_until""#).await;
        gate.add_permits(usize::MAX >> 4);
        renewals
    };
    let (turn, of_turn) = tokio::join!(turn, of_turn);
    let pending = turn.pending();
    let approve = server.app.client.approve(&pending[0]);
    let of_call = async {
        let renewals = renewals(r#"UPDATE "holdpoint"."tool_calls" SET "lease_until""#).await;
        server.app.ledger.release.add_permits(1);
        renewals
    };
    let (approved, of_call) = tokio::join!(approve, of_call);
    approved.has_status(200);
    let each = |renewals: Transactions| renewals.0.into_iter().map(|one| Transactions(vec![one])).collect();
    assert_within(&[
        ("a renewal of a turn", RENEWAL, each(of_turn)),
        ("a renewal of a call", RENEWAL, each(of_call)),
    ]);
}

#[tokio::test]
async fn on_sqlite_renewals_of_leases_are_within_the_same_budget() {
    let sqlite = LoggedServer::start(&[("HOLDPOINT_APPROVAL__LEASE", "3s")]).await;
    let client = &sqlite.server.client;
    let pending = client.turn_by_id(&posted("held", "transfer 1")).await.pending();
    let renewals = async |update: &str| {
        let renewals = async || {
            let mut renewals = sqlite.log.so_far()?;
            renewals.0.retain(|transaction| transaction.executes(update));
            (renewals.0.len() >= TRIES).then_some(renewals)
        };
        eventually("the lease is renewed", renewals).await
    };
    let both = async {
        let of_turn = renewals(r#"UPDATE "runs" SET "lease_until""#).await;
        let of_call = renewals(r#"UPDATE "tool_calls" SET "lease_until""#).await;
        // The turn waits for its model, and the call for its tool.
        sqlite.deployment.release();
        (of_turn, of_call)
    };
    let body = posted("chat", "think");
    let (turn, approved, (of_turn, of_call)) =
        tokio::join!(client.turn_by_id(&body), client.approve(&pending[0]), both);
    assert_eq!((turn.text(), approved.status), ("Half an answer.".to_owned(), 200));
    let each = |renewals: Transactions| renewals.0.into_iter().map(|one| Transactions(vec![one])).collect();
    assert_within(&[
        ("a renewal of a turn", RENEWAL, each(of_turn)),
        ("a renewal of a call", RENEWAL, each(of_call)),
    ]);
}

#[tokio::test]
async fn on_postgres_the_requests_of_a_worker_are_within_their_budgets() {
    let mut server = RecordedServer::start(|_| {}).await;
    let mut tools = probes(&server.app.ledger);
    holdpoint_testkit::workers::add_worker_tools(&mut tools, Duration::from_secs(60));
    server.app = server.app.redeploy_with(tools, |config| config.approval.wait = Duration::ZERO).await;
    let client = &server.app.client;
    let wanted = json!({ "tools": ["ship"] });
    let (mut empty, mut claims, mut renewals, mut settlements) = (vec![], vec![], vec![], vec![]);
    for n in 0..TRIES {
        server.took().await;
        client.post("/tool_calls/claim", &wanted).await;
        empty.push(server.part().await);
        let (_, id) = server.app.held("ship", &n.to_string()).await;
        client.approve(&id).await;
        server.took().await;
        let claimed = client.post("/tool_calls/claim", &wanted).await.body;
        claims.push(server.part().await);
        let permit = &claimed["claim"]["permit"];
        let renewed = client.post(&format!("/tool_calls/{id}/renew"), &json!({ "permit": permit })).await;
        renewals.push(server.part().await);
        let body = json!({ "permit": permit, "outcome": "succeeded", "result": { "n": 1 } });
        let settled = client.post(&format!("/tool_calls/{id}/settle"), &body).await;
        settlements.push(server.part().await);
        assert_eq!((renewed.status, &settled.body["state"]), (200, &json!("succeeded")));
    }
    assert_within(&[
        ("a claim without a call", EMPTY_CLAIM, empty),
        ("a claim", CLAIM, claims),
        ("a renewal of a worker", WORKER_RENEWAL, renewals),
        ("a settlement", SETTLEMENT, settlements),
    ]);
}

#[tokio::test]
async fn on_postgres_an_idle_server_executes_at_most_one_statement_a_second() {
    idle_on_postgres(|_| {}).await;
}

#[tokio::test]
async fn on_postgres_an_idle_server_with_webhooks_executes_no_more_statements() {
    let dir = tempfile::tempdir().unwrap();
    let secret_file = dir.path().join("secrets");
    std::fs::write(&secret_file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let webhook = |name: &str| Webhook {
        name: name.to_owned(),
        tenant: "default".to_owned(),
        url: "https://hooks.example".to_owned(),
        secret_file: secret_file.clone(),
        events: None,
        body: WebhookBody::Thin,
        timeout: Duration::from_secs(1),
    };
    idle_on_postgres(|config| config.webhooks = vec![webhook("one"), webhook("two")]).await;
}

async fn idle_on_postgres(change: impl FnOnce(&mut Config)) {
    let server = RecordedServer::start(change).await;
    // The start is over when the first sweep looks for work.
    let sweeps = async || {
        let so_far = server.proxy.recording.so_far().with(Purpose::Look);
        so_far.0.iter().any(|look| look.executes("SELECT EXISTS(SELECT $ FROM")).then_some(())
    };
    eventually("the first sweep", sweeps).await;
    server.took().await;
    let started = Instant::now();
    // A rate needs time; no condition ends it.
    tokio::time::sleep(IDLE_TIME).await;
    let took = server.proxy.recording.take();
    let rate = took.executed() as f64 / started.elapsed().as_secs_f64();
    println!("idle: {rate} statements a second{took}");
    assert!(rate <= IDLE, "{rate} statements a second{took}");
}

#[tokio::test]
async fn on_sqlite_an_idle_server_executes_few_statements() {
    let mut sqlite = LoggedServer::start(&[]).await;
    // The start is over when the first sweep looks for work.
    let sweeps = async || {
        let so_far = sqlite.log.so_far()?.with(Purpose::Look);
        so_far.0.iter().any(|look| look.executes("SELECT EXISTS(SELECT $ FROM")).then_some(())
    };
    eventually("the first sweep", sweeps).await;
    sqlite.took().await;
    let started = Instant::now();
    // A rate needs time; no condition ends it.
    tokio::time::sleep(IDLE_TIME).await;
    let took = sqlite.took().await;
    let rate = took.executed() as f64 / started.elapsed().as_secs_f64();
    println!("idle: {rate} statements a second{took}");
    assert!(rate <= IDLE_ON_SQLITE, "{rate} statements a second{took}");
}
