//! Session policies: permissions and effects.

use super::{decision, made, names};
use holdpoint::config::{Config, ToolRules};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, Weigh, call, probes};
use serde_json::{Value, json};

/// A server with tokens and a client for `alice` of `acme`. An `admin` is an operator.
async fn office_with(change: impl FnOnce(&mut Config)) -> Embedded {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        config.auth.operator_roles = names(&["admin"]);
        change(config);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app
}

async fn office() -> Embedded {
    office_with(|_| {}).await
}

async fn put(client: &Client, session: &str, policy: &Value) -> Answer {
    client.send(client.http.put(client.url(&format!("/sessions/{session}/policy"))).json(policy)).await
}

/// Has the model make a call in this thread, and returns the call.
async fn made_in(app: &Embedded, thread: &str, tool: &str, note: &str) -> Value {
    app.scene.calls(&[call(&format!("p-{note}"), tool, &json!({ "note": note }))]).answers("I see.");
    let turn = app.client.send_message(thread, &format!("please {tool} {note}")).await;
    app.scene.forget();
    app.client.call(turn.all('9')[0].text("toolCallId")).await
}

#[tokio::test]
async fn a_users_policy_tightens_their_own_session_only() {
    let app = office().await;
    let thread = app.client.thread().await;
    let policy = json!({ "mode": "auto-deny", "tools": { "look": "ask" } });
    let answer = put(&app.client, &thread, &policy).await;
    let mut set = policy.clone();
    (set["rejected"], set["allowed"]) = (json!([]), json!([]));
    assert_eq!((answer.status, &answer.body), (200, &set));
    let pay = made_in(&app, &thread, "pay", "1").await;
    assert_eq!((&pay["state"], decision(&pay)[3]), (&json!("rejected"), &json!("session")));
    let look = made_in(&app, &thread, "look", "2").await;
    assert_eq!(
        (&look["state"], &look["reason"]),
        (&json!("pending"), &json!("look runs only with a person's approval in this session"))
    );
    let (_, elsewhere) = made(&app, "look", "3").await;
    assert_eq!(elsewhere["state"], "succeeded");
    // A child thread belongs to the session.
    let child = app.client.post("/threads", &json!({ "parent_id": thread })).await.body;
    let child = child.text("thread_id");
    assert_eq!(made_in(&app, child, "pay", "4").await["state"], "rejected");
    assert_eq!(put(&app.client, child, &policy).await.status, 404, "a session has the id of its root");
}

#[tokio::test]
async fn only_an_operator_loosens_a_session_policy() {
    let app = office().await;
    let admin = app.client.as_user("acme", "root", &["admin"]);
    let thread = app.client.thread().await;
    for (loose, tool) in
        [(json!({ "mode": "auto-approve" }), "break"), (json!({ "tools": { "pay": "allow" } }), "pay")]
    {
        let refused = put(&app.client, &thread, &loose).await;
        assert_eq!(refused.failure(), (403, "forbidden"), "{loose}");
        assert!(refused.body.to_string().contains(&format!("{tool} would go further")), "{:?}", refused.body);
    }
    assert_eq!(made_in(&app, &thread, "pay", "1").await["state"], "pending");
    put(&admin, &thread, &json!({ "tools": { "pay": "allow" } })).await.has_status(200);
    let pay = made_in(&app, &thread, "pay", "2").await;
    assert_eq!((&pay["state"], decision(&pay)[3]), (&json!("succeeded"), &json!("session")));
    put(&admin, &thread, &json!({ "tools": { "pay": "deny" } })).await.has_status(200);
    let refused = put(&app.client, &thread, &json!({})).await;
    assert_eq!(refused.status, 403, "the user cannot lift what an operator forbids");
    assert_eq!(app.ledger.lines(), ["pay 2"]);
}

#[tokio::test]
async fn a_held_call_that_its_session_forbids_is_rejected_and_no_approval_runs_it() {
    let app = office().await;
    let (thread, id) = app.held("pay", "1").await;
    app.scene.answers("Then not.");
    let set = put(&app.client, &thread, &json!({ "tools": { "pay": "deny" } })).await;
    assert_eq!((set.status, &set.body["rejected"]), (200, &json!([id])));
    let late = app.client.approve(&id).await;
    late.failed_with(409, "already_decided");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn the_policy_of_another_users_session_gets_404() {
    let app = office().await;
    let thread = app.client.thread().await;
    for other_user in [
        app.client.as_user("acme", "bob", &[]),
        app.client.as_user("globex", "alice", &[]),
        app.client.as_user("globex", "root", &["admin"]),
    ] {
        put(&other_user, &thread, &json!({ "mode": "auto-deny" })).await.has_status(404);
    }
    assert_eq!(made_in(&app, &thread, "pay", "1").await["state"], "pending");
}

#[tokio::test]
async fn an_invalid_policy_is_refused_by_its_field() {
    let app = office().await;
    let thread = app.client.thread().await;
    for (wrong, status, named) in [
        (json!({ "mode": "yolo" }), 400, "mode"),
        (json!({ "tools": { "pay": "maybe" } }), 400, "tools"),
        (json!({ "tools": { "fly": "deny" } }), 422, "fly"),
        (json!({ "tool": {} }), 400, "tool"),
    ] {
        let refused = put(&app.client, &thread, &wrong).await;
        assert_eq!(refused.status, status, "{wrong}");
        assert!(refused.body["error"].text("message").contains(named), "{:?}", refused.body);
    }
}

/// A server that takes over from this one with other tools, and a client for alice.
async fn deployed(app: Embedded, tools: ToolRegistry) -> Embedded {
    let app = app.redeploy_with(tools, |config| {
        with_tokens(config);
        config.auth.operator_roles = names(&["admin"]);
    });
    let mut app = Box::pin(app).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app
}

#[tokio::test]
async fn an_operators_policy_for_tools_that_this_process_lacks_stays_in_force() {
    let app = office().await;
    let thread = app.client.thread().await;
    let admin = app.client.as_user("acme", "root", &["admin"]);
    let output = json!({ "mode": "manual", "tools": { "pay": "deny", "look": "ask", "refuse": "allow" } });
    put(&admin, &thread, &output).await.has_status(200);

    let mut few = ToolRegistry::new();
    few.register(Weigh(app.ledger.clone())).unwrap();
    let app = deployed(app, few).await;
    for (looser, named) in [
        (json!({}), "look"),
        (json!({ "mode": "manual" }), "look"),
        (json!({ "mode": "manual", "tools": { "pay": "deny" } }), "look"),
        (json!({ "mode": "manual", "tools": { "pay": "ask", "look": "ask" } }), "pay"),
        (json!({ "mode": "manual", "tools": { "pay": "deny", "look": "allow" } }), "look"),
        (json!({ "tools": { "pay": "deny", "look": "ask" } }), "mode"),
        (json!({ "mode": "auto-approve", "tools": { "pay": "deny", "look": "ask" } }), "weigh"),
    ] {
        let refused = put(&app.client, &thread, &looser).await;
        assert_eq!(refused.failure(), (403, "forbidden"), "{looser}");
        assert!(refused.message().contains(named), "{looser}: {}", refused.message());
    }
    // The same policy or a tighter one is accepted. Other tools that this process lacks are unknown.
    put(&app.client, &thread, &output).await.has_status(200);
    let tighter = json!({ "mode": "auto-deny", "tools": { "pay": "deny", "look": "deny" } });
    put(&app.client, &thread, &tighter).await.has_status(200);
    let unknown = json!({ "mode": "auto-deny", "tools": { "pay": "deny", "look": "deny", "tidy": "deny" } });
    assert_eq!(put(&app.client, &thread, &unknown).await.code(), "unknown_tool");

    let all = probes(&app.ledger);
    let app = deployed(app, all).await;
    for tool in ["pay", "look"] {
        let call = made_in(&app, &thread, tool, "1").await;
        assert_eq!((&call["state"], decision(&call)[3]), (&json!("rejected"), &json!("session")), "{tool}");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_user_cannot_lift_a_session_rule_that_the_operators_policy_covers() {
    let app = office_with(|config| {
        config.approval.always_deny = names(&["pay"]);
        config.approval.always_allow = names(&["look"]);
    })
    .await;
    let thread = app.client.thread().await;
    let admin = app.client.as_user("acme", "root", &["admin"]);
    put(&admin, &thread, &json!({ "tools": { "pay": "deny", "look": "ask" } })).await.has_status(200);
    for looser in [json!({ "tools": { "look": "ask" } }), json!({ "tools": { "pay": "deny" } })] {
        assert_eq!(put(&app.client, &thread, &looser).await.status, 403, "{looser}");
    }
    let all = probes(&app.ledger);
    let app = deployed(app, all).await;
    assert_eq!(made_in(&app, &thread, "pay", "1").await["state"], "rejected");
    assert_eq!(made_in(&app, &thread, "look", "2").await["state"], "pending");
}

#[tokio::test]
async fn a_user_cannot_allow_a_tool_ahead_of_a_build_in_which_it_asks() {
    let app = office().await;
    let thread = app.client.thread().await;
    let refused = put(&app.client, &thread, &json!({ "tools": { "look": "allow" } })).await;
    refused.failed_with(403, "forbidden");
}

#[tokio::test]
async fn a_policy_request_reveals_nothing_about_hidden_tools() {
    let for_chiefs = ToolRules { run_roles: names(&["chief"]), ..ToolRules::default() };
    let app = office_with(|config| drop(config.tools.rules.insert("pay".to_owned(), for_chiefs))).await;
    let thread = app.client.thread().await;
    let (hidden, none) = (json!({ "tools": { "pay": "deny" } }), json!({ "tools": { "fly": "deny" } }));
    // In a session of another user every policy gets the same answer.
    let bob = app.client.as_user("acme", "bob", &[]);
    for policy in [&hidden, &none] {
        put(&bob, &thread, policy).await.has_status(404);
    }
    let [hidden_here, none_here] =
        [put(&app.client, &thread, &hidden).await, put(&app.client, &thread, &none).await];
    hidden_here.failed_with(422, "unknown_tool");
    assert_eq!(hidden_here.message().replace("pay", "fly"), none_here.message());
    let admin = app.client.as_user("acme", "root", &["admin"]);
    put(&admin, &thread, &hidden).await.has_status(200);
    put(&admin, &thread, &none).await.has_status(422);
    let chief = app.client.as_user("acme", "alice", &["chief"]);
    put(&chief, &thread, &hidden).await.has_status(200);
}
