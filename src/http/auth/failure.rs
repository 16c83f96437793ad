//! The reasons for which a request is not authenticated.

use crate::delivery::HookRefusal;
use crate::rate_limit::RateLimited;
use holdpoint_store::StoreError;
use jsonwebtoken::errors::{Error, ErrorKind};

/// Why the server does not authenticate a request.
#[derive(Debug)]
pub(in crate::http) enum AuthFailure {
    /// The caller is unknown.
    NotKnown(Unknown),
    /// The caller may be known, but the issuer's keys are unavailable.
    KeysUnavailable,
    /// The access token of a sign-in has ended, and the issuer gives no new one now.
    IssuerUnavailable,
    /// The browser of a sign-in has sent too many requests.
    TooOften(RateLimited),
    /// The sign-in of the caller cannot be read or stored.
    Store(StoreError),
}

/// Why the caller of a request is unknown. The texts are fixed, for the log and for the caller. They contain
/// nothing of a token or a ticket. The names of claims come from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum Unknown {
    #[error("No token was sent.")]
    NoToken,
    #[error("The Authorization header has another scheme than Bearer.")]
    OtherScheme,
    #[error("There is more than one Authorization header.")]
    SeveralHeaders,
    #[error("The token cannot be read as a JWT.")]
    Unreadable,
    #[error("The token has header parameters that are critical (crit).")]
    Critical,
    #[error("The token's typ is not that of an access token.")]
    Type,
    #[error("The token's algorithm is not accepted.")]
    Algorithm,
    #[error("The issuer has no key for the token's kid and algorithm.")]
    NoKey,
    #[error("The token's signature is wrong.")]
    Signature,
    #[error("The token has expired.")]
    Expired,
    #[error("The token is not valid yet (nbf).")]
    NotYetValid,
    #[error("The token's iat is not a time, or is in the future.")]
    IssuedAt,
    #[error("The token is for another audience ({0}).")]
    Audience(String),
    #[error("The token is from another issuer (iss).")]
    Issuer,
    #[error("The token has no usable claim {0}.")]
    NoClaim(String),
    #[error("The token's claim {0} has a wrong form.")]
    ClaimForm(String),
    #[error("The token has no claim {0} for the tenant, and auth.default_tenant is not set.")]
    NoTenant(String),
    #[error(
        "The token's claim {0} is not a name: expected 1 to 256 characters, none of them a control character."
    )]
    Name(String),
    #[error(
        "The token's claim {0} is not a list of texts, or of objects with auth.roles_key, or one text, or an object of objects."
    )]
    Roles(String),
    #[error("The issuer gave no ID token (auth.session_from).")]
    NoIdToken,
    #[error("The issuer says that the token does not count (auth.session_from).")]
    Inactive,
    #[error("The token is an ID token, not an access token.")]
    IdToken,
    #[error("The token is not an access token.")]
    Purpose,
    #[error("The cookie was not made by this server.")]
    SessionForged,
    #[error("The session has ended.")]
    SessionEnded,
    #[error("The ticket was not made by this server.")]
    TicketForged,
    #[error("The ticket has expired.")]
    TicketExpired,
    #[error("The ticket was used before, or has expired.")]
    TicketUsed,
    #[error("The URL is no callback_url, or was made with other secrets than those of its tool.")]
    Callback,
    #[error("The headers webhook-id, webhook-timestamp and webhook-signature are not all there.")]
    Unsigned,
    #[error("The webhook-timestamp is no time, or is more than 5 minutes from now.")]
    WebhookTime,
    #[error("The webhook-signature was made with other secrets than those of the tool, or over other bytes.")]
    WebhookSignature,
    #[error("{}", .0.why)]
    Hook(HookRefusal),
}

impl Unknown {
    /// Whether the request had no credentials to check. The response then has no error for them (RFC 6750,
    /// 3.1).
    pub(in crate::http) fn is_without_credentials(&self) -> bool {
        matches!(self, Self::NoToken | Self::OtherScheme)
    }
}

impl Unknown {
    /// Returns the scheme and what was expected, if the request was for a route that needs a signature and no token.
    pub(in crate::http) fn signature(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Callback | Self::Unsigned | Self::WebhookTime | Self::WebhookSignature => {
                Some(("Webhook", "Expected a callback_url, and a signature by Standard Webhooks."))
            }
            Self::Hook(refusal) => Some((refusal.scheme, refusal.expected)),
            _ => None,
        }
    }
}

impl From<Unknown> for AuthFailure {
    fn from(why: Unknown) -> Self {
        Self::NotKnown(why)
    }
}

impl From<StoreError> for AuthFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The errors of the parser of headers, whose texts may repeat parts of the token.
impl From<Error> for Unknown {
    fn from(error: Error) -> Self {
        match error.into_kind() {
            ErrorKind::InvalidAlgorithm
            | ErrorKind::InvalidAlgorithmName
            | ErrorKind::UnsupportedAlgorithm => Self::Algorithm,
            _ => Self::Unreadable,
        }
    }
}
