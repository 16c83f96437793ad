//! The tables of keys in `docs/configuration.md`, made of the comments of the sections.
//!
//! The comment of a field has the meaning of its key, then a paragraph `Value: <type>. Default: <default>.` A type that
//! ends with `, or a file` gives a second row, for the key that names a file with the value. A table of three columns has
//! no defaults. A test of the server compares the defaults with those in force.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use syn::{Attribute, Expr, Field, Item, ItemStruct, Lit, Meta};

use super::source::read;
use crate::layout;

const PAGE: &str = "docs/configuration.md";
const BEGIN: &str = "<!-- begin keys: ";
const MADE_BY: &str = ", made by `cargo xtask docs --write` -->";
const END: &str = "<!-- end keys -->";
/// Where sections are.
const FOLDERS: [&str; 2] = ["src/", "crates/"];
/// The end of the type of a key whose value can be in a file of its own.
const OR_A_FILE: &str = ", or a file";

/// One key, as the comment of its field describes it.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    name: String,
    meaning: String,
    kind: String,
    default: String,
}

/// Writes the tables into the page.
pub(super) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(PAGE), rendered(root)?).with_context(|| format!("could not write {PAGE}"))
}

/// Checks that the page has the tables of the code.
pub(super) fn check(root: &Path) -> Result<()> {
    let page = read(root, PAGE)?;
    ensure!(page == rendered(root)?, "{PAGE} has other keys than the code; run: cargo xtask docs --write");
    Ok(())
}

/// Returns the page with the tables of the code.
fn rendered(root: &Path) -> Result<String> {
    let sources: Vec<String> = layout::listed_files(root)?
        .into_iter()
        .filter(|path| path.ends_with(".rs") && FOLDERS.iter().any(|folder| path.starts_with(folder)))
        .map(|path| read(root, &path))
        .collect::<Result<_>>()?;
    let page = read(root, PAGE)?;
    let mut written = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        written.push_str(line);
        written.push('\n');
        let Some(rest) = line.strip_prefix(BEGIN) else { continue };
        let table = rest.strip_suffix(MADE_BY).with_context(|| format!("{PAGE}: expected `{MADE_BY}`"))?;
        let header: Vec<&str> = lines.by_ref().take(2).collect();
        let rows = rows(&sources, table, &header).with_context(|| format!("the table of {table}"))?;
        written.push_str(&format!("{}\n{rows}{END}\n", header.join("\n")));
        ensure!(lines.any(|line| line == END), "{PAGE}: the table of {table} has no end");
    }
    Ok(written)
}

/// Returns the rows of a table. `table` is the name of a section, which the names of its first and its last key may
/// follow: `Limits from requests_per_minute`.
fn rows(sources: &[String], table: &str, header: &[&str]) -> Result<String> {
    let (section, from, until) = match table.split(' ').collect::<Vec<_>>()[..] {
        [section] => (section, None, None),
        [section, "from", first] => (section, Some(first), None),
        [section, "until", last] => (section, None, Some(last)),
        _ => bail!("expected the name of a section"),
    };
    let keys = keys(&section_of(sources, section)?)?;
    let place = |name: &str| {
        keys.iter().position(|key| key.name == name).with_context(|| format!("there is no key {name}"))
    };
    let first = from.map_or(Ok(0), place)?;
    let last = until.map_or(Ok(keys.len()), |name| place(name).map(|at| at + 1))?;
    let with_default = header.first().is_some_and(|titles| titles.matches('|').count() > 4);
    let mut rows = String::new();
    for Key { name, meaning, kind, default } in keys.get(first..last).unwrap_or_default() {
        let default = if with_default { format!(" {default} |") } else { String::new() };
        rows.push_str(&format!("| `{name}` | {kind} |{default} {meaning} |\n"));
    }
    Ok(rows)
}

/// Finds the struct of this name whose fields describe keys.
fn section_of(sources: &[String], name: &str) -> Result<ItemStruct> {
    let mut found = Vec::new();
    for text in sources.iter().filter(|text| text.contains(&format!("pub struct {name} {{"))) {
        let items = syn::parse_file(text)?.items.into_iter();
        found.extend(items.filter_map(|item| match item {
            Item::Struct(it) if it.ident == name && it.fields.iter().any(is_described) => Some(it),
            _ => None,
        }));
    }
    ensure!(found.len() == 1, "expected one struct {name} whose fields describe keys, found {}", found.len());
    found.pop().context("there is one")
}

fn is_described(field: &Field) -> bool {
    paragraphs(&field.attrs).iter().any(|paragraph| paragraph.starts_with("Value: "))
}

/// Returns the keys of a section. A field that has tables of other names, such as those of tools, is no key.
fn keys(section: &ItemStruct) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    for field in section.fields.iter().filter(|field| !is_flattened(field)) {
        let name = field.ident.as_ref().context("expected a field with a name")?.to_string();
        let key = key(name.clone(), &field.attrs).with_context(|| format!("the comment of {name}"))?;
        match key.kind.strip_suffix(OR_A_FILE) {
            Some(kind) => {
                let beside = format!("this or `{name}_file`");
                let default =
                    if key.default == beside { format!("this or `{name}`") } else { "none".to_owned() };
                let file = Key {
                    name: format!("{name}_file"),
                    meaning: format!("File that contains `{name}`."),
                    kind: "path".to_owned(),
                    default,
                };
                keys.extend([Key { kind: kind.to_owned(), ..key }, file]);
            }
            None => keys.push(key),
        }
    }
    Ok(keys)
}

fn key(name: String, attributes: &[Attribute]) -> Result<Key> {
    let mut paragraphs = paragraphs(attributes);
    let value = paragraphs.pop().unwrap_or_default();
    let value = value.strip_prefix("Value: ").and_then(|value| value.strip_suffix('.'));
    let value = value.context("expected a last paragraph as `Value: duration. Default: `5s`.`")?;
    let (kind, default) = value.split_once(". Default: ").unwrap_or((value, ""));
    ensure!(!paragraphs.is_empty(), "expected what the key means");
    Ok(Key { name, meaning: paragraphs.join(" "), kind: kind.to_owned(), default: default.to_owned() })
}

/// Returns the paragraphs of a comment, each on one line.
fn paragraphs(attributes: &[Attribute]) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in attributes.iter().filter_map(doc_line) {
        let line = line.trim();
        match paragraphs.last_mut() {
            Some(last) if !line.is_empty() && !last.is_empty() => {
                last.push(' ');
                last.push_str(line);
            }
            Some(last) if !line.is_empty() => last.push_str(line),
            _ => paragraphs.push(String::new()),
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attribute.meta else { return None };
    match &meta.value {
        Expr::Lit(literal) if meta.path.is_ident("doc") => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

fn is_flattened(field: &Field) -> bool {
    field.attrs.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("serde") && list.tokens.to_string().contains("flatten"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: &str = r#"
        /// `[a]`
        pub struct A {
            /// Longest wait,
            /// in all.
            ///
            /// More of it.
            ///
            /// Value: duration, more than 0. Default: `5s`.
            #[serde(default)]
            pub wait: Duration,
            /// Password.
            ///
            /// Value: text, or a file. Default: this or `password_file`.
            pub password: String,
            /// The rest.
            #[serde(flatten)]
            pub others: Others,
        }
    "#;

    #[test]
    fn a_row_is_made_of_the_comment_of_a_field() {
        let sources = [SECTION.to_owned(), "pub struct A { pub b: u8 }".to_owned()];
        let rows_of = |table: &str, header: &str| {
            rows(&sources, table, &[header, ""]).map_err(|error| format!("{error:#}"))
        };
        let wait = "| `wait` | duration, more than 0 | `5s` | Longest wait, in all. More of it. |\n";
        let password = "| `password` | text | this or `password_file` | Password. |\n\
                        | `password_file` | path | this or `password` | File that contains `password`. |\n";
        let four = "| key | type | default | meaning |";
        assert_eq!(rows_of("A", four), Ok(format!("{wait}{password}")));
        assert_eq!(rows_of("A until wait", four), Ok(wait.to_owned()));
        assert_eq!(rows_of("A from password", four), Ok(password.to_owned()));
        let three = rows_of("A until wait", "| key | type | meaning |");
        assert_eq!(
            three,
            Ok("| `wait` | duration, more than 0 | Longest wait, in all. More of it. |\n".to_owned())
        );
        assert!(rows_of("A until nothing", four).unwrap_err().contains("nothing"));
        assert!(rows_of("B", four).unwrap_err().contains("found 0"));
    }

    #[test]
    fn a_comment_without_a_value_is_a_fault() {
        let fault = section_of(&[SECTION.replace("Value: text", "A text")], "A")
            .and_then(|it| keys(&it))
            .unwrap_err();
        assert!(format!("{fault:#}").contains("the comment of password"), "{fault:#}");
    }
}
