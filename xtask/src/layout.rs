//! Rules on the shape of the source tree that the compiler does not know.
//!
//! They are checked on tokens, not on text, so a comment or a string never counts. They are meant to catch an
//! honest mistake and the obvious ways around; a macro that builds a path from pieces would still get past them.

mod paths;
mod rules;
mod tokens;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The languages people write here; a data file may be as long as it needs.
const CODE: &[&str] = &["rs", "ts", "tsx", "js", "jsx", "mjs"];

/// A place in the tree that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: [{}] {}", self.path, self.line, self.rule, self.what)
    }
}

/// Code files that git tracks or would track: a new file counts before it is added, an ignored one never does.
pub(crate) fn listed_files(root: &Path) -> Result<Vec<String>> {
    let mut command = git(root);
    command.args(["ls-files", "-co", "--exclude-standard", "-z"]);
    let listing = process::capture(&mut command).context("the layout rules look at the files git lists")?;
    let listing = String::from_utf8(listing).context("a file name is not UTF-8")?;
    let files: BTreeSet<&str> = listing.split('\0').filter(|path| CODE.contains(&extension(path))).collect();
    // A file that was deleted but not yet staged is still in the index.
    Ok(files.into_iter().filter(|path| root.join(path).is_file()).map(str::to_owned).collect())
}

/// git for the checkout at `root` whatever started us: a git hook points these variables at its own repository.
fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    command
}

/// Every violation in `files` (paths under `root`, with `/`), sorted by place.
pub(crate) fn check(root: &Path, files: &[String]) -> Result<Vec<Violation>> {
    let mut violations = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("could not read {path}"))?;
        let tokens = if extension(path) == "rs" { tokens::tokenize(&text) } else { Vec::new() };
        let mut report = |line: usize, rule: &'static str, what: String| {
            violations.insert(Violation { path: path.clone(), line, rule, what });
        };
        rules::length(&text, &mut report);
        rules::file_name(path, &mut report);
        rules::module_names(&tokens, &mut report);
        rules::ranks(path, &tokens, &mut report);
        rules::pure_domain(path, &tokens, &mut report);
        rules::confined_names(path, &tokens, &mut report);
        rules::environment(path, &tokens, &mut report);
        rules::sealed_constructors(path, &tokens, &mut report);
        rules::raw_sql(path, &tokens, &mut report);
    }
    Ok(violations.into_iter().collect())
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}
