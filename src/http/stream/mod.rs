//! The stream of a turn.

pub(in crate::http) mod dialect_hint;
pub(in crate::http) mod disconnected;
pub(in crate::http) mod stream_response;
pub(in crate::http) mod turn_stream;
