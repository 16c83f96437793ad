//! Held calls: the inbox, the routes that decide, and the requests of tools that run.

pub(in crate::http) mod approval_detail;
pub(in crate::http) mod decision_view;
pub(in crate::http) mod delegation;
pub(in crate::http) mod extension;
pub(in crate::http) mod inbox;
pub(in crate::http) mod remember;
pub(in crate::http) mod reveal;
pub(in crate::http) mod session_approvals;
pub(in crate::http) mod tool_requests;
pub(in crate::http) mod validate;
