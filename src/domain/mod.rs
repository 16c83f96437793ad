//! The pure core: what a thread, a call, a decision and a turn are. Nothing here waits, fails on I/O or
//! knows how anything looks on a wire or in a table.

pub mod call;
pub mod clock;
pub mod decision;
pub mod event;
pub mod id;
pub mod message;
pub mod permit;
pub mod policy;
pub mod run;
pub mod strict_json;
pub mod turn;

/// Who a request speaks for. It is the owner named in every statement of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant; rows of another tenant do not exist for this principal.
    pub tenant_id: String,
    /// The user inside the tenant.
    pub user_id: String,
}

impl Principal {
    /// The one user of a server without authentication.
    pub fn local() -> Self {
        Self { tenant_id: "default".to_owned(), user_id: "local".to_owned() }
    }

    /// This principal as the actor of an event or a decision.
    pub fn actor(&self) -> String {
        format!("user:{}", self.user_id)
    }
}
