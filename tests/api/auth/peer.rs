//! Without authentication, only loopback connections are answered, even if the server is embedded in another
//! app that chooses its own listener.

use holdpoint::app::App;
use holdpoint::config::Config;
use holdpoint::handlers::Deferred;
use holdpoint_testkit::{Ledger, Scene, asked_from, probes, token};
use poem::endpoint::BoxEndpoint;
use poem::http::Method;
use poem::web::RemoteAddr;
use poem::{Addr, Endpoint, Request};
use std::sync::Arc;

async fn endpoint(dir: &tempfile::TempDir, change: impl FnOnce(&mut Config)) -> BoxEndpoint<'static> {
    let mut config = Config::default();
    config.database.url = holdpoint_testkit::sqlite(dir).into();
    change(&mut config);
    let app = App::builder(config).tools(probes(&Ledger::new())).model(Arc::new(Scene::new()));
    Box::pin(app.handler(Deferred).build()).await.unwrap().endpoint()
}

async fn status(endpoint: &BoxEndpoint<'static>, request: Request) -> (u16, String) {
    let response = endpoint.get_response(request).await;
    (response.status().as_u16(), response.into_body().into_string().await.unwrap())
}

/// Peers of another machine, and peers that cannot be identified as loopback.
fn peers_elsewhere() -> Vec<RemoteAddr> {
    let mut peers: Vec<RemoteAddr> =
        ["10.0.0.7:1", "192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:10.0.0.7]:1", "0.0.0.0:1"]
            .map(|peer| RemoteAddr(Addr::SocketAddr(peer.parse().unwrap())))
            .into();
    peers.extend([RemoteAddr::default(), RemoteAddr(Addr::custom("tunnel", "127.0.0.1:1"))]);
    peers
}

#[tokio::test]
async fn an_endpoint_without_authentication_answers_only_loopback_connections_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let own = endpoint(&dir, |_| {}).await;
    for peer in peers_elsewhere() {
        for (method, path) in
            [(Method::GET, "/threads"), (Method::POST, "/threads"), (Method::GET, "/openapi.json")]
        {
            let (status, body) = status(&own, asked_from(&peer, method, path)).await;
            assert_eq!(status, 403, "{peer:?} {path}: {body}");
            assert!(body.contains("connection"), "{body}");
        }
        for probe in ["/healthz", "/readyz"] {
            assert_eq!(status(&own, asked_from(&peer, Method::GET, probe)).await.0, 200, "{peer:?} {probe}");
        }
    }
    for peer in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        let peer = RemoteAddr(Addr::SocketAddr(peer.parse().unwrap()));
        let (status, body) = status(&own, asked_from(&peer, Method::GET, "/threads")).await;
        assert_eq!(status, 200, "{peer:?}: {body}");
    }
}

#[tokio::test]
async fn an_endpoint_with_tokens_or_allow_insecure_accepts_every_peer_on_sqlite() {
    let (open, with_tokens) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = endpoint(&open, |config| config.auth.allow_insecure = true).await;
    let with_tokens = endpoint(&with_tokens, token::with_tokens).await;
    let bearer = format!("Bearer {}", token::token("acme", "ann", &[]));
    for peer in peers_elsewhere() {
        assert_eq!(status(&open, asked_from(&peer, Method::GET, "/threads")).await.0, 200, "{peer:?}");
        let mut request = asked_from(&peer, Method::GET, "/threads");
        request.headers_mut().insert("authorization", bearer.parse().unwrap());
        assert_eq!(status(&with_tokens, request).await.0, 200, "{peer:?}");
    }
}
