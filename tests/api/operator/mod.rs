//! The commands of operators beside the servers.

mod fence;
mod purge;
mod resolve;
