//! Who calls, and what a stranger gets.

mod forged;
mod openid;
mod published;
mod routes;
mod scope;
mod secret;

use crate::support::Answer;
use serde_json::json;

/// Asserts that the caller is not known, and that the answer says no more than that.
fn assert_unknown(answer: &Answer, what: &str) {
    let expected =
        json!({ "error": { "code": "unauthenticated", "message": "Expected a valid bearer token." } });
    assert_eq!((answer.status, &answer.body), (401, &expected), "{what}");
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
}

/// Asserts that it cannot be told now who calls.
fn assert_unavailable(answer: &Answer, what: &str) {
    assert_eq!((answer.status, answer.code()), (503, "unavailable"), "{what}: {:?}", answer.body);
    assert!(answer.header("retry-after").is_some(), "{what}");
}
