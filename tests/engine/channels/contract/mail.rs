//! Mail, with a real SMTP server.

use super::{ArrivedMessage, Harness};
use crate::mail::{PASSWORD, Postbox, header};
use holdpoint::config::{Config, MailTls, Notify};
use serde_json::json;

struct Side(Postbox);

impl Harness for Side {
    const CHANNEL: &'static str = "mail";
    const APPROVES: bool = false;

    async fn start() -> Self {
        Self(Postbox::with(MailTls::Starttls, json!({ "password": PASSWORD })))
    }

    fn sections(&self, config: &mut Config) {
        let mut mail = self.0.mail();
        (mail.user, mail.password) = (Some("holdpoint".to_owned()), Some(PASSWORD.into()));
        config.mail = Some(mail);
    }

    fn address(&self, entry: Notify) -> Notify {
        Notify { mail: Some(format!("{}@example.com", entry.name)), ..entry }
    }

    fn origin(&self) -> String {
        "mailto:desk@example.com".to_owned()
    }

    fn got(&self) -> Vec<ArrivedMessage> {
        let accepted = self.0.read().into_iter().filter(|message| message["accepted"] == true);
        let arrived = accepted.map(|message| {
            let text = format!("{}\n{}", header(&message, "subject"), message["body"].as_str().unwrap());
            let raw = format!("{}\n{text}", message["raw"].as_str().unwrap());
            ArrivedMessage { to: header(&message, "to").to_owned(), text, raw, approves: false }
        });
        arrived.collect()
    }

    async fn refuses(&mut self, refuses: bool) {
        let answers = if refuses { json!({ "data": "451 later" }) } else { json!({}) };
        self.0.answers(answers).await;
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned()]
    }
}

contract! { Side }
