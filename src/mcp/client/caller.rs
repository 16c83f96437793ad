//! The headers of the requests to a server, and who calls in them.
//!
//! A value with placeholders is the same for all requests of one session. So there is a session for each set of values, and
//! one without these headers that lists the tools.

use crate::config::{ConfigError, McpServer};
use holdpoint_core::text::placeholders::{self, Piece};
use holdpoint_store::permit::Conversation;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;

/// Maximum length of the value of a placeholder, in bytes.
const VALUE_BYTES_MAX: usize = 256;

/// A fact about the call of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Placeholder {
    Tenant,
    User,
    Thread,
    Session,
}

#[derive(Clone)]
pub(in crate::mcp) struct Headers {
    /// Those without placeholders.
    fixed: HeaderMap,
    templates: Vec<(HeaderName, Vec<Piece<Placeholder>>)>,
}

/// Those that share a session: the values of all placeholders of the headers. Each of them is safe in a header.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::mcp) struct Caller(BTreeMap<Placeholder, String>);

impl Placeholder {
    const ALL: [(&'static str, Self); 4] = [
        ("tenant_id", Self::Tenant),
        ("user_id", Self::User),
        ("thread_id", Self::Thread),
        ("session_id", Self::Session),
    ];

    fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, it)| it).ok_or_else(|| {
            let known: Vec<String> = Self::ALL.iter().map(|(known, _)| format!("{{{known}}}")).collect();
            format!("expected one of {}", known.join(", "))
        })
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }

    fn value(self, of: &Conversation) -> String {
        match self {
            Self::Tenant => of.requester.tenant_id().to_owned(),
            Self::User => of.requester.user_id().to_owned(),
            Self::Thread => of.thread_id.to_string(),
            Self::Session => of.session_id.to_string(),
        }
    }
}

impl Headers {
    /// Reads the headers of an entry, with the values of its files as they are now. A file has no placeholders: a brace may
    /// be a part of its secret.
    pub(in crate::mcp) fn of(config: &McpServer, key: &str) -> Result<Self, ConfigError> {
        let mut fixed = config.headers(key)?;
        let mut templates = Vec::new();
        for (name, template) in &config.headers {
            let wrong = |why: String| ConfigError::Value {
                key: format!("{key}.headers"),
                why: format!("{name}: {why}"),
            };
            let pieces = placeholders::parse(template, Placeholder::named).map_err(wrong)?;
            let header: HeaderName =
                name.parse().map_err(|_| wrong("expected the name of a header".to_owned()))?;
            if pieces.iter().any(|piece| matches!(piece, Piece::Value(_))) {
                fixed.remove(&header);
                templates.push((header, pieces));
            } else {
                let text = placeholders::filled(&pieces, |_, _| {});
                let value =
                    sensitive(&text).ok_or_else(|| wrong("expected a value without line ends".to_owned()))?;
                fixed.insert(header, value);
            }
        }
        Ok(Self { fixed, templates })
    }

    /// Whether a session is for one caller.
    pub(in crate::mcp) fn name_callers(&self) -> bool {
        !self.templates.is_empty()
    }

    /// Returns the parts of the values that may be secret.
    pub(in crate::mcp) fn secrets(&self) -> impl Iterator<Item = String> {
        let fixed = self.fixed.values().filter_map(|value| value.to_str().ok());
        let pieces = self.templates.iter().flat_map(|(_, pieces)| pieces);
        let texts = pieces.filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Value(_) => None,
        });
        fixed.chain(texts).map(str::to_owned)
    }

    /// Returns the caller of this conversation. The error says which header cannot have which value, and not the value.
    pub(in crate::mcp) fn caller(&self, of: &Conversation) -> Result<Caller, String> {
        let mut values = BTreeMap::new();
        for (header, pieces) in &self.templates {
            for piece in pieces {
                let Piece::Value(placeholder) = piece else { continue };
                let value = placeholder.value(of);
                if !is_safe(&value) {
                    return Err(format!(
                        "the header {header} cannot have the value of {{{}}}: expected 1 to {VALUE_BYTES_MAX} visible \
                         characters of ASCII",
                        placeholder.name()
                    ));
                }
                values.insert(*placeholder, value);
            }
        }
        Ok(Caller(values))
    }

    /// Returns the headers of a session: of the one that lists the tools, or of that of a caller.
    pub(in crate::mcp) fn for_session(&self, caller: Option<&Caller>) -> HeaderMap {
        let mut headers = self.fixed.clone();
        let Some(Caller(values)) = caller else { return headers };
        for (header, pieces) in &self.templates {
            let value = placeholders::filled(pieces, |filled, placeholder| {
                filled.push_str(values.get(placeholder).map(String::as_str).unwrap_or_default());
            });
            if let Some(value) = sensitive(&value) {
                headers.insert(header.clone(), value);
            }
        }
        headers
    }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Checks that no argument and no variable of a program has a placeholder: a program is the same for all callers, so that
/// it would stay as it is.
pub(in crate::mcp) fn check_program(config: &McpServer, key: &str) -> Result<(), ConfigError> {
    let args = config.args.iter().map(|value| ("args", value));
    for (field, value) in args.chain(config.env.values().map(|value| ("env", value))) {
        let has = |name: &str| value.contains(&format!("{{{name}}}"));
        if let Some((name, _)) = Placeholder::ALL.into_iter().find(|(name, _)| has(name)) {
            let why = format!("expected no {{{name}}}: only the headers of a url name who calls");
            return Err(ConfigError::Value { key: format!("{key}.{field}"), why });
        }
    }
    Ok(())
}

/// Whether a header has this value as it is: no character ends or splits it, and no space at its ends is lost on the way,
/// so that two callers never look the same.
fn is_safe(value: &str) -> bool {
    (1..=VALUE_BYTES_MAX).contains(&value.len())
        && value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && value.trim() == value
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_core::id::{RunId, ThreadId};
    use holdpoint_store::permit::Requester;
    use serde_json::json;
    use uuid::Uuid;

    fn headers(values: serde_json::Value) -> Result<Headers, String> {
        let entry = json!({ "name": "s", "url": "https://s.example/mcp", "headers": values });
        let config: McpServer = serde_json::from_value(entry).unwrap();
        Headers::of(&config, "mcp[0]").map_err(|error| error.to_string())
    }

    fn by(tenant: &str, user: &str) -> Conversation {
        Conversation {
            requester: Requester { tenant_id: tenant.to_owned(), user_id: user.to_owned() },
            thread_id: ThreadId::new(Uuid::from_u128(1)),
            session_id: ThreadId::new(Uuid::from_u128(2)),
            run_id: RunId::new(Uuid::from_u128(3)),
        }
    }

    #[test]
    fn the_session_that_lists_has_no_header_with_a_placeholder_and_that_of_a_caller_has_all() {
        let headers = headers(json!({
            "x-key": "a{{b}}c", "x-user": "{tenant_id}/{user_id}", "x-talk": "{thread_id} in {session_id}"
        }));
        let headers = headers.unwrap();
        let listing = headers.for_session(None);
        assert_eq!((listing.len(), &listing["x-key"]), (1, &HeaderValue::from_static("a{b}c")));
        let caller = headers.caller(&by("acme", "{user_id}")).ok().unwrap();
        let filled = headers.for_session(Some(&caller));
        assert_eq!(filled["x-user"], "acme/{user_id}", "a value is not filled again");
        let talk = "00000000-0000-0000-0000-000000000001 in 00000000-0000-0000-0000-000000000002";
        assert_eq!(filled["x-talk"], talk);
        assert!(filled.values().all(HeaderValue::is_sensitive));
    }

    #[test]
    fn callers_are_equal_only_if_all_their_values_are() {
        let headers = headers(json!({ "x-user": "{tenant_id}{user_id}" })).unwrap();
        let caller = |tenant: &str, user: &str| headers.caller(&by(tenant, user)).ok().unwrap();
        assert!(caller("a", "bc") == caller("a", "bc"));
        assert!(caller("a", "bc") != caller("ab", "c"));
    }

    #[test]
    fn a_value_that_a_header_cannot_have_as_it_is_is_refused_without_being_said() {
        let headers = headers(json!({ "x-user": "{user_id}" })).unwrap();
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        for user in ["", "ann\r\nx-admin: 1", "ann\tb", "änn", "ann ", " ann", "a\u{7f}", "a\u{202e}", &long]
        {
            let why = headers.caller(&by("acme", user)).err().unwrap();
            assert!(why.starts_with("the header x-user cannot have the value of {user_id}: "), "{why}");
            assert!(user.is_empty() || !why.contains(user), "{why}");
        }
        for user in ["ann", "Ann B", "auth0|1", "ann@example.com", &long[1..]] {
            assert!(headers.caller(&by("acme", user)).is_ok(), "{user}");
        }
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_those_that_are_known() {
        for (template, why) in [
            (
                "Bearer {user}",
                "mcp[0].headers: x-user: placeholder {user}: expected one of {tenant_id}, {user_id}, {thread_id}, {session_id}",
            ),
            ("{user_id", "mcp[0].headers: x-user: placeholder {user_id: expected a closing brace"),
            ("a}", "mcp[0].headers: x-user: a closing brace"),
        ] {
            let said = headers(json!({ "x-user": template })).err().unwrap();
            assert!(said.contains(why), "{said}");
        }
    }
}
