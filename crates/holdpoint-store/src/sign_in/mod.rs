//! Sign-ins of people, and tickets of browsers.

pub(crate) mod sign_ins;
pub(crate) mod tickets;
