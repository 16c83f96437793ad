//! The addresses that a request reaches, and what must not leave the server (security cases G1 to G3, H1).

use super::{HERE, Office, SECRETS, approved, fresh_secret, hold, tool};
use holdpoint_testkit::{EndedCommand, Process, RemoteTool, ServiceAction};
use serde_json::json;
use std::io::{Read, Write};
use tokio::net::TcpSocket;

const NOT_REACHED: &str = "The tool failed: its service could not be reached; the tool did not run";

#[tokio::test]
async fn a_refused_connection_is_a_failure_because_nothing_was_sent() {
    // Bound and not listening: the port refuses connections, and no other test gets it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = format!("http://{}", socket.local_addr().unwrap());
    let toml = format!("{HERE}{}", tool("delete_file", &nobody, ""));
    let office = Office::new(ServiceAction::Hangs, &toml).await;
    let server = office.start(&[]);
    let call = approved(&server.client, "a").await;
    assert_eq!((&call["state"], &call["result"]), (&json!("failed"), &json!(NOT_REACHED)));
}

#[tokio::test]
async fn a_connection_without_tls_is_a_failure_because_nothing_was_sent() {
    let service = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", service.local_addr().unwrap());
    let (sent, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut socket, _) = service.accept().unwrap();
        let mut bytes = [0; 4096];
        let count = socket.read(&mut bytes).unwrap();
        sent.send(bytes[..count].to_vec()).unwrap();
        socket.write_all(b"HTTP/1.1 400 X\r\n\r\n").unwrap();
    });
    let office = Office::new(ServiceAction::Hangs, &format!("{HERE}{}", tool("delete_file", &url, ""))).await;
    let server = office.start(&[]);
    let call = approved(&server.client, "canary-path").await;
    assert_eq!((&call["state"], &call["result"]), (&json!("failed"), &json!(NOT_REACHED)));
    let received = String::from_utf8_lossy(&received.recv().unwrap()).into_owned();
    assert!(!received.contains("canary-path") && !received.contains("POST"), "{received:?}");
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_refused_before_a_connection() {
    let remote = RemoteTool::start(ServiceAction::answers(200, "{}")).await;
    let url = remote.base.replace("http://127.0.0.1", "https://localhost");
    let toml = format!("tools.demo = false\n{}", tool("delete_file", &url, ""));
    let office = Office::new(ServiceAction::Hangs, &toml).await;
    let mut command = office.command(&[("HOLDPOINT_LOG__LEVEL", "warn")]);
    let server = Process::spawn_captured(&mut command);
    let call = approved(&server.client, "a").await;
    assert_eq!((&call["state"], &call["result"]), (&json!("failed"), &json!(NOT_REACHED)));
    let printed = server.finish();
    assert!(printed.contains("is not a public address, and egress.allow does not name it"), "{printed}");
    assert_eq!(remote.received().len(), 0);
}

#[tokio::test]
async fn a_name_that_the_operator_allows_is_reached_also_without_tls() {
    let remote = RemoteTool::start(ServiceAction::answers(200, "\"here\"")).await;
    let url = remote.base.replace("127.0.0.1", "localhost");
    let toml = format!("tools.demo = false\negress.allow = \"localhost\"\n{}", tool("delete_file", &url, ""));
    let office = Office::new(ServiceAction::Hangs, &toml).await;
    let server = office.start(&[]);
    assert_eq!(approved(&server.client, "a").await["output"], "here");
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_not_used() {
    let office = Office::with_delete(ServiceAction::answers(200, "\"direct\""), "").await;
    let proxy = RemoteTool::start(ServiceAction::answers(200, "\"through the proxy\"")).await;
    let variables = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"].map(|name| (name, &*proxy.base));
    let server = office.start(&variables);
    assert_eq!(approved(&server.client, "a").await["output"], "direct");
    assert_eq!(proxy.received().len(), 0);
}

#[tokio::test]
async fn secrets_and_urls_of_tools_are_in_no_log_event_row_or_answer() {
    let office =
        Office::with_delete(ServiceAction::answers(500, ""), "verify_url = \"{url}/verify?key=canary-key\"")
            .await;
    let file = office.dir.path().join("holdpoint.toml");
    let toml = std::fs::read_to_string(&file).unwrap().replace("/delete\"", "/delete?token=canary-token\"");
    std::fs::write(&file, &toml).unwrap();
    let secret = fresh_secret();
    std::fs::write(office.dir.path().join("secrets"), &secret).unwrap();

    let shown = EndedCommand::of(office.command(&[]).arg("config").output().unwrap()).stdout_of_success();
    let server = Process::spawn_captured(&mut office.command(&[("HOLDPOINT_LOG__LEVEL", "trace")]));
    let mut seen = vec![shown];
    for does in [
        ServiceAction::Resets,
        ServiceAction::answers(500, ""),
        ServiceAction::answers(400, r#"{"error":"no"}"#),
        ServiceAction::BreaksOff,
    ] {
        office.remote.next([does]);
        let id = hold(&server.client, "a").await;
        seen.push(server.client.approve(&id).await.body.to_string());
        seen.push(server.client.call(&id).await.to_string());
        seen.push(server.client.get(&format!("/tool_calls/{id}/events")).await.body.to_string());
    }
    let requested = async || (!office.remote.received_at("/verify?key=canary-key").is_empty()).then_some(());
    holdpoint_testkit::eventually("an outcome is asked for", requested).await;
    for path in ["/approvals?state=interrupted", "/tools"] {
        seen.push(server.client.get(path).await.body.to_string());
    }
    let rows = office.rows().await;
    for table in ["events", "tool_calls", "decisions", "sent_answers"] {
        seen.push(format!("{:?}", rows.all(&format!("SELECT * FROM {table}")).await));
    }
    seen.push(server.finish());
    let key = secret.strip_prefix("whsec_").unwrap();
    for text in &seen {
        for canary in [key, "canary-token", "canary-key"] {
            assert!(!text.contains(canary), "{canary} in {text}");
        }
    }
    assert!(seen.last().unwrap().contains("the outcome of an HTTP tool is unknown"), "{:?}", seen.last());
    assert!(!office.remote.received().is_empty() && SECRETS.iter().all(|known| *known != secret));
}
