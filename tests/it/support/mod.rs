//! What the tests stand on.

mod aimock;
mod client;
mod eventually;
mod leave;
mod model;
mod postgres;
mod process;
mod rows;
mod serve;
mod tools;
mod valid_history;

pub(crate) use aimock::Aimock;
pub(crate) use client::{Answer, Client, Turn};
pub(crate) use eventually::eventually;
pub(crate) use leave::{Leave, Leaver};
pub(crate) use model::{Scene, call};
pub(crate) use postgres::{everything_on_postgres, postgres};
pub(crate) use process::Process;
pub(crate) use rows::Rows;
pub(crate) use serve::Embedded;
pub(crate) use tools::{ChangedPay, Ledger, Probe, probes};
pub(crate) use valid_history::valid_history;
