//! Request bodies that arrive slowly, declare a wrong length, or are compressed.

use super::{RawConnection, SOON, is_well};
use holdpoint_testkit::{Embedded, token};
use std::iter::repeat;
use std::time::Duration;

const JSON: &str = "content-type: application/json";

#[tokio::test]
async fn e2_a_body_that_arrives_byte_by_byte_times_out_on_sqlite() {
    let app = Embedded::hurried(|deadlines| deadlines.body = SOON, |_| {}).await;
    let thread = app.client.thread().await;
    let chat = format!("POST /qa/chat_streamed/{thread}");
    for (first, length) in [
        ("POST /threads", "content-length: 100000"),
        ("POST /threads", "transfer-encoding: chunked"),
        (chat.as_str(), "content-length: 100000"),
    ] {
        let mut other_user = RawConnection::to(&app.client).await;
        other_user.writes(other_user.head(first, &[JSON, length, "connection: close"])).await;
        let received = if length.contains("chunked") {
            other_user.drips(b"1\r\n \r\n".iter().copied().cycle()).await
        } else {
            other_user.drips(repeat(b' ')).await
        };
        assert!(received.starts_with("HTTP/1.1 400 "), "{first}, {length}: {received}");
        assert!(received.contains("body: it was not whole after 1s"), "{first}, {length}: {received}");
    }
    assert_eq!(app.rows.count("threads").await, 1);
    assert_eq!(app.rows.count("messages").await, 0);
}

#[tokio::test]
async fn e2_a_body_that_stalls_times_out_on_sqlite() {
    let app = Embedded::hurried(|deadlines| deadlines.body_piece = SOON, |_| {}).await;
    for started in ["", "{"] {
        let mut other_user = RawConnection::to(&app.client).await;
        other_user.writes(other_user.head("POST /threads", &[JSON, "content-length: 10"])).await;
        other_user.writes(started).await;
        let reply = other_user.answer().await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "bad_request"), "{}", reply.body);
        assert_eq!(reply.message(), "body: nothing came for 1s");
    }
    assert_eq!(app.rows.count("threads").await, 0);
}

#[tokio::test]
async fn e2_a_body_has_one_length_on_sqlite() {
    let app = Embedded::start().await;
    let body = r#"{"title":"x"}"#;
    for lines in [
        &["content-length: 13", "content-length: 14"][..],
        &["content-length: 13, 14"],
        &["content-length: -1"],
        &["content-length: +13"],
        &["content-length: 0x0d"],
        &["content-length: 99999999999999999999999"],
        &["transfer-encoding: xchunked"],
        &["transfer-encoding: chunked, identity"],
        &["transfer-encoding: gzip"],
        &["transfer-encoding : chunked"],
        &["transfer-encoding:\u{b}chunked"],
        &["content-length: 13", "transfer-encoding: gzip"],
    ] {
        let mut other_user = RawConnection::to(&app.client).await;
        other_user.writes(other_user.head("POST /threads", &[&[JSON], lines].concat())).await;
        // The server may have closed already.
        let _written = tokio::io::AsyncWriteExt::write_all(&mut other_user.socket, body.as_bytes()).await;
        assert_eq!(other_user.answer().await.status, 400, "{lines:?}");
    }
    assert_eq!(app.rows.count("threads").await, 0);

    // A body with `content-length` and `transfer-encoding` is read by its chunks (RFC 9112, section 6.3), in
    // either header order.
    let chunked = "d\r\n{\"title\":\"x\"}\r\n0\r\n\r\n";
    for lines in [
        ["content-length: 4", "transfer-encoding: chunked"],
        ["transfer-encoding: chunked", "content-length: 4"],
    ] {
        let mut other_user = RawConnection::to(&app.client).await;
        other_user.writes(other_user.head("POST /threads", &[&[JSON], &lines[..]].concat())).await;
        other_user.writes(chunked).await;
        let reply = other_user.answer().await;
        assert_eq!((reply.status, reply.json()["title"].as_str()), (201, Some("x")), "{lines:?}");
    }
    assert_eq!(app.rows.count("threads").await, 2);
}

#[tokio::test]
async fn e2_a_body_shorter_than_its_declared_length_does_nothing_on_sqlite() {
    let app = Embedded::start().await;
    let mut other_user = RawConnection::to(&app.client).await;
    other_user.writes(other_user.head("POST /threads", &[JSON, "content-length: 100"])).await;
    other_user.writes(r#"{"title":"x"}"#).await;
    tokio::io::AsyncWriteExt::shutdown(&mut other_user.socket).await.unwrap();
    let received = other_user.receives_all().await;
    assert!(!received.starts_with("HTTP/1.1 2"), "{received}");
    assert_eq!(app.rows.count("threads").await, 0);
}

#[tokio::test]
async fn e2_a_compressed_body_is_refused_on_sqlite() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    // `{"title":"x"}` in gzip format, stored uncompressed.
    let packed = [
        &b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x01\x0d\0\xf2\xff"[..],
        br#"{"title":"x"}"#,
        b"\x1d\x2f\x5b\x3c\x0d\0\0\0",
    ]
    .concat();
    for path in ["/threads".to_owned(), format!("/qa/chat_streamed/{thread}"), "/qa/validate_tool".to_owned()]
    {
        for encoding in ["gzip", "GZIP", "br", "deflate", "zstd", "identity, gzip", "x"] {
            let request =
                app.client.http.post(app.client.url(&path)).header("content-type", "application/json");
            let request = request.header("content-encoding", encoding).body(packed.clone());
            let answer = app.client.send(request).await;
            assert_eq!(answer.failure(), (415, "unsupported_media_type"), "{path}: {encoding}");
            assert!(answer.message().starts_with("Content-Encoding: "), "{}", answer.message());
        }
    }
    let plain = app.client.http.post(app.client.url("/threads")).header("content-type", "application/json");
    let plain = plain.header("content-encoding", "identity").body(r#"{"title":"x"}"#);
    app.client.send(plain).await.has_status(201);
    assert_eq!(app.rows.count("threads").await, 2);
}

#[tokio::test]
async fn e1_a_client_that_sends_the_whole_body_first_still_reads_the_refusal_on_sqlite() {
    let app = Embedded::with(|config| {
        token::with_tokens(config);
        config.limits.requests_per_minute = Some(1);
    })
    .await;
    let ada = format!("authorization: Bearer {}", token::token("acme", "ada", &[]));
    let bob = format!("authorization: Bearer {}", token::token("acme", "bob", &[]));
    let body = vec![b' '; 4 << 20];
    let length = format!("content-length: {}", body.len());
    for (status, lines) in [
        (401, vec![]),
        (413, vec![ada.as_str()]),
        (429, vec![ada.as_str()]),
        (415, vec![bob.as_str(), "content-encoding: gzip"]),
    ] {
        let mut other_user = RawConnection::to(&app.client).await;
        let lines = [vec![JSON, length.as_str(), "connection: close"], lines].concat();
        other_user.writes(other_user.head("POST /threads", &lines)).await;
        other_user.writes(&body).await;
        let received = other_user.receives_all().await;
        assert!(received.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {received}");
        assert!(received.contains("{\"error\":{"), "{status}: {received}");
    }
}

#[tokio::test]
async fn e1_the_body_of_an_unauthenticated_request_is_not_read_on_sqlite() {
    let app =
        Embedded::hurried(|deadlines| deadlines.body = Duration::from_secs(600), token::with_tokens).await;
    for path in ["/threads", "/qa/chat_streamed", "/qa/validate_tool", "/nowhere"] {
        for lines in
            [&["content-length: 16000000"][..], &["content-length: 16000000", "expect: 100-continue"]]
        {
            let mut other_user = RawConnection::to(&app.client).await;
            other_user.writes(other_user.head(&format!("POST {path}"), &[&[JSON], lines].concat())).await;
            // No byte of the body is sent.
            let reply = other_user.answer().await;
            assert_eq!((reply.status, reply.code().as_str()), (401, "unauthenticated"), "{path}");
        }
    }
    is_well(&app.client).await;
}

#[tokio::test]
async fn e1_public_paths_read_no_body_on_sqlite() {
    for jwt in [false, true] {
        let app = Embedded::hurried(
            |deadlines| {
                deadlines.body = Duration::from_secs(600);
                deadlines.body_piece = Duration::from_secs(600);
            },
            |config| {
                if jwt {
                    token::with_tokens(config);
                }
            },
        )
        .await;
        for (path, found) in
            [("/", 200), ("/healthz", 200), ("/readyz", 200), ("/openapi.json", 200), ("/docs", 200)]
        {
            for (method, status) in
                [("GET", found), ("HEAD", found), ("POST", 405), ("PUT", 405), ("OPTIONS", 405)]
            {
                for length in
                    ["content-length: 200000", "content-length: 99999999", "transfer-encoding: chunked"]
                {
                    let mut other_user = RawConnection::to(&app.client).await;
                    other_user.writes(other_user.head(&format!("{method} {path}"), &[JSON, length])).await;
                    // No byte of the body is sent.
                    let head = other_user.answer_head().await;
                    let status_line = format!("http/1.1 {status} ");
                    assert!(head.starts_with(&status_line), "{method} {path}, {length}, jwt {jwt}: {head}");
                }
            }
        }
    }
}
