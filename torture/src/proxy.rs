//! A wire to Postgres that can be cut where it hurts.

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

/// As the driver writes it: a simple query.
const COMMIT: &[u8] = b"COMMIT\0";

/// What befalls connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    /// All of now are cut, by RST.
    CutAll,
    /// The next that commits is cut before the word is passed on.
    CutBeforeCommit,
    /// The next that commits is cut once it is done and before the answer is passed on.
    CutAfterCommit,
    /// The same, and both ends stay open and hear of each other no more.
    SwallowAfterCommit,
    /// Whatever is sent for the next while waits so long.
    Delay(Duration),
}

impl Harm {
    fn is_at_a_commit(self) -> bool {
        matches!(self, Self::CutBeforeCommit | Self::CutAfterCommit | Self::SwallowAfterCommit)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Waits for the next commit.
    armed: Mutex<Option<Harm>>,
    delay: Mutex<Duration>,
    /// Commits whose answer nobody got.
    unknown: AtomicU64,
    /// Connections that were cut or swallowed.
    cut: AtomicU64,
}

/// Passes connections on. It ends with this value.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    /// How often all connections were cut; one lives as long as this is what it was.
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
                    // A server that is down looks like one: nobody answers.
                    let _ended = pass(client, server, &state, cut).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, state, cuts, _serving: serving })
    }

    /// Does it harm, now or at the next commit.
    pub(crate) fn harm(&self, harm: Harm) {
        match harm {
            Harm::CutAll => self.cuts.send_modify(|count| *count += 1),
            Harm::Delay(time) => *self.state.delay.lock() = time,
            at_commit => *self.state.armed.lock() = Some(at_commit),
        }
    }

    /// Passes on what comes, as it comes.
    pub(crate) fn spare(&self) {
        *self.state.delay.lock() = Duration::ZERO;
        *self.state.armed.lock() = None;
    }

    /// How many commits were made without an answer, and how many connections were lost.
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
    // Whichever end is dropped, the other hears it at once.
    client.set_zero_linger()?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = pass_on(from_client, to_server, from_server, to_client, state) => ended,
        _ = cut.changed() => {
            state.cut.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
}

async fn pass_on(
    mut from_client: OwnedReadHalf,
    mut to_server: OwnedWriteHalf,
    mut from_server: OwnedReadHalf,
    mut to_client: OwnedWriteHalf,
    state: &State,
) -> Result<()> {
    let mut question = vec![0; 16 * 1024];
    let mut reply = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            read = from_client.read(&mut question) => {
                let sent = question.get(..read?).unwrap_or_default();
                if sent.is_empty() {
                    return Ok(());
                }
                let delay = *state.delay.lock();
                sleep(delay).await;
                match take_harm(state, sent) {
                    None => to_server.write_all(sent).await?,
                    Some(harm) => {
                        state.cut.fetch_add(1, Ordering::Relaxed);
                        if harm == Harm::CutBeforeCommit {
                            return Ok(());
                        }
                        to_server.write_all(sent).await?;
                        // What the server says to it, it says when it is done.
                        let _answer = from_server.read(&mut reply).await?;
                        state.unknown.fetch_add(1, Ordering::Relaxed);
                        if harm == Harm::SwallowAfterCommit {
                            // Both ends stay open.
                            std::future::pending::<()>().await;
                        }
                        return Ok(());
                    }
                }
            }
            read = from_server.read(&mut reply) => {
                let sent = reply.get(..read?).unwrap_or_default();
                if sent.is_empty() {
                    return Ok(());
                }
                to_client.write_all(sent).await?;
            }
        }
    }
}

/// What was to befall the next commit, if this is one.
fn take_harm(state: &State, sent: &[u8]) -> Option<Harm> {
    let mut armed = state.armed.lock();
    let commits = sent.windows(COMMIT.len()).any(|window| window == COMMIT);
    armed.take_if(|harm| harm.is_at_a_commit() && commits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says `done` to whatever it is asked, and what it was asked.
    async fn server() -> (SocketAddr, Arc<Mutex<Vec<u8>>>, JoinSet<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let kept = heard.clone();
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
        (address, heard, serving)
    }

    async fn ask(proxy: &Proxy, words: &[u8]) -> Result<Vec<u8>> {
        let mut socket = TcpStream::connect(proxy.address).await?;
        socket.write_all(words).await?;
        let mut buffer = [0; 100];
        let count = socket.read(&mut buffer).await?;
        Ok(buffer[..count].to_vec())
    }

    #[tokio::test]
    async fn a_commit_is_made_and_its_answer_is_lost_once() {
        let (address, heard, _serving) = server().await;
        let proxy = Proxy::to(address).await.unwrap();
        proxy.harm(Harm::CutAfterCommit);
        assert_eq!(ask(&proxy, b"SELECT 1\0").await.unwrap(), b"done");
        assert!(ask(&proxy, b"Q\0\0\0\x0bCOMMIT\0").await.map_or(true, |answer| answer.is_empty()));
        assert_eq!(heard.lock().as_slice(), b"SELECT 1\0Q\0\0\0\x0bCOMMIT\0");
        assert_eq!(ask(&proxy, b"Q\0\0\0\x0bCOMMIT\0").await.unwrap(), b"done");
        assert_eq!(proxy.harmed(), (1, 1));
    }

    #[tokio::test]
    async fn a_commit_that_is_cut_before_is_never_heard() {
        let (address, heard, _serving) = server().await;
        let proxy = Proxy::to(address).await.unwrap();
        proxy.harm(Harm::CutBeforeCommit);
        assert!(ask(&proxy, b"Q\0\0\0\x0bCOMMIT\0").await.map_or(true, |answer| answer.is_empty()));
        assert!(heard.lock().is_empty());
        assert_eq!(proxy.harmed(), (0, 1));
    }
}
