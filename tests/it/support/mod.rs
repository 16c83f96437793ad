//! What the tests stand on.

mod aimock;
mod client;
mod eventually;
mod model;
mod postgres;
mod process;
mod rows;
mod serve;
mod tools;
mod valid_history;

pub use aimock::Aimock;
pub use client::{Answer, Client, Line, Turn};
pub use eventually::eventually;
pub use model::{Scene, call, text};
pub use postgres::{everything_on_postgres, postgres};
pub use process::Process;
pub use rows::Rows;
pub use serve::{Embedded, config};
pub use tools::{ChangedPay, Ledger, Probe, probes};
pub use valid_history::valid_history;
