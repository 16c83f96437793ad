//! A search for paths that name a module of the crate root.

use super::tokens::{Kind, Token};

/// A path to a module of the root: `crate::http`, `holdpoint::http`, or `super::http` one level below the
/// root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RootPath {
    pub(super) line: usize,
    /// The name of the module. `*` and `self` mean the root itself, which hides the used modules.
    pub(super) module: String,
}

/// Returns the module depth of a file under `src/`: `lib.rs` 0, `app.rs` and `http/mod.rs` 1, `http/error.rs`
/// 2.
pub(super) fn depth_of(path_in_src: &str) -> usize {
    let parts = path_in_src.split('/').count();
    match path_in_src {
        "lib.rs" | "main.rs" => 0,
        _ if path_in_src.ends_with("/mod.rs") => parts - 1,
        _ => parts,
    }
}

/// Returns all root paths in a file that is `depth` modules below the root.
pub(super) fn root_paths(tokens: &[Token], depth: usize) -> Vec<RootPath> {
    let mut found = Vec::new();
    // One entry for each open brace: whether the brace opens an inline module.
    let mut braces: Vec<bool> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.is_sign('{') {
            let opens_module = before(tokens, at, 2).is_some_and(|token| token.is_word("mod"));
            braces.push(opens_module);
        } else if token.is_sign('}') {
            braces.pop();
        }
        let inside_path = before(tokens, at, 1).is_some_and(|token| token.kind == Kind::PathSeparator);
        let here = depth + braces.iter().filter(|is_module| **is_module).count();
        match token.word() {
            Some("crate" | "holdpoint" | "super" | "self") if !inside_path => {
                let mut walk = Walk { tokens, found: &mut found };
                at = walk.path(at, here).max(at + 1);
            }
            _ => at += 1,
        }
    }
    found
}

fn before(tokens: &[Token], at: usize, steps: usize) -> Option<&Token> {
    at.checked_sub(steps).and_then(|index| tokens.get(index))
}

struct Walk<'a> {
    tokens: &'a [Token],
    found: &'a mut Vec<RootPath>,
}

impl Walk<'_> {
    /// Follows one path, with its groups, that starts at `at` in a module `level` below the root. Returns the
    /// place after the path.
    fn path(&mut self, mut at: usize, mut level: usize) -> usize {
        let start = at;
        while let Some(token) = self.tokens.get(at) {
            let continues = self.tokens.get(at + 1).is_some_and(|next| next.kind == Kind::PathSeparator);
            match &token.kind {
                Kind::Word(word) => match word.as_str() {
                    "crate" | "holdpoint" if at == start => level = 0,
                    "super" => level = level.saturating_sub(1),
                    "self" => {}
                    name => {
                        if level == 0 {
                            self.record(token.line, name);
                        }
                        level += 1;
                    }
                },
                Kind::Sign('*') if at > start => {
                    if level == 0 {
                        self.record(token.line, "*");
                    }
                    return at + 1;
                }
                Kind::Sign('{') if at > start => return self.group(at + 1, level),
                _ => return at,
            }
            if !continues {
                // `use crate as root` would hide all later paths.
                let renamed = self.tokens.get(at + 1).is_some_and(|next| next.is_word("as"));
                if renamed && level == 0 && !token.is_word("self") {
                    self.record(token.line, "self");
                }
                return at + 1;
            }
            at += 2;
        }
        at
    }

    /// Follows the items of a group like `{a::b, c as d, super::{e}}`, from after the opening brace. Returns
    /// the place after the closing brace.
    fn group(&mut self, mut at: usize, level: usize) -> usize {
        while let Some(token) = self.tokens.get(at) {
            if token.is_sign('}') {
                return at + 1;
            }
            at = if let Some(hides_root) = self.whole(at) {
                if level == 0 {
                    self.record(token.line, hides_root);
                }
                at + 1
            } else if token.is_word("as") {
                at + 2
            } else {
                self.path(at, level).max(at + 1)
            };
        }
        at
    }

    /// Returns `*` or `self` if the item of a group means the whole parent, as in `{self as root}`.
    fn whole(&self, at: usize) -> Option<&'static str> {
        let token = self.tokens.get(at)?;
        let continues = self.tokens.get(at + 1).is_some_and(|next| next.kind == Kind::PathSeparator);
        match token.is_sign('*') {
            true => Some("*"),
            false => (token.is_word("self") && !continues).then_some("self"),
        }
    }

    fn record(&mut self, line: usize, module: &str) {
        self.found.push(RootPath { line, module: module.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokenize;
    use super::*;

    fn modules(source: &str, depth: usize) -> Vec<String> {
        root_paths(&tokenize(source), depth).into_iter().map(|path| path.module).collect()
    }

    #[test]
    fn plain_grouped_and_nested_imports() {
        assert_eq!(modules("use crate::store::Runs;", 2), ["store"]);
        assert_eq!(modules("use crate::{a::B, c, d::{E, f::*}, g as h};", 2), ["a", "c", "d", "g"]);
        assert_eq!(modules("use holdpoint::{app, config::Config};", 0), ["app", "config"]);
    }

    #[test]
    fn paths_in_expressions_types_and_macros() {
        assert_eq!(
            modules("fn f(x: crate::a::X) -> crate::b::Y { crate::c::g::<crate::d::T>() }", 2),
            ["a", "b", "c", "d"]
        );
        assert_eq!(modules("macro_rules! m { () => { $crate::a::run() } }", 1), ["a"]);
    }

    #[test]
    fn visibility_is_no_path() {
        assert!(modules("pub(crate) fn f() {} pub(super) fn g(&self) -> Self { self.x }", 1).is_empty());
    }

    #[test]
    fn super_reaches_the_root_only_from_one_level_below() {
        assert_eq!(modules("use super::store::Runs;", 1), ["store"]);
        assert!(modules("use super::store::Runs;", 2).is_empty());
        assert_eq!(modules("use super::super::store::Runs;", 2), ["store"]);
        assert_eq!(modules("use super::{one, super::{two}};", 2), ["two"]);
        assert_eq!(modules("use self::super::store;", 1), ["store"]);
    }

    #[test]
    fn an_inline_module_is_one_level_more() {
        let source =
            "mod tests { use super::*; fn f() { super::g(); super::super::store::h(); } } use super::feed;";
        assert_eq!(modules(source, 1), ["store", "feed"]);
    }

    #[test]
    fn hiding_the_root_is_seen() {
        assert_eq!(modules("use crate::*;", 2), ["*"]);
        assert_eq!(modules("use super::*;", 1), ["*"]);
        assert_eq!(modules("use crate::{a, *};", 2), ["a", "*"]);
        assert_eq!(modules("use crate as root;", 2), ["self"]);
        assert_eq!(modules("use crate::{self as root, a};", 2), ["self", "a"]);
    }

    #[test]
    fn depth_counts_modules_not_directories() {
        let depths = ["lib.rs", "app.rs", "http/mod.rs", "http/error.rs", "http/a/b.rs"].map(depth_of);
        assert_eq!(depths, [0, 1, 1, 2, 3]);
    }
}
