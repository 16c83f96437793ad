//! Who calls, and what a stranger gets.

mod causes;
mod forged;
mod no_database;
mod openid;
mod peer;
mod published;
mod routes;
mod scope;
mod secret;

use crate::support::Answer;
use serde_json::json;

/// The beginning of what is said of credentials that are refused (RFC 6750, 3).
const REFUSED: &str = "Bearer error=\"invalid_token\", error_description=\"";

/// Asserts that the caller is not known, and that the body says no more than that.
fn assert_unknown(answer: &Answer, what: &str) {
    let expected =
        json!({ "error": { "code": "unauthenticated", "message": "Expected a valid bearer token." } });
    assert_eq!((answer.status, &answer.body), (401, &expected), "{what}");
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(challenge == "Bearer" || challenge.starts_with(REFUSED), "{what}: {challenge}");
}

/// The same of a request that sent no credentials, of which nothing can be said.
fn assert_no_credentials(answer: &Answer, what: &str) {
    assert_unknown(answer, what);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
}

/// The same of a request whose credentials are refused for this reason.
fn assert_refused(answer: &Answer, why: &str, what: &str) {
    assert_unknown(answer, what);
    assert_eq!(answer.header("www-authenticate"), Some(format!("{REFUSED}{why}\"").as_str()), "{what}");
}

/// Asserts that it cannot be told now who calls.
fn assert_unavailable(answer: &Answer, what: &str) {
    assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{what}: {:?}", answer.body);
    assert!(answer.header("retry-after").is_some(), "{what}");
}
