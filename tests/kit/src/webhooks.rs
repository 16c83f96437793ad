//! The entry of a webhook in a configuration.

use holdpoint::config::{Webhook, WebhookBody};
use std::path::Path;
use std::time::Duration;

/// The time that receivers of these tests have.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// A webhook for all events, whose secrets are in this folder.
pub fn webhook(name: &str, url: &str, dir: &Path, secrets: &[&str]) -> Webhook {
    let file = dir.join(format!("{name}.secrets"));
    std::fs::write(&file, secrets.join("\n")).unwrap();
    Webhook {
        name: name.to_owned(),
        tenant: "default".to_owned(),
        url: url.to_owned(),
        secret_file: file,
        events: None,
        body: WebhookBody::Thin,
        timeout: TIMEOUT,
    }
}
