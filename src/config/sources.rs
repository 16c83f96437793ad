//! Where values come from, and the shapes they may come in.

use super::{ConfigError, wrong};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::net::SocketAddr;

/// Keys that are `true` or `false`.
const SWITCHES: [&str; 3] = ["docs", "allow_insecure", "other_person"];

/// Refuses a value that would be read as another without a word: a fraction would be rounded, `true` be one. What is
/// passed on to the model is its server's to read.
pub(super) fn check_kinds(value: &config::Value, key: &str) -> Result<(), ConfigError> {
    match &value.kind {
        config::ValueKind::Float(_) => wrong(key, "fractions are not allowed here"),
        config::ValueKind::Boolean(_) if !SWITCHES.iter().any(|switch| key.ends_with(switch)) => {
            wrong(key, "true and false are not allowed here")
        }
        config::ValueKind::Table(fields) if key != "model.options" => {
            let within = |name: &String| if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            fields.iter().try_for_each(|(name, value)| check_kinds(value, &within(name)))
        }
        _ => Ok(()),
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

/// The names that hosts and collectors give what is ours too, as the keys they stand for.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
pub(super) fn usual_variables() -> config::Map<String, String> {
    let mut found = config::Map::new();
    // Set to nothing means not set.
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(url) = set("DATABASE_URL") {
        found.insert("DATABASE__URL".to_owned(), url);
    }
    // Often set for every program there is: one that cannot trace has no use for it.
    if cfg!(feature = "otel")
        && let Some(endpoint) = set("OTEL_EXPORTER_OTLP_ENDPOINT")
    {
        found.insert("LOG__OTLP_ENDPOINT".to_owned(), endpoint);
    }
    found
}

/// Keys whose value may stand in a file of its own, which `<key>_file` names: secrets are mounted so.
const SECRETS: [(&str, &str); 4] =
    [("auth", "secret"), ("model", "api_key"), ("database", "url"), ("database", "direct_url")];

/// Reads what stands in files of its own, without the end of its line.
pub(super) fn read_secrets(read: config::Config) -> Result<config::Value, ConfigError> {
    let mut all = read.cache;
    let config::ValueKind::Table(sections) = &mut all.kind else { return Ok(all) };
    for (section, key) in SECRETS {
        let Some(config::ValueKind::Table(keys)) = sections.get_mut(section).map(|it| &mut it.kind) else {
            continue;
        };
        let Some(path) = keys.remove(&format!("{key}_file")) else { continue };
        let named = format!("{section}.{key}_file");
        if keys.contains_key(key) {
            wrong(&named, format!("expected either this or {section}.{key}, not both"))?;
        }
        let unreadable = |why: String| ConfigError::Value { key: named.clone(), why };
        let path = path.into_string().map_err(|_| unreadable("expected the path of a file".to_owned()))?;
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(format!("{path}: {error}")))?;
        keys.insert(key.to_owned(), text.trim_end_matches(['\r', '\n']).into());
    }
    Ok(all)
}

/// Durations, as people write them.
pub(super) mod duration {
    use humantime_serde::re::humantime;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text)
            .map_err(|_| D::Error::custom("expected a duration with its unit, as 500ms, 30s, 5m or 24h"))
    }

    pub(in crate::config) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        humantime_serde::serialize(duration, to)
    }
}

/// An address to listen on.
pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let expected = "expected an IP address and a port, as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| D::Error::custom(expected))
}

/// The same, of a key that may be absent.
pub(super) fn some_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
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
