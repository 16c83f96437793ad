//! The end of a process in the middle of a delivery, and several processes.

use super::{Receiver, SECRETS, logged, numbered, with_webhooks};
use holdpoint_testkit::{
    Embedded, JsonFields, Process, ReceivedRequest, Rows, ServiceAction, eventually, postgres,
    postgres_if_chosen, sqlite,
};
use std::process::Command;

/// A folder with the configuration of one webhook, and a database.
pub(super) struct Desk {
    receiver: Receiver,
    database: String,
}

impl Desk {
    async fn new(does: ServiceAction) -> Self {
        Self::at(does, "/desk").await
    }

    /// With a receiver that does this, and a webhook at this path of it.
    pub(super) async fn at(does: ServiceAction, path: &str) -> Self {
        let receiver = Receiver::start(does).await;
        let dir = &receiver.dir;
        let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(dir));
        let toml = format!(
            "egress.allow = [\"127.0.0.1\"]\n[[webhooks]]\nname = \"desk\"\ntenant = \"default\"\n\
             url = \"{}{path}\"\nsecret_file = \"secrets\"\ntimeout = \"2s\"\n",
            receiver.remote.base
        );
        std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
        std::fs::write(dir.path().join("secrets"), SECRETS[0]).unwrap();
        Self { receiver, database }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        command
            .current_dir(self.receiver.dir.path())
            .env("HOLDPOINT_DATABASE__URL", &self.database)
            .env("HOLDPOINT_LOG__LEVEL", "error");
        command
    }

    fn start(&self) -> Process {
        Process::spawn(&mut self.command())
    }

    pub(super) async fn rows(&self) -> Rows {
        Rows::open(&self.database).await
    }

    /// Has the model call the demo tool for this path.
    pub(super) async fn hold(&self, server: &Process, path: &str) {
        let turn = server.client.send_message(&server.client.thread().await, &format!("delete {path}")).await;
        assert_eq!(turn.pending().len(), 1, "{}", turn.raw);
    }
}

fn ids(received: &[ReceivedRequest]) -> Vec<String> {
    received.iter().map(|it| it.header("webhook-id").to_owned()).collect()
}

async fn event_ids(rows: &Rows) -> Vec<String> {
    numbered(rows).await;
    let rows = rows.all("SELECT event_id FROM events WHERE seq IS NOT NULL ORDER BY seq").await;
    rows.iter().map(|row| row.text("event_id").to_owned()).collect()
}

#[tokio::test]
async fn after_a_kill_in_mid_delivery_the_same_event_is_delivered_again_and_nothing_is_lost() {
    let desk = Desk::new(ServiceAction::answers(204, "")).await;
    let mut server = desk.start();
    desk.hold(&server, "a").await;
    let rows = desk.rows().await;
    let before = event_ids(&rows).await;
    desk.receiver.got("desk", before.len()).await;
    desk.receiver.remote.now(ServiceAction::Hangs);
    desk.hold(&server, "b").await;
    let interrupted = desk.receiver.got("desk", before.len() + 1).await;
    server.kill();
    desk.receiver.remote.wait_left().await;

    desk.receiver.remote.now(ServiceAction::answers(204, ""));
    let server = desk.start();
    desk.hold(&server, "c").await;
    let events = event_ids(&rows).await;
    // The delivery in progress is repeated, and that of the event before it if the kill came before its commit.
    let got = desk.receiver.got("desk", interrupted.len() + events.len() - before.len()).await;
    assert_eq!(ids(&got[..before.len()]), before);
    let repeated = &ids(&got)[before.len()..];
    assert_eq!(repeated[0], events[before.len()]);
    assert_eq!(repeated[1..], events[before.len()..], "in order, and with the same ids");
}

#[tokio::test]
async fn a_stopping_server_ends_its_delivery() {
    let desk = Desk::new(ServiceAction::Waits(204, String::new())).await;
    let mut server = desk.start();
    desk.hold(&server, "a").await;
    desk.receiver.got("desk", 1).await;
    server.terminate();
    desk.receiver.remote.release();
    desk.receiver.remote.now(ServiceAction::answers(204, ""));
    assert!(eventually("the server has stopped", async || server.ended()).await);
    let server = desk.start();
    let rows = desk.rows().await;
    let events = event_ids(&rows).await;
    let got = desk.receiver.got("desk", events.len()).await;
    assert_eq!(ids(&got), events, "each event is delivered once");
    drop(server);
}

#[tokio::test]
async fn on_postgres_two_processes_deliver_each_event_once_and_in_order() {
    let url = postgres().await;
    let receiver = Receiver::start(ServiceAction::answers(204, "")).await;
    let start = async || {
        let webhook = receiver.webhook("shared");
        Embedded::with(|config| {
            with_webhooks(config, vec![webhook]);
            config.database.url = url.clone().into();
        })
        .await
    };
    let servers = [start().await, start().await];
    let hold = async |server: &Embedded| {
        for note in 0..5 {
            server.held("pay", &note.to_string()).await;
        }
    };
    tokio::join!(hold(&servers[0]), hold(&servers[1]));
    let events: Vec<String> = logged(&servers[0]).await.into_iter().map(|(_, _, id)| id).collect();
    let got = receiver.got("shared", events.len()).await;
    assert_eq!(ids(&got), events);
}

#[tokio::test]
async fn on_postgres_another_process_continues_after_a_kill() {
    let desk = Desk { database: postgres().await, ..Desk::new(ServiceAction::Hangs).await };
    let mut first = desk.start();
    let second = desk.start();
    desk.hold(&first, "a").await;
    let interrupted = desk.receiver.got("desk", 1).await;
    // One of the two delivers.
    let rows = desk.rows().await;
    desk.receiver.remote.now(ServiceAction::answers(204, ""));
    first.kill();
    let events = event_ids(&rows).await;
    let got = desk.receiver.got("desk", events.len() + 1).await;
    assert_eq!(ids(&got)[0], ids(&interrupted)[0]);
    assert_eq!(ids(&got)[1..], events);
    drop(second);
}
