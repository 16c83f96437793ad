//! holdpoint from outside: HTTP in, bytes and rows out.
//!
//! One binary, because each costs a link. `support` has what the tests stand on: a server as a process of its
//! own, or one in this process with tools and a model that a test brings.
#![cfg(test)]

mod around_the_hold;
mod attach;
mod attach_ui;
mod attacks;
mod auth;
mod batch;
mod bodies;
mod browser;
mod canary;
mod cancel;
mod config;
mod crash;
mod decide;
mod deploying;
mod deploys;
mod duplicates;
mod events;
mod examples;
mod faults;
mod fence;
mod following;
mod gone;
mod handlers;
mod hashes;
mod histories;
mod history;
mod http;
mod idempotent;
mod inbox;
mod limits;
mod linear;
mod memory;
mod metrics;
mod moves;
mod native_approval;
mod one_continuation;
mod openapi;
mod operating;
#[cfg(feature = "otel")]
mod otel;
mod outage;
mod planted;
mod policy;
mod pool;
mod provider_state;
mod quorum;
mod races;
mod readme;
mod real_clients;
mod reload;
mod remember;
mod replicas;
mod resolve;
mod roles;
mod runs;
mod schema;
mod stopping;
mod stories;
mod streaming;
mod subagents;
mod support;
mod surfaces;
mod sweeper;
mod third_party;
mod threads;
mod transport;
mod triggers;
mod turns;
mod upstream;
mod verify;
mod while_pending;
