//! The kit of the tests: servers in this process and beside it, clients, models, databases and programs that the three
//! test programs (`tests/api`, `tests/engine`, `tests/outside`) share.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by a panic"
)]

mod agents;
mod aimock;
mod bad_server;
mod browser;
mod captured;
mod client;
pub mod console;
mod counted;
mod courier;
mod deployment;
pub mod dialects;
mod disconnect;
mod driver;
mod eventually;
mod failover;
pub mod handlers;
mod home;
pub mod http2;
pub mod issuer;
mod json_fields;
mod logged;
pub mod mcp;
mod model;
mod next;
mod nginx;
mod oidc;
mod page_package;
mod pgbouncer;
mod places;
mod ports;
mod postgres;
pub mod previews;
mod process;
mod proxy;
mod recording;
mod remote_tool;
mod rows;
pub mod runs;
mod sample_page;
pub mod secrets;
mod serve;
mod socket;
mod sse;
mod statements;
pub mod subagents;
mod terminal;
pub mod ticket;
pub mod token;
mod tools;
pub mod ui;
mod upstream;
mod valid_history;
pub mod webhooks;
pub mod wires;
pub mod workers;

pub use agents::{Clerk, add_agents};
pub use aimock::Aimock;
pub use bad_server::{BadServer, ClosedAddress, KEY, RawResponse, ResponseAction, ResponseState};
pub use browser::{Browser, Tab};
pub use captured::{MODEL_KEY, WatchedServer, serve_watched};
pub use client::{Answer, Client, Turn};
pub use courier::{Question, Report, Service};
pub use deployment::{Deployment, LEASE, serve_deployed};
pub use disconnect::{DisconnectKind, Leaver};
pub use driver::Driver;
pub use eventually::eventually;
pub use failover::Failover;
pub use home::Home;
pub use json_fields::JsonFields;
pub use logged::StatementLog;
pub use model::{Scene, call};
pub use next::Next;
pub use nginx::Nginx;
pub use oidc::Oidc;
pub use page_package::{PagePackage, code_of};
pub use pgbouncer::Pgbouncer;
pub use places::{built, in_repository, scratch, temporary};
pub use ports::free_port;
pub use postgres::{Cluster, DiskSync, empty_postgres, postgres, postgres_if_chosen};
pub use process::Process;
pub use proxy::{CommitFate, Proxy};
pub use recording::{Cost, Transactions};
pub use remote_tool::{ReceivedRequest, RemoteTool, ServiceAction, read as read_request};
pub use rows::Rows;
pub use sample_page::SamplePage;
pub use serve::{Embedded, asked_from, empty_sqlite, sqlite};
pub use socket::Socket;
pub use sse::Sse;
pub use statements::{Purpose, Statements};
pub use terminal::{EndedCommand, Pty, holdpoint};
pub use tools::{ChangedPay, Count, Ledger, Payment, Probe, SPOILT, Weigh, probes, stricter};
pub use upstream::{RecordedRequest, Upstream};
pub use valid_history::rules::is_id_for_all;
pub use valid_history::{Conversation, Entry, Speaker, conversation, valid_question, valid_request};
pub use wires::{Ending, ScriptedAnswer, Wire};

/// The answer for a call whose outcome is unknown.
pub const UNKNOWN: &str = "The outcome is unknown: the tool may have run, wholly or in part. \
                                  Do not repeat it without asking the user.";

/// Defines the servers that [`Deployment`] and [`WatchedServer`] start, as ignored tests of the program: a process of that
/// program serves.
#[macro_export]
macro_rules! child_servers {
    () => {
        mod child_servers {
            #[test]
            #[ignore = "serves until it is stopped; a `Deployment` starts it"]
            fn deployed() {
                $crate::serve_deployed();
            }

            #[test]
            #[ignore = "serves until it is stopped; `WatchedServer` starts it"]
            fn watched() {
                $crate::serve_watched();
            }
        }
    };
}
