//! The pure core: threads, calls, decisions and turns. This layer does not wait and does no I/O.
//!
//! The domain knows JSON values, because the inputs and outputs of tools are such values. It also knows that
//! pages show calls, that a model reads texts, and that messages and calls are stored, but not in which form.
//! The JSON of the tables is in `store`, that of the streams in `stream`, and that of the models' servers in
//! `models`. A value of a small set has one [word](mod@vocabulary) everywhere.

#![warn(missing_docs)]

pub mod call;
pub mod call_times;
pub mod card;
pub mod clock;
pub mod cut_outcomes;
pub mod decision;
pub mod delegation;
pub mod endpoint;
pub mod event;
pub mod event_data;
pub mod grant;
pub mod id;
pub mod json;
pub mod link;
pub mod message;
pub mod output;
pub mod owner;
pub mod policy;
pub mod quorum;
pub mod replay;
pub mod run;
pub mod sign_in;
pub mod text;
pub mod tool;
pub mod turn;
pub mod vocabulary;
pub mod wire_id;

/// The user of a request. Everything that is read or changed for the request belongs to this user, or is
/// visible to this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant. The data of another tenant does not exist for this principal.
    pub tenant_id: String,
    /// The user inside the tenant.
    pub user_id: String,
    /// The user's roles, by the operator's names. Roles grant rights that other users do not have.
    pub roles: Vec<String>,
}

impl Principal {
    /// Returns the one user of a server without authentication.
    pub fn local() -> Self {
        Self { tenant_id: "default".to_owned(), user_id: "local".to_owned(), roles: Vec::new() }
    }

    /// Whether the user has at least one role of the list.
    pub fn has_one_of(&self, roles: &[String]) -> bool {
        self.roles.iter().any(|role| roles.contains(role))
    }

    /// Returns this principal as the actor of an event or a decision.
    pub fn actor(&self) -> String {
        delegation::actor_of(&self.user_id)
    }
}
