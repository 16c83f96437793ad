//! The contents of the lists, their order and their filters.

use super::{UNKNOWN, acme, ids, list, notes, office};
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};

async fn child_of(app: &Embedded, thread: &str) -> String {
    let child = app.client.post("/threads", &json!({ "parent_id": thread })).await.body;
    child.text("thread_id").to_owned()
}

#[tokio::test]
async fn a_listed_call_contains_the_fields_needed_to_decide_it() {
    let app = office().await;
    let (thread, id) = app.held("pay", "10").await;
    let [listed] = &list(&app.client, "/approvals").await[..] else { panic!("one call waits") };
    let mut expected = app.client.call(&id).await;
    let tool = app.client.get("/tools/pay").await.body;
    expected["tool_description"] = tool["description"].clone();
    expected["input_schema"] = tool["input_schema"].clone();
    expected["requested_by"] = json!("user:alice");
    expected["thread_title"] = app.client.get(&format!("/threads/{thread}")).await.body["title"].clone();
    expected["card_parts"] = json!(["inputs"]);
    for right in ["can_decide", "can_edit", "can_remember"] {
        expected[right] = json!(true);
    }
    expected["can_reject"] = json!(true);
    expected["required"] = json!(1);
    expected["approved_by"] = json!([]);
    expected["remind_at"] = listed["remind_at"].clone();
    assert_eq!(listed, &expected);
    assert_eq!((&listed["state"], &listed["validated"]), (&json!("pending"), &Value::Null));
    app.client.approve(&id).await;
    let [done] = &list(&app.client, "/approvals?state=succeeded").await[..] else { panic!("it ran") };
    assert_eq!((&done["can_decide"], &done["approved_by"]), (&json!(false), &json!(["user:alice"])));
    assert_eq!(done["can_reject"], false);
}

#[tokio::test]
async fn only_held_calls_are_listed_by_state() {
    let app = office().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[
        call("p1", "look", &json!({ "note": "ran" })),
        call("p2", "pay", &json!({})),
        call("p3", "pay", &json!({ "note": "wait" })),
    ]);
    app.client.send_message(&thread, "do it all").await;
    let mut of_state = Vec::new();
    for (state, note) in [
        ("pending", "wait"),
        ("succeeded", "yes"),
        ("interrupted", "bad"),
        ("rejected", "no"),
        ("cancelled", "never"),
    ] {
        let tool = if state == "interrupted" { "break" } else { "pay" };
        let id = match state {
            "pending" => String::new(),
            _ => app.hold_in(&thread, tool, note).await,
        };
        match state {
            "succeeded" | "interrupted" => drop(app.client.approve(&id).await),
            "rejected" => drop(app.client.reject(&id).await),
            "cancelled" => drop(app.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await),
            _ => {}
        }
        of_state.push((state, note));
    }
    for (state, note) in of_state {
        let answer = app.client.get(&format!("/approvals?state={state}")).await;
        assert_eq!(notes(&answer), [note], "{state}");
    }
    for state in ["approved", "executing", "failed", "expired", "invalid"] {
        assert_eq!(
            list(&app.client, &format!("/approvals?state={state}")).await,
            Vec::<Value>::new(),
            "{state}"
        );
    }
}

#[tokio::test]
async fn pages_are_newest_first_and_continue_after_the_last_whatever_is_decided_meanwhile() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let mut expected = Vec::new();
    for n in 0..7 {
        expected.insert(0, app.held("pay", &n.to_string()).await.1);
    }
    let of_chief = chief.thread().await;
    app.scene.calls(&[call("own", "mumble", &json!({ "note": "own" }))]);
    expected.insert(0, chief.send_message(&of_chief, "mumble").await.pending().remove(0));
    let (mut seen, mut path) = (Vec::new(), "/approvals?page_size=3".to_owned());
    loop {
        let answer = chief.get(&path).await;
        let page = answer.body.list("results").clone();
        seen.extend(page.iter().map(|call| call.text("tool_call_id").to_owned()));
        // A listed call is decided and leaves the list; the next page still follows the last one.
        chief.reject(&expected[seen.len() - 1]).await;
        let more = answer.body["has_more"].as_bool().unwrap();
        assert_eq!((more, page.len()), (seen.len() < expected.len(), if more { 3 } else { 2 }));
        let Some(cursor) = answer.body.get("next_cursor") else { break assert!(!more) };
        path = format!("/approvals?page_size=3&cursor={}", cursor.as_str().unwrap());
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_list_is_narrowed_to_a_tool_and_to_a_session_with_all_its_threads() {
    let app = office().await;
    let chief = acme(&app, "carol", &["chief"]);
    let (root, first) = app.held("pay", "1").await;
    let child = child_of(&app, &root).await;
    let second = app.hold_in(&child, "refuse", "2").await;
    let (other, third) = app.held("pay", "3").await;
    let own = app.hold_in(&root, "mumble", "4").await;
    for (path, of_chief, of_alice) in [
        ("/approvals".to_owned(), vec![&third, &second, &first], vec![&own, &third, &second, &first]),
        ("/approvals?tool_name=pay".to_owned(), vec![&third, &first], vec![&third, &first]),
        ("/approvals?tool_name=mumble".to_owned(), vec![], vec![&own]),
        ("/approvals?tool_name=nothing".to_owned(), vec![], vec![]),
        (format!("/approvals?session_id={root}"), vec![&second, &first], vec![&own, &second, &first]),
        (format!("/approvals?session_id={root}&tool_name=refuse"), vec![&second], vec![&second]),
        (format!("/approvals?session_id={child}"), vec![], vec![]),
        (format!("/approvals?session_id={UNKNOWN}"), vec![], vec![]),
        (format!("/sessions/{root}/approvals"), vec![&second, &first], vec![&own, &second, &first]),
        (format!("/sessions/{root}/approvals?tool_name=pay"), vec![&first], vec![&first]),
        (format!("/sessions/{other}/approvals?state=rejected"), vec![], vec![]),
        (format!("/threads/{root}/approvals"), vec![&first], vec![&own, &first]),
        (format!("/threads/{child}/approvals"), vec![&second], vec![&second]),
        (format!("/threads/{child}/approvals?tool_name=pay"), vec![], vec![]),
    ] {
        for (who, client, expected) in [("carol", &chief, of_chief), ("alice", &app.client, of_alice)] {
            assert_eq!(ids(client, &path).await.iter().collect::<Vec<_>>(), expected, "{who}: {path}");
        }
    }
    for client in [&chief, &app.client] {
        let of_child = client.get(&format!("/sessions/{child}/approvals")).await;
        assert_eq!(of_child.failure(), (404, "not_found"), "a session has the id of its root");
    }
}

#[tokio::test]
async fn a_call_of_a_deleted_thread_is_in_no_list() {
    let app = office().await;
    let (root, _) = app.held("pay", "1").await;
    let child = child_of(&app, &root).await;
    let id = app.hold_in(&child, "pay", "2").await;
    app.client.delete(&format!("/threads/{root}")).await.has_status(204);
    for client in [&app.client, &acme(&app, "carol", &["chief"]), &acme(&app, "oscar", &["admin"])] {
        assert_eq!(ids(client, "/approvals").await, std::slice::from_ref(&id));
        assert_eq!(ids(client, "/approvals?state=cancelled").await, Vec::<String>::new());
        client.get(&format!("/threads/{root}/approvals")).await.has_status(404);
    }
}

#[tokio::test]
async fn a_call_of_a_removed_tool_is_listed_and_cannot_be_approved() {
    let app = office().await;
    let (_, id) = app.held("mumble", "1").await;
    let alice = holdpoint_testkit::token::token("acme", "alice", &[]);
    let mut app = app.redeploy_with(ToolRegistry::new(), holdpoint_testkit::token::with_tokens).await;
    app.client = app.client.with_token(&alice);
    let [listed] = &list(&app.client, "/approvals").await[..] else { panic!("it waits") };
    assert_eq!((&listed["tool_call_id"], &listed["can_decide"]), (&json!(id), &json!(false)));
    assert_eq!((listed.get("tool_description"), listed.get("input_schema")), (None, None));
    assert_eq!(app.client.approve(&id).await.code(), "tool_unavailable");
}

#[tokio::test]
async fn an_invalid_query_parameter_is_named_in_the_error() {
    let app = office().await;
    let (thread, _) = app.held("pay", "1").await;
    for (query, field) in [
        ("state=waiting", "state"),
        ("state=", "state"),
        ("state=Pending", "state"),
        ("state=pending,approved", "state"),
        ("tool_name=%00", "tool_name"),
        ("cursor=x", "cursor"),
        ("cursor=%00", "cursor"),
        ("page_size=0", "page_size"),
        ("page_size=201", "page_size"),
        ("page_size=x", "page_size"),
    ] {
        for place in [
            "/approvals".to_owned(),
            format!("/threads/{thread}/approvals"),
            format!("/sessions/{thread}/approvals"),
        ] {
            let answer = app.client.get(&format!("{place}?{query}")).await;
            assert_eq!(answer.failure(), (400, "bad_request"), "{place} {query}: {answer:?}");
            assert!(answer.message().contains(field), "{query}: {}", answer.message());
        }
    }
    let answer = app.client.get("/approvals?session_id=x").await;
    assert_eq!(answer.failure(), (404, "not_found"), "a name that the caller gave no thread");
    for path in ["/threads/x/approvals", "/sessions/x/approvals"] {
        app.client.get(path).await.has_status(404);
    }
}
