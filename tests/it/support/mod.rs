//! What the tests stand on.

mod client;
mod model;
mod process;
mod rows;
mod serve;
mod tools;

pub use client::{Answer, Client, Line, Turn};
pub use model::{Scene, call, text};
pub use process::Process;
pub use rows::Rows;
pub use serve::{Embedded, config};
pub use tools::{Ledger, Probe, probes};
