//! holdpoint: a chat backend that streams a model's answers to pages built on the AI SDK, and holds dangerous
//! tool calls for a human.
//!
//! # The map
//!
//! Five modules are for who builds on it; the rest of the map is in `ARCHITECTURE.md`.
//!
//! - [`tools`]: the trait [`Tool`](tools::Tool), the trait [`SubAgent`](tools::SubAgent), the registry, and the demo tools.
//! - [`llm`]: the trait [`LanguageModel`](llm::LanguageModel), the models behind a server, and the scripted one.
//! - [`handlers`]: the trait [`ApprovalHandler`](handlers::ApprovalHandler), and who may be asked about held calls.
//! - [`config`]: everything that can be set.
//! - [`app`]: joins these to an [`App`](app::App), which serves, or is an endpoint of one's own poem app.
//!
//! `examples/own_tool.rs` is a tool and a server around it, `examples/sub_agent.rs` one that a child thread does;
//! `examples/own_handler.rs` asks at a terminal; `examples/embed.rs` is a part of another app.
//!
//! # The invariants
//!
//! - A tool runs only for a [`Permit`](tools::Permit) of its own type, and nobody makes one outside of this crate: it
//!   comes from a committed row, on the policy's word or a person's.
//! - An approved call runs at most once. After a crash its outcome is said to be unknown.
//! - What was shown is what runs; an edit is stored beside it.
//! - Nothing that a client sends is authority: not its history, not its results.
//! - Holds, decisions and results are told after their commit.
//!
//! # One turn and one validation
//!
//! A server on a database of its own, with the demo tools and the model that knows a handful of sentences:
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
//! # // What the server installs when it asks a model, this client needs now.
//! # let _installed = rustls::crypto::ring::default_provider().install_default();
//! # let http = reqwest::Client::new();
//!
//! // One turn. The thread is the caller's own name for it. The model asks for something dangerous; the call is saved,
//! // the stream says that it waits, and ends.
//! let ask = serde_json::json!({ "id": "my-chat", "content": "delete notes.txt" });
//! let turn = http.post(format!("{url}/qa/chat_streamed")).json(&ask).send().await?.text().await?;
//! let held = turn.lines().find_map(|line| line.strip_prefix("8:")).ok_or("nothing was held")?;
//! let held: serde_json::Value = serde_json::from_str(held)?;
//! assert_eq!(held[0]["validated"], "pending");
//! assert!(files.join("notes.txt").exists());
//!
//! // One validation. A person says yes; the call runs now, and the answer is what became of it.
//! let yes = serde_json::json!({ "toolCallId": held[0]["toolCallId"], "isValidated": true });
//! let done = http.post(format!("{url}/qa/validate_tool")).json(&yes).send().await?.text().await?;
//! assert!(done.contains(r#""state":"succeeded""#), "{done}");
//! assert!(!files.join("notes.txt").exists());
//!
//! // The next turn: nothing new is said, and the model reads what happened.
//! let go_on = serde_json::json!({ "id": "my-chat" });
//! let turn = http.post(format!("{url}/qa/chat_streamed")).json(&go_on).send().await?.text().await?;
//! assert!(turn.contains(r#""validated":"approved""#), "{turn}");
//! # Ok(())
//! # }
//! ```
//!
//! What happens meanwhile, step by step, is in `ARCHITECTURE.md` under "One turn" and "One decision".

mod agent;
pub mod app;
mod approvals;
mod chat;
pub mod config;
mod domain;
mod egress;
#[cfg(feature = "torture")]
pub mod faults;
mod feed;
mod http;
pub mod llm;
mod metrics;
mod operator;
mod rate_limit;
mod startup;
mod store;
mod stream;
pub mod telemetry;
pub mod tools;

pub use approvals::handlers;

/// The examples of the documentation, compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Documentation;
