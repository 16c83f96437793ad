//! The routes, one file for each resource.

pub(in crate::http) mod call;
pub(in crate::http) mod console;
pub(in crate::http) mod definitions;
pub(in crate::http) mod health;
pub(in crate::http) mod hooks;
pub(in crate::http) mod links;
pub(in crate::http) mod qa;
pub(in crate::http) mod report;
pub(in crate::http) mod resolution;
pub(in crate::http) mod runs;
pub(in crate::http) mod session_policy;
pub(in crate::http) mod sessions;
pub(in crate::http) mod threads;
pub(in crate::http) mod tickets;
pub(in crate::http) mod tools;
pub(in crate::http) mod turns;
pub(in crate::http) mod webhooks;
pub(in crate::http) mod workers;
