//! What the tables of pages are made of: files, their syntax and their comments.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Attribute, Expr, Lit, Meta};

/// Returns the page with this text between the marks of a table.
pub(super) fn replaced(page: &str, table: &str, text: &str) -> Result<String> {
    let (begin, end) = (
        format!("<!-- begin {table}: made by `cargo xtask docs --write` -->\n"),
        format!("<!-- end {table} -->\n"),
    );
    let found = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = found.with_context(|| format!("there are no marks of the table {table}"))?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

/// The lines of a comment.
pub(super) fn comment(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter_map(|attribute| {
        let Meta::NameValue(value) = &attribute.meta else { return None };
        let Expr::Lit(text) = &value.value else { return None };
        match &text.lit {
            Lit::Str(text) if value.path.is_ident("doc") => Some(text.value().trim().to_owned()),
            _ => None,
        }
    });
    lines.collect()
}

/// The syntax of a file.
pub(super) fn parse(root: &Path, path: &str) -> Result<syn::File> {
    syn::parse_file(&read(root, path)?).with_context(|| format!("could not parse {path}"))
}

/// The text of a file.
pub(super) fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("could not read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_what_is_between_its_marks() {
        let page = "a\n<!-- begin t: made by `cargo xtask docs --write` -->\nold\n<!-- end t -->\nb\n";
        assert_eq!(replaced(page, "t", "new\n").unwrap(), page.replace("old", "new"));
        assert!(replaced("", "t", "new\n").is_err());
    }
}
