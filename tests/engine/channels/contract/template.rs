//! Messages to other services, with a real receiver.

use super::{ArrivedMessage, Harness};
use holdpoint::config::{Config, Notify};
use holdpoint_testkit::{RemoteTool, ServiceAction};
use std::collections::BTreeMap;

struct Side(RemoteTool);

impl Harness for Side {
    const CHANNEL: &'static str = "template";
    const APPROVES: bool = false;

    async fn start() -> Self {
        Self(RemoteTool::start(ServiceAction::answers(200, "")).await)
    }

    fn sections(&self, config: &mut Config) {
        config.egress.allow = vec!["127.0.0.1".to_owned()];
    }

    fn address(&self, entry: Notify) -> Notify {
        Notify {
            url: Some(format!("{}/canary-path/{}", self.0.base, entry.name)),
            headers: BTreeMap::from([("x-key".to_owned(), "canary-header".to_owned())]),
            content_type: Some("text/plain".to_owned()),
            template: Some("{title}\n{text}\n{link}".to_owned()),
            ..entry
        }
    }

    fn origin(&self) -> String {
        self.0.base.clone()
    }

    fn got(&self) -> Vec<ArrivedMessage> {
        let mut all: Vec<(String, ArrivedMessage)> = Vec::new();
        for request in self.0.received() {
            let id = request.header("webhook-id").to_owned();
            all.retain(|(earlier, _)| *earlier != id);
            let (to, text) = (request.path.clone(), request.body.clone());
            all.push((id, ArrivedMessage { to, raw: text.clone(), text, approves: false }));
        }
        all.into_iter().map(|(_, arrived)| arrived).collect()
    }

    async fn refuses(&mut self, refuses: bool) {
        self.0.now(ServiceAction::answers(if refuses { 503 } else { 200 }, ""));
    }

    fn secrets(&self) -> Vec<String> {
        vec!["canary-path".to_owned(), "canary-header".to_owned()]
    }
}

contract! { Side }
