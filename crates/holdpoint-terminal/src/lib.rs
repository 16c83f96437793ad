//! The commands of an approver at a terminal: a client of the public HTTP interface of a server.
//!
//! - `client` speaks to the server, `call` describes what it says.
//! - `list`, `show`, `decide`, `watch` and `resolve` are the commands; `edit` reads inputs, `ask` asks the person.
//! - `screen` is the one way from a text of the server to a terminal, `json_text` the one for JSON.
//!
//! A decision names the hash of what was shown, so that the server refuses it after a change.

mod ask;
mod call;
mod client;
#[cfg(test)]
mod complete_card;
pub mod config;
mod decide;
mod edit;
mod failure;
mod json_text;
pub mod keyboard;
mod list;
mod offer;
mod resolve;
mod screen;
mod show;
mod watch;

pub use decide::{Approve, Reject};
pub use failure::{Failure, Refusal};
pub use list::List;
pub use resolve::{FoundOutcome, Resolve};
pub use screen::table;
pub use show::Show;
pub use watch::Watch;

use clap::Subcommand;

/// The commands that address a server.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List calls, newest first: the inbox of a server, or without --url the calls in the database
    List(List),
    /// Show everything about a call
    Show(Box<Show>),
    /// Approve a pending call, after a question or with the hash that was shown
    Approve(Box<Approve>),
    /// Reject a pending call, after a question or with the hash that was shown
    Reject(Box<Reject>),
    /// Show the calls that wait, and new holds and decisions as they happen
    ///
    /// At a terminal, the number or the id of a call and Enter open the call and ask for a decision. q ends.
    Watch(Watch),
    /// Record the outcome of an interrupted call. The model reads that an operator established it
    ///
    /// At a server the access token names the operator. With --by the command works on the database.
    Resolve(Resolve),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The reason why the command did not do what it was asked to do.
    pub async fn run(&self, config: config::Client) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run(config).await,
            Self::Show(show) => show.run(config).await,
            Self::Approve(approve) => approve.run(config).await,
            Self::Reject(reject) => reject.run(config).await,
            Self::Watch(watch) => watch.run(config).await,
            Self::Resolve(resolve) => resolve.run(config).await,
        }
    }
}
