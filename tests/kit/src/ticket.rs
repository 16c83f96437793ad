//! Tickets as the server makes them: the content in base64url, and its HMAC-SHA256.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

pub fn content(ticket: &str) -> Value {
    let (content, _) = ticket.split_once('.').unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(content).unwrap()).unwrap()
}

pub fn signed(content: &Value, key: &str) -> String {
    let content = URL_SAFE_NO_PAD.encode(content.to_string());
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(content.as_bytes());
    format!("{content}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}
