//! holdpoint under test: the server with its defaults, on Postgres, and the one tool that each server has.

use anyhow::{Context, Result};
use holdpoint::app::{self, App};
use holdpoint::config::{Config, Provider};
use holdpoint::handlers::Deferred;
use holdpoint::telemetry;
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use schemars::JsonSchema;
use sea_orm::{ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;

/// The connections of the server, and those of its tool. The server on the AI SDK has as many.
const CONNECTIONS: u32 = 20;

struct DeleteFile(DatabaseConnection);

/// The file to delete.
#[derive(Deserialize, JsonSchema)]
struct File {
    path: String,
    #[expect(dead_code, reason = "the model gives a reason to the person")]
    reason: String,
}

impl Tool for DeleteFile {
    const NAME: &'static str = "delete_file";
    const DESCRIPTION: &'static str = "Delete a file from the server";
    const HIL: bool = true;
    type Input = File;
    type Output = Value;

    async fn execute(&self, file: File, permit: Permit<Self>) -> Result<Value, ToolError> {
        let insert = "INSERT INTO effects (tool_call_id) VALUES ($1)";
        let id = permit.tool_call_id().to_string();
        let effect = Statement::from_sql_and_values(DbBackend::Postgres, insert, [id.into()]);
        self.0.execute_raw(effect).await.map_err(|error| ToolError::new(error.to_string()))?;
        Ok(json!({ "deleted": file.path }))
    }
}

/// Serves until the process ends.
pub(crate) async fn run(port: u16, model: &str, database: &str) -> Result<()> {
    let mut config = Config::default();
    config.server.bind = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    config.database.url = database.into();
    config.database.max_connections = CONNECTIONS;
    config.model.provider = Provider::OPENAI;
    config.model.base_url = Some(model.to_owned());
    config.model.name = Some("bench-model".to_owned());
    config.model.api_key = Some("bench".into());
    // No server under test logs its requests.
    config.log.level = Some("warn".to_owned());
    let _telemetry = telemetry::begin(&config.log).map_err(anyhow::Error::from_boxed).context("log")?;
    app::open_many_files(&config);
    let mut pool = ConnectOptions::new(database);
    pool.max_connections(CONNECTIONS).sqlx_logging(false);
    let mut tools = ToolRegistry::new();
    tools.register(DeleteFile(Database::connect(pool).await?))?;
    let listener = TcpListener::bind(config.server.bind).await?;
    let model = app::configured_model(&config)?;
    let app = App::builder(config).tools(tools).model(model).handler(Deferred).build().await?;
    Ok(app.serve(listener, std::future::pending()).await?)
}
