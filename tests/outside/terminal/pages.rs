//! `holdpoint completions` and `holdpoint man`, and readers that close the output.

use super::{Approver, holdpoint, run};
use holdpoint_testkit::Embedded;

#[tokio::test]
async fn there_are_completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&mut holdpoint(&["completions", shell])).await.stdout_of_success();
        for word in ["approvals", "approve", "token-file", "watch"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    run(&mut holdpoint(&["completions", "cmd"])).await.fails(2, "possible values");
}

#[tokio::test]
async fn there_is_a_man_page_for_every_command() {
    let page = run(&mut holdpoint(&["man"])).await.stdout_of_success();
    assert!(page.contains(".TH holdpoint 1"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&mut holdpoint(&["man", folder.path().to_str().unwrap()])).await.stdout_of_success(), "");
    for page in ["holdpoint", "holdpoint-serve", "holdpoint-approvals", "holdpoint-approvals-approve"] {
        let text = std::fs::read_to_string(folder.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")), "{text}");
    }
    run(&mut holdpoint(&["man", "/no/such/folder"])).await.fails(1, "/no/such/folder");
}

#[tokio::test]
async fn a_reader_that_closes_the_output_is_no_failure() {
    let app = Embedded::start().await;
    let list = Approver::of(&app).command(&["list"]);
    for mut command in [holdpoint(&["completions", "bash"]), holdpoint(&["man"]), list] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).spawn().unwrap().wait_with_output().await.unwrap();
        let stdout = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stdout.as_str()), (Some(0), ""));
    }
}
