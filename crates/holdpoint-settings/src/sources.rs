//! The sources of values, one over the other.

use crate::lenient::{Lenient, Unreadable};
use crate::{ConfigError, text_of_file, wrong};
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path as KeyPath, Segment};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// A key whose value can be in a file of its own, which `<key>_file` names. Orchestrators mount secrets as files.
#[derive(Debug, Clone, Copy)]
pub struct SecretKey {
    /// The name of the section.
    pub section: &'static str,
    /// The key in the section.
    pub key: &'static str,
}

/// Values from several sources. A later source replaces the values of an earlier one, key by key.
#[derive(Debug, Default)]
pub struct Sources {
    values: Table,
    file: Option<PathBuf>,
    /// The keys from other sources than the file, each with the name of its source.
    overlaid: Vec<(String, &'static str)>,
}

impl Sources {
    /// Reads a file. A file that does not exist is an error if it is `required`, otherwise it has no values.
    ///
    /// # Errors
    /// The file cannot be read, or is not TOML. The error has no excerpt of the file, which may contain a secret.
    pub fn file(path: &Path, required: bool) -> Result<Self, ConfigError> {
        let failed = |why: String| ConfigError::File { path: path.to_owned(), why };
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => {
                return Ok(Self::default());
            }
            read => read.map_err(|error| failed(error.to_string()))?,
        };
        let values = toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            failed(format!("line {line}, column {column}: {}", error.message()))
        })?;
        Ok(Self { values, file: Some(path.to_owned()), overlaid: Vec::new() })
    }

    /// Sets the key at this path, from the source of this name.
    pub fn set(&mut self, path: &[&str], value: String, source: &'static str) {
        let [sections @ .., key] = path else { return };
        let mut table = &mut self.values;
        for section in sections {
            let entry = table.entry(*section).or_insert_with(|| Value::Table(Table::new()));
            if !entry.is_table() {
                *entry = Value::Table(Table::new());
            }
            let Value::Table(inner) = entry else { return };
            table = inner;
        }
        table.insert((*key).to_owned(), Value::String(value));
        self.overlaid.push((path.join("."), source));
    }

    /// Reads the values that are in files of their own, without their line ends.
    ///
    /// # Errors
    /// A file cannot be read, or its key has a value too.
    pub fn read_secrets(&mut self, keys: &[SecretKey]) -> Result<(), ConfigError> {
        for SecretKey { section, key } in keys {
            let Some(Value::Table(section_values)) = self.values.get_mut(*section) else { continue };
            let Some(path) = section_values.remove(&format!("{key}_file")) else { continue };
            let named = format!("{section}.{key}_file");
            if section_values.contains_key(*key) {
                return wrong(&named, format!("expected either this or {section}.{key}, not both"));
            }
            let Value::String(path) = path else { return wrong(&named, "expected the path of a file") };
            let secret = text_of_file(&named, Path::new(&path))?;
            section_values.insert((*key).to_owned(), Value::String(secret));
        }
        Ok(())
    }

    /// Reads all values as the fields of this type.
    ///
    /// # Errors
    /// The first value that cannot be read, or that is missing, and the first unknown key, with the full key.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, ConfigError> {
        let Self { values, file, overlaid } = self;
        serde_path_to_error::deserialize(Lenient(Value::Table(values))).map_err(|error| {
            let mut key = key_of(error.path());
            let why = error.into_inner();
            match &why {
                Unreadable::Missing(field) => key = below(&key, field),
                Unreadable::Kind(why) => {
                    let is_of =
                        |set: &&(String, _)| set.0 == key || is_below(&set.0, &key) || is_below(&key, &set.0);
                    let from_file = || file.as_ref().map(|path| path.display().to_string());
                    let source = overlaid.iter().rev().find(is_of).map(|(_, source)| (*source).to_owned());
                    if let Some(source) = source.or_else(from_file) {
                        return ConfigError::Value { key, why: format!("{why}, in {source}") };
                    }
                }
                Unreadable::Refused(_) | Unreadable::UnknownKey(_) => {}
            }
            ConfigError::Value { key, why: why.to_string() }
        })
    }
}

/// Writes a path as the file does: `approval.rules[0].when`.
fn key_of(path: &KeyPath) -> String {
    path.iter().fold(String::new(), |key, segment| match segment {
        Segment::Map { key: name } => below(&key, name),
        Segment::Seq { index } => format!("{key}[{index}]"),
        // The word of an enum is a value, not a key.
        Segment::Enum { .. } | Segment::Unknown => key,
    })
}

fn is_below(section: &str, key: &str) -> bool {
    key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
}

fn below(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Section {
        size: Option<u32>,
        is_on: bool,
        labels: BTreeMap<String, String>,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct All {
        section: Section,
        entries: Vec<Section>,
    }

    fn sources(text: &str) -> Sources {
        Sources { values: toml::from_str(text).unwrap(), file: Some("a.toml".into()), overlaid: Vec::new() }
    }

    fn error(sources: Sources) -> String {
        sources.read::<All>().unwrap_err().to_string()
    }

    #[test]
    fn a_later_source_replaces_one_key_and_keeps_the_others() {
        let mut all = sources("section = { size = 1, labels = { a = \"x\", b = \"y\" } }");
        all.set(&["section", "size"], "2".to_owned(), "the environment");
        all.set(&["section", "is_on"], "yes".to_owned(), "the environment");
        all.set(&["section", "labels", "b"], "z".to_owned(), "the environment");
        let Section { size, is_on, labels } = all.read::<All>().unwrap().section;
        let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!((size, is_on, labels), (Some(2), true, vec![("a", "x"), ("b", "z")]));
    }

    #[test]
    fn an_error_has_the_full_key_and_the_source_of_the_value() {
        for (text, why) in [
            ("section.size = \"x\"", "section.size: expected an integer, not \"x\", in a.toml"),
            ("section.size = -1", "section.size: expected an integer of at least 0, not -1, in a.toml"),
            ("section = 5", "section: expected a table, not a number, in a.toml"),
            ("section = \"secret\"", "section: expected a table, not a text, in a.toml"),
            (
                "entries = [{}, { is_on = 1 }]",
                "entries[1].is_on: expected true or false, not a number, in a.toml",
            ),
            (
                "entries = [{ labels = { a = [] } }]",
                "entries[0].labels.a: expected a text, not a list, in a.toml",
            ),
            (
                "section.sise = 1",
                "section.sise: there is no such key, expected one of `size`, `is_on`, `labels`",
            ),
            ("sections = 1", "sections: there is no such key, expected `section` or `entries`"),
        ] {
            assert_eq!(error(sources(text)), why);
        }
        let mut all = sources("section.size = 1");
        all.set(&["section", "size", "x"], "2".to_owned(), "the environment");
        assert_eq!(error(all), "section.size: expected an integer, not a table, in the environment");
    }

    #[test]
    fn a_secret_comes_from_its_file_or_from_its_key() {
        let key = SecretKey { section: "section", key: "labels" };
        let mut both = sources("section = { labels_file = \"f\", labels = { a = \"x\" } }");
        let why = both.read_secrets(&[key]).unwrap_err().to_string();
        assert_eq!(why, "section.labels_file: expected either this or section.labels, not both");
        let mut no_path = sources("section.labels_file = 5");
        let why = no_path.read_secrets(&[key]).unwrap_err().to_string();
        assert_eq!(why, "section.labels_file: expected the path of a file");
    }
}
