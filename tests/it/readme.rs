//! The README's walk, word for word.

use crate::support::Process;
use std::process::Command;

/// The shell blocks of the walk, in order.
fn walk() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let (_, walk) = readme.split_once("## A walk in five minutes").unwrap();
    let (walk, _) = walk.split_once("\n### ").unwrap();
    let blocks = walk.split("```sh\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

#[test]
fn the_walk_of_the_readme_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = walk();
    assert_eq!(blocks[0].trim(), "cargo run");
    let server = Process::start(dir.path(), &[]);
    // Each block's output behind a mark of its own.
    let mut script = "set -eu\n".to_owned();
    for block in &blocks[1..] {
        script.push_str(&block.replace("http://127.0.0.1:8080", &server.client.base));
        script.push_str("\necho; echo =====\n");
    }
    let done = Command::new("bash").arg("-c").arg(&script).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let out = String::from_utf8(done.stdout).unwrap();
    let out: Vec<&str> = out.split("=====").map(str::trim).collect();
    let [_thread, held, there, yes, gone, told, end] = out[..] else { panic!("{out:#?}") };
    assert!(held.contains("8:[{\"toolCallId\":\"") && held.contains("\"validated\":\"pending\"}]"), "{held}");
    assert_eq!(there, "old news");
    assert!(yes.starts_with(r#"{"success":true,"result":"{\"deleted\":\"old.txt\"}""#), "{yes}");
    assert_eq!(gone, "");
    assert!(told.contains("\"validated\":\"approved\"") && told.matches("is ").count() >= 2, "{told}");
    assert_eq!(end, "");
}
