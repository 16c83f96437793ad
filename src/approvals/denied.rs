//! What any request of a principal may meet, whatever it asks for.

use crate::rate_limit::RateLimited;
use holdpoint_store::StoreError;

/// The reason why a request has no effect, besides the rules of what it asks for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    /// The user exceeded a rate limit.
    #[error(transparent)]
    TooOften(#[from] RateLimited),
    /// What the request names does not exist for this principal.
    #[error("there is no such thing for this principal")]
    NotFound,
    /// The principal lacks a right that the request needs.
    #[error("this principal lacks a right: {0:?}")]
    Forbidden(Right),
    /// The database failed. Whether the request had its effect is unknown; a retry is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A right that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// To make this decision about a call that the principal may see.
    DecideCall,
    /// To give this answer to a request that the principal may see.
    AnswerRequest,
    ResolveCalls,
    AcceptDefinitions,
    /// To claim and to settle calls.
    ExecuteCalls,
    /// To read and to enable endpoints.
    ManageEndpoints,
}

impl Right {
    /// The text for a caller that lacks this right.
    pub(crate) const fn refusal(self) -> &'static str {
        match self {
            Self::DecideCall => "You may see this call, but this decision is not yours to make.",
            Self::AnswerRequest => "You may see this request, but this answer is not yours to give.",
            Self::ResolveCalls => "Only a caller with one of auth.operator_roles resolves calls.",
            Self::ManageEndpoints => {
                "Only a caller with one of auth.operator_roles reads and enables webhooks."
            }
            Self::AcceptDefinitions => {
                "Only a caller with one of auth.accept_roles, or else auth.operator_roles, accepts definitions."
            }
            Self::ExecuteCalls => "Only a caller with one of auth.worker_roles claims and settles calls.",
        }
    }
}

impl Denied {
    /// Returns the name of the error for metrics.
    pub(super) const fn outcome(&self) -> &'static str {
        match self {
            Self::TooOften(_) => "rate_limited",
            Self::NotFound => "not_found",
            Self::Forbidden(_) => "forbidden",
            Self::Store(_) => "failed",
        }
    }
}

/// Lets `?` turn failures of the database and of rate limits into an error that has a [`Denied`].
macro_rules! has_denied {
    ($($error:ty),+ $(,)?) => {
        $(
            impl From<holdpoint_store::StoreError> for $error {
                fn from(error: holdpoint_store::StoreError) -> Self {
                    $crate::approvals::Denied::from(error).into()
                }
            }

            impl From<$crate::rate_limit::RateLimited> for $error {
                fn from(error: $crate::rate_limit::RateLimited) -> Self {
                    $crate::approvals::Denied::from(error).into()
                }
            }
        )+
    };
}
pub(crate) use has_denied;
