//! A custom approval handler: `cargo run --example own_handler`, then the walk of the README.
//!
//! The handler approves calls on drafts. For all other calls it asks at this terminal. A call without an
//! answer at the terminal is decided at the routes.

use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::{
    ApprovalHandler, ApprovalRequest, BoxFuture, HandlerAnswer, HandlerError, Terminal,
};
use tokio::net::TcpListener;

/// Approves calls whose path begins with `draft-`.
struct Drafts {
    others: Terminal,
}

impl ApprovalHandler for Drafts {
    fn name(&self) -> &str {
        "drafts"
    }

    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        let path = request.input.get("path").and_then(|path| path.as_str());
        if path.is_some_and(|path| path.starts_with("draft-")) {
            return Box::pin(async { Ok(HandlerAnswer::approved()) });
        }
        self.others.ask(request)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(&Flags::default())?;
    let (tools, model) = (app::demo_tools(&config)?, app::configured_model(&config)?);
    let listener = TcpListener::bind(config.server.bind).await?;
    let drafts = Drafts { others: Terminal::new() };
    let app = App::builder(config).tools(tools).model(model).handler(drafts).build().await?;
    println!("holdpoint listens on http://{}", listener.local_addr()?);
    app.serve(listener, async { tokio::signal::ctrl_c().await.unwrap_or_default() }).await?;
    Ok(())
}
