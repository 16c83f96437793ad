//! holdpoint: a chat backend that streams a model's answers to pages built on the AI SDK, and holds dangerous
//! tool calls for a human.
//!
//! The map of the modules, the invariants and a walk through one turn are in `ARCHITECTURE.md`; a walk with
//! `curl` is in `README.md`.
//!
//! To build a server with tools of one's own: make a [`tools::ToolRegistry`], register what implements
//! [`tools::Tool`], and join it with a configuration and a model in [`app::App::build`].

mod agent;
pub mod app;
mod approvals;
mod chat;
pub mod config;
mod domain;
mod egress;
mod http;
pub mod llm;
mod metrics;
mod store;
mod stream;
pub mod tools;

/// The examples of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
