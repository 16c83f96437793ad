//! Failed attempts.

use crate::domain::endpoint::{Failure, FailureAction};

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) action: FailureAction,
    /// The cause, for the log. It contains no secret.
    pub(super) why: String,
}
