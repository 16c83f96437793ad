//! What the run, the servers under test and the remote tools share.

pub mod http;
pub mod ledger;
pub mod work;
