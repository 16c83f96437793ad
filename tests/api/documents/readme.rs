//! The walkthrough of the README, word for word.

use holdpoint_testkit::Process;
use serde_json::Value;
use std::process::Command;

/// The shell blocks of the walkthrough, in order.
fn walk() -> Vec<String> {
    let readme = include_str!("../../../README.md");
    let (_, walk) = readme.split_once("## A walk in five minutes").unwrap();
    let (walk, _) = walk.split_once("\n### ").unwrap();
    let blocks = walk.split("```sh\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

/// The outputs that the walkthrough shows, in order.
fn shown() -> Vec<&'static str> {
    let readme = include_str!("../../../README.md");
    let (_, walk) = readme.split_once("## A walk in five minutes").unwrap();
    let (walk, _) = walk.split_once("\n### ").unwrap();
    ["```text\n", "```json\n"]
        .map(|fence| walk.split_once(fence).unwrap().1.split_once("```").unwrap().0.trim())
        .to_vec()
}

/// The text with each id, and the card of a held call, in the form that the README uses.
fn masked(text: &str) -> String {
    let text: Vec<String> = text.lines().map(without_card).collect();
    let text = text.join("\n");
    let is_id = |piece: &str| piece.len() == 36 && piece.matches('-').count() == 4;
    let pieces = text.split('"').map(|piece| if is_id(piece) { "01a2…" } else { piece });
    pieces.collect::<Vec<_>>().join("\"")
}

/// The line of a card with the headline alone, any other line as it is.
fn without_card(line: &str) -> String {
    let Some(parts) = line.strip_prefix("2:") else { return line.to_owned() };
    let parts: Value = serde_json::from_str(parts).unwrap();
    let (kind, id, headline) = (&parts[0]["type"], &parts[0]["id"], &parts[0]["data"]["headline"]);
    format!("2:[{{\"type\":{kind},\"id\":{id},\"data\":{{\"headline\":{headline},…}}}}]")
}

/// The text of a stream.
fn words(stream: &str) -> String {
    let texts = stream.lines().filter_map(|line| line.strip_prefix("0:"));
    texts.map(|text| serde_json::from_str::<String>(text).unwrap()).collect()
}

#[tokio::test]
async fn the_walkthrough_of_the_readme_produces_the_shown_output() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = walk();
    assert_eq!(blocks[0].trim(), "cargo run");
    let server = Process::start(dir.path(), &[]).await;
    // A unique mark follows the output of each block.
    let mut script = "set -eu\n".to_owned();
    for block in &blocks[1..] {
        script.push_str(&block.replace("http://127.0.0.1:8080", &server.client.base));
        script.push_str("\necho; echo =====\n");
    }
    let done = Command::new("bash").arg("-c").arg(&script).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let out = String::from_utf8(done.stdout).unwrap();
    let out: Vec<&str> = out.split("=====").map(str::trim).collect();
    let [_thread, held, there, yes, gone, reported, end] = out[..] else { panic!("{out:#?}") };
    let [end_of_turn, outcome] = shown()[..] else { panic!() };
    assert!(masked(held).ends_with(end_of_turn), "{held}");
    assert_eq!(there, "old news");
    assert_eq!(masked(yes), outcome);
    assert_eq!(gone, "");
    assert!(reported.contains(r#""validated":"approved""#), "{reported}");
    assert_eq!(words(reported), "Done: old.txt is deleted.1. Done: old.txt is deleted.");
    assert_eq!(end, "");
}
