//! Word from other processes on the same Postgres that events have numbers. It may be lost: who wants to know all looks
//! into the table now and then.

use super::StoreError;
use super::connect::{keeps_no_statements, postgres_options};
use super::timed_tx::within_timeout;
use sea_orm::sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use sea_orm::{DbErr, RuntimeErr, sqlx};
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;
use std::time::Duration;

/// Whoever listens already goes on.
const LISTEN: &str = "LISTEN holdpoint_events";
/// After so long a silence it is asked whether the connection is still there.
const SILENCE: Duration = Duration::from_secs(30);

/// What is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notification {
    /// The connection listens from now on; of what was before it heard nothing.
    Listening,
    /// Events have numbers, up to this one.
    Numbered(i64),
}

/// A connection on which one listens.
#[derive(Debug)]
pub(crate) struct Notifications {
    url: SecretString,
    listener: Option<PgListener>,
}

impl Notifications {
    /// Listens at `direct_url`, or else where the rows are. `None` where there is nobody to listen to: SQLite has one
    /// process, and behind a pooler that shares sessions nothing is heard.
    pub(crate) fn at(url: &SecretString, direct_url: Option<&SecretString>) -> Option<Self> {
        let through = url.expose_secret();
        let listens = through.starts_with("postgres") && !keeps_no_statements(through);
        let url = direct_url.or(listens.then_some(url))?.clone();
        Some(Self { url, listener: None })
    }

    /// Comes back when there may be something new; also when it begins to listen.
    pub(crate) async fn next(&mut self) -> Result<Notification, StoreError> {
        loop {
            let Some(listener) = &mut self.listener else {
                self.listener = Some(within_timeout(listen(&self.url)).await?);
                return Ok(Notification::Listening);
            };
            let received = receive(listener).await;
            if let Ok(Some(last)) = received {
                return Ok(Notification::Numbered(last));
            }
            self.listener = None;
            received?;
        }
    }
}

async fn listen(url: &SecretString) -> Result<PgListener, DbErr> {
    let listen = async {
        let options: PgConnectOptions = url.expose_secret().parse()?;
        let one = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = one.connect_with(postgres_options(options)).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        sqlx::Executor::execute(&mut listener, LISTEN).await?;
        Ok(listener)
    };
    listen.await.map_err(failed)
}

/// The number that was heard; `None` if the connection is lost.
async fn receive(listener: &mut PgListener) -> Result<Option<i64>, StoreError> {
    loop {
        if let Ok(received) = tokio::time::timeout(SILENCE, listener.try_recv()).await {
            // Without a number it says only that it is worth looking.
            let number = |received: PgNotification| received.payload().parse().unwrap_or(i64::MAX);
            return Ok(received.map_err(failed)?.map(number));
        }
        let again = async { sqlx::Executor::execute(&mut *listener, LISTEN).await.map_err(failed) };
        within_timeout(again).await?;
    }
}

fn failed(error: sqlx::Error) -> DbErr {
    DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error)))
}
