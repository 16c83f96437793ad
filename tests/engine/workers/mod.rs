//! Workers: programs outside of the servers claim calls over HTTP, renew their leases and settle the calls.

mod claims;
mod configuration;
mod crashes;
mod ends;
mod examples;
mod guards;
mod life;
mod permits;
mod policies;

use holdpoint_testkit::workers::{
    Job, TIMEOUT, add_worker_tools, approved, ask, claim, cleared, code, impatient, nothing, start,
    start_with,
};
