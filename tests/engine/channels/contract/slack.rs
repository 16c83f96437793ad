//! Slack, with a Web API in the test's process.

use super::{ArrivedMessage, Harness};
use crate::slack::{APPROVE, ApiAnswer, FakeSlack, SIGNING_SECRET, TOKEN};
use holdpoint::config::{Config, Notify, Slack};
use serde_json::Value;

struct Side(FakeSlack);

impl Harness for Side {
    const CHANNEL: &'static str = "slack";
    const APPROVES: bool = true;

    async fn start() -> Self {
        Self(FakeSlack::start().await)
    }

    fn sections(&self, config: &mut Config) {
        config.slack = Some(Slack {
            token: TOKEN.into(),
            signing_secret: SIGNING_SECRET.into(),
            api_url: format!("{}/api", self.0.base),
        });
    }

    fn address(&self, entry: Notify) -> Notify {
        let prefix = if entry.user.is_some() { "U" } else { "C" };
        Notify { slack: Some(format!("{prefix}{}", entry.name.to_uppercase())), ..entry }
    }

    fn origin(&self) -> String {
        "slack:UDESK".to_owned()
    }

    fn got(&self) -> Vec<ArrivedMessage> {
        let taken = self.0.requests().into_iter().filter(|(_, answer)| answer.contains("\"ok\":true"));
        let arrived = taken.map(|(request, _)| {
            let body = request.json();
            let blocks = body["blocks"].as_array().unwrap();
            let texts: Vec<&str> = blocks.iter().filter_map(|it| it["text"]["text"].as_str()).collect();
            let buttons = blocks.iter().filter_map(|block| block["elements"].as_array()).flatten();
            let approves = buttons.map(|it: &Value| &it["action_id"]).any(|id| id == APPROVE);
            let to = body["channel"].as_str().unwrap().to_owned();
            ArrivedMessage { to, text: texts.join("\n"), raw: body.to_string(), approves }
        });
        arrived.collect()
    }

    async fn refuses(&mut self, refuses: bool) {
        self.0.now(refuses.then_some(ApiAnswer::Status(503)));
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned(), SIGNING_SECRET.to_owned()]
    }
}

contract! { Side }
