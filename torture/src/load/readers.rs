//! The readers and the other users.

use super::Load;
use crate::http::{Request, Response};
use crate::json::JsonPointer;
use crate::record::Intrusion;
use hyper::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::sleep;

/// The number of the latest calls from which a reader or another user picks.
const LATEST: usize = 40;

/// Reads calls from any replica until the load stops.
pub(super) async fn read(load: Arc<Load>, number: usize) {
    let mut random = load.random("reader", number);
    while !load.is_stopping() {
        sleep(random.millis(40, 160)).await;
        let latest = load.held_calls.latest(LATEST);
        let Some(held) = random.pick(&latest) else { continue };
        let replica = load.any_replica(&mut random);
        load.read_call(replica, &held.call, &held.owner.token).await;
    }
}

/// Tries foreign calls by their ids until the load stops.
pub(super) async fn probe(load: Arc<Load>, number: usize) {
    let mut random = load.random("stranger", number);
    while !load.is_stopping() {
        sleep(random.millis(30, 150)).await;
        let latest = load.held_calls.latest(LATEST);
        let Some(held) = random.pick(&latest) else { continue };
        let other_users = load.users.other_users(held.owner.tenant);
        let Some(other_user) = random.pick(&other_users) else { continue };
        let token = &other_user.token;
        let (call, thread) = (&held.call, &held.thread);
        let approval = json!({ "toolCallId": call, "isValidated": true });
        let requests = [
            Request::get(format!("/tool_calls/{call}"), token),
            Request::post("/qa/validate_tool", token, Some(approval.clone())),
            Request::post(
                "/qa/validate_tool",
                token,
                Some(json!({ "toolCallId": call, "isValidated": false })),
            ),
            Request::post(format!("/tool_calls/{call}/cancel"), token, None),
            Request::post("/qa/validate_tools", token, Some(json!({ "decisions": [approval] }))),
            Request::get(format!("/threads/{thread}"), token),
            Request {
                method: Method::PATCH,
                ..Request::post(format!("/threads/{thread}"), token, Some(json!({ "title": "mine" })))
            },
            Request {
                method: Method::PUT,
                ..Request::post(
                    format!("/sessions/{thread}/policy"),
                    token,
                    Some(json!({ "mode": "auto-approve" })),
                )
            },
            Request::get(format!("/threads/{thread}/messages"), token),
            Request::get(format!("/qa/chat_streamed/{thread}/page/stream"), token),
            Request::get(format!("/qa/chat_streamed/{thread}"), token),
            Request::post(format!("/qa/chat_streamed/{thread}"), token, Some(json!({ "content": "hello" }))),
            Request { method: Method::DELETE, ..Request::get(format!("/threads/{thread}"), token) },
        ];
        let Some(request) = random.pick(&requests).cloned() else { continue };
        let route = format!("{} {} as {}", request.method, request.path, other_user.id);
        let replica = load.any_replica(&mut random);
        let response = load.send(replica, request).await.filter(|response| response.cut.is_none());
        load.book().count("probe", response.as_ref().is_some_and(|response| response.status < 500));
        let Some(response) = response else { continue };
        let (status, body) = first_result(&response);
        let at = load.now();
        load.book().intrusions.lock().push(Intrusion { call: call.clone(), route, at, status, body });
    }
}

/// Returns the answer to another user: the first result of a batch, or else the whole answer.
fn first_result(response: &Response) -> (u16, Value) {
    let body = response.json();
    let first = body.at("/results/0");
    match first.at("/status").as_u64().and_then(|status| status.try_into().ok()) {
        Some(status) => (status, first.clone()),
        None => (response.status, body),
    }
}
