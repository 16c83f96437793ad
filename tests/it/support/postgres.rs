//! Databases on a throwaway Postgres server, where there is one.

use super::Rows;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable with the URL of a server on which databases can be made, ending in `/` and a database.
const SERVER: &str = "HOLDPOINT_TEST_POSTGRES";

/// If set, every embedded server that says nothing else stands on a database of its own there.
const EVERYTHING: &str = "HOLDPOINT_TEST_EVERYTHING_ON_POSTGRES";

/// An empty database for a server that says nothing else; `None` means SQLite.
#[expect(
    clippy::disallowed_methods,
    reason = "says where a server is; no part of the program's configuration"
)]
pub(crate) async fn everything_on_postgres() -> Option<String> {
    std::env::var_os(EVERYTHING)?;
    Some(postgres().await.expect("HOLDPOINT_TEST_POSTGRES says where"))
}

/// Makes an empty database and gives its URL; `None` where no server is named. It is left to the server, which
/// is thrown away.
#[expect(
    clippy::disallowed_methods,
    reason = "says where a server is; no part of the program's configuration"
)]
pub(crate) async fn postgres() -> Option<String> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let server = std::env::var(SERVER).ok()?;
    let name = format!("holdpoint_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let rows = Rows::open(&server).await;
    // One left by an earlier process with this number is in the way.
    rows.change(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await.unwrap();
    rows.change(&format!("CREATE DATABASE {name}")).await.unwrap();
    let (before, _) = server.rsplit_once('/').unwrap();
    Some(format!("{before}/{name}"))
}
