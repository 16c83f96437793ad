//! A10: a decision passes the same checks on every surface. A handler is another surface in this process,
//! which no request reaches.

use holdpoint::config::{Config, ToolRules};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::ui::{ui_answer, ui_assistant, ui_submit_at, ui_user};
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, Socket, call, probes};
use serde_json::{Value, json};

/// The surface on which a decision comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surface {
    Validate,
    Batch,
    /// Within the history that a page of AI SDK 6 posts.
    Page,
    Run,
    Session,
    Socket,
}

const ALL: [Surface; 6] =
    [Surface::Validate, Surface::Batch, Surface::Page, Surface::Run, Surface::Session, Surface::Socket];

/// The surfaces that are open to others than the thread's user.
const OPEN_TO_APPROVERS: [Surface; 5] =
    [Surface::Validate, Surface::Batch, Surface::Run, Surface::Session, Surface::Socket];

/// A held call with its thread, run and message.
struct HeldCall {
    thread: String,
    run: String,
    message: String,
    call: String,
}

/// The result of a request: the status, and the error code if it is an error.
type StatusAndCode = (u64, String);

fn refused(status: u64, code: &str) -> StatusAndCode {
    (status, code.to_owned())
}

/// The result of an answer with its own status.
fn answered(answer: &Answer) -> StatusAndCode {
    (u64::from(answer.status), answer.code().to_owned())
}

/// The result of a decision within another response.
fn within(status: &Value, body: &Value) -> StatusAndCode {
    (status.as_u64().unwrap(), body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

impl Surface {
    /// Sends this verdict as this client. Returns the result.
    async fn sends_verdict(self, client: &Client, held: &HeldCall, yes: bool) -> StatusAndCode {
        let HeldCall { thread, run, message, call } = held;
        let decision = json!({ "toolCallId": call, "isValidated": yes });
        match self {
            Self::Validate => answered(&client.validate(&decision).await),
            Self::Batch => {
                let answer = client.post("/qa/validate_tools", &json!({ "decisions": [decision] })).await;
                match &answer.body["results"][0] {
                    Value::Null => answered(&answer),
                    item => within(&item["status"], item),
                }
            }
            Self::Page => {
                let posted = ui_assistant(message, &json!([ui_answer(call, "pay", yes)]));
                let body = ui_submit_at(thread, &[ui_user("u", "pay twice"), posted], message);
                let (status, code) = client.ui_turn_in(thread, &body).await.refused();
                (u64::from(status), code)
            }
            Self::Run => {
                let path = format!("/runs/{run}/{}", if yes { "approve" } else { "reject" });
                answered(&client.post(&path, &json!({ "tool_call_id": call })).await)
            }
            Self::Session => {
                let decision = if yes { "allow_once" } else { "deny" };
                let path = format!("/sessions/{thread}/approvals/{call}");
                answered(&client.post(&path, &json!({ "decision": decision })).await)
            }
            Self::Socket => {
                let ticket = client.post("/tickets", &json!({})).await;
                let path = match ticket.body["ticket"].as_str() {
                    Some(ticket) => format!("/ws?ticket={ticket}"),
                    None => "/ws".to_owned(),
                };
                match Socket::open(client, &path, &[]).await {
                    Ok(mut socket) => {
                        let decision = if yes { "approve" } else { "reject" };
                        let decide = json!({ "tool_call_id": call, "decision": decision, "resume": false });
                        let (status, body) = socket.ask(&json!(call), &decide).await;
                        within(&json!(status), &body)
                    }
                    Err(status) => (u64::from(status), ticket.code().to_owned()),
                }
            }
        }
    }
}

fn rule(config: &mut Config, tool: &str, rules: ToolRules) {
    config.tools.rules.insert(tool.to_owned(), rules);
}

/// Chiefs approve calls of `pay`, `refuse` and `wait_for_me`; `refuse` requires an approver other than the
/// requester, and `wait_for_me` requires two. The role `clerk` is required to have calls of `mumble`.
fn rules(config: &mut Config) {
    with_tokens(config);
    config.limits.requests_per_minute = Some(0);
    config.limits.turns_per_minute = Some(0);
    config.limits.decisions_per_minute = Some(0);
    let chief = || vec!["chief".to_owned()];
    rule(config, "pay", ToolRules { approve_roles: chief(), ..ToolRules::default() });
    rule(config, "refuse", ToolRules { approve_roles: chief(), other_person: true, ..ToolRules::default() });
    rule(config, "wait_for_me", ToolRules { approve_roles: chief(), approvals: 2, ..ToolRules::default() });
    rule(config, "mumble", ToolRules { run_roles: vec!["clerk".to_owned()], ..ToolRules::default() });
}

/// A held call and another one of another tool beside it, so that the run waits whatever becomes of the first.
async fn held(app: &Embedded, user: &Client, tool: &str) -> HeldCall {
    let thread = user.thread().await;
    let call = |id: &str, tool: &str| call(id, tool, &json!({ "note": id }));
    app.scene.calls(&[call("one", tool), call("two", "break")]);
    let call = user.send_message(&thread, "pay twice").await.pending()[0].clone();
    let now = user.call(&call).await;
    let part_of = |of: &str| now[of].as_str().unwrap().to_owned();
    HeldCall { run: part_of("run_id"), message: part_of("message_id"), thread, call }
}

/// The state of the call in the rows, and whether an approval is recorded.
async fn stored_state(app: &Embedded, held: &HeldCall) -> (String, bool) {
    let id = &held.call;
    let state = format!("SELECT state FROM tool_calls WHERE tool_call_id = '{id}'");
    let yes = format!("SELECT verdict FROM decisions WHERE tool_call_id = '{id}' AND verdict = 'approve'");
    let state = app.rows.all(&state).await[0].text("state").to_owned();
    (state, !app.rows.all(&yes).await.is_empty())
}

/// An obstacle that prevents an approval.
#[derive(Debug, Clone, Copy)]
enum Obstacle {
    /// The request has no token.
    Nobody,
    /// The user belongs to the tenant and has no relation to the call.
    OtherUser,
    /// The user's role does not match the tool.
    WrongRole,
    /// The user has the same name in another tenant.
    OtherTenant,
    /// The requester approves where another person is required.
    OtherPersonWanted,
    /// The requester no longer has the role for the tool.
    RoleLost,
    /// The session forbids the tool since the call was held, and so the call is rejected.
    Forbidden,
    Expired,
    Cancelled,
    Rejected,
    ThreadDeleted,
}

const OBSTACLES: [Obstacle; 11] = [
    Obstacle::Nobody,
    Obstacle::OtherUser,
    Obstacle::WrongRole,
    Obstacle::OtherTenant,
    Obstacle::OtherPersonWanted,
    Obstacle::RoleLost,
    Obstacle::Forbidden,
    Obstacle::Expired,
    Obstacle::Cancelled,
    Obstacle::Rejected,
    Obstacle::ThreadDeleted,
];

impl Obstacle {
    /// The tool whose call meets this obstacle.
    const fn tool(self) -> &'static str {
        match self {
            Self::OtherPersonWanted => "refuse",
            Self::RoleLost => "mumble",
            _ => "pay",
        }
    }

    /// Creates the obstacle for this call. Returns the client that tries to approve the call.
    async fn arrange(self, app: &Embedded, alice: &Client, held: &HeldCall) -> Client {
        let nobody = &app.client;
        match self {
            Self::Nobody => return nobody.clone(),
            Self::OtherUser => return nobody.as_user("acme", "bob", &[]),
            Self::WrongRole => return nobody.as_user("acme", "bob", &["boss", "Chief", "clerk"]),
            Self::OtherTenant => return nobody.as_user("other", "alice", &["chief", "clerk"]),
            Self::RoleLost => return nobody.as_user("acme", "alice", &[]),
            Self::OtherPersonWanted => {}
            Self::Forbidden => {
                let path = alice.url(&format!("/sessions/{}/policy", held.thread));
                let tighter = alice.http.put(path).json(&json!({ "tools": { "pay": "deny" } }));
                alice.send(tighter).await.has_status(200);
            }
            Self::Expired => {
                let id = &held.call;
                let end =
                    format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
                assert_eq!(app.rows.change(&end).await, Ok(1));
            }
            Self::Cancelled => {
                let path = format!("/tool_calls/{}/cancel", held.call);
                alice.post(&path, &json!({})).await.has_status(200);
            }
            Self::Rejected => assert_eq!(alice.reject(&held.call).await.status, 200),
            Self::ThreadDeleted => {
                assert_eq!(alice.delete(&format!("/threads/{}", held.thread)).await.status, 204);
            }
        }
        alice.clone()
    }

    /// The expected result of the approval.
    fn answer(self, surface: Surface) -> StatusAndCode {
        match (self, surface) {
            (Self::Nobody, _) => refused(401, "unauthenticated"),
            (Self::OtherUser | Self::WrongRole | Self::OtherTenant | Self::ThreadDeleted, _) => {
                refused(404, "not_found")
            }
            (Self::OtherPersonWanted | Self::RoleLost, _) => refused(403, "forbidden"),
            // The page receives the state of each call and a new request for the pending one.
            (Self::Forbidden | Self::Expired | Self::Cancelled | Self::Rejected, Surface::Page) => {
                refused(200, "")
            }
            (Self::Expired, _) => refused(409, "expired"),
            (Self::Cancelled, _) => refused(409, "cancelled"),
            (Self::Forbidden | Self::Rejected, _) => refused(409, "already_decided"),
        }
    }

    /// The state of the call in the end.
    const fn leaves(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Cancelled | Self::ThreadDeleted => "cancelled",
            Self::Forbidden | Self::Rejected => "rejected",
            _ => "pending",
        }
    }
}

#[tokio::test]
async fn a10_every_obstacle_prevents_an_approval_on_every_surface() {
    let app = Embedded::with(rules).await;
    let alice = app.client.as_user("acme", "alice", &["clerk"]);
    for obstacle in OBSTACLES {
        for surface in ALL {
            let held = held(&app, &alice, obstacle.tool()).await;
            let who = obstacle.arrange(&app, &alice, &held).await;
            let case = format!("{obstacle:?}, {surface:?}");
            for _ in 0..2 {
                assert_eq!(
                    surface.sends_verdict(&who, &held, true).await,
                    obstacle.answer(surface),
                    "{case}"
                );
                assert_eq!(stored_state(&app, &held).await, (obstacle.leaves().to_owned(), false), "{case}");
            }
        }
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a10_unauthorized_users_cannot_reject_a_call_on_any_surface() {
    let app = Embedded::with(rules).await;
    let alice = app.client.as_user("acme", "alice", &["clerk"]);
    for obstacle in [Obstacle::Nobody, Obstacle::OtherUser, Obstacle::WrongRole, Obstacle::OtherTenant] {
        for surface in ALL {
            let held = held(&app, &alice, "pay").await;
            let who = obstacle.arrange(&app, &alice, &held).await;
            let case = format!("{obstacle:?}, {surface:?}");
            assert_eq!(surface.sends_verdict(&who, &held, false).await, obstacle.answer(surface), "{case}");
            assert_eq!(stored_state(&app, &held).await.0, "pending", "{case}");
        }
    }
    // A user without the right to approve may still reject.
    for obstacle in [Obstacle::OtherPersonWanted, Obstacle::RoleLost, Obstacle::Forbidden] {
        for surface in ALL {
            let held = held(&app, &alice, obstacle.tool()).await;
            let who = obstacle.arrange(&app, &alice, &held).await;
            let case = format!("{obstacle:?}, {surface:?}");
            assert_eq!(surface.sends_verdict(&who, &held, false).await, refused(200, ""), "{case}");
            assert_eq!(stored_state(&app, &held).await.0, "rejected", "{case}");
        }
    }
}

#[tokio::test]
async fn a10_a_call_is_decided_only_through_its_own_run_session_or_thread() {
    let app = Embedded::with(rules).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let (one, other) = (held(&app, &alice, "pay").await, held(&app, &alice, "pay").await);
    let crossed = HeldCall {
        thread: other.thread.clone(),
        run: other.run.clone(),
        message: other.message.clone(),
        call: one.call.clone(),
    };
    for surface in [Surface::Run, Surface::Session] {
        assert_eq!(
            surface.sends_verdict(&alice, &crossed, true).await,
            refused(404, "not_found"),
            "{surface:?}"
        );
    }
    // The page's answer for a call that its thread does not have is ignored.
    assert_eq!(Surface::Page.sends_verdict(&alice, &crossed, true).await, refused(200, ""));
    assert_eq!(stored_state(&app, &one).await, ("pending".to_owned(), false));
    assert_eq!(stored_state(&app, &other).await, ("pending".to_owned(), false));
}

#[tokio::test]
async fn a10_an_approver_is_recorded_on_every_surface_and_the_call_runs_once() {
    let app = Embedded::with(rules).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    for surface in OPEN_TO_APPROVERS {
        let held = held(&app, &alice, "pay").await;
        for _ in 0..2 {
            assert_eq!(surface.sends_verdict(&carol, &held, true).await, refused(200, ""), "{surface:?}");
        }
        let call = alice.becomes(&held.call, "succeeded").await;
        assert_eq!(call["decision"]["by"], "user:carol", "{surface:?}");
        let late = surface.sends_verdict(&carol, &held, false).await;
        assert_eq!(late, refused(409, "already_decided"), "{surface:?}");
    }
    // A thread belongs to its user; an approver decides on other surfaces.
    let of_page = held(&app, &alice, "pay").await;
    assert_eq!(Surface::Page.sends_verdict(&carol, &of_page, true).await, refused(404, "not_found"));
    assert_eq!(Surface::Page.sends_verdict(&alice, &of_page, true).await, refused(200, ""));
    assert_eq!(alice.becomes(&of_page.call, "succeeded").await["decision"]["by"], "user:alice");
    assert_eq!(app.ledger.lines(), ["pay one"; 6]);
}

#[tokio::test]
async fn a10_one_of_two_approvals_is_not_enough_on_any_surface() {
    let app = Embedded::with(rules).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let carol = app.client.as_user("acme", "carol", &["chief"]);
    for surface in ALL {
        let held = held(&app, &alice, "wait_for_me").await;
        // A page below the quorum receives the approval request again.
        let short = refused(if surface == Surface::Page { 200 } else { 202 }, "");
        for _ in 0..2 {
            assert_eq!(surface.sends_verdict(&alice, &held, true).await, short, "{surface:?}");
            assert_eq!(stored_state(&app, &held).await, ("pending".to_owned(), true), "{surface:?}");
        }
        app.ledger.release.add_permits(1);
        let second = if surface == Surface::Page { Surface::Validate } else { surface };
        assert_eq!(second.sends_verdict(&carol, &held, true).await, refused(200, ""), "{surface:?}");
        alice.becomes(&held.call, "succeeded").await;
    }
    assert_eq!(app.ledger.lines(), ["wait_for_me one"; 6]);
}

#[tokio::test]
async fn a10_an_approval_of_a_removed_tool_is_refused_on_every_surface() {
    let app = Embedded::with(rules).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    let mut waiting = Vec::new();
    for _ in ALL {
        waiting.push(held(&app, &alice, "pay").await);
    }
    let ledger = app.ledger.clone();
    let app = app.redeploy_with(ToolRegistry::new(), with_tokens).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    for (surface, held) in ALL.into_iter().zip(&waiting) {
        let gone = refused(409, "tool_unavailable");
        assert_eq!(surface.sends_verdict(&alice, held, true).await, gone, "{surface:?}");
        assert_eq!(stored_state(&app, held).await, ("pending".to_owned(), false), "{surface:?}");
    }
    let app = app.redeploy_with(probes(&ledger), with_tokens).await;
    let alice = app.client.as_user("acme", "alice", &[]);
    for (surface, held) in ALL.into_iter().zip(&waiting) {
        assert_eq!(surface.sends_verdict(&alice, held, true).await, refused(200, ""), "{surface:?}");
        alice.becomes(&held.call, "succeeded").await;
    }
    assert_eq!(ledger.lines(), ["pay one"; 6]);
}
