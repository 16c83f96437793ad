//! draft
mod agent;
mod approvals;
mod chat;
pub mod domain;
pub mod llm;
mod store;
mod stream;
pub mod tools;
