use super::*;

fn read(module: &[&str], source: &str) -> Names {
    Names::read(module.iter().map(|name| (*name).to_owned()).collect(), source).unwrap()
}

/// The paths from the root, without the ones that begin in `module`.
fn from_root(module: &[&str], source: &str) -> Vec<String> {
    let paths = read(module, source).paths.into_iter().filter(|path| path.base.is_empty());
    paths.map(|path| path.rest.into_iter().map(|word| word.name).collect::<Vec<_>>().join("::")).collect()
}

#[test]
fn plain_grouped_and_nested_imports() {
    let deep = ["chat", "turn"];
    assert_eq!(from_root(&deep, "use crate::store::Runs;"), ["store::Runs"]);
    assert_eq!(
        from_root(&deep, "use crate::{a::B, c, d::{E, f::*, self}, g as h};"),
        ["a::B", "c", "d::E", "d::f::*", "d", "g"]
    );
    assert_eq!(from_root(&["main"], "use holdpoint::{app, config::Config};"), ["app", "config::Config"]);
}

#[test]
fn paths_in_expressions_types_and_attributes() {
    assert_eq!(
        from_root(&["a"], "fn f(x: crate::a::X) -> crate::b::Y { crate::c::g::<crate::d::T>() }"),
        ["a::X", "b::Y", "c::g", "d::T"]
    );
    assert_eq!(
        from_root(&["a"], "fn f() { <crate::b::X as crate::c::Y>::z() }"),
        ["b::X::z", "b::X", "c::Y::z"]
    );
    assert_eq!(from_root(&["a"], "#[derive(crate::b::Row)] struct A;"), ["b::Row"]);
}

#[test]
fn paths_in_macros() {
    let defined = "macro_rules! m { ($x:expr) => { use $crate::a::{b, c}; $crate::d::run($x) } }";
    assert_eq!(from_root(&["x"], defined), ["a::b", "a::c", "d::run"]);
    let called =
        "fn f() { select! { Some(x) = crate::a::next::<u8>(y) => json!({ \"k\": [crate::b::C] }) } }";
    assert_eq!(from_root(&["x"], called), ["a::next", "b::C"]);
    let module = "m! { mod inner { use super::super::store; type A = Vec<super::super::feed::B>; } }";
    assert_eq!(from_root(&["x"], module), ["store", "feed::B"]);
}

#[test]
fn visibility_is_no_path() {
    let source = "pub(crate) fn f() {} pub(super) fn g(&self) -> Self { self.x } pub(in crate::a) struct B;";
    assert!(read(&["app"], source).paths.is_empty());
}

#[test]
fn super_reaches_the_root_only_from_one_level_below() {
    let deep = ["chat", "turn"];
    assert_eq!(from_root(&["app"], "use super::store::Runs;"), ["store::Runs"]);
    assert!(from_root(&deep, "use super::store::Runs;").is_empty());
    assert_eq!(from_root(&deep, "use super::super::store::Runs;"), ["store::Runs"]);
    assert_eq!(from_root(&deep, "use super::{one, super::{two}};"), ["two"]);
    assert_eq!(from_root(&["app"], "use self::super::store;"), ["store"]);
}

#[test]
fn an_inline_module_is_one_level_more() {
    let source =
        "mod tests { use super::*; fn f() { super::g(); super::super::store::h(); } } use super::feed;";
    assert_eq!(from_root(&["app"], source), ["store::h", "feed"]);
}

#[test]
fn hiding_the_root_is_seen() {
    assert_eq!(from_root(&["chat", "turn"], "use crate::*;"), ["*"]);
    assert_eq!(from_root(&["app"], "use super::*;"), ["*"]);
    assert_eq!(from_root(&["app"], "use crate::{a, *};"), ["a", "*"]);
    assert_eq!(from_root(&["app"], "use crate as root;"), [""]);
    assert_eq!(from_root(&["app"], "use crate::{self as root, a};"), ["", "a"]);
}

#[test]
fn tests_are_known() {
    let source = "#[cfg(test)] mod tests { use a::b; } #[cfg(test)] use c::d; use e::f;";
    let paths = read(&["app"], source).paths;
    assert_eq!(paths.iter().map(|path| path.for_tests).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn only_code_has_words() {
    let source = "//! a\n/// b\nfn\n  r#type() { /* c /* d */ e */ f('\"', \"g\", r#\"h\"#); } // i";
    let words = read(&["app"], source).words;
    let words: Vec<_> = words.iter().map(|word| (word.name.as_str(), word.at.line)).collect();
    assert_eq!(words, [("doc", 1), ("doc", 2), ("type", 4), ("f", 4)]);
}

#[test]
fn modules_are_files_or_folders() {
    let paths = ["lib.rs", "main.rs", "app.rs", "http/mod.rs", "http/error.rs", "http/a/b.rs"];
    let modules = paths.map(|path| module_of(path).join("::"));
    assert_eq!(modules, ["", "main", "app", "http", "http::error", "http::a::b"]);
}
