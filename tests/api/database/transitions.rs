//! The database accepts exactly the state transitions of a call and of a run that the server defines.

use holdpoint::app::CALL_STATES;
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, postgres};
use std::time::Duration;

/// The source state, the target state, and the guard of the transition.
type LegalMove = (&'static str, &'static str, &'static str);

macro_rules! legal {
    ($($from:ident => $to:ident if $guard:ident;)+) => {
        const LEGAL: &[LegalMove] = &[$((stringify!($from), stringify!($to), stringify!($guard))),+];
    };
}

include!("../../../crates/holdpoint-store/src/call/legal_transitions.rs");

macro_rules! legal_runs {
    ($($from:ident => $to:ident;)+) => {
        const LEGAL_RUNS: &[(&str, &str)] = &[$((stringify!($from), stringify!($to))),+];
    };
}

include!("../../../crates/holdpoint-store/src/run/legal_run_transitions.rs");

/// The assignments that bring a row of a call into this state, with every column that the state requires.
fn assignments(state: &str) -> String {
    let decided = "decided_by = COALESCE(decided_by, 'user:x'), decided_at = COALESCE(decided_at, 1)";
    let open = "result = NULL, output = NULL, finished_at = NULL";
    let ended = "result = 'x', finished_at = 1, lease_until = NULL";
    let yes = format!("validated = TRUE, {decided}");
    let no = format!("validated = COALESCE(validated, FALSE), {decided}");
    let facts = match state {
        "pending" => format!("validated = NULL, decided_by = NULL, decided_at = NULL, lease_until = NULL, {open}"),
        "approved" => format!("{yes}, {open}, lease_until = NULL, start_deadline = 1"),
        "executing" => format!(
            "{yes}, {open}, lease_until = 1, started_at = 1, exec_owner = 'x', exec_attempt = exec_attempt + 1,
             exec_id = 'x-' || (exec_attempt + 1), start_deadline = COALESCE(start_deadline, 1)"
        ),
        "succeeded" => format!("{yes}, {ended}, output = '1'"),
        "failed" | "interrupted" => format!("{yes}, {ended}, output = NULL"),
        _ => format!("{no}, {ended}, output = NULL"),
    };
    format!("state = '{state}', {facts}")
}

/// A sequence of states that a call can have passed.
#[derive(Debug)]
struct StatePath {
    idempotent: bool,
    states: &'static [&'static str],
}

const ONCE: &[&[&str]] = &[
    &["pending"],
    &["pending", "approved"],
    &["pending", "approved", "executing"],
    &["pending", "approved", "executing", "succeeded"],
    &["pending", "approved", "executing", "failed"],
    &["pending", "approved", "failed"],
    &["pending", "approved", "executing", "interrupted"],
    &["pending", "rejected"],
    &["pending", "expired"],
    &["pending", "cancelled"],
    &["pending", "approved", "cancelled"],
    &["invalid"],
];

const AGAIN: &[&[&str]] = &[
    &["pending", "approved", "executing", "approved"],
    &["pending", "approved", "executing", "approved", "executing", "approved"],
    &["pending", "approved", "executing", "approved", "executing", "approved", "executing"],
    &["pending", "approved", "executing", "approved", "interrupted"],
];

/// The states of calls that began in the statement of their decision. SQLite has no such statement.
const AT_ONCE: &[&[&str]] = &[&["pending", "executing"], &["pending", "executing", "succeeded"]];

impl StatePath {
    fn all(on_postgres: bool) -> impl Iterator<Item = Self> {
        let once = ONCE.iter().chain(AT_ONCE.iter().filter(move |_| on_postgres));
        let once = once.flat_map(|states| [true, false].map(|idempotent| Self { idempotent, states }));
        once.chain(AGAIN.iter().map(|states| Self { idempotent: true, states }))
    }

    fn state(&self) -> &'static str {
        self.states.last().unwrap()
    }

    fn attempts(&self) -> usize {
        self.states.iter().filter(|state| **state == "executing").count()
    }

    /// Whether the server's table allows this transition for a call with this history.
    fn leads_to(&self, to: &str) -> bool {
        let legal = LEGAL
            .iter()
            .find(|(from, into, _)| from.eq_ignore_ascii_case(self.state()) && into.eq_ignore_ascii_case(to));
        let repeatable = self.idempotent && self.attempts() < 3;
        legal.is_some_and(|(_, _, guard)| match *guard {
            "always" => true,
            // A statement without the decision is refused.
            "with_decision" => false,
            "never_claimed" => self.attempts() == 0,
            "claimed_before" => self.attempts() > 0,
            "startable" => self.attempts() == 0 || repeatable,
            "repeatable" => repeatable,
            other => panic!("an unknown guard {other}"),
        })
    }
}

/// Creates calls from a real one.
struct Maker<'a> {
    app: &'a Embedded,
    pending: String,
    made: usize,
}

impl Maker<'_> {
    /// Creates a call with this history.
    async fn make(&mut self, way: &StatePath) -> String {
        self.made += 1;
        let id = format!("made-{}", self.made);
        let (first, rest) = way.states.split_first().unwrap();
        let (held, facts) = match *first {
            "pending" => ("TRUE", "NULL, NULL, NULL, NULL, NULL"),
            _ => ("FALSE", "FALSE, 'system:invalid', 1, 1, 'x'"),
        };
        let (idempotent, from, n) = (way.idempotent, &self.pending, self.made);
        let insert = format!(
            "INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id, provider_call_id,
                 wire_call_id, name, arguments, schema_hash, held, idempotent, risk_level, state, expires_at,
                 exec_attempt, created_at, listed_for, validated, decided_by, decided_at, finished_at, result)
             SELECT '{id}', thread_id, tenant_id, message_id, step, {n}, run_id, '', '{id}', name, arguments, schema_hash, {held},
                 {idempotent}, risk_level, '{first}', expires_at, 0, created_at,
                 CASE WHEN {held} THEN listed_for END, {facts}
             FROM tool_calls WHERE tool_call_id = '{from}'"
        );
        assert_eq!(self.app.rows.change(&insert).await, Ok(1), "{way:?}");
        let decided = "INSERT INTO decisions (decision_id, tool_call_id, actor, verdict, final, edited, input_hash, surface, at)";
        let decision = format!("'{id}', '{id}', 'user:x', 'approve', TRUE, FALSE, 'x', 'rest', 1");
        for (n, state) in rest.iter().enumerate() {
            if n == 0 && *state == "executing" {
                let begun = format!(
                    "WITH begun AS (UPDATE tool_calls SET {} WHERE tool_call_id = '{id}' RETURNING 1)
                     {decided} SELECT {decision} FROM begun",
                    assignments(state)
                );
                assert_eq!(self.app.rows.change(&begun).await, Ok(1), "{way:?}");
                continue;
            }
            assert_eq!(self.to(&id, state).await, Ok(1), "{way:?}: {state}");
            if n == 0 && *state == "approved" {
                let decided = format!("{decided} VALUES ({decision})");
                assert_eq!(self.app.rows.change(&decided).await, Ok(1), "{way:?}");
            }
        }
        id
    }

    async fn to(&self, id: &str, state: &str) -> Result<u64, String> {
        let set = assignments(state);
        self.app.rows.change(&format!("UPDATE tool_calls SET {set} WHERE tool_call_id = '{id}'")).await
    }
}

async fn try_every_move(change: impl FnOnce(&mut Config)) {
    let app = Embedded::with(|config| {
        // No sweep moves these calls.
        config.approval.sweep = Duration::from_secs(3600);
        change(config);
    })
    .await;
    let (_, pending) = app.held("pay", "1").await;
    let mut maker = Maker { app: &app, pending, made: 0 };
    let mut wrong = Vec::new();
    for way in StatePath::all(app.rows.is_postgres()) {
        let stays = maker.make(&way).await;
        for to in CALL_STATES.into_iter().filter(|to| *to != way.state()) {
            let legal = way.leads_to(to);
            let id = if legal { maker.make(&way).await } else { stays.clone() };
            match maker.to(&id, to).await {
                Ok(_) if !legal => wrong.push(format!("{way:?}: {to} is taken")),
                Err(words) if legal => wrong.push(format!("{way:?}: {to} is refused: {words}")),
                Ok(_) | Err(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn exactly_the_transitions_of_the_server_are_accepted_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/rows.db", dir.path().display());
    try_every_move(|config| config.database.url = url.into()).await;
}

#[tokio::test]
async fn exactly_the_transitions_of_the_server_are_accepted_on_postgres() {
    let url = postgres().await;
    try_every_move(|config| config.database.url = url.into()).await;
}

const RUN_STATES: [&str; 5] = ["running", "waiting", "completed", "failed", "cancelled"];

/// The columns of a run that its state determines.
const RUN_FACTS: &str = "status, owner, lease_until, error_code, error_message, finished_at";

/// The values of [`RUN_FACTS`] in this state.
fn run_facts(state: &str) -> &'static str {
    match state {
        "running" => "'running', 'x', 1, NULL, NULL, NULL",
        "waiting" => "'waiting', NULL, NULL, NULL, NULL, NULL",
        "completed" => "'completed', NULL, NULL, NULL, NULL, 1",
        "failed" => "'failed', NULL, NULL, 'internal', 'x', 1",
        "cancelled" => "'cancelled', NULL, NULL, NULL, NULL, 1",
        other => panic!("an unknown state {other}"),
    }
}

/// Moves a new run of a new thread from one state to another.
async fn move_run(app: &Embedded, from: &str, to: &str) -> Result<u64, String> {
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    assert_eq!(app.client.send_message(&thread, "hello").await.text(), "Hello.");
    let id = format!("{from}-{to}");
    let insert = format!(
        "INSERT INTO messages (message_id, thread_id, run_id, ordinal, role, created_at)
         SELECT '{id}', thread_id, '{id}', 2, role, created_at FROM messages
         WHERE thread_id = '{thread}' AND role = 'assistant'"
    );
    assert_eq!(app.rows.change(&insert).await, Ok(1), "{id}");
    let insert = format!(
        "INSERT INTO runs (run_id, thread_id, user_message_id, assistant_message_id, roles, server_resumes, created_at,
             {RUN_FACTS})
         SELECT '{id}', thread_id, user_message_id, '{id}', roles, server_resumes, created_at, {facts}
         FROM runs WHERE thread_id = '{thread}'",
        facts = run_facts(from),
    );
    assert_eq!(app.rows.change(&insert).await, Ok(1), "{id}");
    let update =
        format!("UPDATE runs SET ({RUN_FACTS}) = ({facts}) WHERE run_id = '{id}'", facts = run_facts(to));
    app.rows.change(&update).await
}

async fn try_every_run_move(change: impl FnOnce(&mut Config)) {
    let app = Embedded::with(|config| {
        // No sweep closes these runs.
        config.approval.sweep = Duration::from_secs(3600);
        change(config);
    })
    .await;
    let mut wrong = Vec::new();
    for from in RUN_STATES {
        for to in RUN_STATES.into_iter().filter(|to| *to != from) {
            let is_legal = |(one, other): &(&str, &str)| {
                one.eq_ignore_ascii_case(from) && other.eq_ignore_ascii_case(to)
            };
            let moved = move_run(&app, from, to).await;
            let is_right = match &moved {
                Ok(_) => LEGAL_RUNS.iter().any(is_legal),
                Err(words) => {
                    words.contains("illegal transition of a run") && !LEGAL_RUNS.iter().any(is_legal)
                }
            };
            if !is_right {
                wrong.push(format!("{from} to {to}: {moved:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn exactly_the_transitions_of_a_run_are_accepted_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/rows.db", dir.path().display());
    try_every_run_move(|config| config.database.url = url.into()).await;
}

#[tokio::test]
async fn exactly_the_transitions_of_a_run_are_accepted_on_postgres() {
    let url = postgres().await;
    try_every_run_move(|config| config.database.url = url.into()).await;
}
