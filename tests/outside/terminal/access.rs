//! The address and the token.

use super::{Approver, CommandResult, hash, holdpoint, run};
use holdpoint_testkit::token::{self, VARIABLES, with_tokens};
use holdpoint_testkit::{Embedded, JsonFields, Process};
use std::io::Write;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server with tokens, and a token for its user `alice`.
async fn office() -> (Embedded, String) {
    let mut app = Embedded::with(with_tokens).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    (app, token::token("acme", "alice", &[]))
}

async fn list(app: &Embedded, args: &[&str], variables: &[(&str, &str)]) -> CommandResult {
    let mut command = holdpoint(&[&["approvals", "list"], args].concat());
    run(command.env("HOLDPOINT_URL", &app.client.base).envs(variables.iter().copied())).await
}

#[tokio::test]
async fn the_token_comes_from_a_file_or_the_environment_and_never_shows() {
    let (app, token) = office().await;
    let (_, id) = app.held("pay", "10").await;
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "{token}").unwrap();
    let path = file.path().to_str().unwrap();
    for (args, variables) in [
        (&["--token-file", path][..], &[][..]),
        (&[], &[("HOLDPOINT_TOKEN_FILE", path)]),
        (&[], &[("HOLDPOINT_TOKEN", &*token)]),
        // The flag comes first.
        (&["--token-file", path], &[("HOLDPOINT_TOKEN", "wrong")]),
    ] {
        assert!(list(&app, args, variables).await.stdout_of_success().contains(&id), "{args:?}");
    }
    let both = [("HOLDPOINT_TOKEN", &*token), ("HOLDPOINT_TOKEN_FILE", path)];
    list(&app, &[], &both).await.fails(2, "HOLDPOINT_TOKEN_FILE: expected either this or HOLDPOINT_TOKEN");
    list(&app, &["--token-file", "/no/such/file"], &[]).await.fails(2, "--token-file: /no/such/file");
    list(&app, &[], &[("HOLDPOINT_TOKEN", "two words")]).await.fails(2, "HOLDPOINT_TOKEN: expected a token");

    list(&app, &[], &[]).await.fails(1, "(unauthenticated, status 401)");
    let spoilt = format!("{token}x");
    let refused = list(&app, &[], &[("HOLDPOINT_TOKEN", &spoilt)]).await;
    refused.fails(1, "(unauthenticated, status 401); ");
    assert!(!refused.stderr.contains(&token), "{refused:?}");
    // A flag of that name would be in the list of processes.
    list(&app, &["--token", &token], &[]).await.fails(2, "unexpected argument '--token'");
}

#[tokio::test]
async fn a_decision_is_the_decision_of_the_user_in_the_token() {
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let approve_roles = vec!["chief".to_owned()];
        let rules = holdpoint::config::ToolRules { approve_roles, other_person: true, ..Default::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    let (_, id) = app.held("pay", "10").await;
    let shown = hash(&app, &id).await;
    let approve = ["approve", &*id, "--hash", &*shown];
    let alice = Approver::named(&app, "alice", &[]);
    alice.run(&approve).await.fails(1, "(forbidden, status 403)");
    assert!(
        alice
            .run(&["show", &id])
            .await
            .stdout_of_success()
            .contains("reject it; an approval would be refused: ")
    );
    Approver::named(&app, "eve", &[]).run(&approve).await.fails(1, "(not_found, status 404)");
    assert_eq!(app.ledger.lines(), [""; 0]);
    Approver::named(&app, "carol", &["chief"]).run(&approve).await.stdout_of_success();
    assert_eq!(app.client.call(&id).await["decision"]["by"], "user:carol");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn a_token_is_not_sent_where_the_network_can_read_it() {
    let list = async |url: &str, token: Option<&str>| {
        let mut command = holdpoint(&["approvals", "list", "--url", url]);
        run(command.envs(token.map(|token| ("HOLDPOINT_TOKEN", token)))).await
    };
    for url in ["http://agent.example", "http://127.0.0.1.agent.example:8080", "http://10.0.0.1/"] {
        list(url, Some("t0ken")).await.fails(2, "--url: expected https:// for a request with a token");
    }
    for url in
        ["agent.example", "ftp://127.0.0.1", "http://mel:s3cret@127.0.0.1", "http://127.0.0.1/?a=b", ""]
    {
        let refused = list(url, None).await;
        refused.fails(2, "--url: expected http:// or https://");
        assert!(!refused.stderr.contains("s3cret"), "{refused:?}");
    }
    for url in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
        list(url, Some("t0ken")).await.fails(1, "cannot be reached");
    }
}

#[tokio::test]
async fn a_token_does_not_follow_a_redirect() {
    let [here, there] =
        [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let [from, to] = [&here, &there].map(|listener| format!("http://{}", listener.local_addr().unwrap()));
    let redirects = async {
        let (mut client, _) = here.accept().await.unwrap();
        assert_ne!(client.read(&mut [0; 4096]).await.unwrap(), 0);
        let answer = format!("HTTP/1.1 307 X\r\nlocation: {to}/approvals\r\ncontent-length: 0\r\n\r\n");
        client.write_all(answer.as_bytes()).await.unwrap();
    };
    let mut command = holdpoint(&["approvals", "list", "--url", &from]);
    let (ran, ()) = tokio::join!(run(command.env("HOLDPOINT_TOKEN", "t0ken")), redirects);
    ran.fails(1, "the server refused (status 307)");
    let followed =
        std::future::poll_fn(|context| std::task::Poll::Ready(there.poll_accept(context).is_ready()));
    assert!(!followed.await);
}

#[tokio::test]
async fn a_server_starts_with_the_variables_of_an_approver_and_takes_both_modes() {
    let folder = tempfile::tempdir().unwrap();
    let own = [("HOLDPOINT_URL", "http://127.0.0.1:8080"), ("HOLDPOINT_TOKEN_FILE", "/no/such/file")];
    for variables in [&[][..], &VARIABLES] {
        let variables = [&own, variables, &[("HOLDPOINT_LOG__LEVEL", "off")]].concat();
        let server = Process::start(folder.path(), &variables).await;
        let client = server.client.as_user("acme", "alice", &[]);
        std::fs::write(folder.path().join("holdpoint-files/old.txt"), "old news").unwrap();
        let thread = client.thread().await;
        let [id] = client.send_message(&thread, "delete old.txt").await.pending().try_into().unwrap();
        let approver =
            Approver { url: server.client.base.clone(), token: Some(token::token("acme", "alice", &[])) };
        let hash = client.call(&id).await.text("input_hash").to_owned();
        assert!(approver.run(&["list"]).await.stdout_of_success().contains(&id));
        assert!(approver.run(&["show", &id]).await.stdout_of_success().contains(&hash));
        let stdout = approver.run(&["approve", &id, "--hash", &hash]).await.stdout_of_success();
        assert!(stdout.contains("approved: it is succeeded"), "{stdout}");
        assert!(!folder.path().join("holdpoint-files/old.txt").exists());
        server.finish();
    }
    // The address of a database is not that of a server.
    let mut command = holdpoint(&["config"]);
    let refused = run(command.env("HOLDPOINT_URL", "sqlite://holdpoint.db")).await;
    refused.fails(1, "HOLDPOINT_URL: there is no such variable; expected HOLDPOINT_DATABASE__URL");
}
