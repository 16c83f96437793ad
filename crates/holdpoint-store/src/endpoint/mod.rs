//! Endpoints of deliveries, and what they remember of a message.

pub(crate) mod endpoints;
pub(crate) mod links;
pub(crate) mod sent_messages;
