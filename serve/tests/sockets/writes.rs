//! Responses that a client does not read.

use crate::support::{Client, Http2, LONG_BYTES, PATIENCE, Running, SOON, body_of, request};
use bytes::Bytes;
use futures::{StreamExt, stream};
use holdpoint_serve::WriteDeadline;
use poem::endpoint::make;
use poem::{Body, Endpoint, Request};
use std::io;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

#[tokio::test]
async fn a_response_that_is_not_read_is_dropped_and_its_connection_closed() {
    let server = Running::hurried(|deadlines| deadlines.taking = SOON).await;
    let mut client = Client::narrow(&server).await;
    client.send_head("GET /long", &[]).await;
    server.app.dropped.reaches(1).await;
    let response_bytes = client.rest().await;
    assert!(response_bytes.starts_with(b"HTTP/1.1 200 "));
    assert!(
        response_bytes.len() < LONG_BYTES && !response_bytes.ends_with(b"0\r\n\r\n"),
        "{} bytes",
        response_bytes.len()
    );
    Client::served(&server).await;
}

#[tokio::test]
async fn an_unread_http2_response_ends_no_other_response_of_its_connection() {
    let server = Running::hurried(|deadlines| deadlines.taking = SOON).await;
    // The window of the connection has room for more than the unread response takes.
    let mut client =
        Http2::with(&server, h2::client::Builder::new().initial_connection_window_size(1 << 20)).await;
    let (long, waiting) = (client.send_head("/long").await, client.send_head("/wait").await);
    server.app.waiting.reaches(1).await;
    let mut unread = timeout(PATIENCE, long).await.expect("the head").unwrap().into_body();
    server.app.dropped.reaches(1).await;
    let goes_away = async {
        while let Ok(mut ready) = client.client.clone().ready().await {
            let Ok((response, _)) = ready.send_request(request("/"), true) else { break };
            let _answered = body_of(response).await;
        }
    };
    timeout(PATIENCE, goes_away).await.expect("the connection takes no further request");
    server.app.gate.add_permits(1);
    assert_eq!(body_of(waiting).await.unwrap(), (200, "done".to_owned()));
    let reading = async {
        let mut read = 0;
        while let Some(piece) = unread.data().await {
            match piece {
                Ok(piece) => read += piece.len(),
                Err(error) => return (read, Some(error)),
            }
        }
        (read, None)
    };
    let (read, error) = timeout(PATIENCE, reading).await.expect("the response ends");
    assert!(read < 1 << 20 && error.is_some(), "{read} bytes");
    // The server has already said that it goes away, so the end is an error or none.
    let _end = client.closed().await;
}

#[tokio::test]
async fn a_response_without_pending_output_has_no_deadline() {
    let server = Running::hurried(|deadlines| {
        deadlines.head = 4 * SOON;
        deadlines.idle = SOON;
        deadlines.taking = SOON;
        deadlines.ping = SOON;
        deadlines.body = SOON;
        deadlines.body_piece = SOON;
    })
    .await;
    let mut client = Client::connect(&server).await;
    client.send_head("GET /silent", &["connection: close"]).await;
    let mut over_http2 = Http2::connect(&server).await;
    let response = over_http2.send_head("/silent").await;
    server.app.waiting.reaches(2).await;
    // Longer than any other deadline.
    assert_eq!(Client::connect(&server).await.rest().await, b"");
    server.app.gate.add_permits(2);
    assert_eq!(body_of(response).await.unwrap(), (200, "first last".to_owned()));
    client.reply_head().await;
    let response_bytes = String::from_utf8(client.rest().await).unwrap();
    assert_eq!(response_bytes, "6\r\nfirst \r\n4\r\nlast\r\n0\r\n\r\n");
}

#[tokio::test]
async fn another_server_can_apply_the_write_deadline_to_an_endpoint() {
    let (here, gone) = oneshot::channel::<()>();
    let pieces = stream::unfold(here, async |here| Some((Ok::<_, io::Error>(Bytes::from("x")), here)));
    let body = parking_lot::Mutex::new(Some(Body::from_bytes_stream(pieces)));
    let endpoint = make(move |_| {
        let body = body.lock().take().unwrap();
        async move { body }
    });
    let response = WriteDeadline::new(endpoint, Duration::from_millis(100)).call(Request::default()).await;
    let mut pieces = response.unwrap().into_body().into_bytes_stream();
    assert_eq!(pieces.next().await.unwrap().unwrap(), "x");
    // The next piece is not read.
    timeout(PATIENCE, gone).await.expect("the body is dropped").unwrap_err();
    let late = timeout(PATIENCE, pieces.next()).await.expect("an end").unwrap().unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
}
