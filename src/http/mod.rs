//! The HTTP layer: routes into the layers below, and the bytes of their responses.
//!
//! To add a resource: add a file like `routes/tools.rs`, name it in `resources!` of [`api`], then run
//! `cargo xtask openapi` and `cargo xtask docs --write`.

mod access;
mod api;
mod approvals;
mod auth;
mod body;
mod document;
mod events;
mod failure;
mod middleware;
mod routes;
pub(crate) mod server;
mod stream;

pub(crate) use api::{Api, Settings, document, endpoint, operators_endpoint};
pub(crate) use auth::{Authenticator, Tickets};
pub(crate) use events::event::public_form;
pub(crate) use middleware::cors::Cors;
pub(crate) use middleware::rates::Rates;
pub(crate) use routes::health::Scrape;
pub(crate) use stream::dialect_hint::DialectHint;
pub(crate) use stream::turn_stream::Streaming;
