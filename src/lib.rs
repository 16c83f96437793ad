//! holdpoint: a chat backend that streams a model's answers to pages built on the AI SDK, and holds dangerous
//! tool calls for a human.
//!
//! The map of the modules, the invariants and a walk through one turn are in `ARCHITECTURE.md`.

mod agent;
pub mod app;
mod approvals;
mod chat;
pub mod config;
pub mod domain;
mod http;
pub mod llm;
mod store;
mod stream;
pub mod tools;
