//! A proxy to Postgres that can cut a connection at a commit.

use anyhow::Result;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The commit of the driver: a simple query.
const COMMIT: &[u8] = b"COMMIT\0";

/// The kinds of harm to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionHarm {
    /// Cuts all current connections, by RST.
    CutAll,
    /// Cuts the next connection with a commit, before the proxy forwards the commit.
    CutBeforeCommit,
    /// Cuts the next connection with a commit, after the commit and before the proxy forwards its answer.
    CutAfterCommit,
    /// Like `CutAfterCommit`, but both ends stay open and receive nothing more.
    SwallowAfterCommit,
    /// Delays everything that clients send by this time, until the next `Delay`.
    Delay(Duration),
}

impl ConnectionHarm {
    fn is_at_a_commit(self) -> bool {
        matches!(self, Self::CutBeforeCommit | Self::CutAfterCommit | Self::SwallowAfterCommit)
    }
}

#[derive(Debug, Default)]
struct State {
    /// The harm at the next commit.
    armed: Mutex<Option<ConnectionHarm>>,
    delay: Mutex<Duration>,
    /// The number of commits without a delivered answer.
    unknown: AtomicU64,
    /// The number of connections that were cut or swallowed.
    cut: AtomicU64,
}

/// A running proxy. Dropping the value stops the proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    /// The number of times that all connections were cut. A connection ends when the number changes.
    cuts: Arc<watch::Sender<u32>>,
    _serving: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let cuts = Arc::new(watch::Sender::new(0));
        let mut serving = JoinSet::new();
        let (shared, sender) = (state.clone(), cuts.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (state, cut) = (shared.clone(), sender.subscribe());
                connections.spawn(async move {
                    // An error closes the client's connection, as a stopped server would.
                    let _ended = pass(client, server, &state, cut).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, state, cuts, _serving: serving })
    }

    /// Does harm, now or at the next commit.
    pub(crate) fn harm(&self, harm: ConnectionHarm) {
        match harm {
            ConnectionHarm::CutAll => self.cuts.send_modify(|count| *count += 1),
            ConnectionHarm::Delay(time) => *self.state.delay.lock() = time,
            at_commit => *self.state.armed.lock() = Some(at_commit),
        }
    }

    /// Ends the delay and the harm at the next commit.
    pub(crate) fn end_harm(&self) {
        *self.state.delay.lock() = Duration::ZERO;
        *self.state.armed.lock() = None;
    }

    /// Returns the number of commits without a delivered answer, and the number of lost connections.
    pub(crate) fn harmed(&self) -> (u64, u64) {
        (self.state.unknown.load(Ordering::Relaxed), self.state.cut.load(Ordering::Relaxed))
    }
}

async fn pass(
    client: TcpStream,
    server: SocketAddr,
    state: &State,
    mut cut: watch::Receiver<u32>,
) -> Result<()> {
    cut.mark_unchanged();
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    // A drop resets the client's connection at once.
    client.set_zero_linger()?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = relay(from_client, to_server, from_server, to_client, state) => ended,
        _ = cut.changed() => {
            state.cut.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
}

async fn relay(
    mut from_client: OwnedReadHalf,
    mut to_server: OwnedWriteHalf,
    mut from_server: OwnedReadHalf,
    mut to_client: OwnedWriteHalf,
    state: &State,
) -> Result<()> {
    let mut request = vec![0; 16 * 1024];
    let mut response = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            read = from_client.read(&mut request) => {
                let sent = request.get(..read?).unwrap_or_default();
                if sent.is_empty() {
                    return Ok(());
                }
                let delay = *state.delay.lock();
                sleep(delay).await;
                match take_harm(state, sent) {
                    None => to_server.write_all(sent).await?,
                    Some(harm) => {
                        state.cut.fetch_add(1, Ordering::Relaxed);
                        if harm == ConnectionHarm::CutBeforeCommit {
                            return Ok(());
                        }
                        to_server.write_all(sent).await?;
                        // The server answers after the commit is done.
                        let _answer = from_server.read(&mut response).await?;
                        state.unknown.fetch_add(1, Ordering::Relaxed);
                        if harm == ConnectionHarm::SwallowAfterCommit {
                            // Both ends of the connection stay open.
                            std::future::pending::<()>().await;
                        }
                        return Ok(());
                    }
                }
            }
            read = from_server.read(&mut response) => {
                let sent = response.get(..read?).unwrap_or_default();
                if sent.is_empty() {
                    return Ok(());
                }
                to_client.write_all(sent).await?;
            }
        }
    }
}

/// Takes the harm for the next commit, if the sent bytes contain a commit.
fn take_harm(state: &State, sent: &[u8]) -> Option<ConnectionHarm> {
    let mut armed = state.armed.lock();
    let commits = sent.windows(COMMIT.len()).any(|window| window == COMMIT);
    armed.take_if(|harm| harm.is_at_a_commit() && commits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that answers everything with `done`, and returns the received bytes with it.
    async fn server() -> (SocketAddr, Arc<Mutex<Vec<u8>>>, JoinSet<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = received.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut buffer = [0; 100];
                while let Ok(count @ 1..) = socket.read(&mut buffer).await {
                    kept.lock().extend_from_slice(&buffer[..count]);
                    if socket.write_all(b"done").await.is_err() {
                        break;
                    }
                }
            }
        });
        (address, received, serving)
    }

    async fn send(proxy: &Proxy, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut socket = TcpStream::connect(proxy.address).await?;
        socket.write_all(bytes).await?;
        let mut buffer = [0; 100];
        let count = socket.read(&mut buffer).await?;
        Ok(buffer[..count].to_vec())
    }

    #[tokio::test]
    async fn a_commit_is_made_and_its_answer_is_lost_once() {
        let (address, received, _serving) = server().await;
        let proxy = Proxy::to(address).await.unwrap();
        proxy.harm(ConnectionHarm::CutAfterCommit);
        assert_eq!(send(&proxy, b"SELECT 1\0").await.unwrap(), b"done");
        assert!(send(&proxy, b"Q\0\0\0\x0bCOMMIT\0").await.map_or(true, |answer| answer.is_empty()));
        assert_eq!(received.lock().as_slice(), b"SELECT 1\0Q\0\0\0\x0bCOMMIT\0");
        assert_eq!(send(&proxy, b"Q\0\0\0\x0bCOMMIT\0").await.unwrap(), b"done");
        assert_eq!(proxy.harmed(), (1, 1));
    }

    #[tokio::test]
    async fn a_commit_that_is_cut_before_is_never_received() {
        let (address, received, _serving) = server().await;
        let proxy = Proxy::to(address).await.unwrap();
        proxy.harm(ConnectionHarm::CutBeforeCommit);
        assert!(send(&proxy, b"Q\0\0\0\x0bCOMMIT\0").await.map_or(true, |answer| answer.is_empty()));
        assert!(received.lock().is_empty());
        assert_eq!(proxy.harmed(), (0, 1));
    }
}
