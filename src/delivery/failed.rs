//! Failed attempts.

use holdpoint_core::endpoint::{Failure, FailureAction};

#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) action: FailureAction,
    /// The cause, for the log. It contains no secret.
    pub(super) why: String,
}
