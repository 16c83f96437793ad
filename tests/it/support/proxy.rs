//! A wire that can go silent.

use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes connections on to a server, until it swallows what goes over those that are there.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// How often it went silent; a connection passes bytes as long as this is what it was.
    silences: Arc<watch::Sender<u32>>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let silences = Arc::new(watch::Sender::new(0));
        let sender = silences.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut silence = sender.subscribe();
                silence.mark_unchanged();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    let ended = tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => true,
                        _ = silence.changed() => false,
                    };
                    if !ended {
                        // Both ends stay open, and neither hears of the other again.
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self { address, silences }
    }

    /// From now on nothing comes through what is connected; what connects later is passed on.
    pub(crate) fn swallow(&self) {
        self.silences.send_modify(|count| *count += 1);
    }
}
