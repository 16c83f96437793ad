//! Shared support of the tests.

mod agents;
mod aimock;
mod bad_server;
mod browser;
mod captured;
mod client;
mod courier;
mod disconnect;
mod eventually;
mod home;
pub(crate) mod http2;
pub(crate) mod issuer;
mod model;
mod oidc;
mod pgbouncer;
mod place;
mod postgres;
mod process;
mod proxy;
mod recording;
mod rows;
mod serve;
mod socket;
mod sse;
mod statements;
pub(crate) mod strict;
mod terminal;
pub(crate) mod ticket;
pub(crate) mod token;
mod tools;
pub(crate) mod ui;
mod upstream;
mod valid_history;
pub(crate) mod wires;

pub(crate) use agents::{Clerk, add_agents};
pub(crate) use aimock::Aimock;
pub(crate) use bad_server::{Act, BadServer, Closed, KEY, Reply, Stands};
pub(crate) use browser::{Browser, Tab};
pub(crate) use captured::{MODEL_KEY, Watched};
pub(crate) use client::{Answer, Client, Turn};
pub(crate) use courier::{Question, Says, Service};
pub(crate) use disconnect::{Leave, Leaver};
pub(crate) use eventually::eventually;
pub(crate) use home::Home;
pub(crate) use model::{Scene, call};
pub(crate) use oidc::Oidc;
pub(crate) use pgbouncer::Pgbouncer;
pub(crate) use place::{LEASE, Place};
pub(crate) use postgres::{Cluster, Synced, postgres, postgres_if_chosen};
pub(crate) use process::Process;
pub(crate) use proxy::{Commit, Proxy};
pub(crate) use recording::{Cost, Transactions};
pub(crate) use rows::Rows;
pub(crate) use serve::{Embedded, asked_from, sqlite};
pub(crate) use socket::Socket;
pub(crate) use sse::Sse;
pub(crate) use statements::{Purpose, Statements};
pub(crate) use terminal::{Ended, Pty, holdpoint};
pub(crate) use tools::{ChangedPay, Count, Ledger, Payment, Probe, SPOILT, Weigh, probes, stricter};
pub(crate) use upstream::{Asked, Upstream};
pub(crate) use valid_history::{By, Conversation, Entry, conversation, valid_question, valid_request};
pub(crate) use wires::{Ending, Said, Wire};

/// The answer for a call whose outcome is unknown.
pub(crate) const UNKNOWN: &str = "The outcome is unknown: the tool may have run, wholly or in part. \
                                  Do not repeat it without asking the user.";
