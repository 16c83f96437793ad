//! A sub-agent, and a server around it: `cargo run --example sub_agent`, then say `write "delete old.txt" to helper`.
//!
//! What stands in quotes is done by a model in a thread of its own; the deletion waits for a person there, and is in the
//! inbox of the session (`GET /approvals`). Once it is decided both threads go on by themselves.
//!
//! The sub-agent takes a name that the demo model knows; a real model calls one by any name.

use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::tools::files::{DeleteFile, Files};
use holdpoint::tools::{SubAgent, ToolRegistry};
use tokio::net::TcpListener;

/// Does what it is written.
struct Helper;

/// What the model has to say. Its comments are read by the model.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Letter {
    /// What the helper is to do.
    content: String,
    /// Who it is.
    #[serde(rename = "path")]
    _to: String,
}

impl SubAgent for Helper {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes to a helper, who does what stands in the letter.";
    const HIL: bool = false; // a human decides on what the helper does, not on the letter
    const TOOLS: Option<&'static [&'static str]> = Some(&["delete_file"]);
    type Input = Letter;

    fn task(&self, letter: Letter) -> String {
        letter.content
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(&Flags::default())?;
    let mut tools = ToolRegistry::new();
    tools.register(DeleteFile(Files::open(&config.tools.files_dir)?))?;
    tools.register_sub_agent(Helper)?;
    let listener = TcpListener::bind(config.server.bind).await?;
    let model = app::configured_model(&config)?;
    let app = App::builder(config).tools(tools).model(model).handler(Deferred).build().await?;
    println!("holdpoint listens on http://{}", listener.local_addr()?);
    app.serve(listener, async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
    Ok(())
}
