//! The sources of values, and the forms that the values may have.

use super::{Config, ConfigError, wrong};
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::path::Path;

/// Keys whose values are `true` or `false`.
const SWITCHES: [&str; 8] = [
    "docs",
    "console",
    "allow_insecure",
    "other_person",
    "resume_on_expiry",
    "tools.demo",
    "tools.repair",
    "identity",
];

/// Refuses a value that the library would convert silently: it rounds fractions and reads `true` as 1. The
/// check skips `model.options`, which is passed on to the model's server.
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

/// Returns the variables that set keys: all variables with the prefix of holdpoint, except those that
/// Kubernetes sets for services of that name.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
pub(super) fn own_variables() -> Result<config::Map<String, String>, ConfigError> {
    let mut keys = config::Map::new();
    for (variable, value) in std::env::vars_os() {
        let Some(variable) = variable.to_str() else { continue };
        let Some(key) = variable.strip_prefix("HOLDPOINT_") else { continue };
        let Some(value) = value.to_str() else {
            wrong(variable, "expected text in UTF-8")?;
            continue;
        };
        if key.contains("__") {
            keys.insert(variable.to_owned(), value.to_owned());
        } else if !is_of_service(key, value) && !is_of_client(key, value) {
            let expected = match likely(key) {
                likely if likely.is_empty() => {
                    "HOLDPOINT_<SECTION>__<KEY>, with two underscores between".to_owned()
                }
                likely => likely.join(" or "),
            };
            wrong(variable, format!("there is no such variable; expected {expected}"))?;
        }
    }
    Ok(keys)
}

/// Returns whether this variable is one of the commands of an approver, which address a server over HTTP.
fn is_of_client(key: &str, value: &str) -> bool {
    let is_address = || value.starts_with("http://") || value.starts_with("https://");
    matches!(key, "TOKEN" | "TOKEN_FILE") || (key == "URL" && is_address())
}

/// The variables of the commands of an approver. An empty one counts as not set.
pub(super) struct ClientVariables {
    pub(super) url: Option<String>,
    pub(super) token: Option<String>,
    pub(super) token_file: Option<String>,
    /// Whether a terminal may show colours (<https://no-color.org>).
    pub(super) colours: bool,
}

/// Reads the variables of the commands of an approver.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
pub(super) fn client_variables() -> Result<ClientVariables, ConfigError> {
    let set = |name: &str| match std::env::var(name) {
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(ConfigError::Value { key: name.to_owned(), why: "expected text in UTF-8".to_owned() })
        }
        found => Ok(found.ok().filter(|value| !value.is_empty())),
    };
    let no_colours = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_plain = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Ok(ClientVariables {
        url: set("HOLDPOINT_URL")?,
        token: set("HOLDPOINT_TOKEN")?,
        token_file: set("HOLDPOINT_TOKEN_FILE")?,
        colours: !no_colours && !is_plain,
    })
}

/// Returns whether Kubernetes sets this variable for a service, in its own form or in the form of Docker
/// links.
fn is_of_service(key: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];
    let is_link = |protocol: &str| value.starts_with(&format!("{protocol}://"));
    let is_linked = |protocol: &str| key.contains(&format!("_{}", protocol.to_uppercase()));
    key.ends_with("SERVICE_HOST")
        || key.contains("SERVICE_PORT")
        || (key.contains("PORT_") && PROTOCOLS.into_iter().any(is_linked))
        || (key.ends_with("PORT") && PROTOCOLS.into_iter().any(is_link))
}

/// Returns the variables that the user may have meant by a name without a section, or with one underscore
/// after the section.
fn likely(key: &str) -> Vec<String> {
    let key = key.to_lowercase();
    let all = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut likely = Vec::new();
    for (section, keys) in all.as_object().into_iter().flatten() {
        let keys = keys.as_object().into_iter().flatten().map(|(name, _)| name.clone());
        let files = SECRETS.iter().filter(|(of, _)| of == section).map(|(_, name)| format!("{name}_file"));
        for name in keys.chain(files) {
            if key == name || key == format!("{section}_{name}") {
                likely.push(format!("HOLDPOINT_{}__{}", section.to_uppercase(), name.to_uppercase()));
            }
        }
    }
    likely
}

/// Returns the values of the common variables of hosts and collectors, by the keys that they set.
#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
pub(super) fn usual_variables() -> config::Map<String, String> {
    let mut found = config::Map::new();
    // An empty variable counts as not set.
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(url) = set("DATABASE_URL") {
        found.insert("DATABASE__URL".to_owned(), url);
    }
    // Many environments set this variable for all programs. A build without traces ignores it.
    if cfg!(feature = "otel")
        && let Some(endpoint) = set("OTEL_EXPORTER_OTLP_ENDPOINT")
    {
        found.insert("LOG__OTLP_ENDPOINT".to_owned(), endpoint);
    }
    found
}

/// Keys whose value can be in a separate file, which `<key>_file` names. Orchestrators mount secrets as
/// files.
const SECRETS: [(&str, &str); 8] = [
    ("auth", "secret"),
    ("auth", "session_key"),
    ("model", "api_key"),
    ("database", "url"),
    ("database", "direct_url"),
    ("mail", "password"),
    ("slack", "token"),
    ("slack", "signing_secret"),
];

/// Reads the values in separate files, without their line ends.
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
        let no_path =
            || ConfigError::Value { key: named.clone(), why: "expected the path of a file".to_owned() };
        let path = path.into_string().map_err(|_| no_path())?;
        keys.insert(key.to_owned(), text_of_file(&named, Path::new(&path))?.into());
    }
    Ok(all)
}

/// Returns the text of the file that this key names, without the line end at its end.
pub(super) fn text_of_file(key: &str, path: &Path) -> Result<String, ConfigError> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|error| ConfigError::Value {
        key: key.to_owned(),
        why: format!("{}: {error}", path.display()),
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Durations in the notation of humantime.
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

/// The same for an optional key.
pub(super) mod some_duration {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(in crate::config) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Time(#[serde(with = "super::duration")] Duration);

        Time::deserialize(deserializer).map(|Time(duration)| Some(duration))
    }

    pub(in crate::config) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        humantime_serde::serialize(duration, to)
    }
}

/// Parses an address to listen on.
pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let expected = "expected an IP address and a port, as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| D::Error::custom(expected))
}

/// Parses an address to listen on, for an optional key.
pub(super) fn some_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
}

/// Parses one of a fixed set of words. For another word the error lists the set, which the error of the
/// library does not.
pub(super) fn word<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    let word: StrDeserializer<'_, ValueError> = text.as_str().into_deserializer();
    T::deserialize(word).map_err(|error| {
        let message = error.to_string();
        let expected = message.rsplit_once(", expected ").map_or(message.as_str(), |(_, expected)| expected);
        D::Error::custom(format_args!("expected {expected}, not {text:?}"))
    })
}

/// Parses one of a fixed set of words, for an optional key.
pub(super) fn some_word<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    word(deserializer).map(Some)
}

/// Parses a list, or words separated by commas, as the environment has them.
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

/// Parses a list, for an optional key.
pub(super) fn some_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    list(deserializer).map(Some)
}
