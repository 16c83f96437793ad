//! Clients that disconnect, in every way and in every phase: their turns and decisions complete without them,
//! exactly once.

mod decisions;
mod turns;

use holdpoint_testkit::{DisconnectKind, Embedded, eventually};
use std::collections::HashSet;

/// Held calls whose state, decision and event disagree. A single query reads all three at one moment.
const HALF_DECIDED: &str = "tool_calls c WHERE held AND NOT (
    (state = 'pending') = (validated IS NULL)
    AND (CASE WHEN validated THEN 1 ELSE 0 END) = (SELECT count(*) FROM decisions d
        WHERE d.tool_call_id = c.tool_call_id AND d.final AND d.verdict = 'approve')
    AND (CASE WHEN validated THEN 1 ELSE 0 END) = (SELECT count(*) FROM events e
        WHERE e.tool_call_id = c.tool_call_id AND e.type = 'tool.approved')
    AND (CASE WHEN NOT validated THEN 1 ELSE 0 END) = (SELECT count(*) FROM decisions d
        WHERE d.tool_call_id = c.tool_call_id AND d.final AND d.verdict = 'reject')
    AND (CASE WHEN NOT validated THEN 1 ELSE 0 END) = (SELECT count(*) FROM events e
        WHERE e.tool_call_id = c.tool_call_id AND e.type = 'tool.rejected'))";

/// Executed calls that are not recorded as executed exactly once: one attempt, one start event and one
/// success event.
const NOT_ONCE: &str = "tool_calls c WHERE state NOT IN ('pending', 'rejected') AND NOT (
    state = 'succeeded' AND exec_attempt = 1
    AND 1 = (SELECT count(*) FROM events e
        WHERE e.tool_call_id = c.tool_call_id AND e.type = 'tool.started')
    AND 1 = (SELECT count(*) FROM events e
        WHERE e.tool_call_id = c.tool_call_id AND e.type = 'tool.succeeded'))";

/// Rounds per way of disconnecting, for tests in which chance chooses the moment.
const ROUNDS: usize = 8;

/// Each way of disconnecting, round by round.
fn in_rounds() -> impl Iterator<Item = (usize, DisconnectKind)> {
    (0..ROUNDS).flat_map(|round| DisconnectKind::ALL.map(|how| (round, how)))
}

/// Lets the server run for a while, a little longer each round, so that the disconnect falls before, within
/// or after a commit, where half of a change could be left.
async fn a_while(app: &Embedded, round: usize) {
    for _ in 0..3 * round {
        app.rows.count("runs").await;
    }
}

/// Asserts the final state, whichever client disconnected when: no row stays in progress, half changed or
/// changed twice. For tests in which every turn completes and every tool succeeds.
async fn all_is_whole(app: &Embedded) {
    let rest = async || (app.rows.count("runs WHERE status = 'running'").await == 0).then_some(());
    eventually("no turn runs", rest).await;
    for cut_off in [
        "runs WHERE status NOT IN ('waiting', 'completed')",
        "message_steps WHERE status <> 'complete'",
        HALF_DECIDED,
        NOT_ONCE,
    ] {
        assert_eq!(app.rows.count(cut_off).await, 0, "{cut_off}");
    }
    let lines = app.ledger.lines();
    assert_eq!(lines.iter().collect::<HashSet<_>>().len(), lines.len(), "nothing ran twice: {lines:?}");
    let ran = app.rows.count("tool_calls WHERE state = 'succeeded'").await;
    assert_eq!(lines.len(), usize::try_from(ran).unwrap(), "what ran is what is written: {lines:?}");
    // Only Postgres has sessions that could stay inside a transaction, and only Postgres has this function.
    if app.rows.change("SELECT pg_backend_pid()").await.is_ok() {
        let inside = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
                      AND state LIKE 'idle in transaction%'";
        let none = async || (app.rows.count(inside).await == 0).then_some(());
        eventually("no session is left inside a transaction", none).await;
    }
}
