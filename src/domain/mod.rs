//! The pure core: what a thread, a call, a decision and a turn are. Nothing here waits, fails on I/O or
//! knows how anything looks on a wire or in a table.

pub(crate) mod assignment;
pub(crate) mod call;
pub(crate) mod canonical;
pub(crate) mod clock;
pub(crate) mod decision;
pub(crate) mod event;
pub(crate) mod grant;
pub(crate) mod id;
pub(crate) mod message;
pub(crate) mod nesting;
pub(crate) mod output;
pub(crate) mod permit;
pub(crate) mod pointer;
pub(crate) mod policy;
pub(crate) mod quorum;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod strict_json;
pub(crate) mod turn;
pub(crate) mod visible;

/// Who a request speaks for. It is the owner named in every statement of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The tenant; rows of another tenant do not exist for this principal.
    pub(crate) tenant_id: String,
    /// The user inside the tenant.
    pub(crate) user_id: String,
    /// What the user may do more than others, by the operator's words for it.
    pub(crate) roles: Vec<String>,
}

impl Principal {
    /// The one user of a server without authentication.
    pub(crate) fn local() -> Self {
        Self { tenant_id: "default".to_owned(), user_id: "local".to_owned(), roles: Vec::new() }
    }

    /// Whether the user has one of these roles.
    pub(crate) fn has_one_of(&self, roles: &[String]) -> bool {
        self.roles.iter().any(|role| roles.contains(role))
    }

    /// This principal as the actor of an event or a decision.
    pub(crate) fn actor(&self) -> String {
        format!("user:{}", self.user_id)
    }
}
