//! Roles: permissions to run a tool, to see its calls and to decide them.

mod approve;
mod other_person;
mod record;
mod rules;
mod run;

use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Client, Embedded};

/// An id that names nothing.
const UNKNOWN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn rule(config: &mut Config, tool: &str, run: &[&str], approve: &[&str], other_person: bool) {
    let roles = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (run_roles, approve_roles) = (roles(run), roles(approve));
    let rules = ToolRules { run_roles, approve_roles, other_person, ..ToolRules::default() };
    config.tools.rules.insert(tool.to_owned(), rules);
}

/// A server with tokens and a client for `alice` of `acme`. Calls of `look` need the role `clerk`. A `chief`
/// approves calls of `pay`, `refuse` and `wait_for_me`. Calls of `refuse` need the approval of another
/// person.
async fn office() -> Embedded {
    office_with(|_| {}).await
}

async fn office_with(change: impl FnOnce(&mut Config)) -> Embedded {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        rule(config, "look", &["clerk"], &[], false);
        rule(config, "pay", &[], &["chief"], false);
        rule(config, "wait_for_me", &[], &["chief"], false);
        rule(config, "refuse", &[], &["boss", "chief"], true);
        change(config);
    })
    .await;
    app.client = acme(&app, "alice", &[]);
    app
}

/// A client for this user of the tenant `acme`.
fn acme(app: &Embedded, user: &str, roles: &[&str]) -> Client {
    app.client.as_user("acme", user, roles)
}

/// The row of a call, its decisions and its events, as JSON text, without the records of refused decisions.
async fn all_of(app: &Embedded, call: &str) -> String {
    let mut rows = Vec::new();
    for (table, order) in [("tool_calls", "tool_call_id"), ("decisions", "at"), ("events", "event_id")] {
        let refused = if table == "events" { " AND type <> 'tool.decision_refused'" } else { "" };
        let sql = format!("SELECT * FROM {table} WHERE tool_call_id = '{call}'{refused} ORDER BY {order}");
        rows.extend(app.rows.all(&sql).await);
    }
    serde_json::Value::Array(rows).to_string()
}

#[track_caller]
fn is_not_there(answer: &Answer) {
    let expected = serde_json::json!({ "error": { "code": "not_found",
        "message": "There is nothing here, or nothing for you." } });
    assert_eq!((answer.status, &answer.body), (404, &expected));
}
