//! The server from outside: clients on real sockets, over HTTP/1.1 and HTTP/2.
//!
//! `support` has a server on a port of its own, with an endpoint whose responses a test controls, and clients
//! that send raw bytes. A well-behaved HTTP/2 client comes from `h2`.
#![cfg(test)]

mod bodies;
mod connections;
mod disconnects;
mod heads;
mod http2;
mod idle;
mod stopping;
mod support;
mod writes;
