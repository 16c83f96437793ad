//! The parts of HTTP/2 that a client needs to send requests, disconnect, and misbehave (RFC 9113).

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Client streams have odd numbers.
pub const FIRST: u32 = 1;
pub const SECOND: u32 = 3;

#[derive(Debug)]
pub struct Frame<'a> {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: &'a [u8],
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The complete frames in these bytes.
pub fn frames(mut bytes: &[u8]) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, flags, s, t, u, v], rest)) = bytes.split_first_chunk() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push(Frame { kind, flags, stream: u32::from_be_bytes([s, t, u, v]), payload });
        bytes = rest;
    }
    frames
}

/// The head of a request. Each field is a literal, which needs no table (RFC 7541, 6.2.2).
pub fn head(method: &str, path: &str, authority: &str) -> Vec<u8> {
    head_with(method, path, authority, &[("content-type", "application/json")])
}

/// The same, with these headers.
pub fn head_with(method: &str, path: &str, authority: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", authority), (":path", path)];
    let mut block = Vec::new();
    for (name, value) in fields.iter().chain(headers) {
        block.push(0);
        for text in [name, value] {
            // The length, as an integer with a prefix of seven bits (RFC 7541, 5.1).
            let mut length = text.len();
            if length < 127 {
                block.push(length as u8);
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push((length % 128) as u8 | 128);
                    length /= 128;
                }
                block.push(length as u8);
            }
            block.extend(text.as_bytes());
        }
    }
    block
}
