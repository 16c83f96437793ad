//! The card of a held call: what surrounds it, and what a person can do about it besides the decision.

mod delegate;
mod detail;
mod extend;
mod notices;
mod refused;
mod resolve;
mod words;

use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, probes};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A server whose client is `alice` of `acme`. A `chief` approves calls of `pay`, `break` and `refuse`; `refuse`
/// requires an approver other than the requester. An `admin` operates the server.
async fn office_with(change: impl FnOnce(&mut Config)) -> Embedded {
    let mut app = Embedded::with(|config: &mut Config| {
        staff(config);
        change(config);
    })
    .await;
    app.client = acme(&app, "alice", &[]);
    app
}

fn staff(config: &mut Config) {
    with_tokens(config);
    config.auth.operator_roles = names(&["admin"]);
    let approved = ToolRules { approve_roles: names(&["chief"]), ..ToolRules::default() };
    config.tools.rules.insert("refuse".to_owned(), ToolRules { other_person: true, ..approved.clone() });
    config.tools.rules.insert("break".to_owned(), approved.clone());
    config.tools.rules.insert("pay".to_owned(), approved);
}

/// The same server, started again with a changed configuration.
async fn reopened(app: Embedded, change: impl FnOnce(&mut Config)) -> Embedded {
    let tools = probes(&app.ledger);
    let mut app = app
        .redeploy_with(tools, |config| {
            staff(config);
            change(config);
        })
        .await;
    app.client = acme(&app, "alice", &[]);
    app
}

async fn office() -> Embedded {
    office_with(|_| {}).await
}

/// A client for this user of the tenant `acme`.
fn acme(app: &Embedded, user: &str, roles: &[&str]) -> Client {
    app.client.as_user("acme", user, roles)
}

fn chief(app: &Embedded) -> Client {
    acme(app, "carol", &["chief"])
}
