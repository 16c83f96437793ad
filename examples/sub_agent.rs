//! A sub-agent and a server for it: `cargo run --example sub_agent`, then send `write "delete old.txt" to
//! helper`.
//!
//! A model in a child thread executes the quoted text. The deletion is held there, and appears in the inbox
//! of the session (`GET /approvals`). After the decision, both threads resume automatically.
//!
//! The sub-agent has a name that the demo model knows. A real model can call a sub-agent of any name.

use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::tools::files::{DeleteFile, Files};
use holdpoint::tools::{SubAgent, ToolRegistry};
use tokio::net::TcpListener;

/// A sub-agent that executes the task in a letter.
struct Helper;

/// The inputs of the sub-agent. The model reads these comments.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Letter {
    /// The task of the helper.
    content: String,
    /// The name of the helper.
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
