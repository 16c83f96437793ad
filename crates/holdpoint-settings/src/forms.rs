//! The forms of values, for serde, and checks that several sections make.

use crate::{ConfigError, wrong};
use humantime_serde::re::humantime;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The longest duration. No operator needs a longer one, and the system clock ends at some later point.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// Refuses a duration that is too long.
///
/// # Errors
/// The duration is longer than 3650 days.
pub fn check_duration(key: &str, duration: Duration) -> Result<(), ConfigError> {
    if duration > DURATION_MAX { wrong(key, "expected at most 3650 days") } else { Ok(()) }
}

/// Refuses an optional duration that is nothing or too long.
///
/// # Errors
/// The duration is 0, or longer than 3650 days.
pub fn check_some_duration(key: &str, duration: Option<Duration>) -> Result<(), ConfigError> {
    match duration {
        Some(duration) if duration.is_zero() => wrong(key, "expected more than 0s"),
        Some(duration) => check_duration(key, duration),
        None => Ok(()),
    }
}

/// Returns whether a text is 1 to `chars_max` characters of `a-z A-Z 0-9 _ -`.
pub fn is_plain_name(text: &str, chars_max: usize) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=chars_max).contains(&text.len()) && text.chars().all(usable)
}

/// Returns the text of the file that this key names, without the line end at its end.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn text_of_file(key: &str, path: &Path) -> Result<String, ConfigError> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|error| ConfigError::Value {
        key: key.to_owned(),
        why: format!("{}: {error}", path.display()),
    })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Durations in the notation of humantime.
pub mod duration {
    use super::{Deserialize, Deserializer, Duration, humantime};
    use serde::Serializer;
    use serde::de::Error as _;

    /// Reads a duration.
    ///
    /// # Errors
    /// A text that is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text)
            .map_err(|_| D::Error::custom("expected a duration with its unit, as 500ms, 30s, 5m or 24h"))
    }

    /// Writes a duration.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        humantime_serde::serialize(duration, to)
    }
}

/// The same for an optional key.
pub mod some_duration {
    use super::{Deserializer, Duration};
    use serde::Serializer;

    /// Reads a duration.
    ///
    /// # Errors
    /// A text that is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        super::duration::deserialize(deserializer).map(Some)
    }

    /// Writes a duration.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        humantime_serde::serialize(duration, to)
    }
}

/// Reads an address to listen on.
///
/// # Errors
/// A text that is none.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let expected = "expected an IP address and a port, as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| D::Error::custom(expected))
}

/// Reads an address to listen on, for an optional key.
///
/// # Errors
/// A text that is none.
pub fn some_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    address(deserializer).map(Some)
}

/// Reads a list, or words separated by commas, as the environment has them.
///
/// # Errors
/// A value that is neither.
pub fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
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

/// Reads a list, for an optional key.
///
/// # Errors
/// As [`list`].
pub fn some_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    list(deserializer).map(Some)
}

/// Reads a table, or a JSON object in a text.
///
/// # Errors
/// A value that is neither.
pub fn table_or_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let read = match Value::deserialize(deserializer)? {
        Value::String(text) => serde_json::from_str(&text).unwrap_or_default(),
        other => other,
    };
    match read {
        Value::Object(fields) => Ok(fields),
        _ => Err(D::Error::custom("expected a table, or a JSON object in a text")),
    }
}

/// Reads a table, or a JSON object in a text. A table has no order of its own, so its fields are sorted: the model
/// reads the same schema after each start.
///
/// # Errors
/// As [`table_or_json`].
pub fn sorted_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let mut fields = table_or_json(deserializer)?;
    fields.sort_keys();
    fields.values_mut().for_each(Value::sort_all_objects);
    Ok(fields)
}
