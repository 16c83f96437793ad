//! An issuer with scripted key responses, which counts its requests. It signs with EdDSA.

use super::token;
use holdpoint::config::{AuthMode, Config};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The response to a request for its keys.
#[derive(Debug, Clone)]
pub enum KeysResponse {
    Keys(Vec<Value>),
    /// A body with these bytes.
    Body(String),
    /// The connection is closed.
    Nothing,
    /// A body without an end.
    ForEver,
    /// A head, and nothing after it.
    Slowly,
    /// A redirect to this URL.
    Elsewhere(String),
}

#[derive(Debug)]
struct State {
    answers: KeysResponse,
    requests: usize,
    /// Bytes of an endless body that were written before the client disconnected.
    written: Option<usize>,
}

/// The issuer; dropping it stops it.
pub struct Issuer {
    pub url: String,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

/// The private key from this seed byte (RFC 8410).
pub fn private(seed: u8) -> EncodingKey {
    let mut der = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    der.extend([seed; 32]);
    EncodingKey::from_ed_der(&der)
}

/// The public key from this seed, under this key id.
pub fn public(name: &str, seed: u8) -> Value {
    let mut jwk = Jwk::from_encoding_key(&private(seed), Algorithm::EdDSA).unwrap();
    jwk.common.key_id = Some(name.to_owned());
    serde_json::to_value(jwk).unwrap()
}

/// A header with this key id.
pub fn header(name: &str) -> Header {
    Header { kid: Some(name.to_owned()), ..Header::new(Algorithm::EdDSA) }
}

/// A token for this user, signed with the key of this id and seed.
pub fn issued(name: &str, seed: u8, tenant: &str, user: &str) -> String {
    jsonwebtoken::encode(&header(name), &token::claims(tenant, user, &[]), &private(seed)).unwrap()
}

impl Issuer {
    pub async fn start(answers: KeysResponse) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State { answers, requests: 0, written: None }));
        let reported = state.clone();
        #[expect(clippy::disallowed_methods, reason = "it is ended with the issuer")]
        let serving = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let answers = {
                    let mut state = reported.lock().unwrap();
                    state.requests += 1;
                    state.answers.clone()
                };
                let reported = reported.clone();
                #[expect(clippy::disallowed_methods, reason = "whoever asks waits for it")]
                let _answering = tokio::spawn(async move {
                    if let Some(written) = answer(socket, answers).await {
                        reported.lock().unwrap().written = Some(written);
                    }
                });
            }
        });
        Self { url, state, serving }
    }

    /// Sets the response to later requests.
    pub fn answers(&self, answers: KeysResponse) {
        self.state.lock().unwrap().answers = answers;
    }

    /// The number of requests so far.
    pub fn requests(&self) -> usize {
        self.state.lock().unwrap().requests
    }

    /// Bytes of an endless body that the client has read.
    pub fn written(&self) -> Option<usize> {
        self.state.lock().unwrap().written
    }

    /// Configures the server to trust this issuer.
    pub fn trusted(&self) -> impl FnOnce(&mut Config) + use<> {
        let url = self.url.clone();
        move |config| {
            config.auth.mode = AuthMode::Jwt;
            config.auth.jwks_url = Some(url);
            config.auth.issuer = Some(token::ISSUER.to_owned());
            config.auth.audience = Some(token::AUDIENCE.to_owned());
        }
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Sends the response; returns the bytes written of an endless body.
async fn answer(mut socket: TcpStream, answers: KeysResponse) -> Option<usize> {
    let mut request = [0; 4096];
    // The read may fail: a client that disconnects at once needs no response.
    let _read = socket.read(&mut request).await;
    let body = match answers {
        KeysResponse::Keys(keys) => json!({ "keys": keys }).to_string(),
        KeysResponse::Body(body) => body,
        KeysResponse::Nothing => return None,
        KeysResponse::ForEver => {
            let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"keys\":[\"";
            let mut written = head.len();
            socket.write_all(head).await.ok()?;
            while socket.write_all(&[b'x'; 4096]).await.is_ok() {
                written += 4096;
            }
            return Some(written);
        }
        KeysResponse::Slowly => {
            let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{";
            // Waits until the client disconnects.
            let _written = socket.write_all(head).await;
            let _left = socket.read(&mut request).await;
            return None;
        }
        KeysResponse::Elsewhere(location) => {
            let head = format!("HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: {location}\r\n\r\n");
            let _written = socket.write_all(head.as_bytes()).await;
            return None;
        }
    };
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let _written = socket.write_all((head + &body).as_bytes()).await;
    None
}
