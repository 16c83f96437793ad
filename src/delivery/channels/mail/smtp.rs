//! One message by SMTP (RFC 5321), over a connection of its own.

use crate::config::{ConfigError, Mail, MailTls};
use crate::delivery::channel::FailedAttempt;
use holdpoint_core::endpoint::Failure;
use holdpoint_store::Attempted;
use lettre::Message;
use lettre::message::Mailbox;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use std::fs;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// The longest time of the end of a session.
const GOODBYE: Duration = Duration::from_secs(1);
/// The status of a refusal whose status is not known.
const UNNAMED: u16 = 500;

pub(in crate::delivery::channels) struct MailServer {
    host: String,
    port: u16,
    encryption: Encryption,
    user: Option<(String, SecretString)>,
    pub(super) from: Mailbox,
    /// The longest time of an attempt.
    pub(super) timeout: Duration,
}

/// How a connection is encrypted.
enum Encryption {
    Starttls(TlsParameters),
    Implicit(TlsParameters),
    None,
}

impl MailServer {
    /// Prepares the mail server, and connects to nothing.
    pub(in crate::delivery::channels) fn new(mail: &Mail) -> Result<Self, ConfigError> {
        let (host, port) = mail.address()?;
        let encryption = match mail.tls {
            MailTls::Starttls => Encryption::Starttls(parameters(mail, &host)?),
            MailTls::Implicit => Encryption::Implicit(parameters(mail, &host)?),
            MailTls::None => Encryption::None,
        };
        let user = mail.user.clone().zip(mail.password.clone());
        Ok(Self { host, port, encryption, user, from: mail.sender()?, timeout: mail.timeout })
    }

    /// Sends a message to its one recipient, once. A refusal of the recipient or of the message is final. What the
    /// server answers before, as to a wrong password, is about every message, so the message is kept.
    pub(super) async fn send(
        &self,
        to: &Mailbox,
        message: &Message,
        until: Instant,
    ) -> Result<Attempted, FailedAttempt> {
        let mut connection = match timeout_at(until, self.begin()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(failed(&error, Failure::NotSent)),
            Err(_elapsed) => return Err(late(Failure::NotSent)),
        };
        let transfer = async {
            connection.command(Rcpt::new(to.email.clone(), Vec::new())).await?;
            connection.command(Data).await?;
            connection.message(&message.formatted()).await
        };
        let sent = match timeout_at(until, transfer).await {
            Ok(Ok(_accepted)) => Ok(Attempted::Accepted),
            Ok(Err(error)) if error.is_permanent() => {
                Ok(Attempted::Refused(error.status().map_or(UNNAMED, u16::from)))
            }
            Ok(Err(error)) => Err(failed(&error, Failure::NoAnswer)),
            Err(_elapsed) => Err(late(Failure::NoAnswer)),
        };
        // The message is accepted or not, whatever the server answers to the end of the session.
        let _ended = timeout(GOODBYE, connection.abort()).await;
        sent
    }

    /// Opens a session for a message of the sender.
    async fn begin(&self) -> Result<AsyncSmtpConnection, Error> {
        let mut connection = self.connect().await?;
        connection.command(MailFrom::new(Some(self.from.email.clone()), Vec::new())).await?;
        Ok(connection)
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let name = ClientId::default();
        let at = (self.host.as_str(), self.port);
        let implicit = match &self.encryption {
            Encryption::Implicit(tls) => Some(tls.clone()),
            Encryption::Starttls(_) | Encryption::None => None,
        };
        let mut connection = AsyncSmtpConnection::connect_tokio1(at, None, &name, implicit, None).await?;
        if let Encryption::Starttls(tls) = &self.encryption {
            connection.starttls(tls.clone(), &name).await?;
        }
        if let Some((user, password)) = &self.user {
            let credentials = Credentials::new(user.clone(), password.expose_secret().to_owned());
            connection.auth(DEFAULT_MECHANISMS, &credentials).await?;
        }
        Ok(connection)
    }
}

/// Reads the trusted certificates, and prepares TLS to this host.
fn parameters(mail: &Mail, host: &str) -> Result<TlsParameters, ConfigError> {
    let wrong = |field: &str, why: String| ConfigError::Value { key: format!("mail.{field}"), why };
    let mut builder = TlsParameters::builder(host.to_owned());
    if let Some(path) = &mail.ca_file {
        let unread = |why: &dyn std::fmt::Display| wrong("ca_file", format!("{}: {why}", path.display()));
        let pem = fs::read(path).map_err(|error| unread(&error))?;
        let no_certificate = || unread(&"expected certificates in PEM");
        // The library accepts a file without certificates.
        if !matches!(CertificateDer::pem_slice_iter(&pem).next(), Some(Ok(_))) {
            return Err(no_certificate());
        }
        let certificate = Certificate::from_pem(&pem).map_err(|_| no_certificate())?;
        builder = builder.add_root_certificate(certificate);
    }
    builder.build().map_err(|error| wrong("tls", error.to_string()))
}

fn late(failure: Failure) -> FailedAttempt {
    FailedAttempt::again(failure, "the mail server did not answer in time")
}

/// Returns the failed attempt. `silent` is the failure if the server gave no status.
fn failed(error: &Error, silent: Failure) -> FailedAttempt {
    let (failure, why) = match error.status() {
        // The words of the server may repeat what was sent.
        Some(code) => (Failure::Status(code.into()), format!("the mail server answered {code}")),
        None => (silent, error.to_string()),
    };
    FailedAttempt::again(failure, why)
}
