//! An HTTP accept loop for [poem] endpoints, with limits and deadlines for its clients.
//!
//! `poem::Server` notices a disconnected client only at its next write, and gives slow heads no deadline.
//! [`Server`] drops the request of a disconnected client at once, and closes the connections of clients that
//! keep memory or a connection without progress. It speaks HTTP/1.1 and HTTP/2 without TLS, on one port.
//!
//! ```
//! use holdpoint_serve::{Deadlines, Limits, Server};
//! use poem::{Route, get, handler};
//! use std::{num::NonZeroU32, time::Duration};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//! use tokio::sync::oneshot;
//!
//! #[handler]
//! fn hello() -> &'static str {
//!     "Hello."
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! let mut deadlines = Deadlines::default();
//! deadlines.idle = Duration::from_secs(60);
//! let limits = Limits { connections: NonZeroU32::new(1000), connections_per_ip: NonZeroU32::new(50) };
//! let server = Server::new(Route::new().at("/", get(hello)))
//!     .limits(limits)
//!     .deadlines(deadlines)
//!     .on_refused(|ip| eprintln!("{ip} has too many connections"));
//!
//! let (stop, stopped) = oneshot::channel::<()>();
//! let stop_signal = async {
//!     let _sender_is_gone = stopped.await;
//! };
//! // Open connections get ten seconds to finish.
//! let drain = async |open: holdpoint_serve::OpenConnections| {
//!     let _timed_out = tokio::time::timeout(Duration::from_secs(10), open.closed()).await;
//! };
//! let serving = server.serve(listener, stop_signal, drain);
//!
//! let talking = async {
//!     let mut client = TcpStream::connect(address).await?;
//!     client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
//!     let mut response = String::new();
//!     client.read_to_string(&mut response).await?;
//!     drop(stop);
//!     Ok::<_, std::io::Error>(response)
//! };
//! let (served, response) = tokio::join!(serving, talking);
//! served?;
//! let response = response?;
//! assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("Hello."), "{response}");
//! # Ok(())
//! # }
//! ```
//!
//! # What a client meets
//!
//! | A client that … | … finds | Set by |
//! |---|---|---|
//! | connects at the total limit | its connection waiting in the accept queue until another one closes | [`Limits::connections`] |
//! | connects at the limit of its address | its connection closed at once | [`Limits::connections_per_ip`] |
//! | sends no complete head in time | its connection closed | [`Deadlines::head`] |
//! | sends a head of more than 64 KiB, or of more than 100 headers with HTTP/1.1 | 431, or 414 for a long path; with HTTP/2 also a closed stream or connection | |
//! | sends no request for a time | its connection closed, after a GOAWAY with HTTP/2 | [`Deadlines::idle`] |
//! | does not read a response | the rest of the response dropped; the connection takes no further request and closes after its other responses | [`Deadlines::taking`] |
//! | answers no ping of HTTP/2 | its connection closed | [`Deadlines::ping`] |
//! | opens more than 100 streams on one HTTP/2 connection | the further streams refused | |
//! | resets more than 20 streams before the server accepts them | its connection closed, after a GOAWAY | |
//! | closes its side with its request, over HTTP/1 | its whole answer, unless the request [lives with its client](live_with_client) | |
//! | closes its side later, or disconnects | the future of its request dropped; an answer that is complete within 250 ms of the close is sent | |
//!
//! A request body is read by the endpoint. [`read_body`] does so within a length, a [`Budget`] of bytes for all
//! requests with a share for each user, and the deadlines and the speed of a body in [`Deadlines`]. [`drain_body`]
//! reads the rest of a refused body, so that the client sees the response. A [`Budget`] also serves for
//! responses: their bytes are [held](Reserved::hold) until the client has taken them.
//!
//! # Extensions
//!
//! A request has an [`Arc`](std::sync::Arc) of its [`Admission`] in its extensions. An endpoint that upgrades
//! the connection keeps the admission, so that the upgraded connection counts. An endpoint can put a
//! [`tracing::Span`] into the extensions of a response: a response that is dropped is logged in this span.

#![warn(missing_docs)]

mod activity;
mod budget;
mod concurrency;
mod connection;
mod connections;
mod deadlines;
mod far_side;
mod server;
mod upload;
mod write_deadline;

pub use budget::{Budget, Exhausted, Reserved};
pub use concurrency::{ConcurrencyLimit, Slot};
pub use connections::{Admission, Limits, network};
pub use deadlines::Deadlines;
pub use far_side::live_with_client;
pub use server::{OpenConnections, Server};
pub use upload::{BodyError, drain_body, read_body};
pub use write_deadline::{WriteDeadline, take_whole};
