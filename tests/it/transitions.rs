//! The database accepts exactly the state transitions of a call that the server defines.

use crate::support::{Embedded, postgres};
use holdpoint::app::CALL_STATES;
use holdpoint::config::Config;
use std::time::Duration;

/// The source state, the target state, and the guard of the transition.
type LegalMove = (&'static str, &'static str, &'static str);

macro_rules! legal {
    ($($from:ident => $to:ident if $guard:ident;)+) => {
        const LEGAL: &[LegalMove] = &[$((stringify!($from), stringify!($to), stringify!($guard))),+];
    };
}

include!("../../src/store/legal_transitions.rs");

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
             exec_id = 'x-' || (exec_attempt + 1)"
        ),
        "succeeded" => format!("{yes}, {ended}, output = '1'"),
        "failed" | "interrupted" => format!("{yes}, {ended}, output = NULL"),
        _ => format!("{no}, {ended}, output = NULL"),
    };
    format!("state = '{state}', {facts}")
}

/// A sequence of states that a call can have passed.
#[derive(Debug)]
struct Way {
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

impl Way {
    fn all() -> impl Iterator<Item = Self> {
        let once = [true, false]
            .into_iter()
            .flat_map(|idempotent| ONCE.iter().map(move |states| Self { idempotent, states }));
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
    async fn make(&mut self, way: &Way) -> String {
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
                 exec_attempt, created_at, validated, decided_by, decided_at, finished_at, result)
             SELECT '{id}', thread_id, tenant_id, message_id, step, {n}, run_id, '', '{id}', name, arguments, schema_hash, {held},
                 {idempotent}, risk_level, '{first}', expires_at, 0, created_at, {facts}
             FROM tool_calls WHERE tool_call_id = '{from}'"
        );
        assert_eq!(self.app.rows.change(&insert).await, Ok(1), "{way:?}");
        for (n, state) in rest.iter().enumerate() {
            assert_eq!(self.to(&id, state).await, Ok(1), "{way:?}: {state}");
            if n == 0 && *state == "approved" {
                let decided = format!(
                    "INSERT INTO decisions (decision_id, tool_call_id, actor, verdict, final, edited, input_hash, surface, at)
                     VALUES ('{id}', '{id}', 'user:x', 'approve', TRUE, FALSE, 'x', 'rest', 1)"
                );
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
    for way in Way::all() {
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
