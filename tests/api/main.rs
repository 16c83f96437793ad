//! holdpoint by its routes: HTTP in, bytes and rows out. The resources, who may use them, and the database.
#![cfg(test)]

mod approval_card;
mod attacks;
mod auth;
mod bodies;
mod config;
mod database;
mod documents;
mod events;
mod inbox;
mod lists;
mod numbers;
mod operator;
mod previews;
mod requests;
mod roles;
mod secrets;
mod stored;
mod telemetry;
mod threads;
mod triggers;
mod turns;

holdpoint_testkit::child_servers!();
