//! Caller identity, and responses to other users.

mod algorithms;
mod causes;
mod forged;
mod no_database;
mod openid;
mod peer;
mod published;
mod routes;
mod scope;
mod secret;

use holdpoint_testkit::Answer;
use serde_json::json;

/// The beginning of the challenge for refused credentials (RFC 6750, section 3).
const REFUSED: &str = "Bearer error=\"invalid_token\", error_description=\"";

/// Asserts a 401 whose body names no cause.
fn assert_unknown(answer: &Answer, what: &str) {
    let expected =
        json!({ "error": { "code": "unauthenticated", "message": "Expected a valid bearer token." } });
    assert_eq!((answer.status, &answer.body), (401, &expected), "{what}");
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(challenge == "Bearer" || challenge.starts_with(REFUSED), "{what}: {challenge}");
}

/// Asserts a 401 for a request without credentials, whose challenge names no error.
fn assert_no_credentials(answer: &Answer, what: &str) {
    assert_unknown(answer, what);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
}

/// Asserts a 401 for refused credentials, whose challenge names this cause.
fn assert_refused(answer: &Answer, why: &str, what: &str) {
    assert_unknown(answer, what);
    assert_eq!(answer.header("www-authenticate"), Some(format!("{REFUSED}{why}\"").as_str()), "{what}");
}

/// Asserts a 503 because the server cannot verify the caller now.
fn assert_unavailable(answer: &Answer, what: &str) {
    assert_eq!(answer.failure(), (503, "unavailable"), "{what}: {:?}", answer.body);
    assert!(answer.header("retry-after").is_some(), "{what}");
}
