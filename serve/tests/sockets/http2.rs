//! Limits of HTTP/2.

use crate::support::{Client, PATIENCE, Running, SOON, at_most, body_of, handshake, request};
use futures::future::join_all;
use h2::Reason;
use tokio::time::timeout;

/// The number of streams that a connection may have.
const STREAMS: usize = 100;

/// A frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The kind and the payload of each complete frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, _, _, _, _, _], rest)) = bytes.split_first_chunk() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push((kind, payload));
        bytes = rest;
    }
    frames
}

#[tokio::test]
async fn streams_over_the_limit_are_refused() {
    let server = Running::hurried(|_| {}).await;
    // The client sends its requests before it knows the limit of the server.
    let mut builder = h2::client::Builder::new();
    let (mut client, connection) = handshake(&server, builder.initial_max_send_streams(STREAMS + 20)).await;
    let mut responses = Vec::new();
    for _ in 0..STREAMS + 20 {
        responses.push(client.send_request(request("/wait"), true).unwrap().0);
    }
    let polled = async { connection.await.unwrap() };
    let talking = async {
        server.app.waiting.reaches(STREAMS).await;
        let refused = join_all(responses.drain(STREAMS..)).await;
        for refused in refused {
            assert_eq!(refused.unwrap_err().reason(), Some(Reason::REFUSED_STREAM));
        }
        assert_eq!(client.current_max_send_streams(), STREAMS, "the server announces the limit");
        server.app.gate.add_permits(STREAMS);
        for answered in join_all(responses.into_iter().map(body_of)).await {
            assert_eq!(answered.unwrap(), (200, "done".to_owned()));
        }
        assert_eq!(server.app.waiting.now(), STREAMS);
    };
    tokio::select! {
        () = polled => panic!("the connection ended"),
        ended = timeout(PATIENCE, talking) => ended.expect("all streams end"),
    }
}

#[tokio::test]
async fn streams_that_are_reset_right_after_their_start_end_the_connection() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    let server = Running::hurried(|_| {}).await;
    // `GET /` in the static table, and the authority (RFC 7541, section 6).
    let head = [&[0x82, 0x86, 0x84, 0x41, 9], &b"localhost"[..]].concat();
    let mut bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(4, 0, 0, &[])[..]].concat();
    for stream in (1..4000).step_by(2) {
        // The head ends, and so does the request.
        bytes.extend(frame(HEADERS, 0b101, stream, &head));
        bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    let response_bytes = Client::connect(&server).await.send_and_read(&bytes).await;
    let goaway = frames(&response_bytes).into_iter().rfind(|(kind, _)| *kind == GOAWAY);
    let calm = u32::from(Reason::ENHANCE_YOUR_CALM).to_be_bytes();
    assert_eq!(goaway.map(|(_, payload)| &payload[4..8]), Some(&calm[..]), "{response_bytes:?}");
    Client::served(&server).await;
}

#[tokio::test]
async fn a_connection_that_answers_no_ping_is_closed() {
    let server = Running::start(at_most(1), |deadlines| deadlines.ping = SOON).await;
    let (mut client, connection) = handshake(&server, &h2::client::Builder::new()).await;
    let (response, _) = client.send_request(request("/"), true).unwrap();
    tokio::pin!(connection);
    let answered = tokio::select! {
        ended = &mut connection => panic!("the connection ended: {ended:?}"),
        answered = body_of(response) => answered,
    };
    assert_eq!(answered.unwrap(), (200, "ok".to_owned()));
    // From here on the client reads nothing. The next client is served when the connection is closed.
    let mut next = Client::connect(&server).await;
    assert_eq!(next.get("/").await.body, "ok");
}
