//! The end of a process in the middle of a message, and secrets.

use super::api::ApiAnswer;
use super::{APPROVE, FakeSlack, Interaction, PATH, SIGNING_SECRET, TOKEN, payload};
use crate::webhooks::becomes;
use holdpoint_testkit::{Process, Rows, eventually, postgres_if_chosen, sqlite};
use std::process::Command;
use tempfile::TempDir;

/// A server as a process, with messages in Slack.
struct Desk {
    dir: TempDir,
    database: String,
}

impl Desk {
    async fn at(slack: &FakeSlack) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
        std::fs::write(dir.path().join("token"), format!("{TOKEN}\n")).unwrap();
        std::fs::write(dir.path().join("secret"), format!("{SIGNING_SECRET}\n")).unwrap();
        let toml = format!(
            "[slack]\ntoken_file = \"token\"\nsigning_secret_file = \"secret\"\napi_url = \"{}/api\"\n\
             [[notify]]\nname = \"desk\"\ntenant = \"default\"\nuser = \"local\"\nslack = \"U1\"\n\
             share_arguments = true\n",
            slack.base
        );
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        Self { dir, database }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command.current_dir(self.dir.path()).env("HOLDPOINT_DATABASE__URL", &self.database);
        command
    }

    async fn hold(&self, server: &Process, path: &str) {
        let turn = server.client.send_message(&server.client.thread().await, &format!("delete {path}")).await;
        assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    }
}

#[tokio::test]
async fn after_a_kill_between_a_post_and_its_commit_the_message_is_posted_once_more_and_then_changed() {
    let slack = FakeSlack::start().await;
    slack.next([ApiAnswer::PostsAndHangs]);
    let desk = Desk::at(&slack).await;
    let mut server = Process::spawn(desk.command().env("HOLDPOINT_LOG__LEVEL", "error"));
    desk.hold(&server, "a").await;
    slack.got(1).await;
    server.kill();
    let server = Process::spawn(desk.command().env("HOLDPOINT_LOG__LEVEL", "error"));
    let again = slack.got(2).await.remove(1);
    let rows = Rows::open(&desk.database).await;
    let kept = async || rows.all("SELECT ts FROM slack_messages").await.pop();
    let kept = eventually("the message is kept", kept).await;
    assert_eq!(kept["ts"], again.ts.as_str());
    // The button of the first message, which the server does not know, decides too.
    let first = slack.messages().remove(0);
    let interaction = Interaction::of(&payload(&slack, "U1", &first, APPROVE));
    assert_eq!(interaction.send(&server.client, PATH).await.0, 200);
    let decided = slack.changed(1, 2).await;
    assert_eq!(decided.buttons().len(), 0, "{decided:?}");
    assert_eq!(slack.messages().len(), 2);
    drop(server);
}

#[tokio::test]
async fn the_token_and_the_signing_secret_of_slack_are_in_no_answer_log_or_row() {
    let slack = FakeSlack::start().await;
    slack.next([ApiAnswer::Error("channel_not_found"), ApiAnswer::Error("token_revoked")]);
    let desk = Desk::at(&slack).await;
    let server = Process::spawn_captured(desk.command().env("HOLDPOINT_LOG__LEVEL", "trace"));
    desk.hold(&server, "a").await;
    desk.hold(&server, "b").await;
    let failing = becomes(&server.client, "desk", "failing").await.to_string();
    let mut forged = Interaction::signed(SIGNING_SECRET, super::now(), "payload=canary-payload".to_owned());
    let unread = forged.send(&server.client, PATH).await;
    assert_eq!(unread.0, 400);
    forged.body.push('x');
    let refused = forged.send(&server.client, PATH).await;
    assert_eq!(refused.0, 401);
    let rows = Rows::open(&desk.database).await;
    let rows = format!("{:?}", rows.all("SELECT * FROM endpoints").await);
    let shown = desk.command().arg("config").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("token = \"***\"") && shown.contains("signing_secret = \"***\""), "{shown}");
    let log = server.finish();
    for words in ["Slack refused a message", "channel_not_found", "Slack answered token_revoked"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    for text in [failing, unread.1, refused.1, rows, shown, log] {
        assert!(!text.contains("canary"), "{text}");
    }
}
