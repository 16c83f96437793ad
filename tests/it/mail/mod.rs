//! Mail about held calls, with a real SMTP server (PyPI's `aiosmtpd`).

mod configuration;
mod crashes;
mod failures;
mod messages;
mod quiet;

use crate::support::{Embedded, eventually};
use crate::webhooks::{becomes, numbered};
use holdpoint::config::{Config, Mail, MailTls, Notify};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// The password of the mail server.
pub(crate) const PASSWORD: &str = "canary-password";
/// The address of the console in messages.
const CONSOLE: &str = "https://chat.example";

/// An SMTP server, and the folder of its certificate.
pub(crate) struct Postbox {
    port: u16,
    tls: MailTls,
    lines: Arc<Mutex<Vec<Value>>>,
    stdin: ChildStdin,
    python: Child,
    dir: TempDir,
}

impl Postbox {
    fn start(tls: MailTls) -> Self {
        Self::with(tls, json!({}))
    }

    /// With these options besides, as `tests/mail/server.py` reads them.
    pub(crate) fn with(tls: MailTls, options: Value) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let python = root.join("target/tools/python-mail/bin/python");
        assert!(python.exists(), "run `cargo xtask test-only`, which installs {}", python.display());
        let dir = tempfile::tempdir().unwrap();
        let mut all = json!({ "tls": serde_json::to_value(tls).unwrap(), "folder": dir.path() });
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let mut python = Command::new(python)
            .arg(root.join("tests/mail/server.py"))
            .arg(all.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first: Value = serde_json::from_str(&said.next().expect("the mail server listens")).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let writes = lines.clone();
        std::thread::spawn(move || {
            said.for_each(|line| writes.lock().unwrap().push(serde_json::from_str(&line).unwrap()));
        });
        let port = first["port"].as_u64().unwrap().try_into().unwrap();
        let stdin = python.stdin.take().unwrap();
        Self { port, tls, lines, stdin, python, dir }
    }

    /// Sets the next answers.
    pub(crate) async fn answers(&mut self, answers: Value) {
        let set = || self.lines.lock().unwrap().iter().filter(|line| line["set"] == true).count();
        let before = set();
        writeln!(self.stdin, "{answers}").unwrap();
        let set = || self.lines.lock().unwrap().iter().filter(|line| line["set"] == true).count();
        eventually("the answers are set", async || (set() > before).then_some(())).await;
    }

    /// The messages that the server has read, accepted or not.
    pub(crate) fn read(&self) -> Vec<Value> {
        let lines = self.lines.lock().unwrap().clone();
        lines.into_iter().filter(|line| line.get("headers").is_some()).collect()
    }

    /// Waits for this many accepted messages.
    async fn got(&self, count: usize) -> Vec<Value> {
        let accepted = || self.read().into_iter().filter(|message| message["accepted"] == true);
        let enough = async || Some(accepted().collect::<Vec<_>>()).filter(|all| all.len() >= count);
        eventually(&format!("{count} messages arrive"), enough).await
    }

    fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The section that leads to this server.
    pub(crate) fn mail(&self) -> Mail {
        Mail {
            server: format!("localhost:{}", self.port),
            tls: self.tls,
            ca_file: (self.tls != MailTls::None).then(|| self.ca_file()),
            from: "Holdpoint <holdpoint@example.com>".to_owned(),
            user: None,
            password: None,
            timeout: Duration::from_secs(5),
        }
    }

    /// A server of holdpoint that sends mail by this server to these recipients.
    async fn server(&self, notify: impl IntoIterator<Item = Notify>) -> Embedded {
        Embedded::with(|config| with_mail(config, self.mail(), notify)).await
    }
}

impl Drop for Postbox {
    fn drop(&mut self) {
        let _killed = self.python.kill();
        let _waited = self.python.wait();
    }
}

fn with_mail(config: &mut Config, mail: Mail, notify: impl IntoIterator<Item = Notify>) {
    config.mail = Some(mail);
    config.notify = notify.into_iter().collect();
    config.server.public_url = Some(CONSOLE.to_owned());
}

/// The one user of a server without authentication.
fn local() -> Notify {
    Notify { tenant: "default".to_owned(), user: Some("local".to_owned()), ..entry("desk") }
}

/// An entry of this name in the tenant `acme`, without a user and a role.
fn entry(name: &str) -> Notify {
    Notify {
        name: name.to_owned(),
        tenant: "acme".to_owned(),
        mail: Some(format!("{name}@example.com")),
        ..Notify::default()
    }
}

pub(crate) fn header<'a>(message: &'a Value, name: &str) -> &'a str {
    message["headers"][name].as_str().unwrap_or_default()
}

/// The id that the message about an event has for this endpoint.
fn message_id(event: &str, endpoint: &str) -> String {
    format!("<{event}.{endpoint}@example.com>")
}

/// The events of a call with this type, in order.
pub(super) async fn event_ids(app: &Embedded, call: &str, kind: &str) -> Vec<String> {
    numbered(&app.rows).await;
    let sql =
        format!("SELECT event_id FROM events WHERE tool_call_id = '{call}' AND type = '{kind}' ORDER BY seq");
    let rows = app.rows.all(&sql).await;
    rows.iter().map(|row| row["event_id"].as_str().unwrap().to_owned()).collect()
}
