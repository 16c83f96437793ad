//! Runs and sessions: decisions about held calls without a page, resumption by the server, and cancels of
//! whole sessions.

mod after_crash;
mod concurrent;
mod deciding;
mod resuming;
mod sessions;

use holdpoint_testkit::runs::{
    HELD_AND_APPROVED, approve, decide_in, events_of, last_words, model_requests, reject, run_becomes,
};
