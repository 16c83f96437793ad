//! Notifications from other processes on the same Postgres about numbered events. A notification can get
//! lost, so a process that needs all events also polls the table.

use crate::StoreError;
use crate::config::Database;
use crate::sql::connect::{keeps_no_statements, postgres_options};
use crate::sql::schema;
use crate::sql::tx::within_timeout;
use sea_orm::sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use sea_orm::{DbErr, RuntimeErr, sqlx};
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;
use std::time::Duration;

/// After this time without a notification, the process checks that the connection is alive.
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification {
    /// The connection starts to listen. Earlier notifications are lost.
    Listening,
    /// Events have numbers, up to this one.
    Numbered(i64),
}

/// A connection that listens for notifications.
#[derive(Debug)]
pub struct Notifications {
    url: SecretString,
    schema: String,
    listener: Option<PgListener>,
}

impl Notifications {
    /// Listens at `direct_url`, or else at the database of the rows. Returns `None` if no notifications can
    /// arrive: SQLite has one process, and a pooler that shares sessions delivers no notifications.
    pub fn of(database: &Database) -> Option<Self> {
        let Database { url, direct_url, schema, max_connections: _ } = database;
        let through = url.expose_secret();
        let listens = through.starts_with("postgres") && !keeps_no_statements(through);
        let url = direct_url.as_ref().or(listens.then_some(url))?.clone();
        Some(Self { url, schema: schema.clone(), listener: None })
    }

    /// Completes when new events may exist, or when the connection starts to listen.
    pub async fn next(&mut self) -> Result<Notification, StoreError> {
        loop {
            let Some(listener) = &mut self.listener else {
                self.listener = Some(within_timeout(listen(&self.url, &self.schema)).await?);
                return Ok(Notification::Listening);
            };
            let received = receive(listener, &self.schema).await;
            if let Ok(Some(last)) = received {
                return Ok(Notification::Numbered(last));
            }
            self.listener = None;
            received?;
        }
    }
}

async fn listen(url: &SecretString, schema: &str) -> Result<PgListener, DbErr> {
    let listen = async {
        let options: PgConnectOptions = url.expose_secret().parse()?;
        let one = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = one.connect_with(postgres_options(options)).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        sqlx::Executor::execute(&mut listener, schema::listen(schema)).await?;
        Ok(listener)
    };
    listen.await.map_err(failed)
}

/// Returns the number of a notification, or `None` if the connection is lost.
async fn receive(listener: &mut PgListener, schema: &str) -> Result<Option<i64>, StoreError> {
    loop {
        if let Ok(received) = tokio::time::timeout(SILENCE, listener.try_recv()).await {
            // A notification without a valid number only means that the table may have new events.
            let number = |received: PgNotification| received.payload().parse().unwrap_or(i64::MAX);
            return Ok(received.map_err(failed)?.map(number));
        }
        // A repeated LISTEN in a listening session has no effect.
        let again = schema::listen(schema);
        let again = async { sqlx::Executor::execute(&mut *listener, again).await.map_err(failed) };
        within_timeout(again).await?;
    }
}

fn failed(error: sqlx::Error) -> DbErr {
    DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error)))
}
