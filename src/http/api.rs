//! The composition of the routes: which resource is at which path, and the OpenAPI document of them all.

use super::access::{self, Access, BESIDE, CallerKind};
use super::auth::Authenticator;
use super::body::known_query::KnownQuery;
use super::body::posted::Bounds;
use super::document::{for_generators, refined};
#[cfg(feature = "websocket")]
use super::events::websocket::WebSockets;
use super::middleware::admit::{Middleware, Shared};
use super::middleware::allow::AllowedMethods;
use super::middleware::cors::Cors;
use super::middleware::rates::Rates;
use super::routes::health::Scrape;
use super::stream::turn_stream::Streaming;
use super::{approvals, auth, events, middleware, routes};
use crate::agent::Tasks;
use crate::approvals::Approvals;
use crate::chat::Chat;
use crate::delivery::Deliveries;
use crate::feed::Feed;
use crate::tools::CurrentTools;
use bytes::Bytes;
use holdpoint_core::Principal;
use holdpoint_core::clock::Clock;
use holdpoint_metrics::Metrics;
use holdpoint_models::LanguageModel;
use holdpoint_serve::Deadlines;
use holdpoint_store::{EventReader, PageSize, Store};
use poem::endpoint::{BoxEndpoint, make};
use poem::http::Method;
use poem::http::header::CONTENT_SECURITY_POLICY;
use poem::{Endpoint, EndpointExt, IntoEndpoint, IntoResponse, Response, Route, get};
use poem_openapi::{ContactObject, ExtraHeader, LicenseObject, OpenApiService};
use serde_json::Value;
use std::sync::{Arc, LazyLock, OnceLock};

/// The content security policy of the documentation page: the page runs its own inline script and calls this
/// server.
const DOCS_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                           img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'";

/// The state that all routes share.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) chat: Chat,
    pub(crate) approvals: Approvals,
    pub(crate) feed: Feed,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) tools: CurrentTools,
    /// The first model is the default.
    pub(crate) models: Arc<[Arc<dyn LanguageModel>]>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) scrape: Scrape,
    pub(crate) rates: Arc<Rates>,
    pub(crate) tickets: auth::Tickets,
    /// The sign-ins of people, if the server keeps them.
    pub(crate) sign_ins: Option<Arc<auth::SignIns>>,
    pub(crate) streaming: Streaming,
    /// Maximum number of decisions in one request.
    pub(crate) decisions_max: usize,
    /// Maximum length of a page of a list, in bytes.
    pub(crate) page_bytes: usize,
}

impl Api {
    /// The size of a page: `items`, and the byte limit of every page.
    pub(super) fn page(&self, items: u64) -> PageSize {
        PageSize { items, bytes: u64::try_from(self.page_bytes).unwrap_or(u64::MAX) }
    }

    /// Returns the principal as a reader of events.
    pub(super) fn reader(&self, principal: &Principal) -> EventReader {
        EventReader { principal: principal.clone(), visibility: self.approvals.visibility(principal) }
    }
}

/// The settings of the HTTP layer.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Maximum length of a body, in bytes.
    pub(crate) body_bytes: usize,
    /// Maximum length of a chat body, in bytes. Pages post their whole conversation.
    pub(crate) chat_body_bytes: usize,
    /// Maximum length of a user message, in bytes.
    pub(crate) message_bytes: usize,
    /// Whether `/docs` is served.
    pub(crate) docs: bool,
    /// Whether the console is served.
    pub(crate) console: bool,
    /// Whether `/metrics` is served next to the routes.
    pub(crate) metrics: bool,
    /// The origins whose pages may call.
    pub(crate) cors: Cors,
    /// The deadlines of a client.
    pub(crate) deadlines: Deadlines,
}

/// Names each file of routes once: the type of its operations, and its table of callers.
macro_rules! resources {
    ($(($($($module:ident)::+ => $name:ident),+ $(,)?)),+ $(,)?) => {
        type Routes = ($(($($($module)::+::$name,)+),)+);

        fn routes(api: &Api) -> Routes {
            ($(($($($module)::+::$name(api.clone()),)+),)+)
        }

        /// Who may call each operation of the document.
        const ACCESS: &[Access] = &[$($($($module)::+::ACCESS,)+)+];
    };
}

// A list has at most 16 entries. The document has the operations in this order.
resources! {
    (
        routes::qa => Qa,
        approvals::validate => Validate,
        routes::threads => Threads,
        routes::turns => Turns,
        routes::runs => Runs,
    ),
    (
        routes::session_policy => Policies,
        routes::sessions => Sessions,
        approvals::session_approvals => SessionApprovals,
    ),
    (
        routes::call => Calls,
        routes::resolution => Resolutions,
        approvals::extension => Extensions,
        approvals::reveal => Reveals,
        routes::workers => Workers,
        routes::report => Reports,
    ),
    (
        approvals::inbox => Inbox,
        approvals::approval_detail => Details,
        approvals::delegation => DelegationRoutes,
        approvals::tool_requests => ToolRequests,
    ),
    (routes::tools => ToolRoutes, routes::definitions => Definitions),
    (events::pages => Events, events::live_events => EventStreams, routes::tickets => Tickets),
    (auth::session_routes => AuthSessions, routes::webhooks => Webhooks, routes::links => Links),
}

/// The operations of the document, and who may call each.
fn operations() -> impl Iterator<Item = &'static (&'static str, &'static [CallerKind])> {
    ACCESS.iter().flat_map(|of_file| of_file.iter())
}

fn api(api: &Api) -> OpenApiService<Routes, ()> {
    OpenApiService::new(routes(api), "holdpoint", env!("CARGO_PKG_VERSION"))
        .description(
            "A chat backend that holds dangerous tool calls for a human. `/openapi.json` is the document for generators of \
             clients; it leaves out the streams that pages of the AI SDK read. The page `/docs` and `holdpoint openapi \
             --full` also have these streams. The WebSocket `/ws` is in neither. A word that is added to an enum is a new \
             version of the document. No text in a request may contain the character U+0000, \
             and no integer may exceed 64 bits (−2^63 to 2^64 − 1).",
        )
        .contact(ContactObject::new().name("The maintainers of holdpoint"))
        .license(LicenseObject::new("MIT OR Apache-2.0").url("https://spdx.org/licenses/MIT.html"))
        .server("/")
        .server("/api")
        .extra_response_header::<String, _>(
            ExtraHeader::new(middleware::request_id::HEADER)
                .description("The id of the request, also in the server's log."),
        )
}

fn beside() -> impl Iterator<Item = (&'static str, Method)> {
    let read = BESIDE.iter().map(|(path, _)| *path).chain(routes::console::paths()).chain(auth::STEPS);
    read.map(|path| (path, Method::GET)).chain(routes::hooks::paths())
}

/// What the OpenAPI document says. It depends on the types of the routes alone and takes most of the time of a start,
/// so the servers of a process share it.
#[derive(Debug)]
struct Documented {
    allowed: Arc<AllowedMethods>,
    known_query: Arc<KnownQuery>,
    /// The document with every operation.
    full: Box<str>,
    /// The document for generators of clients.
    for_generators: Box<str>,
}

impl Documented {
    fn of(with: &Api) -> &'static Self {
        static DOCUMENTED: OnceLock<Documented> = OnceLock::new();
        DOCUMENTED.get_or_init(|| {
            let has_own_credentials =
                operations().filter(|(_, callers)| access::has_own_credentials(callers)).map(|(id, _)| *id);
            let document = refined(&api(with).spec(), &has_own_credentials.collect());
            Self {
                allowed: Arc::new(AllowedMethods::of(&document, beside())),
                known_query: Arc::new(KnownQuery::of(&document)),
                full: format!("{document:#}").into(),
                for_generators: format!("{:#}", for_generators(&document)).into(),
            }
        })
    }
}

/// Returns the OpenAPI document for generators, as served at `/openapi.json`, or the full document.
pub(crate) fn document(with: &Api, full: bool) -> &'static str {
    let documented = Documented::of(with);
    if full { &documented.full } else { &documented.for_generators }
}

/// Builds the endpoint of the public listener.
pub(crate) fn endpoint(
    with: Api,
    settings: Settings,
    auth: Arc<Authenticator>,
    tasks: Tasks,
) -> BoxEndpoint<'static> {
    let Documented { allowed, known_query, full, for_generators } = Documented::of(&with);
    let mut routes = routes::health::health(&with, tasks.clone())
        .at("/openapi.json", get(make(move |_| document_response(for_generators))));
    if settings.docs {
        let docs = Arc::new(docs(api(&with), full));
        routes = routes.at("/docs", get(docs.clone())).at("/docs/", get(docs));
    }
    if settings.metrics {
        routes = routes::health::metrics(routes, with.scrape.clone());
    }
    #[cfg(feature = "websocket")]
    {
        let message_bytes = settings.body_bytes;
        let socket = Arc::new(WebSockets { api: with.clone(), tasks: tasks.clone(), message_bytes });
        routes = routes.at("/ws", get(socket.clone())).at("/api/ws", get(socket));
    }
    routes = routes::hooks::served(routes, with.deliveries.hooks());
    let documented = Arc::new(api(&with).into_endpoint());
    let routes = routes.nest("/api", documented.clone()).nest("/", documented);
    with_middleware(routes, allowed.clone(), known_query.clone(), with, settings, auth, tasks)
}

/// Builds the endpoint of the operators' listener: health, readiness and metrics.
pub(crate) fn operators_endpoint(
    with: Api,
    settings: Settings,
    on_loopback: bool,
    tasks: Tasks,
) -> BoxEndpoint<'static> {
    let settings = Settings { docs: false, console: false, cors: Cors::new(&[]), ..settings };
    let auth = Arc::new(Authenticator::Local { loopback_only: on_loopback });
    let routes = routes::health::metrics(routes::health::health(&with, tasks.clone()), with.scrape.clone());
    let document = Value::Null;
    let allowed = Arc::new(AllowedMethods::of(&document, beside()));
    let known_query = Arc::new(KnownQuery::of(&document));
    with_middleware(routes, allowed, known_query, with, settings, auth, tasks)
}

fn with_middleware(
    routes: Route,
    allowed: Arc<AllowedMethods>,
    known_query: Arc<KnownQuery>,
    with: Api,
    settings: Settings,
    auth: Arc<Authenticator>,
    tasks: Tasks,
) -> BoxEndpoint<'static> {
    let inner = routes.into_endpoint().catch_all_error(async |error| routes::health::shaped(error));
    let Api { store, rates, clock, metrics, tools, deliveries, .. } = with;
    let bounds = Bounds { message_bytes: settings.message_bytes, tools: tools.now().count_max() };
    let shared = Shared {
        inner,
        settings,
        bounds,
        auth,
        tools,
        deliveries,
        store,
        rates,
        tasks,
        clock,
        metrics,
        allowed,
        known_query,
    };
    Middleware(Arc::new(shared)).boxed()
}

/// Returns the endpoint of the Swagger page. The page is large, so the first request makes it.
fn docs(service: OpenApiService<Routes, ()>, full: &'static str) -> impl Endpoint {
    // The page embeds the unrefined document. Replace it with the refined one, which is the full one.
    let page = move || service.swagger_ui_html().replace(&service.spec(), full);
    let page = Arc::new(LazyLock::new(move || Bytes::from(page())));
    make(move |_| docs_response(Bytes::clone(&page)))
}

async fn docs_response(page: Bytes) -> poem::Result<Response> {
    let answer = page.with_content_type("text/html; charset=utf-8");
    Ok(answer.with_header(CONTENT_SECURITY_POLICY, DOCS_POLICY).into_response())
}

async fn document_response(spec: &'static str) -> poem::Result<Response> {
    Ok(spec.with_content_type("application/json").into_response())
}
