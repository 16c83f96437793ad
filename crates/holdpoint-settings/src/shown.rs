//! Values without their secrets, for display.

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use url::Url;

/// The text in place of a secret.
const MASK: &str = "***";
/// Parts of the names of query parameters that may hold a secret.
const SECRET_FIELDS: [&str; 4] = ["pass", "secret", "key", "token"];

/// Formats a section with a secret for `Debug`.
///
/// # Errors
/// Those of the formatter.
pub fn debug<T: Serialize>(section: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match toml::Value::try_from(section) {
        Ok(shown) => fmt::Debug::fmt(&shown, f),
        Err(_) => f.write_str(MASK),
    }
}

/// Serializes JSON fields as a table, or as a string if they contain a null, which TOML does not have.
///
/// # Errors
/// Those of the serializer.
pub fn table_or_json<S: Serializer>(fields: &Map<String, Value>, to: S) -> Result<S::Ok, S::Error> {
    if fields.values().any(has_null) {
        return to.serialize_str(&Value::Object(fields.clone()).to_string());
    }
    fields.serialize(to)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(fields) => fields.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Serializes that there is a secret.
///
/// # Errors
/// Those of the serializer.
pub fn secret<S: Serializer>(secret: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
    match secret {
        Some(_) => to.serialize_some(MASK),
        None => to.serialize_none(),
    }
}

/// Serializes that there is a secret, for a required key.
///
/// # Errors
/// Those of the serializer.
pub fn needed_secret<S: Serializer>(_secret: &SecretString, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(MASK)
}

/// Serializes the names of values that may be secret.
///
/// # Errors
/// Those of the serializer.
pub fn secrets<S: Serializer>(values: &BTreeMap<String, String>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values.keys().map(|name| (name, MASK)))
}

/// Serializes a URL without its password.
///
/// # Errors
/// Those of the serializer.
pub fn secret_url<S: Serializer>(url: &SecretString, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&masked(url.expose_secret()))
}

/// Serializes a URL without its password, for an optional key.
///
/// # Errors
/// Those of the serializer.
pub fn secret_option_url<S: Serializer>(url: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => to.serialize_some(&masked(url.expose_secret())),
        None => to.serialize_none(),
    }
}

/// Serializes a URL without its password, for an optional key that is no secret otherwise.
///
/// # Errors
/// Those of the serializer.
pub fn url<S: Serializer>(url: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => to.serialize_some(&masked(url)),
        None => to.serialize_none(),
    }
}

/// Serializes a URL without its password, for a required key.
///
/// # Errors
/// Those of the serializer.
pub fn plain_url<S: Serializer>(url: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&masked(url))
}

/// Serializes the scheme, the host and the port of a URL whose path or query may be a secret.
///
/// # Errors
/// Those of the serializer.
pub fn secret_path<S: Serializer>(url: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    let origin = |url: &String| match Url::parse(url) {
        Ok(url) if url.has_host() => format!("{}/{MASK}", url.origin().ascii_serialization()),
        _ => MASK.to_owned(),
    };
    match url {
        Some(url) => to.serialize_some(&origin(url)),
        None => to.serialize_none(),
    }
}

/// Returns the URL without its password. A text that is not a URL is masked as a whole.
pub fn masked(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else { return MASK.to_owned() };
    let is_secret = |field: &str| SECRET_FIELDS.iter().any(|part| field.to_ascii_lowercase().contains(part));
    let in_query = parsed.query_pairs().any(|(field, _)| is_secret(&field));
    if parsed.password().is_none() && !in_query {
        return url.to_owned();
    }
    if parsed.password().is_some() && parsed.set_password(Some(MASK)).is_err() {
        return MASK.to_owned();
    }
    if in_query {
        let fields: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
        let mut masked = parsed.query_pairs_mut();
        masked.clear();
        for (field, value) in &fields {
            masked.append_pair(field, if is_secret(field) { MASK } else { value });
        }
        drop(masked);
    }
    parsed.into()
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn only_possible_secrets_in_a_url_are_masked() {
        for (url, shown) in [
            ("sqlite://holdpoint.db", "sqlite://holdpoint.db"),
            ("sqlite::memory:", "sqlite::memory:"),
            ("postgres://user@db/x?sslmode=require", "postgres://user@db/x?sslmode=require"),
            ("postgres://user:hunter2@db:5432/x?a=b", "postgres://user:***@db:5432/x?a=b"),
            ("postgres://db/x?user=me&password=hunter2", "postgres://db/x?user=me&password=***"),
            ("https://id.example/keys?apiKey=hunter2", "https://id.example/keys?apiKey=***"),
            ("hunter2", "***"),
            ("postgres://user:hunter2@db:port/x", "***"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }
}
