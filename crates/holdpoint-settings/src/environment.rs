//! The environment of the process.

use crate::ConfigError;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Returns the variables whose names begin with the prefix, without the prefix.
///
/// # Errors
/// One of them is not UTF-8.
#[expect(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
pub fn with_prefix(prefix: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut found = BTreeMap::new();
    for (variable, value) in std::env::vars_os() {
        let Some(name) = variable.to_str().and_then(|name| name.strip_prefix(prefix)) else { continue };
        let value = value.into_string().map_err(|_| not_utf8(&format!("{prefix}{name}")))?;
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

/// Returns the value of a variable. An empty one counts as not set.
///
/// # Errors
/// The value is not UTF-8.
#[expect(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
pub fn text(name: &str) -> Result<Option<String>, ConfigError> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|_| not_utf8(name))
}

/// Returns the variables with these names, as a child process inherits them.
#[expect(clippy::disallowed_methods, reason = "this module is the reader of the environment")]
pub fn inherited(names: &[String]) -> BTreeMap<String, OsString> {
    names.iter().filter_map(|name| Some((name.clone(), std::env::var_os(name)?))).collect()
}

fn not_utf8(name: &str) -> ConfigError {
    ConfigError::Value { key: name.to_owned(), why: "expected text in UTF-8".to_owned() }
}
