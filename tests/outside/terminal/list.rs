//! `approvals list --url`.

use super::{Approver, holdpoint, lines, run};
use holdpoint_testkit::{Deployment, Embedded, JsonFields};
use serde_json::json;

#[tokio::test]
async fn the_inbox_is_listed_over_all_pages_with_inputs_and_requesters() {
    // Each page has one call.
    let app = Embedded::with(|config| config.limits.page_bytes = 1).await;
    let (thread, first) = app.held("pay", "10").await;
    let (_, second) = app.held("refuse", "11").await;
    let third = app.hold_in(&thread, "pay", "12").await;
    let approver = Approver::of(&app);

    let table = approver.run(&["list"]).await.stdout_of_success();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 4, "{table}");
    assert!(rows[0].starts_with("TOOL CALL ") && rows[0].contains("REQUESTED BY"), "{table}");
    for (row, (id, note)) in rows[1..].iter().zip([(&third, "12"), (&second, "11"), (&first, "10")]) {
        let note = format!(r#"{{"note":"{note}"}}"#);
        assert!(
            row.starts_with(id.as_str()) && row.ends_with(&note) && row.contains("user:local"),
            "{table}"
        );
    }

    let listed = lines(&approver.run(&["list", "--json"]).await.stdout_of_success());
    let page = app.client.get("/approvals?page_size=1").await.body;
    assert_eq!(listed[0], page["results"][0]);
    let ids: Vec<_> = listed.iter().map(|call| call.text("tool_call_id")).collect();
    assert_eq!(ids, [&third, &second, &first]);
}

#[tokio::test]
async fn the_list_has_filters_and_a_limit() {
    let app = Embedded::start().await;
    let (thread, paid) = app.held("pay", "10").await;
    let (_, other) = app.held("refuse", "11").await;
    let rejected = app.hold_in(&thread, "pay", "12").await;
    app.client.reject(&rejected).await;
    let approver = Approver::of(&app);
    for (args, expected) in [
        (&["--tool", "refuse"][..], vec![&other]),
        (&["--thread", &thread], vec![&paid]),
        (&["--session", &thread], vec![&paid]),
        (&["--state", "rejected"], vec![&rejected]),
        (&["--state", "rejected,pending", "--tool", "pay"], vec![&rejected, &paid]),
        (&["--tool", "look"], vec![]),
    ] {
        let listed = lines(&approver.run(&[&["list", "--json"], args].concat()).await.stdout_of_success());
        let ids: Vec<_> = listed.iter().map(|call| &call["tool_call_id"]).collect();
        assert_eq!(json!(ids), json!(expected), "{args:?}");
    }
    let limited = approver.run(&["list", "--limit", "1"]).await;
    assert!(limited.stderr.contains("there are more than 1 calls"), "{limited:?}");
    assert_eq!(limited.stdout_of_success().lines().count(), 2);
    let whole = approver.run(&["list", "--limit", "2"]).await;
    assert_eq!(whole.stderr, "");
    approver.run(&["list", "--thread", "unknown"]).await.fails(1, "There is nothing here");
}

#[tokio::test]
async fn without_an_address_the_list_reads_the_database_and_takes_no_filters() {
    let deployment = Deployment::new().await;
    let server = deployment.start("30s");
    let id = deployment.hold(&server.client, &server.client.thread().await, "10").await;
    assert!(deployment.operate(&["approvals", "list"]).stdout_of_success().contains(&id));
    for flag in [&["--json"][..], &["--tool", "transfer"], &["--session", "s"], &["--thread", "t"]] {
        let listed = deployment.operate(&[&["approvals", "list"], flag].concat());
        listed.refused_for("expected --url or HOLDPOINT_URL with it");
    }
    // The variable names a server, unless a flag names the database.
    let listed = |flags: &[&str]| {
        let mut command = deployment.operator(&[&["approvals", "list"], flags].concat());
        command.env("HOLDPOINT_URL", &server.client.base).output().unwrap().stdout
    };
    let [of_server, of_database] = [listed(&[]), listed(&["--database-url", &deployment.database_url()])];
    assert!(String::from_utf8(of_server).unwrap().contains("REQUESTED BY"));
    assert!(String::from_utf8(of_database).unwrap().contains("TENANT"));
}

#[tokio::test]
async fn the_other_commands_need_an_address() {
    for args in [&["show", "0123"][..], &["watch"], &["approve", "0123", "--hash", &"0".repeat(64)]] {
        let ran = run(&mut holdpoint(&[&["approvals"], args].concat())).await;
        ran.fails(2, "--url: expected the address of a server");
    }
    let resolve = ["approvals", "resolve", "0123", "--succeeded"];
    run(&mut holdpoint(&resolve)).await.fails(2, "--by or --url: expected the name of an operator");
    let named = ["approvals", "resolve", "0123", "--by", "mel", "--succeeded", "--url", "http://127.0.0.1:1"];
    run(&mut holdpoint(&named)).await.fails(2, "--by: expected none with --url");
}
