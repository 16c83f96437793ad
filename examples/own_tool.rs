//! A custom tool and a server for it: `cargo run --example own_tool`, then the walk of the README.
//!
//! The tool has a name that the demo model knows. A real model can call a tool of any name.

use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpListener;

/// Notes in memory.
struct DeleteNote(Mutex<BTreeSet<String>>);

/// The inputs of the tool. The model reads these comments.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The name of the note.
    path: String,
}

impl Tool for DeleteNote {
    const NAME: &'static str = "delete_file";
    const DESCRIPTION: &'static str = "Deletes a note.";
    const HIL: bool = true; // a human decides
    type Input = Note;
    type Output = String;

    async fn execute(&self, note: Note, _permit: Permit<Self>) -> Result<String, ToolError> {
        let deleted = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&note.path);
        deleted.then_some(note.path).ok_or_else(|| ToolError::new("there is no such note"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(&Flags::default())?;
    let mut tools = ToolRegistry::new();
    tools.register(DeleteNote(Mutex::new(BTreeSet::from(["old.txt".to_owned()]))))?;
    let listener = TcpListener::bind(config.server.bind).await?;
    let model = app::configured_model(&config)?;
    let app = App::builder(config).tools(tools).model(model).handler(Deferred).build().await?;
    println!("holdpoint listens on http://{}", listener.local_addr()?);
    app.serve(listener, async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
    Ok(())
}
