//! The readers and the strangers.

use super::Load;
use crate::http::{Ask, Reply};
use crate::json::At;
use crate::record::Intrusion;
use hyper::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::sleep;

/// The number of the latest calls from which a reader or a stranger picks.
const LATEST: usize = 40;

/// Reads calls from any replica until the load stops.
pub(super) async fn read(load: Arc<Load>, number: usize) {
    let mut chance = load.chance("reader", number);
    while !load.is_stopping() {
        sleep(chance.millis(40, 160)).await;
        let latest = load.board.latest(LATEST);
        let Some(known) = chance.pick(&latest) else { continue };
        let replica = load.any_replica(&mut chance);
        load.look_at(replica, &known.call, &known.owner.token).await;
    }
}

/// Tries foreign calls by their ids until the load stops.
pub(super) async fn pry(load: Arc<Load>, number: usize) {
    let mut chance = load.chance("stranger", number);
    while !load.is_stopping() {
        sleep(chance.millis(30, 150)).await;
        let latest = load.board.latest(LATEST);
        let Some(known) = chance.pick(&latest) else { continue };
        let strangers = load.people.strangers(known.owner.tenant);
        let Some(stranger) = chance.pick(&strangers) else { continue };
        let token = &stranger.token;
        let (call, thread) = (&known.call, &known.thread);
        let yes = json!({ "toolCallId": call, "isValidated": true });
        let asks = [
            Ask::get(format!("/tool_calls/{call}"), token),
            Ask::post("/qa/validate_tool", token, Some(yes.clone())),
            Ask::post("/qa/validate_tool", token, Some(json!({ "toolCallId": call, "isValidated": false }))),
            Ask::post(format!("/tool_calls/{call}/cancel"), token, None),
            Ask::post("/qa/validate_tools", token, Some(json!({ "decisions": [yes] }))),
            Ask::get(format!("/threads/{thread}"), token),
            Ask {
                method: Method::PATCH,
                ..Ask::post(format!("/threads/{thread}"), token, Some(json!({ "title": "mine" })))
            },
            Ask {
                method: Method::PUT,
                ..Ask::post(
                    format!("/sessions/{thread}/policy"),
                    token,
                    Some(json!({ "mode": "auto-approve" })),
                )
            },
            Ask::get(format!("/threads/{thread}/messages"), token),
            Ask::get(format!("/qa/chat_streamed/{thread}/page/stream"), token),
            Ask::get(format!("/qa/chat_streamed/{thread}"), token),
            Ask::post(format!("/qa/chat_streamed/{thread}"), token, Some(json!({ "content": "hello" }))),
            Ask { method: Method::DELETE, ..Ask::get(format!("/threads/{thread}"), token) },
        ];
        let Some(ask) = chance.pick(&asks).cloned() else { continue };
        let route = format!("{} {} as {}", ask.method, ask.path, stranger.user);
        let replica = load.any_replica(&mut chance);
        let reply = load.ask(replica, ask).await.filter(|reply| reply.cut.is_none());
        load.book().count("pry", reply.as_ref().is_some_and(|reply| reply.status < 500));
        let Some(reply) = reply else { continue };
        let (status, body) = answered(&reply);
        let at = load.now();
        load.book().intrusions.lock().push(Intrusion { call: call.clone(), route, at, status, body });
    }
}

/// Returns the answer to a stranger: the first result of a batch, or else the whole answer.
fn answered(reply: &Reply) -> (u16, Value) {
    let body = reply.json();
    let first = body.at("/results/0");
    match first.at("/status").as_u64().and_then(|status| status.try_into().ok()) {
        Some(status) => (status, first.clone()),
        None => (reply.status, body),
    }
}
