//! The pure core: threads, calls, decisions and turns. This layer does not wait, does no I/O, and does not
//! depend on wire formats or tables.

pub(crate) mod assignment;
pub(crate) mod call;
pub(crate) mod canonical;
pub(crate) mod clock;
pub(crate) mod decision;
pub(crate) mod event;
pub(crate) mod grant;
pub(crate) mod id;
pub(crate) mod input;
pub(crate) mod message;
pub(crate) mod model_texts;
pub(crate) mod nesting;
pub(crate) mod output;
pub(crate) mod permit;
pub(crate) mod pointer;
pub(crate) mod policy;
pub(crate) mod quorum;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod strict_json;
pub(crate) mod text;
pub(crate) mod turn;
pub(crate) mod visible;

/// The user of a request. Every statement of the store names the principal as the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The tenant. Rows of another tenant do not exist for this principal.
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
        format!("user:{}", self.user_id)
    }
}
