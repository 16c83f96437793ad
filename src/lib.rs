//! holdpoint is a chat backend. It streams the answers of a model to pages built on the AI SDK, and holds
//! dangerous tool calls for a human.
//!
//! # Modules
//!
//! Five modules are the public interface. `ARCHITECTURE.md` describes the private modules.
//!
//! - [`tools`]: the trait [`Tool`](tools::Tool), the trait [`SubAgent`](tools::SubAgent), the registry, and
//!   the demo tools.
//! - [`llm`]: the trait [`LanguageModel`](llm::LanguageModel), the models on remote servers, and the scripted
//!   model.
//! - [`handlers`]: the trait [`ApprovalHandler`](handlers::ApprovalHandler), and the handlers for held calls.
//! - [`config`]: all settings.
//! - [`app`]: joins these parts to an [`App`](app::App). The `App` serves, or is an endpoint of another poem
//!   app.
//!
//! `examples/own_tool.rs` has a custom tool and a server for it. `examples/sub_agent.rs` has a tool that runs
//! in a child thread. `examples/own_handler.rs` asks for approvals at a terminal. `examples/embed.rs` embeds
//! the server in another app.
//!
//! # Invariants
//!
//! - A tool runs only with a [`Permit`](tools::Permit) for its own type. No code outside of this crate can
//!   make a permit: a permit comes from a committed row, which the policy or a person allowed.
//! - An approved call runs at most once. After a crash its outcome is reported as unknown.
//! - The inputs that a person saw are the inputs that run. An edit is stored beside them.
//! - Nothing that a client sends is authority: not its history, not its results.
//! - Holds, decisions and results are emitted only after their commit.
//!
//! # One turn and one validation
//!
//! A server on a database of its own, with the demo tools and the scripted model:
//!
//! ```
//! # use holdpoint::app::{self, App};
//! # use holdpoint::config::Config;
//! # use holdpoint::handlers::Deferred;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let (db, files) = (dir.path().join("holdpoint.db"), dir.path().join("files"));
//! let mut config = Config::default();
//! config.database.url = format!("sqlite://{}", db.display()).into();
//! config.tools.files_dir = files.clone();
//! let (tools, model) = (app::demo_tools(&config)?, app::configured_model(&config)?);
//! let app = App::builder(config).tools(tools).model(model).handler(Deferred).build().await?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let url = format!("http://{}", listener.local_addr()?);
//! tokio::spawn(app.serve(listener, std::future::pending()));
//! std::fs::write(files.join("notes.txt"), "old news")?;
//! # // This client needs the TLS provider that the server installs with its first model.
//! # let _installed = rustls::crypto::ring::default_provider().install_default();
//! # let http = reqwest::Client::new();
//!
//! // One turn. The caller names the thread. The model makes a dangerous call. The server stores the call as
//! // pending, emits it in the stream, and ends the stream.
//! let ask = serde_json::json!({ "id": "my-chat", "content": "delete notes.txt" });
//! let turn = http.post(format!("{url}/qa/chat_streamed")).json(&ask).send().await?.text().await?;
//! let held = turn.lines().find_map(|line| line.strip_prefix("8:")).ok_or("nothing was held")?;
//! let held: serde_json::Value = serde_json::from_str(held)?;
//! assert_eq!(held[0]["validated"], "pending");
//! assert!(files.join("notes.txt").exists());
//!
//! // One validation. A person approves. The call runs, and the response contains its outcome.
//! let approval = serde_json::json!({ "toolCallId": held[0]["toolCallId"], "isValidated": true });
//! let done = http.post(format!("{url}/qa/validate_tool")).json(&approval).send().await?.text().await?;
//! assert!(done.contains(r#""state":"succeeded""#), "{done}");
//! assert!(!files.join("notes.txt").exists());
//!
//! // The next turn has no new message. The model reads the outcome.
//! let continuation = serde_json::json!({ "id": "my-chat" });
//! let turn = http.post(format!("{url}/qa/chat_streamed")).json(&continuation).send().await?.text().await?;
//! assert!(turn.contains(r#""validated":"approved""#), "{turn}");
//! # Ok(())
//! # }
//! ```
//!
//! `ARCHITECTURE.md` describes each step under "One turn" and "One decision".

#![warn(missing_docs)]
// Parts that serve a feature alone have their types where the others of the kind are.
#![cfg_attr(
    not(all(
        feature = "cli",
        feature = "console",
        feature = "demo",
        feature = "mcp",
        feature = "websocket"
    )),
    expect(dead_code, unused_imports)
)]

mod agent;
pub mod app;
mod approvals;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod benches;
mod chat;
pub mod config;
#[cfg(feature = "notify")]
mod delivery;
#[cfg(not(feature = "notify"))]
#[path = "delivery/absent.rs"]
mod delivery;
mod entropy;
mod feed;
mod http;
mod http_tools;
mod mcp;
mod operator;
mod rate_limit;
mod startup;
pub mod telemetry;
pub mod tools;

pub use approvals::handlers;

pub use holdpoint_models as llm;

/// The examples of the documentation, which doctests compile.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Documentation;
