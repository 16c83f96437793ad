//! The check of access by other users.

use super::case::Cases;
use super::{Records, Violation};
use crate::json::JsonPointer;
use serde_json::Value;

/// T1: a foreign row looks exactly like a row that never existed.
pub(super) fn t1(records: &Records, _cases: &Cases<'_>) -> Vec<Violation> {
    let nothing = |body: &Value| {
        *body.at("/error/code") == "not_found"
            && body.at("/error").get("details").is_none()
            && *body.at("/error/message") == "There is nothing here, or nothing for you."
    };
    let seen =
        records.intrusions.iter().filter(|it| it.status != 503 && !(it.status == 404 && nothing(&it.body)));
    seen.map(|it| Violation::of("T1", &it.call, format!("{}: {} {}", it.route, it.status, it.body))).collect()
}
