//! Errors: their codes, their statuses, and the errors of lower layers.

pub(in crate::http) mod error;
pub(in crate::http) mod error_code;
pub(in crate::http) mod failures;
