//! The end of a process in the middle of a message, and secrets.

use super::{CONSOLE, PASSWORD, Postbox, header, message_id};
use crate::webhooks::{becomes, numbered};
use holdpoint::config::MailTls;
use holdpoint_testkit::{JsonFields, Process, Rows, postgres_if_chosen, sqlite};
use serde_json::{Value, json};
use std::process::Command;

/// A server as a process, which sends mail by a server.
struct Desk {
    postbox: Postbox,
    database: String,
}

impl Desk {
    async fn at(postbox: Postbox) -> Self {
        let dir = &postbox.dir;
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(dir));
        std::fs::write(dir.path().join("password"), format!("{PASSWORD}\n")).unwrap();
        let tls = serde_json::to_value(postbox.tls).unwrap();
        let toml = format!(
            "server.public_url = \"{CONSOLE}\"\n\
             [mail]\nserver = \"localhost:{}\"\ntls = {tls}\nca_file = \"ca.pem\"\n\
             from = \"holdpoint@example.com\"\nuser = \"holdpoint\"\npassword_file = \"password\"\ntimeout = \"2s\"\n\
             [[notify]]\nname = \"desk\"\ntenant = \"default\"\nuser = \"local\"\nmail = \"desk@example.com\"\n",
            postbox.port
        );
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        Self { postbox, database }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command
            .current_dir(self.postbox.dir.path())
            .env("HOLDPOINT_DATABASE__URL", &self.database)
            .env("HOLDPOINT_LOG__LEVEL", "error");
        command
    }

    async fn hold(&self, server: &Process, path: &str) {
        let turn = server.client.send_message(&server.client.thread().await, &format!("delete {path}")).await;
        assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    }

    /// The ids of the messages about all holds, in order.
    async fn ids(&self) -> Vec<String> {
        let rows = Rows::open(&self.database).await;
        numbered(&rows).await;
        let sql = "SELECT event_id FROM events WHERE type = 'tool.requires_approval' ORDER BY seq";
        let rows = rows.all(sql).await;
        rows.iter().map(|row| message_id(row.text("event_id"), "desk")).collect()
    }
}

fn ids(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| header(message, "message-id")).collect()
}

#[tokio::test]
async fn after_a_kill_in_mid_delivery_nothing_is_lost_and_a_duplicate_has_the_same_message_id() {
    let postbox = Postbox::with(MailTls::Starttls, json!({ "password": PASSWORD }));
    let mut desk = Desk::at(postbox).await;
    let mut server = Process::spawn(&mut desk.command());
    desk.hold(&server, "a").await;
    desk.postbox.got(1).await;
    desk.postbox.answers(json!({ "data": "hang" })).await;
    desk.hold(&server, "b").await;
    let interrupted = async || Some(desk.postbox.read()).filter(|read| read.len() == 2);
    holdpoint_testkit::eventually("the server reads the second message", interrupted).await;
    server.kill();
    desk.postbox.answers(json!({})).await;
    let server = Process::spawn(&mut desk.command());
    desk.hold(&server, "c").await;
    let expected = desk.ids().await;
    let got = desk.postbox.got(3).await;
    let mut distinct = ids(&got);
    distinct.dedup();
    assert_eq!(distinct, expected, "in order");
    let read = desk.postbox.read();
    assert!(read.iter().filter(|it| header(it, "message-id") == expected[1]).count() >= 2);
    drop(server);
}

#[tokio::test]
async fn the_password_of_the_mail_server_is_in_no_answer_log_or_row() {
    let postbox = Postbox::with(MailTls::Starttls, json!({ "password": "another" }));
    let desk = Desk::at(postbox).await;
    let server = Process::spawn_captured(desk.command().env("HOLDPOINT_LOG__LEVEL", "trace"));
    desk.hold(&server, "a").await;
    let failing = becomes(&server.client, "desk", "failing").await;
    assert_eq!(failing["failures"]["last_status"], 535, "{failing}");
    let rows = Rows::open(&desk.database).await;
    let rows = format!("{:?}", rows.all("SELECT * FROM endpoints").await);
    let shown = desk.command().arg("config").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("password = \"***\""), "{shown}");
    let log = server.finish();
    assert!(log.contains("a delivery failed"), "{log}");
    // As it is, and as AUTH PLAIN and AUTH LOGIN write it.
    use base64::Engine;
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let plain = base64(&format!("\0holdpoint\0{PASSWORD}"));
    for text in [failing.to_string(), rows, log, shown] {
        for secret in [PASSWORD, &plain, &base64(PASSWORD)] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
