//! A proxy in front of a Postgres server, which can go silent, break connections, lose commits, and record what
//! it forwards.

use super::recording::{Recording, Tap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// The fate of a commit on its way to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFate {
    /// The commit is made, and the connection breaks before the client gets the response.
    Made,
    /// The commit is made, and the connection is silent from then on.
    MadeInSilence,
    /// The connection breaks before the commit arrives.
    Lost,
}

/// An order to the open connections.
enum Command {
    /// Swallow all bytes from either side.
    Swallow,
    /// Break the connection.
    Break,
    /// Send this statement to the server as the client would, once the connection is idle, and signal its
    /// completion.
    SendSql(&'static str, oneshot::Sender<()>),
}

/// Forwards connections to a server, and disturbs them as a test orders.
pub struct Proxy {
    pub address: SocketAddr,
    there: Arc<Mutex<Vec<mpsc::UnboundedSender<Command>>>>,
    /// The transaction whose commit is disturbed: the first that sends these words to the server.
    struck: Arc<Mutex<Option<(String, CommitFate)>>>,
    pub recording: Recording,
}

impl Proxy {
    /// Starts a proxy in front of the server of this URL, and returns the URL through the proxy.
    pub async fn before(url: &str) -> (Self, String) {
        let server = url.rsplit_once('/').unwrap().0.rsplit_once('@').unwrap().1;
        let proxy = Self::to(server.parse().unwrap()).await;
        let through = url.replace(server, &proxy.address.to_string());
        assert_ne!(url, through);
        (proxy, through)
    }

    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let recording = Recording::default();
        let proxy = Self { address, there: Arc::default(), struck: Arc::default(), recording };
        let (there, struck, recording) = (proxy.there.clone(), proxy.struck.clone(), proxy.recording.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                // While the server is down, connections are closed.
                let Ok(server) = TcpStream::connect(server).await else { continue };
                let (command, commands) = mpsc::unbounded_channel();
                there.lock().unwrap().push(command);
                let (struck, tap) = (struck.clone(), recording.tap());
                let wire = Wire { client, server, struck, sent_bytes: Vec::new(), at_rest: false, tap };
                tokio::spawn(wire.pass(commands));
            }
        });
        proxy
    }

    /// From now on the open connections pass nothing; later connections are forwarded.
    pub fn swallow(&self) {
        self.command(|| Command::Swallow);
    }

    /// Breaks the open connections; later connections are forwarded.
    pub fn cut(&self) {
        self.command(|| Command::Break);
    }

    /// Sends this statement to the server over every open connection, once it is idle, without the knowledge
    /// of the clients. Returns the number of connections that did.
    pub async fn send_sql(&self, sql: &'static str) -> usize {
        let mut sent_bytes = Vec::new();
        self.command(|| {
            let (done, sent) = oneshot::channel();
            sent_bytes.push(sent);
            Command::SendSql(sql, done)
        });
        let mut count = 0;
        for sent in sent_bytes {
            // A closed connection sends nothing.
            count += usize::from(sent.await.is_ok());
        }
        count
    }

    fn command(&self, mut make: impl FnMut() -> Command) {
        self.there.lock().unwrap().retain(|wire| wire.send(make()).is_ok());
    }

    /// Disturbs the commit of the next transaction that sends these words to the server: once.
    pub fn strike(&self, words: &str, commit: CommitFate) {
        *self.struck.lock().unwrap() = Some((words.to_owned(), commit));
    }

    /// Whether the commit was disturbed.
    pub fn has_struck(&self) -> bool {
        self.struck.lock().unwrap().is_none()
    }
}

/// The end of a connection that neither side closes.
enum ConnectionEnd {
    Break,
    Silence,
}

struct Wire {
    client: TcpStream,
    server: TcpStream,
    struck: Arc<Mutex<Option<(String, CommitFate)>>>,
    /// The bytes from the client since its last commit or rollback.
    sent_bytes: Vec<u8>,
    /// Whether the server has answered every request.
    at_rest: bool,
    tap: Tap,
}

impl Wire {
    async fn pass(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        match self.until_fate(&mut commands).await {
            Ok(()) | Err(None) => {}
            Err(Some(ConnectionEnd::Break)) => {
                for end in [&self.client, &self.server] {
                    end.set_zero_linger().unwrap();
                }
            }
            // Both ends stay open, and neither receives anything more.
            Err(Some(ConnectionEnd::Silence)) => std::future::pending().await,
        }
    }

    /// Forwards bytes until one end is closed, or until the fate of the connection is known.
    async fn until_fate(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Result<(), Option<ConnectionEnd>> {
        let gone = |_| None;
        let (mut up, mut down) = (vec![0; 16 << 10], vec![0; 16 << 10]);
        let mut to_send: Option<(&str, oneshot::Sender<()>)> = None;
        loop {
            if let Some((sql, sent)) = to_send.take_if(|_| self.at_rest) {
                self.send_sql(sql).await.map_err(gone)?;
                // The test may have ended.
                let _received = sent.send(());
            }
            tokio::select! {
                read = self.client.read(&mut up) => match read.map_err(gone)? {
                    0 => return Ok(()),
                    n => {
                        self.tap.client_sends(&up[..n]);
                        self.send(&up[..n]).await?;
                    }
                },
                read = self.server.read(&mut down) => match read.map_err(gone)? {
                    0 => return Ok(()),
                    n => {
                        self.tap.server_sends(&down[..n]);
                        self.at_rest = is_ready(&down[..n]);
                        self.client.write_all(&down[..n]).await.map_err(gone)?;
                    }
                },
                command = commands.recv() => match command {
                    Some(Command::Swallow) => return Err(Some(ConnectionEnd::Silence)),
                    Some(Command::Break) => return Err(Some(ConnectionEnd::Break)),
                    Some(Command::SendSql(sql, sent)) => to_send = Some((sql, sent)),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Forwards the client's bytes; a commit meets its fate.
    async fn send(&mut self, bytes: &[u8]) -> Result<(), Option<ConnectionEnd>> {
        self.at_rest = false;
        self.sent_bytes.extend_from_slice(bytes);
        let fate = if self.sent_bytes.ends_with(b"COMMIT\0") { self.fate() } else { None };
        if self.sent_bytes.ends_with(b"COMMIT\0") || self.sent_bytes.ends_with(b"ROLLBACK\0") {
            self.sent_bytes.clear();
        }
        if fate == Some(CommitFate::Lost) {
            return Err(Some(ConnectionEnd::Break));
        }
        self.server.write_all(bytes).await.map_err(|_| None)?;
        let Some(commit) = fate else { return Ok(()) };
        self.answer().await.map_err(|_| None)?;
        Err(Some(if commit == CommitFate::Made { ConnectionEnd::Break } else { ConnectionEnd::Silence }))
    }

    fn fate(&self) -> Option<CommitFate> {
        let mut struck = self.struck.lock().unwrap();
        let (words, commit) = struck.as_ref()?;
        let has = self.sent_bytes.windows(words.len()).any(|part| part == words.as_bytes());
        let commit = has.then_some(*commit)?;
        *struck = None;
        Some(commit)
    }

    /// Sends a statement to the server without the knowledge of the client.
    async fn send_sql(&mut self, sql: &str) -> std::io::Result<()> {
        let length = u32::try_from(sql.len() + 5).unwrap();
        let message = [b"Q", &length.to_be_bytes()[..], sql.as_bytes(), b"\0"].concat();
        self.server.write_all(&message).await?;
        self.answer().await
    }

    /// Reads one response of the server up to its `ReadyForQuery`, and does not forward it.
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

/// Whether the last message is an idle `ReadyForQuery`.
fn is_ready(answers: &[u8]) -> bool {
    answers.rchunks(6).next().is_some_and(|last| last.starts_with(b"Z\0\0\0\x05"))
}
