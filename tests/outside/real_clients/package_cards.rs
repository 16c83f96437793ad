//! The functions of `@holdpoint/page` about cards and texts, with cards by chance and the table of characters.

use holdpoint_testkit::{PagePackage, in_repository};
use std::process::Command;

/// Runs the tests of this name in `tests/wire/package/cards.mjs`.
fn holds(name: &str) {
    let package = PagePackage::installed().folder.join("node_modules/@holdpoint/page");
    let mut node = Command::new("node");
    node.arg(in_repository("tests/wire/package/cards.mjs")).arg(package.join("dist/index.js")).arg(name);
    let ended = node.output().expect("node is installed");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn the_package_marks_the_characters_of_the_table() {
    holds("characters");
}

#[test]
fn no_text_hides_a_character_or_loses_one() {
    holds("texts");
}

#[test]
fn only_a_complete_card_offers_an_approval() {
    holds("cards");
}

#[test]
fn an_unposted_approval_of_a_card_that_has_changed_is_dropped() {
    holds("answers");
}
