//! The rules. Each rule is a function that reports the violations in a file.

use super::names::{Names, Word};

/// The receiver of a violation: the line, the rule and a text.
pub(super) type Report<'a> = &'a mut dyn FnMut(usize, &'static str, String);

const MAX_LINES: usize = 600;
const FILES_MAX: usize = 25;

/// Names without a meaning. Unrelated code accumulates in such a module, and all modules import it.
const EMPTY_NAMES: &[&str] =
    &["utils", "common", "helpers", "types", "services", "models", "prelude", "constants", "manager"];

/// The ranks of the modules of the root package. A module uses only modules of a lower rank, so no cycle can form, and
/// each rank is testable without the ranks above. The order of the crates needs no rank: the compiler holds it.
const RANKS: &[(&str, u8)] = &[
    ("main", 7),
    ("app", 6),
    ("telemetry", 6),
    ("benches", 6),
    ("http", 5),
    ("chat", 4),
    ("delivery", 4),
    ("startup", 4),
    ("approvals", 3),
    // The public names of `approvals` in the library.
    ("handlers", 3),
    ("feed", 3),
    ("mcp", 3),
    ("operator", 3),
    ("agent", 2),
    ("http_tools", 2),
    ("tools", 1),
    ("rate_limit", 1),
    ("config", 0),
    ("entropy", 0),
];

/// Names that only one module may use: the name, the module, and the reason.
const CONFINED: &[(&str, &str, &str)] = &[("StatusCode", "http", "an error gets its status in one place")];

/// What may read the environment: the settings, and the fuzz targets, which take their time from it.
const ENVIRONMENT: [&str; 2] = ["crates/holdpoint-settings/src/environment.rs", "crates/holdpoint-fuzz/"];

/// The sources of the store, the only place with SQL.
const STORE: &str = "crates/holdpoint-store/src/";

/// The functions with SQL as text. A value inside such a text would become a part of the statement.
const RAW_SQL: &[&str] = &[
    "from_string",
    "from_sql_and_values",
    "execute_unprepared",
    "raw_sql",
    "cust",
    "cust_with_values",
    "cust_with_expr",
    "cust_with_exprs",
    "AssertSqlSafe",
];

/// The files between the store and its connection. They forward the SQL of their callers, and put the name of the
/// schema into it.
const PASSES_SQL: &[&str] =
    &["crates/holdpoint-store/src/sql/tx.rs", "crates/holdpoint-store/src/sql/schema.rs"];

pub(super) fn length(text: &str, report: Report<'_>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        report(MAX_LINES + 1, "length", format!("{lines} lines; a file has at most {MAX_LINES}"));
    }
}

pub(super) fn file_name(path: &str, report: Report<'_>) {
    for part in path.split('/') {
        let name = part.split('.').next().unwrap_or(part);
        if EMPTY_NAMES.contains(&name) {
            report(1, "name", format!("`{part}` does not describe its content"));
        }
    }
}

/// Reports the violations of all rules about the names in a Rust file.
pub(super) fn names(path: &str, names: &Names, report: Report<'_>) {
    declared_names(names, report);
    raw_sql(path, names, report);
    tuple_parameters(names, report);
    let is_root = path.starts_with("src/");
    if !is_root && !path.starts_with("crates/") {
        return;
    }
    let own = names.module.first().map_or("lib", String::as_str);
    if is_root {
        ranks(own, names, report);
    }
    confined_names(own, names, report);
    if !ENVIRONMENT.iter().any(|reader| path.starts_with(reader)) {
        environment(names, report);
    }
}

fn declared_names(names: &Names, report: Report<'_>) {
    for module in names.declared.iter().filter(|module| EMPTY_NAMES.contains(&module.name.as_str())) {
        report(module.at.line, "name", format!("`mod {}` does not describe its content", module.name));
    }
}

fn tuple_parameters(names: &Names, report: Report<'_>) {
    for line in &names.tuple_parameters {
        report(
            *line,
            "tuple",
            "a parameter for each value, or a struct that names what they are together".into(),
        );
    }
}

/// Reports a folder with too many files: it is several things. Folders of tests and of example pages may have more.
pub(super) fn folder_size(folder: &str, files: usize, report: Report<'_>) {
    let may_have_more = ["tests/", "examples/"].iter().any(|of| folder.starts_with(of));
    if !may_have_more && files > FILES_MAX {
        report(1, "folder", format!("{files} files; a folder has at most {FILES_MAX}"));
    }
}

fn ranks(own: &str, names: &Names, report: Report<'_>) {
    // `lib.rs` declares the modules and uses each of them.
    if own == "lib" {
        return;
    }
    let Some(own_rank) = rank(own) else {
        report(1, "ranks", format!("module `{own}` has no rank; add it to the table in xtask"));
        return;
    };
    for path in names.paths.iter().filter(|path| path.base.is_empty()) {
        let Some(used) = path.rest.first().filter(|first| first.name != "*") else {
            report(path.line, "ranks", "a use of the whole root hides the used modules".into());
            continue;
        };
        let (module, line) = (used.name.as_str(), used.at.line);
        match rank(module) {
            _ if module == own => {}
            None => report(line, "ranks", format!("`{module}` is not a module with a rank")),
            Some(rank) if rank >= own_rank => report(
                line,
                "ranks",
                format!("`{own}` ({own_rank}) uses `{module}` ({rank}); imports go to a lower rank only"),
            ),
            Some(_) => {}
        }
    }
}

fn confined_names(own: &str, names: &Names, report: Report<'_>) {
    for (name, module, reason) in CONFINED.iter().filter(|(_, module, _)| own != *module) {
        for word in names.words.iter().filter(|word| word.name == *name) {
            report(word.at.line, "confined", format!("`{name}` belongs in src/{module}/: {reason}"));
        }
    }
}

fn environment(names: &Names, report: Report<'_>) {
    // `env!` is not a path and stays allowed, because the compiler reads the variable.
    for name in ["var", "var_os", "vars", "vars_os", "*"] {
        for line in uses(names, "env", name) {
            let what = format!("`env::{name}`: only holdpoint-settings reads the environment");
            report(line, "environment", what);
        }
    }
    for line in renamings(names, "env") {
        report(line, "environment", "`env` under another name escapes this rule".into());
    }
}

fn raw_sql(path: &str, names: &Names, report: Report<'_>) {
    if !path.starts_with(STORE) || PASSES_SQL.contains(&path) {
        return;
    }
    let functions = names.words.iter().filter(|word| RAW_SQL.contains(&word.name.as_str()));
    for Word { name, at } in functions.filter(|word| !names.constant_calls.contains(&word.at)) {
        report(
            at.line,
            "raw-sql",
            format!("`{name}` takes a literal or a constant, and values as parameters"),
        );
    }
}

fn rank(module: &str) -> Option<u8> {
    RANKS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
}

/// Returns the lines with `head::name`: a call, a value or an import.
fn uses(names: &Names, head: &str, name: &str) -> impl Iterator<Item = usize> {
    let pairs = names.paths.iter().flat_map(|path| path.rest.iter().zip(path.rest.iter().skip(1)));
    pairs
        .filter(move |(first, second)| first.name == head && second.name == name)
        .map(|(_, second)| second.at.line)
}

/// Returns the lines that give `name` another name.
fn renamings(names: &Names, name: &str) -> impl Iterator<Item = usize> {
    names.renamed.iter().filter(move |word| word.name == name).map(|word| word.at.line)
}
