//! Rules on the documentation that no other tool checks, and the tables of pages that the code has.

mod key_tables;
mod route_table;
mod source;
mod wire_table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::layout;

/// The README is read first, so it stays short. The reference is in `docs/`.
const README_LINES: usize = 150;

/// Where the test programs of the paths in `docs/invariants.md` and `docs/threats.md` have their sources.
const SOURCES: [(&str, &str); 14] = [
    ("api", "tests/api"),
    ("engine", "tests/engine"),
    ("outside", "tests/outside"),
    ("holdpoint", "src"),
    ("holdpoint_core", "crates/holdpoint-core/src"),
    ("holdpoint_egress", "crates/holdpoint-egress/src"),
    ("holdpoint_metrics", "crates/holdpoint-metrics/src"),
    ("holdpoint_models", "crates/holdpoint-models/src"),
    ("holdpoint_settings", "crates/holdpoint-settings/src"),
    ("holdpoint_store", "crates/holdpoint-store/src"),
    ("holdpoint_stream", "crates/holdpoint-stream/src"),
    ("holdpoint_terminal", "crates/holdpoint-terminal/src"),
    ("holdpoint_testkit", "tests/kit/src"),
    ("torture", "torture/src"),
];

/// Writes the tables that are made of the code into their pages.
pub(crate) fn write(root: &Path) -> Result<()> {
    key_tables::write(root)?;
    wire_table::write(root)?;
    route_table::write(root)
}

/// Checks the length of the README, the links of all pages, the tests that pages name, the words of comments, the
/// names of types, and the tables that are made of the code.
pub(crate) fn check(root: &Path) -> Result<()> {
    key_tables::check(root)?;
    wire_table::check(root)?;
    route_table::check(root)?;
    let mut wrong = Vec::new();
    for page in pages(root)? {
        let text = fs::read_to_string(&page).with_context(|| format!("could not read {}", page.display()))?;
        let name = page.strip_prefix(root).unwrap_or(&page).display().to_string();
        if name == "README.md" && text.lines().count() > README_LINES {
            wrong.push(format!("{name}: more than {README_LINES} lines"));
        }
        for link in links(&text) {
            if let Err(why) = resolve(&page, &text, &link) {
                wrong.push(format!("{name}: the link {link} leads nowhere: {why}"));
            }
        }
        for path in code(&text) {
            if names_a_test(path) && !is_there(root, path) {
                wrong.push(format!("{name}: there is no function {path}"));
            }
        }
    }
    wrong.extend(private_words(root)?);
    wrong.extend(vague_types(root)?);
    for line in &wrong {
        println!("{line}");
    }
    if !wrong.is_empty() {
        bail!("{} fault(s) in the documentation", wrong.len());
    }
    Ok(())
}

/// The comments that use a word which hides the subject or the action of a sentence, such as `somebody` for a caller, or
/// `goes on` for an event.
fn private_words(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let files = layout::listed_files(root)?;
    for file in files.iter().filter(|file| PLAIN_ENGLISH.iter().any(|folder| file.starts_with(folder))) {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("could not read {file}"))?;
        for (at, line) in (1..).zip(text.lines()) {
            if let Some(word) = private_word(line) {
                found
                    .push(format!("{file}:{at}: the comment says {word:?}; name the subject and the action"));
            }
        }
    }
    Ok(found)
}

/// The folders whose comments are in plain technical English.
const PLAIN_ENGLISH: [&str; 10] = [
    "src/",
    "crates/",
    "serve/",
    "migrations/",
    "examples/",
    "packages/",
    "tests/",
    "torture/",
    "bench/",
    "xtask/",
];

const PRIVATE_WORDS: [&str; 13] = [
    "whoever",
    "somebody",
    "nobody",
    "everybody",
    "told",
    "goes on",
    "go on",
    "stands",
    "stood",
    "begun",
    "under way",
    "stranger",
    "strangers",
];

/// The private word in the comment that is this line, if there is one. Code between backticks is none.
fn private_word(line: &str) -> Option<&'static str> {
    let comment = line.trim_start().strip_prefix("//")?;
    let prose: String = comment.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let words: Vec<String> = prose
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    PRIVATE_WORDS.into_iter().find(|word| text.contains(&format!(" {word} ")))
}

/// The types whose whole name is one of [`VAGUE_NAMES`].
fn vague_types(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in layout::listed_files(root)? {
        if !file.ends_with(".rs") || !NAMED_TYPES.iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        let text = fs::read_to_string(root.join(&file)).with_context(|| format!("could not read {file}"))?;
        for (at, line) in (1..).zip(text.lines()) {
            if let Some(name) = vague_name(line) {
                found.push(format!("{file}:{at}: the type {name:?} does not say what it is"));
            }
        }
    }
    Ok(found)
}

/// The folders whose types have names that say what they are.
const NAMED_TYPES: [&str; 7] = ["src/", "crates/", "serve/", "tests/", "torture/", "bench/", "xtask/"];

/// Names that say nothing alone: words of a sentence, such as `Then`, and what happened to a thing that the name leaves
/// out, such as `Touched`.
const VAGUE_NAMES: [&str; 85] = [
    "Act",
    "Again",
    "Allowed",
    "Answered",
    "Arrived",
    "AsOf",
    "Asked",
    "Asking",
    "Attempted",
    "Broken",
    "By",
    "Claimed",
    "Closed",
    "Counted",
    "Dated",
    "Delegated",
    "Does",
    "Doubtful",
    "Due",
    "Encoded",
    "Ended",
    "Erased",
    "Established",
    "Fails",
    "Folded",
    "Form",
    "Found",
    "FoundAt",
    "Gap",
    "Given",
    "Granted",
    "Hanging",
    "Harming",
    "Joined",
    "Known",
    "Leave",
    "Ledgered",
    "Left",
    "LeftOut",
    "Lent",
    "Listed",
    "Listening",
    "Logged",
    "Loosened",
    "Made",
    "Meaning",
    "Meant",
    "Moved",
    "Now",
    "Numbered",
    "Offer",
    "OnPage",
    "Planted",
    "Played",
    "Prepared",
    "Raw",
    "Reached",
    "Reaped",
    "Received",
    "Recorded",
    "Recovered",
    "Refused",
    "Renewed",
    "Said",
    "Says",
    "Scanned",
    "Seen",
    "Sent",
    "Settled",
    "Signed",
    "Silent",
    "Spent",
    "Started",
    "Steered",
    "Synced",
    "Tell",
    "Then",
    "Touched",
    "Unanswered",
    "Unsettled",
    "Until",
    "Waited",
    "Waits",
    "Which",
    "Whose",
];

/// The vague name of the type that this line defines, if it does.
fn vague_name(line: &str) -> Option<&'static str> {
    let code = line.split("//").next().unwrap_or_default();
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words.find(|word| matches!(*word, "struct" | "enum" | "trait" | "type"))?;
    let name = words.next()?;
    VAGUE_NAMES.into_iter().find(|vague| *vague == name)
}

fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in [root.to_path_buf(), root.join("docs"), root.join("packages/page")] {
        for entry in fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// The lines that are not in a fenced block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// The targets of relative links.
fn links(text: &str) -> Vec<String> {
    let joined: Vec<&str> = prose(text).collect();
    let joined = joined.join("\n");
    let targets = joined.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

fn resolve(page: &Path, text: &str, link: &str) -> Result<()> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = page.parent().context("a page is in a folder")?.join(path);
    let other;
    let text = if path.is_empty() {
        text
    } else {
        if !target.exists() {
            bail!("there is no such file");
        }
        if anchor.is_none() {
            return Ok(());
        }
        other = fs::read_to_string(&target)?;
        &other
    };
    match anchor {
        Some(anchor) if !anchors(text).contains(anchor) => bail!("the page has no such heading"),
        _ => Ok(()),
    }
}

/// The anchors that GitHub gives to headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(text).filter(|line| line.starts_with('#')) {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let repeated = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// The texts between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether this is the path of a test or of a check: all of it lower case.
fn names_a_test(path: &str) -> bool {
    let mut segments = path.split("::");
    let is_known = segments.next().is_some_and(|first| SOURCES.iter().any(|(name, _)| *name == first));
    let is_snake = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    // Library paths such as `holdpoint::config` have no function at their end.
    is_known && path.split("::").count() > 2 && segments.all(is_snake)
}

/// Whether a file of the path's modules has the function that ends the path, or the path is that of a module.
fn is_there(root: &Path, path: &str) -> bool {
    let segments: Vec<&str> = path.split("::").collect();
    let [first, modules @ .., function] = &segments[..] else { return false };
    let Some((_, folder)) = SOURCES.iter().find(|(name, _)| name == first) else { return false };
    // Or it is a module.
    if root.join(folder).join(modules.join("/")).join(format!("{function}.rs")).is_file() {
        return true;
    }
    (0..=modules.len()).rev().any(|depth| {
        let inner = modules.get(..depth).unwrap_or_default().join("/");
        let base = root.join(folder).join(&inner);
        let files = match depth {
            0 => vec![base.join("main.rs"), base.join("lib.rs")],
            _ => vec![base.with_extension("rs"), base.join("mod.rs")],
        };
        let has = |text: String| {
            text.contains(&format!("fn {function}(")) || text.contains(&format!("fn {function}<"))
        };
        files.iter().any(|file| fs::read_to_string(file).is_ok_and(has))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_headings_in_code_are_no_links_and_headings() {
        let text = "# A `b`, c!\n[x](y.md#z) [w](https://e)\n```\n# no\n[n](o)\n```\n## A b c\n";
        assert_eq!(links(text), ["y.md#z"]);
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["a-b-c", "a-b-c-1"]);
    }

    #[test]
    fn a_private_word_is_found_in_a_comment_alone() {
        assert_eq!(private_word("    /// The turn goes on."), Some("goes on"));
        assert_eq!(private_word("// Nobody, here."), Some("nobody"));
        for line in ["let nobody = 1; // told", "/// The event `hold.told`.", "/// Understands tolding."] {
            assert_eq!(private_word(line), None, "{line}");
        }
    }

    #[test]
    fn a_vague_name_is_found_where_a_type_is_defined() {
        // Not whole definitions, which the check would find here.
        for line in ["pub(crate) struct _ {", "enum _<'a> {", "    type _ = ();", "pub trait _: Sized {"] {
            assert_eq!(vague_name(&line.replace('_', "Left")), Some("Left"), "{line}");
        }
        for line in ["struct LeftEvents;", "    Left(u8),", "// A struct Left", "let kind = Left::new();"] {
            assert_eq!(vague_name(line), None, "{line}");
        }
    }

    #[test]
    fn only_paths_of_functions_name_a_test() {
        for (path, names) in [
            ("api::turns::streamed::a_turn", true),
            ("holdpoint_core::call::tests::ends", true),
            ("holdpoint::config", false),
            ("holdpoint::tools::Tool", false),
            ("std::process::exit", false),
        ] {
            assert_eq!(names_a_test(path), names, "{path}");
        }
    }

    #[test]
    fn a_function_is_found_in_the_file_of_its_modules_alone() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(is_there(root, "api::documents::openapi::the_served_document_is_the_printed_one"));
        assert!(!is_there(root, "api::documents::readme::the_served_document_is_the_printed_one"));
        assert!(!is_there(root, "api::documents::openapi::no_such_test"));
    }
}
