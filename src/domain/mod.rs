//! The pure core: threads, calls, decisions and turns. This layer does not wait and does no I/O.
//!
//! The domain knows JSON values, because the inputs and outputs of tools are such values. It also knows that
//! pages show calls, that a model reads texts, and that messages and calls are stored, but not in which form.
//! The words and the JSON of the tables are in `store`, those of the streams in `stream`, and those of the
//! models' servers in `llm`. A value has at most one name, the one in the documentation, for people, logs,
//! metrics and routes. A change of that name changes neither a row nor a byte of a stream.

pub(crate) mod assignment;
pub(crate) mod call;
pub(crate) mod canonical;
pub(crate) mod card;
pub(crate) mod clock;
pub(crate) mod cut_outcomes;
pub(crate) mod decision;
pub(crate) mod definition;
pub(crate) mod delegation;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod grant;
pub(crate) mod headline;
pub(crate) mod hex;
pub(crate) mod hold;
pub(crate) mod id;
pub(crate) mod input;
pub(crate) mod input_bounds;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod model_texts;
pub(crate) mod nesting;
pub(crate) mod obstacle;
pub(crate) mod output;
pub(crate) mod owner;
pub(crate) mod permit;
pub(crate) mod placeholders;
pub(crate) mod pointer;
pub(crate) mod policy;
pub(crate) mod preview;
pub(crate) mod progress;
pub(crate) mod quorum;
pub(crate) mod remote;
pub(crate) mod replay;
pub(crate) mod request_sender;
pub(crate) mod run;
mod script;
pub(crate) mod secrets;
mod shown;
pub(crate) mod sign_in;
pub(crate) mod strict_json;
pub(crate) mod surrogates;
pub(crate) mod text;
pub(crate) mod tool_definition;
pub(crate) mod tool_request;
pub(crate) mod turn;
pub(crate) mod visible;
pub(crate) mod waited;
pub(crate) mod wire_id;

/// The user of a request. Everything that is read or changed for the request belongs to this user, or is
/// visible to this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The tenant. The data of another tenant does not exist for this principal.
    pub(crate) tenant_id: String,
    /// The user inside the tenant.
    pub(crate) user_id: String,
    /// The user's roles, by the operator's names. Roles grant rights that other users do not have.
    pub(crate) roles: Vec<String>,
}

impl Principal {
    /// Returns the one user of a server without authentication.
    pub(crate) fn local() -> Self {
        Self { tenant_id: "default".to_owned(), user_id: "local".to_owned(), roles: Vec::new() }
    }

    /// Whether the user has at least one role of the list.
    pub(crate) fn has_one_of(&self, roles: &[String]) -> bool {
        self.roles.iter().any(|role| roles.contains(role))
    }

    /// Returns this principal as the actor of an event or a decision.
    pub(crate) fn actor(&self) -> String {
        delegation::actor_of(&self.user_id)
    }
}
