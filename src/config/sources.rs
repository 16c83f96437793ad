//! Where values come from, and the shapes they may come in.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::ffi::OsString;

/// The first key with a fraction: no key takes one, and it would be rounded without a word. What is passed on to
/// the model is its server's to read.
pub(super) fn fraction(value: &config::Value, key: &str) -> Option<String> {
    match &value.kind {
        config::ValueKind::Float(_) if !key.starts_with("model.options.") => Some(key.to_owned()),
        config::ValueKind::Table(fields) => fields.iter().find_map(|(name, value)| {
            let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            fraction(value, &key)
        }),
        _ => None,
    }
}

pub(super) fn table_or_json<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    let read = match Value::deserialize(deserializer)? {
        Value::String(text) => serde_json::from_str(&text).unwrap_or_default(),
        other => other,
    };
    match read {
        Value::Object(fields) => Ok(fields),
        _ => Err(D::Error::custom("expected a table, or a JSON object in a text")),
    }
}

/// The variables that are keys. Kubernetes sets others with our prefix for a service of our name.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
pub(super) fn own_variables() -> config::Map<String, String> {
    let is_key = |name: &str| name.strip_prefix("HOLDPOINT_").is_some_and(|key| key.contains("__"));
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).filter(|(name, _)| is_key(name)).collect()
}

/// The name that most hosts give the database's URL, as the key it stands for.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
pub(super) fn database_url() -> config::Map<String, String> {
    let mut found = config::Map::new();
    if let Ok(url) = std::env::var("DATABASE_URL") {
        found.insert("DATABASE__URL".to_owned(), url);
    }
    found
}

/// A list, or words with commas between, as the environment has them.
pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a list, or words with commas between")]
    enum List {
        Words(String),
        Items(Vec<String>),
    }
    Ok(match List::deserialize(deserializer)? {
        List::Items(items) => items,
        List::Words(words) => {
            words.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        }
    })
}
