//! Visibility and approval rights of a call, for every relation of a user to the call.

use super::{UNKNOWN, acme, ids, list, office};
use holdpoint_testkit::{Client, Embedded, JsonFields};
use serde_json::json;

/// The access that a user has to a call: whether it is listed, whether the user can decide it, and the
/// statuses of a read, an approval and a rejection.
type CallAccess = (bool, Option<bool>, u16, u16, u16);

const DECIDES: CallAccess = (true, Some(true), 200, 200, 200);
const ONLY_REJECTS: CallAccess = (true, Some(false), 200, 403, 200);
const LOOKS: CallAccess = (true, Some(false), 200, 403, 403);
const NOTHING: CallAccess = (false, None, 404, 404, 404);

/// The access that this client has to such a call, on every route that lists it.
async fn found(app: &Embedded, client: &Client, tool: &str, who: &str) -> CallAccess {
    let (thread, yes) = app.held(tool, &format!("yes of {who}")).await;
    let (_, no) = app.held(tool, &format!("no of {who}")).await;
    let inbox = list(client, &format!("/approvals?session_id={thread}")).await;
    let held = inbox.iter().find(|call| call["tool_call_id"] == yes.as_str());
    let can_decide = held.map(|call| call["can_decide"].as_bool().unwrap());
    let can_reject = held.map(|call| call["can_reject"].as_bool().unwrap());
    let listed = can_decide.is_some();
    assert_eq!(ids(client, "/approvals?page_size=200").await.contains(&yes), listed, "{tool} {who}");
    for place in ["threads", "sessions"] {
        let path = |id: &str| format!("/{place}/{id}/approvals");
        if listed {
            assert_eq!(list(client, &path(&thread)).await, inbox, "{tool} {who}");
        } else {
            let (theirs, nobodys) = (client.get(&path(&thread)).await, client.get(&path(UNKNOWN)).await);
            assert_eq!((theirs.status, &theirs.body), (404, &nobodys.body), "{tool} {who}");
        }
    }
    let look = client.get(&format!("/tool_calls/{yes}")).await;
    if let [listed] = &inbox[..] {
        for (field, value) in look.body.as_object().unwrap() {
            assert_eq!(&listed[field], value, "{tool} {who}: {field}");
        }
    }
    let (approved, rejected) = (client.approve(&yes).await, client.reject(&no).await);
    for (answer, id) in [(&approved, &yes), (&rejected, &no)] {
        let stands = app.client.call(id).await["state"] == "pending";
        assert_eq!(stands, answer.status != 200, "{tool} {who}: {answer:?}");
    }
    assert_eq!(can_reject.unwrap_or(false), rejected.status == 200, "{tool} {who}");
    (listed, can_decide, look.status, approved.status, rejected.status)
}

#[tokio::test]
async fn visibility_and_approval_rights_follow_from_the_users_relation_to_the_call_and_its_tool() {
    let app = office().await;
    let of_other = |user: &str, roles: &[&str]| app.client.as_user("other", user, roles);
    for (who, client, [pay, refuse, mumble]) in [
        ("the user", acme(&app, "alice", &[]), [DECIDES, ONLY_REJECTS, DECIDES]),
        ("the user, a chief", acme(&app, "alice", &["chief"]), [DECIDES, ONLY_REJECTS, DECIDES]),
        ("the user, an admin", acme(&app, "alice", &["admin"]), [DECIDES, ONLY_REJECTS, DECIDES]),
        ("a chief", acme(&app, "carol", &["chief"]), [DECIDES, DECIDES, NOTHING]),
        ("an admin", acme(&app, "oscar", &["admin"]), [LOOKS, LOOKS, LOOKS]),
        ("a chief and admin", acme(&app, "olga", &["chief", "admin"]), [DECIDES, DECIDES, LOOKS]),
        ("a stranger", acme(&app, "bob", &["boss", "Admin", "chiefs"]), [NOTHING; 3]),
        ("another alice", of_other("alice", &[]), [NOTHING; 3]),
        ("another chief", of_other("carol", &["chief"]), [NOTHING; 3]),
        ("another admin", of_other("oscar", &["admin", "chief"]), [NOTHING; 3]),
    ] {
        for (tool, expected) in [("pay", pay), ("refuse", refuse), ("mumble", mumble)] {
            assert_eq!(found(&app, &client, tool, who).await, expected, "{who}: {tool}");
        }
    }
}

#[tokio::test]
async fn an_operator_reads_every_call_of_their_tenant_and_cancels_none() {
    let app = office().await;
    let admin = acme(&app, "oscar", &["admin"]);
    let thread = app.client.thread().await;
    app.scene.calls(&[holdpoint_testkit::call("p", "look", &json!({ "note": "a" }))]).answers("Seen.");
    let turn = app.client.send_message(&thread, "look").await;
    let looked = turn.one('9').text("toolCallId").to_owned();
    let held = app.hold_in(&thread, "mumble", "b").await;
    for id in [&looked, &held] {
        assert_eq!(admin.call(id).await, app.client.call(id).await);
        app.client
            .as_user("other", "oscar", &["admin"])
            .get(&format!("/tool_calls/{id}"))
            .await
            .has_status(404);
        admin.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await.has_status(404);
    }
    assert_eq!(admin.approve(&looked).await.status, 404, "the call was not held");
    assert_eq!(admin.get(&format!("/threads/{thread}/messages")).await.status, 404, "calls are all they see");
    assert_eq!(ids(&admin, &format!("/threads/{thread}/approvals")).await, [held]);
    let empty = app.client.thread().await;
    assert_eq!(ids(&admin, &format!("/sessions/{empty}/approvals")).await, Vec::<String>::new());
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    assert_eq!(admin.get(&format!("/tool_calls/{looked}")).await.status, 404, "a deleted call is not found");
}
