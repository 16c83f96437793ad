//! Events: pages, streams and the WebSocket.

pub(in crate::http) mod event;
pub(in crate::http) mod event_stream;
pub(in crate::http) mod live_events;
pub(in crate::http) mod pages;
#[cfg(feature = "websocket")]
pub(in crate::http) mod websocket;
