//! holdpoint as a part of another poem app, below `/chat`: `cargo run --example embed`.
//!
//! A shutdown has three steps, in this order: the app stops accepting connections, holdpoint finishes its
//! running work, and the process exits.

use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use poem::listener::{Acceptor, Listener, TcpListener};
use poem::{Route, Server, get, handler};

#[handler]
fn hello() -> &'static str {
    "This is my own app."
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(&Flags::default())?;
    let (tools, model) = (app::demo_tools(&config)?, app::configured_model(&config)?);
    let (bind, grace) = (config.server.bind, config.server.grace);
    let holdpoint = App::builder(config).tools(tools).model(model).handler(Deferred).build().await?;
    let routes = Route::new().at("/", get(hello)).nest("/chat", holdpoint.endpoint());
    let acceptor = TcpListener::bind(bind).into_acceptor().await?;
    for address in acceptor.local_addr().iter().filter_map(|address| address.as_socket_addr()) {
        println!("holdpoint listens on http://{address}/chat");
    }
    let asked_to_stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    Server::new_with_acceptor(acceptor)
        .run_with_graceful_shutdown(routes, asked_to_stop, Some(grace))
        .await?;
    holdpoint.finish().await;
    Ok(())
}
