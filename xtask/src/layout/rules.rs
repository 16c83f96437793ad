//! The rules. Each rule is a function that reports the violations in a file.

use super::paths::{depth_of, root_paths};
use super::tokens::{Kind, Token};

/// The receiver of a violation: the line, the rule and a text.
pub(super) type Report<'a> = &'a mut dyn FnMut(usize, &'static str, String);

const MAX_LINES: usize = 600;

/// Names without a meaning. Unrelated code accumulates in such a module, and all modules import it.
const EMPTY_NAMES: &[&str] =
    &["utils", "common", "helpers", "types", "services", "models", "prelude", "constants", "manager"];

/// The ranks of the modules. A module uses only modules of a lower rank, so no cycle can form, and each rank
/// is testable without the ranks above.
const RANKS: &[(&str, u8)] = &[
    ("main", 7),
    ("app", 6),
    ("telemetry", 6),
    ("http", 5),
    ("chat", 4),
    ("approvals", 3),
    // The public names of `approvals` in the library.
    ("handlers", 3),
    ("feed", 3),
    ("operator", 3),
    ("startup", 3),
    ("agent", 2),
    ("tools", 1),
    ("llm", 1),
    ("stream", 1),
    ("store", 1),
    ("rate_limit", 1),
    ("domain", 0),
    ("config", 0),
    ("egress", 0),
    ("faults", 0),
    ("metrics", 0),
];

/// The crates that the domain must not use: the domain computes with values only, without a runtime, network
/// or database.
const IMPURE: &[&str] = &["tokio", "poem", "poem_openapi", "sea_orm", "reqwest"];

/// Names that only one module may use: the name, the module, and the reason.
const CONFINED: &[(&str, &str, &str)] = &[
    ("sea_orm", "store", "statements are guarded and scoped to an owner in one place"),
    ("StatusCode", "http", "an error gets its status in one place"),
];

/// A constructor whose value proves a fact. Only the module that establishes the fact may call the
/// constructor.
struct Seal {
    owner: &'static str,
    function: &'static str,
    only_in: &'static str,
}

const SEALS: &[Seal] = &[Seal { owner: "Permit", function: "committed", only_in: "src/store/" }];

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

/// The files between the store and its connection. They forward the SQL of their callers.
const HANDS_SQL_ON: &[&str] = &["src/store/timed_tx.rs", "src/store/planted.rs"];

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

pub(super) fn module_names(tokens: &[Token], report: Report<'_>) {
    for (token, next) in tokens.iter().zip(tokens.iter().skip(1)) {
        if let Some(name) = next.word().filter(|name| token.is_word("mod") && EMPTY_NAMES.contains(name)) {
            report(next.line, "name", format!("`mod {name}` does not describe its content"));
        }
    }
}

pub(super) fn ranks(path: &str, tokens: &[Token], report: Report<'_>) {
    let (Some(own), Some(in_src)) = (module_of(path), path.strip_prefix("src/")) else {
        return;
    };
    if own == "lib" {
        return;
    }
    let Some(own_rank) = rank(own) else {
        report(1, "ranks", format!("module `{own}` has no rank; add it to the table in xtask"));
        return;
    };
    for used in root_paths(tokens, depth_of(in_src)) {
        let module = used.module.as_str();
        match rank(module) {
            _ if module == own => {}
            None if matches!(module, "*" | "self") => {
                report(used.line, "ranks", "a use of the whole root hides the used modules".into());
            }
            None => report(used.line, "ranks", format!("`{module}` is not a module with a rank")),
            Some(rank) if rank >= own_rank => report(
                used.line,
                "ranks",
                format!("`{own}` ({own_rank}) uses `{module}` ({rank}); imports go to a lower rank only"),
            ),
            Some(_) => {}
        }
    }
}

pub(super) fn pure_domain(path: &str, tokens: &[Token], report: Report<'_>) {
    if module_of(path) != Some("domain") {
        return;
    }
    for token in tokens {
        if let Some(name) = token.word().filter(|name| IMPURE.contains(name)) {
            report(token.line, "pure-domain", format!("the domain does not name `{name}`"));
        }
    }
}

pub(super) fn confined_names(path: &str, tokens: &[Token], report: Report<'_>) {
    let Some(own) = module_of(path) else { return };
    for (name, module, reason) in CONFINED {
        for token in tokens.iter().filter(|token| own != *module && token.is_word(name)) {
            report(token.line, "confined", format!("`{name}` belongs in src/{module}/: {reason}"));
        }
    }
}

pub(super) fn environment(path: &str, tokens: &[Token], report: Report<'_>) {
    if module_of(path).is_none_or(|own| own == "config") {
        return;
    }
    // `env!` is not a path and stays allowed, because the compiler reads the variable.
    let readers = [("env", &["var", "var_os", "vars", "vars_os", "*"][..]), ("config", &["Environment"][..])];
    for (head, wanted) in readers {
        for (line, name) in named_through(tokens, head, wanted) {
            report(line, "environment", format!("`{head}::{name}`: only src/config reads the environment"));
        }
    }
    for line in renamed(tokens, "env") {
        report(line, "environment", "`env` under another name escapes this rule".into());
    }
}

pub(super) fn sealed_constructors(path: &str, tokens: &[Token], report: Report<'_>) {
    // The domain has the definitions and their tests.
    if module_of(path) == Some("domain") {
        return;
    }
    for seal in SEALS {
        let Seal { owner, function, only_in } = seal;
        for line in renamed(tokens, owner) {
            report(line, "sealed", format!("`{owner}` under another name escapes this rule"));
        }
        if path == *only_in || (only_in.ends_with('/') && path.starts_with(only_in)) {
            continue;
        }
        for line in calls(tokens, owner, function) {
            report(line, "sealed", format!("`{owner}::{function}` is for {only_in} alone"));
        }
    }
}

pub(super) fn raw_sql(path: &str, tokens: &[Token], report: Report<'_>) {
    if module_of(path) != Some("store") || HANDS_SQL_ON.contains(&path) {
        return;
    }
    for (at, token) in tokens.iter().enumerate() {
        let Some(name) = token.word().filter(|name| RAW_SQL.contains(name)) else { continue };
        if !is_call_with_constants(tokens, at) {
            report(
                token.line,
                "raw-sql",
                format!("`{name}` takes a literal or a constant, and values as parameters"),
            );
        }
    }
}

/// Whether the name at index `name` is called, and its first two arguments have only literals, constants and
/// paths. The further arguments, such as the values, may be anything.
fn is_call_with_constants(tokens: &[Token], name: usize) -> bool {
    let is_path = |at: Option<usize>| {
        at.and_then(|at| tokens.get(at)).is_some_and(|token| token.kind == Kind::PathSeparator)
    };
    if !tokens.get(name + 1).is_some_and(|token| token.is_sign('(')) {
        return false;
    }
    let (mut depth, mut commas) = (0_usize, 0_usize);
    for (at, token) in tokens.iter().enumerate().skip(name + 1) {
        match &token.kind {
            Kind::Sign('(') => depth += 1,
            Kind::Sign(')') => depth = depth.saturating_sub(1),
            Kind::Sign(',') if depth == 1 => commas += 1,
            _ if commas == 2 => return true,
            // A macro can build text.
            Kind::Sign('!') => return false,
            Kind::Word(word) if depth > 0 => {
                let constant = word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
                if !constant && !is_path(at.checked_sub(1)) && !is_path(Some(at + 1)) {
                    return false;
                }
            }
            _ => {}
        }
        if depth == 0 {
            return true;
        }
    }
    false
}

/// Returns the module of a file under `src/`: the first part of its path. Other binaries count as `main`.
fn module_of(path: &str) -> Option<&str> {
    let in_src = path.strip_prefix("src/")?;
    let first = in_src.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    Some(if module == "bin" { "main" } else { module })
}

fn rank(module: &str) -> Option<u8> {
    RANKS.iter().find(|(name, _)| *name == module).map(|(_, rank)| *rank)
}

/// Finds `head::name` and `head::{…, name, …}` for each wanted name.
fn named_through<'a>(tokens: &'a [Token], head: &str, wanted: &[&'a str]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.is_word(head)) {
        if !tokens.get(at + 1).is_some_and(|next| next.kind == Kind::PathSeparator) {
            continue;
        }
        let mut depth = 0_usize;
        for token in tokens.iter().skip(at + 2) {
            match &token.kind {
                Kind::Sign('{') => depth += 1,
                Kind::Sign('}') => depth = depth.saturating_sub(1),
                Kind::Sign(sign) => found.extend(
                    wanted.iter().find(|name| name.chars().eq([*sign])).map(|name| (token.line, *name)),
                ),
                Kind::Word(word) => {
                    found.extend(wanted.iter().find(|name| *name == word).map(|name| (token.line, *name)));
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

/// Finds `name as other` and `type Other = some::name;`.
fn renamed(tokens: &[Token], name: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut in_alias = false;
    for (at, token) in tokens.iter().enumerate() {
        if token.is_word("type") {
            in_alias = true;
        } else if token.is_sign(';') {
            in_alias = false;
        }
        let next = tokens.get(at + 1);
        let after_as = next.filter(|next| next.is_word("as")).and_then(|_| tokens.get(at + 2));
        let hides = after_as.is_some_and(|other| !other.is_word("_"));
        let aliases = in_alias && next.is_some_and(|next| next.is_sign(';'));
        if token.is_word(name) && (hides || aliases) {
            lines.push(token.line);
        }
    }
    lines
}

/// Finds `Owner::function`, called or passed as a value, also as `<Owner>::function`, `Owner::<T>::function`,
/// and as `Self::function` in a file with an impl block for `Owner`.
fn calls(tokens: &[Token], owner: &str, function: &str) -> Vec<usize> {
    let implements = tokens.iter().enumerate().any(|(at, token)| {
        let opens_block = tokens.get(at + 1).is_some_and(|next| next.is_sign('{'));
        let mut leading = path_before(tokens, at);
        token.is_word(owner) && opens_block && leading.any(|word| matches!(word, "impl" | "for"))
    });
    let mut lines = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.is_word(function)) {
        let owned = path_before(tokens, at).any(|word| word == owner || (implements && word == "Self"));
        if owned {
            lines.push(token.line);
        }
    }
    lines
}

/// Returns the words directly before `at`, with no signs between them except `::` and angle brackets.
fn path_before(tokens: &[Token], at: usize) -> impl Iterator<Item = &str> {
    let before = tokens.iter().take(at).rev();
    let in_path = before.take_while(|token| match &token.kind {
        Kind::PathSeparator | Kind::Word(_) => true,
        Kind::Sign(sign) => matches!(sign, '<' | '>'),
        Kind::Literal => false,
    });
    in_path.filter_map(Token::word)
}
