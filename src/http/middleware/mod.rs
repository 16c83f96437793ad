//! What every request passes before its route.

pub(in crate::http) mod admit;
pub(in crate::http) mod allow;
pub(in crate::http) mod cors;
pub(in crate::http) mod in_flight;
pub(in crate::http) mod rates;
pub(in crate::http) mod request_id;
pub(in crate::http) mod trace;
