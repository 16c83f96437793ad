//! Messages about held calls to other services, with real receivers.

mod configuration;
mod failures;
mod links;
mod messages;

use holdpoint::config::{Config, Flags, Notify};
use holdpoint_testkit::{Embedded, ReceivedRequest, RemoteTool, ServiceAction, eventually, in_repository};

/// The address of the console in messages.
const CONSOLE: &str = "https://chat.example";

/// The entries of the documentation, and the templates in JSON beside them.
fn documented() -> (Vec<Notify>, Vec<String>) {
    let page = std::fs::read_to_string(in_repository("docs/operations.md")).unwrap();
    let (_, text) = page.split_once("\n## Messages to other services\n").unwrap();
    let text = text.split("\n## ").next().unwrap();
    let blocks = |language: &str| {
        let blocks = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
        let of_language = blocks.filter(|(of, _)| *of == language).map(|(_, code)| code.to_owned());
        of_language.collect::<Vec<_>>()
    };
    // As entries of a server without authentication.
    let entries = blocks("toml").join("\n").replace("\"acme\"", "\"default\"");
    let entries = entries.replace("role = \"manager\"", "user = \"local\"");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("holdpoint.toml");
    std::fs::write(&file, entries).unwrap();
    let config = Config::load(&Flags { file: Some(file), ..Flags::default() }).unwrap();
    (config.notify, blocks("json"))
}

/// An entry for the one user of a server without authentication.
fn entry(name: &str, url: &str, template: &str) -> Notify {
    Notify {
        name: name.to_owned(),
        tenant: "default".to_owned(),
        user: Some("local".to_owned()),
        url: Some(url.to_owned()),
        template: Some(template.to_owned()),
        ..Notify::default()
    }
}

fn with_notify(config: &mut Config, notify: impl IntoIterator<Item = Notify>) {
    config.egress.allow = vec!["127.0.0.1".to_owned()];
    config.server.public_url = Some(CONSOLE.to_owned());
    config.notify = notify.into_iter().collect();
}

/// A service that accepts each message.
async fn service() -> RemoteTool {
    RemoteTool::start(ServiceAction::answers(200, "")).await
}

async fn server(notify: impl IntoIterator<Item = Notify>) -> Embedded {
    Embedded::with(|config| with_notify(config, notify)).await
}

/// Waits for this many requests at this path.
async fn got(service: &RemoteTool, path: &str, count: usize) -> Vec<ReceivedRequest> {
    let got = async || Some(service.received_at(path)).filter(|all| all.len() >= count);
    eventually(&format!("{path} gets {count} requests"), got).await
}
