//! Answers that their client does not read, and the memory that they take: measured on a process with a limit
//! on its memory, over HTTP/1.1 and HTTP/2.

use holdpoint_testkit::http2::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, frames, head_with,
};
use holdpoint_testkit::token::{VARIABLES, token};
use holdpoint_testkit::{Client, Process, eventually, postgres_if_chosen};
use serde_json::json;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The limit on the data of the process, in KiB, as that of the shipped manifest.
const DATA_KIB: &str = "1048576";
/// The memory by which the process may grow: a quarter of the bytes of answers, and what the pages in the making
/// take.
const GROWTH_KIB: u64 = 256 << 10;
/// The requests of one attack. They stay below those that one user may send in a minute.
const REQUESTS: u32 = 240;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process with a limit on its memory, and the path of a list of 4 MiB of its user `ann`.
async fn limited() -> (Process, TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("ulimit -d {DATA_KIB} && exec {}", env!("CARGO_BIN_EXE_holdpoint"));
    let mut command = Command::new("/bin/bash");
    command.args(["-c", &script]).current_dir(dir.path()).envs(VARIABLES);
    command.envs([("HOLDPOINT_LOG__LEVEL", "error"), ("HOLDPOINT_LIMITS__TURNS_PER_MINUTE", "0")]);
    if let Some(url) = postgres_if_chosen().await {
        command.env("HOLDPOINT_DATABASE__URL", url);
    }
    let server = Process::spawn(&mut command);
    let ann = server.client.as_user("acme", "ann", &[]);
    let thread = ann.thread().await;
    let words = "x".repeat(250 << 10);
    for _ in 0..18 {
        ann.send_message(&thread, &words).await;
    }
    let path = format!("/threads/{thread}/messages?page_size=200");
    let page = ann.get(&path).await;
    assert!(page.body.to_string().len() > 3 << 20, "the page is long");
    (server, dir, path)
}

/// The resident size of the process, in KiB: now, or its peak.
fn kib(server: &Process, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Asserts that another user reads, writes and decides.
async fn others_are_served(client: &Client) {
    let bob = client.as_user("acme", "bob", &["operator"]);
    bob.get("/threads").await.has_status(200);
    bob.post("/threads", &json!({ "title": "one" })).await.has_status(201);
    bob.approve("01890a5d-ac96-774b-bcce-b302099a8057").await.has_status(404);
}

fn check_memory(server: &Process, idle: u64) {
    let peak = kib(server, "VmHWM");
    eprintln!("{} MiB over {} MiB", peak.saturating_sub(idle) >> 10, idle >> 10);
    assert!(peak <= idle + GROWTH_KIB, "{} KiB over {idle} KiB", peak - idle);
}

#[tokio::test]
async fn answers_that_a_user_does_not_read_over_http1_take_bounded_memory() {
    let (server, _dir, path) = limited().await;
    let idle = kib(&server, "VmHWM");
    let host = server.client.base.trim_start_matches("http://").to_owned();
    let token = token("acme", "ann", &[]);
    let mut open = Vec::new();
    for _ in 0..REQUESTS {
        let socket = TcpSocket::new_v4().unwrap();
        // A small window, so that the answer stays in the server.
        socket.set_recv_buffer_size(4096).unwrap();
        let mut socket = socket.connect(host.parse().unwrap()).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        open.push(socket);
    }
    for socket in &mut open {
        timeout(PATIENCE, socket.readable()).await.unwrap().unwrap();
        let mut begin = [0; 12];
        socket.read_exact(&mut begin).await.unwrap();
        assert!(["HTTP/1.1 200", "HTTP/1.1 429"].contains(&std::str::from_utf8(&begin).unwrap()));
    }
    others_are_served(&server.client).await;
    check_memory(&server, idle);
    drop(open);
    let ann = server.client.as_user("acme", "ann", &[]);
    let served = async || (ann.get(&path).await.status == 200).then_some(());
    eventually("the bytes are released with the connections", served).await;
}

/// A connection whose client reads no bytes of any answer, with these requests.
async fn windowless(server: &Process, path: &str, token: &str, requests: u32) -> TcpStream {
    let host = server.client.base.trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(&host).await.unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    socket.write_all(&[PREFACE, &settings].concat()).await.unwrap();
    let authorization = format!("Bearer {token}");
    for n in 0..requests {
        let head = head_with("GET", path, &host, &[("authorization", &authorization)]);
        let head = frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head);
        socket.write_all(&head).await.unwrap();
    }
    socket
}

#[tokio::test]
async fn answers_that_a_user_does_not_read_over_http2_take_bounded_memory() {
    let (server, _dir, path) = limited().await;
    let idle = kib(&server, "VmHWM");
    let token = token("acme", "ann", &[]);
    let mut open = Vec::new();
    for _ in 0..REQUESTS / 80 {
        open.push(windowless(&server, &path, &token, 80).await);
    }
    for socket in &mut open {
        let mut read = Vec::new();
        while frames(&read).iter().filter(|frame| frame.kind == HEADERS).count() < 80 {
            let count = timeout(PATIENCE, socket.read_buf(&mut read)).await.unwrap().unwrap();
            assert!(count > 0, "the connection stays");
        }
    }
    others_are_served(&server.client).await;
    check_memory(&server, idle);
}

#[tokio::test]
async fn bodies_that_never_come_take_nothing_from_others() {
    let (server, _dir, _path) = limited().await;
    let idle = kib(&server, "VmHWM");
    let host = server.client.base.trim_start_matches("http://").to_owned();
    let token = token("acme", "ann", &[]);
    let mut open = Vec::new();
    for n in 0..100 {
        let mut socket = TcpStream::connect(&host).await.unwrap();
        let (path, length) = if n < 15 { ("/qa/chat_streamed", 16 << 20) } else { ("/threads", 256 << 10) };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n "
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        open.push(socket);
    }
    let authorization = format!("Bearer {token}");
    for _ in 0..4 {
        let mut socket = TcpStream::connect(&host).await.unwrap();
        let mut frames = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        for n in 0..80 {
            let headers = [
                ("authorization", authorization.as_str()),
                ("content-type", "application/json"),
                ("content-length", "262144"),
            ];
            let head = head_with("POST", "/threads", &host, &headers);
            frames.extend(frame(HEADERS, END_HEADERS, 2 * n + 1, &head));
            frames.extend(frame(DATA, 0, 2 * n + 1, b" "));
        }
        socket.write_all(&frames).await.unwrap();
        open.push(socket);
    }
    others_are_served(&server.client).await;
    let ann = server.client.as_user("acme", "ann", &[]);
    ann.approve("01890a5d-ac96-774b-bcce-b302099a8057").await.has_status(404);
    ann.post("/threads", &json!({ "title": "one" })).await.has_status(201);
    check_memory(&server, idle);
}
