//! A wire to a Postgres server that goes silent, breaks, or loses what a test wants lost.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// What becomes of a commit on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// It is made, and the wire breaks before anybody hears of that.
    Made,
    /// It is made, and the wire is silent from then on.
    MadeInSilence,
    /// The wire breaks before it arrives.
    Lost,
}

/// What the connections that are there are told to do.
enum Order {
    /// To swallow whatever comes, from either side.
    Swallow,
    /// To break.
    Break,
    /// To say this to the server as if the client had, once that is at rest, and to tell when it is answered.
    Say(&'static str, oneshot::Sender<()>),
}

/// Passes connections on to a server, and does to them what a test says.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    there: Arc<Mutex<Vec<mpsc::UnboundedSender<Order>>>>,
    /// The transaction whose commit is struck: the first in which these words go to the server.
    struck: Arc<Mutex<Option<(String, Commit)>>>,
}

impl Proxy {
    /// Before the server of this URL; with the URL that leads through it.
    pub(crate) async fn before(url: &str) -> (Self, String) {
        let server = url.rsplit_once('/').unwrap().0.rsplit_once('@').unwrap().1;
        let proxy = Self::to(server.parse().unwrap()).await;
        let through = url.replace(server, &proxy.address.to_string());
        assert_ne!(url, through);
        (proxy, through)
    }

    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self { address, there: Arc::default(), struck: Arc::default() };
        let (there, struck) = (proxy.there.clone(), proxy.struck.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                // While the server is away nobody gets through.
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let (order, orders) = mpsc::unbounded_channel();
                there.lock().unwrap().push(order);
                let wire = Wire { client, server, struck: struck.clone(), said: Vec::new(), at_rest: false };
                tokio::spawn(wire.pass(orders));
            }
        });
        proxy
    }

    /// From now on nothing comes through what is connected; what connects later is passed on.
    pub(crate) fn swallow(&self) {
        self.order(|| Order::Swallow);
    }

    /// Breaks what is connected; what connects later is passed on.
    pub(crate) fn cut(&self) {
        self.order(|| Order::Break);
    }

    /// Says this to the server over everything that is connected, once it is at rest, and behind the backs of the
    /// clients. How often.
    pub(crate) async fn say(&self, sql: &'static str) -> usize {
        let mut said = Vec::new();
        self.order(|| {
            let (tell, told) = oneshot::channel();
            said.push(told);
            Order::Say(sql, tell)
        });
        let mut count = 0;
        for told in said {
            // Who is gone says nothing.
            count += usize::from(told.await.is_ok());
        }
        count
    }

    fn order(&self, mut make: impl FnMut() -> Order) {
        self.there.lock().unwrap().retain(|wire| wire.send(make()).is_ok());
    }

    /// Strikes the commit of the next transaction in which these words go to the server: once.
    pub(crate) fn strike(&self, words: &str, commit: Commit) {
        *self.struck.lock().unwrap() = Some((words.to_owned(), commit));
    }

    /// Whether that has come to pass.
    pub(crate) fn has_struck(&self) -> bool {
        self.struck.lock().unwrap().is_none()
    }
}

/// How a wire ends that does not end by itself.
enum Fate {
    Break,
    Silence,
}

struct Wire {
    client: TcpStream,
    server: TcpStream,
    struck: Arc<Mutex<Option<(String, Commit)>>>,
    /// What the client has said since its last commit.
    said: Vec<u8>,
    /// Whether the server has answered all that it was asked.
    at_rest: bool,
}

impl Wire {
    async fn pass(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        match self.until_fate(&mut orders).await {
            Ok(()) | Err(None) => {}
            Err(Some(Fate::Break)) => {
                for end in [&self.client, &self.server] {
                    end.set_zero_linger().unwrap();
                }
            }
            // Both ends stay open, and neither hears of the other again.
            Err(Some(Fate::Silence)) => std::future::pending().await,
        }
    }

    /// Passes bytes on until an end is gone, or until what is to become of it is known.
    async fn until_fate(&mut self, orders: &mut mpsc::UnboundedReceiver<Order>) -> Result<(), Option<Fate>> {
        let gone = |_| None;
        let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        let mut to_say: Option<(&str, oneshot::Sender<()>)> = None;
        loop {
            if let Some((sql, told)) = to_say.take_if(|_| self.at_rest) {
                self.say(sql).await.map_err(gone)?;
                // The test may have ended.
                let _heard = told.send(());
            }
            tokio::select! {
                read = self.client.read(&mut up) => match read.map_err(gone)? {
                    0 => return Ok(()),
                    n => self.send(&up[..n]).await?,
                },
                read = self.server.read(&mut down) => match read.map_err(gone)? {
                    0 => return Ok(()),
                    n => {
                        self.at_rest = is_ready(&down[..n]);
                        self.client.write_all(&down[..n]).await.map_err(gone)?;
                    }
                },
                order = orders.recv() => match order {
                    Some(Order::Swallow) => return Err(Some(Fate::Silence)),
                    Some(Order::Break) => return Err(Some(Fate::Break)),
                    Some(Order::Say(sql, told)) => to_say = Some((sql, told)),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Sends on what the client says; a commit only as it is meant to fare.
    async fn send(&mut self, bytes: &[u8]) -> Result<(), Option<Fate>> {
        self.at_rest = false;
        self.said.extend_from_slice(bytes);
        let fate = if self.said.ends_with(b"COMMIT\0") { self.fate() } else { None };
        if self.said.ends_with(b"COMMIT\0") || self.said.ends_with(b"ROLLBACK\0") {
            self.said.clear();
        }
        if fate == Some(Commit::Lost) {
            return Err(Some(Fate::Break));
        }
        self.server.write_all(bytes).await.map_err(|_| None)?;
        let Some(commit) = fate else { return Ok(()) };
        self.answer().await.map_err(|_| None)?;
        Err(Some(if commit == Commit::Made { Fate::Break } else { Fate::Silence }))
    }

    fn fate(&self) -> Option<Commit> {
        let mut struck = self.struck.lock().unwrap();
        let (words, commit) = struck.as_ref()?;
        let has = self.said.windows(words.len()).any(|part| part == words.as_bytes());
        let commit = has.then_some(*commit)?;
        *struck = None;
        Some(commit)
    }

    /// Says something to the server that the client knows nothing of.
    async fn say(&mut self, sql: &str) -> std::io::Result<()> {
        let length = u32::try_from(sql.len() + 5).unwrap();
        let message = [b"Q", &length.to_be_bytes()[..], sql.as_bytes(), b"\0"].concat();
        self.server.write_all(&message).await?;
        self.answer().await
    }

    /// Reads, and keeps, one answer of the server: its last message says that it is ready for the next.
    async fn answer(&mut self) -> std::io::Result<()> {
        let (mut all, mut read) = (Vec::new(), [0; 1 << 10]);
        while !is_ready(&all) {
            let n = self.server.read(&mut read).await?;
            if n == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            all.extend_from_slice(&read[..n]);
        }
        Ok(())
    }
}

/// Whether the last message of these is that the server is ready for the next question.
fn is_ready(answers: &[u8]) -> bool {
    answers.rchunks(6).next().is_some_and(|last| last.starts_with(b"Z\0\0\0\x05"))
}
