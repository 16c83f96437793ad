//! Headers of requests whose values are in the configuration or in files.

use crate::{ConfigError, text_of_file};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Returns the headers of the keys `headers` and `header_files` of an entry. `key` is the key of the entry.
///
/// # Errors
/// A file cannot be read, or something is no header.
pub fn headers(
    key: &str,
    values: &BTreeMap<String, String>,
    files: &BTreeMap<String, PathBuf>,
) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    for (name, value) in with_files(&format!("{key}.header_files"), values, files)? {
        let unusable =
            |why: &str| ConfigError::Value { key: format!("{key}.headers"), why: format!("{name}: {why}") };
        let header: HeaderName = name.parse().map_err(|_| unusable("expected the name of a header"))?;
        let mut value: HeaderValue =
            value.parse().map_err(|_| unusable("expected a value without line ends"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Returns the values with those of the files added. `key` is the key of the files.
///
/// # Errors
/// A file cannot be read, or its name also has a value.
pub fn with_files(
    key: &str,
    values: &BTreeMap<String, String>,
    files: &BTreeMap<String, PathBuf>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut all = values.clone();
    for (name, path) in files {
        let key = format!("{key}.{name}");
        if all.insert(name.clone(), text_of_file(&key, path)?).is_some() {
            let why = "expected either a file or a value, not both".to_owned();
            return Err(ConfigError::Value { key, why });
        }
    }
    Ok(all)
}
