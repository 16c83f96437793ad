//! HTTP: routes to what the layers below do, and their answers to bytes.
//!
//! To add a resource: a file like `tools.rs`, named in [`Routes`] and [`api`], then `cargo xtask openapi`.

mod allow;
mod auth;
mod body;
mod call;
mod chat_body;
mod document;
mod error;
mod front;
mod payload;
mod qa;
mod request_id;
mod runs;
pub(crate) mod server;
mod threads;
mod tools;

use crate::agent::Tasks;
use crate::approvals::Approvals;
use crate::chat::Chat;
use crate::domain::clock::Clock;
use crate::llm::LanguageModel;
use crate::store::Store;
use crate::tools::ToolRegistry;
use allow::Allowed;
pub(crate) use auth::Authenticator;
use error::ApiError;
use front::Front;
use poem::endpoint::{BoxEndpoint, make, make_sync};
use poem::web::Html;
use poem::{EndpointExt, IntoEndpoint, IntoResponse, Response, Route, get};
use poem_openapi::{ExtraHeader, OpenApiService};
use std::sync::Arc;

/// What the routes work with.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) chat: Chat,
    pub(crate) approvals: Approvals,
    pub(crate) tools: Arc<ToolRegistry>,
    /// The first is the default.
    pub(crate) models: Arc<[Arc<dyn LanguageModel>]>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// How the server faces the world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Longest body, in bytes.
    pub(crate) body_bytes: usize,
    /// Longest body of a chat, in bytes: pages post their whole conversation.
    pub(crate) chat_body_bytes: usize,
    /// Whether `/docs` is served.
    pub(crate) docs: bool,
}

type Routes = (qa::Qa, threads::Threads, runs::Runs, call::Calls, tools::ToolRoutes);

fn api(api: Api) -> OpenApiService<Routes, ()> {
    let routes = (
        qa::Qa(api.clone()),
        threads::Threads(api.clone()),
        runs::Runs(api.clone()),
        call::Calls(api.clone()),
        tools::ToolRoutes(api),
    );
    OpenApiService::new(routes, "holdpoint", env!("CARGO_PKG_VERSION"))
        .description(
            "A chat backend that streams to the AI SDK and holds dangerous tool calls for a human. \
             No text that is sent may hold the character U+0000.",
        )
        .server("/")
        .server("/api")
        .extra_response_header::<String, _>(
            ExtraHeader::new(request_id::HEADER).description("Names the request, in the log too."),
        )
}

/// What is served beside the routes of the document.
const BESIDE: [&str; 6] = ["/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"];

/// The OpenAPI document.
pub(crate) fn document(with: Api) -> String {
    format!("{:#}", document::refined(&api(with).spec()))
}

/// The whole server as one endpoint.
pub(crate) fn endpoint(
    with: Api,
    settings: Settings,
    auth: Authenticator,
    tasks: Tasks,
) -> BoxEndpoint<'static> {
    let service = api(with.clone());
    let spec = service.spec();
    let document = document::refined(&spec);
    let allowed = Arc::new(Allowed::of(&document, &BESIDE));
    let document: Arc<str> = format!("{document:#}").into();
    let (store, stopping) = (with.store.clone(), tasks.clone());
    let clock = with.clock.clone();
    let mut routes = Route::new()
        .at("/healthz", get(make(async |_| Ok::<_, poem::Error>("ok"))))
        .at("/readyz", get(make(move |_| ready(store.clone(), stopping.clone()))))
        .at(
            "/openapi.json",
            get(make({
                let document = document.clone();
                move |_| document_answer(document.clone())
            })),
        );
    if settings.docs {
        // The page holds the document as the derives alone would have it.
        let page = service.swagger_ui_html().replace(&spec, &document);
        routes = routes.at("/docs", get(make_sync(move |_| Html(page.clone()))));
    }
    let routes = routes.nest("/api", api(with)).nest("/", service);
    let routes = routes.into_endpoint().catch_all_error(async |error| error::shaped(error));
    Front::new(routes, settings, auth, tasks, clock)
        .around(move |front, request| {
            let allowed = allowed.clone();
            async move { allowed.answer(&front, request).await }
        })
        .boxed()
}

async fn ready(store: Store, tasks: Tasks) -> poem::Result<Response> {
    if tasks.is_stopping() {
        return Ok(ApiError::stopping().into_response());
    }
    let ready = store.ping().await;
    if let Err(error) = &ready {
        tracing::warn!(%error, "not ready");
    }
    Ok(error::readiness(ready.is_ok()))
}

async fn document_answer(spec: Arc<str>) -> poem::Result<Response> {
    Ok(spec.to_string().with_content_type("application/json").into_response())
}
