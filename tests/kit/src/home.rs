//! A folder and a database for the server's own binary, which is started there repeatedly.

use super::{Process, postgres_if_chosen, serve};
use crate::built;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

pub struct Home {
    dir: TempDir,
    database: String,
}

impl Home {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = postgres_if_chosen().await.unwrap_or_else(|| serve::sqlite(&dir));
        Self { dir, database }
    }

    /// A file of the demo tools; it exists after a server has started.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("holdpoint-files").join(name)
    }

    /// Starts the server. Its model is at this base URL, and each request to it carries these options, as
    /// JSON.
    pub fn start(&self, provider: &str, name: &str, base_url: &str, options: &str) -> Process {
        Process::spawn(
            Command::new(built("holdpoint"))
                .current_dir(self.dir.path())
                .env("HOLDPOINT_DATABASE__URL", &self.database)
                .env("HOLDPOINT_MODEL__PROVIDER", provider)
                .env("HOLDPOINT_MODEL__NAME", name)
                .env("HOLDPOINT_MODEL__BASE_URL", base_url)
                .env("HOLDPOINT_MODEL__OPTIONS", options)
                .env("HOLDPOINT_MODEL__API_KEY", "sk-nobody")
                .env("HOLDPOINT_LOG__LEVEL", "error"),
        )
    }
}
