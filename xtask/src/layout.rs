//! Rules for the source tree that the compiler does not check.
//!
//! The rules read the syntax, not the text, so a comment or a string never counts. They catch honest mistakes and
//! the obvious ways around a rule. A macro that builds a path from pieces still escapes them.

mod circles;
mod names;
mod rules;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use self::names::Names;
use crate::process;

/// The extensions of code files. The rules do not apply to data files, which may have any length.
const CODE: &[&str] = &["rs", "ts", "tsx", "js", "jsx", "mjs"];

/// A place in the source tree that breaks a rule.
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

/// Returns the code files that git tracks or would track. A new file counts before it is added, an ignored
/// file never counts.
pub(crate) fn listed_files(root: &Path) -> Result<Vec<String>> {
    let mut command = git(root);
    command.args(["ls-files", "-co", "--exclude-standard", "-z"]);
    let listing = process::capture(&mut command).context("the layout rules look at the files git lists")?;
    let listing = String::from_utf8(listing).context("a file name is not UTF-8")?;
    let files: BTreeSet<&str> = listing.split('\0').filter(|path| CODE.contains(&extension(path))).collect();
    // The index still has a file whose deletion is not staged.
    Ok(files.into_iter().filter(|path| root.join(path).is_file()).map(str::to_owned).collect())
}

/// Returns a git command for the checkout at `root`. The removed variables would point to the repository of a
/// git hook that started xtask.
pub(crate) fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    command
}

/// Returns all violations in `files` (paths under `root`, with `/`), sorted by place.
pub(crate) fn check(root: &Path, files: &[String]) -> Result<Vec<Violation>> {
    let mut violations = BTreeSet::new();
    let mut crates: BTreeMap<&str, Vec<Names>> = BTreeMap::new();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for path in files {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("could not read {path}"))?;
        let mut report = |line: usize, rule: &'static str, what: String| {
            violations.insert(Violation { path: path.clone(), line, rule, what });
        };
        rules::length(&text, &mut report);
        rules::file_name(path, &mut report);
        if let Some((folder, _)) = path.rsplit_once('/') {
            *folders.entry(folder).or_default() += 1;
        }
        if extension(path) != "rs" {
            continue;
        }
        let (crate_root, in_crate) = sources_of(path).unwrap_or(("", path));
        let module = names::module_of(in_crate);
        match Names::read(module, &text) {
            Ok(names) => {
                rules::names(path, &names, &mut report);
                crates.entry(crate_root).or_default().push(names);
            }
            Err(error) => report(error.span().start().line, "syntax", error.to_string()),
        }
    }
    for (folder, files) in folders {
        rules::folder_size(folder, files, &mut |line, rule, what| {
            violations.insert(Violation { path: folder.to_owned(), line, rule, what });
        });
    }
    for (crate_root, files) in crates.iter().filter(|(crate_root, _)| !crate_root.is_empty()) {
        for circle in circles::circles(files) {
            let what = format!("{} import each other", circle.join(", "));
            violations.insert(Violation { path: (*crate_root).to_owned(), line: 1, rule: "circle", what });
        }
    }
    Ok(violations.into_iter().collect())
}

/// Returns the folder with the sources of a crate, `serve/src/` say, and the path of the file inside of it. `None` for a
/// file that is not a part of a crate, such as a test.
fn sources_of(path: &str) -> Option<(&str, &str)> {
    let at = if path.starts_with("src/") { 0 } else { path.find("/src/")? + 1 };
    Some(path.split_at(at + "src/".len()))
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}
