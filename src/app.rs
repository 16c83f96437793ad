//! The composition root: the only place that names concrete parts and joins them.

use crate::agent::{Agent, Executor, Tasks};
use crate::approvals::Approvals;
use crate::approvals::handlers::{self, ApprovalHandler, Deferred};
use crate::chat::Chat;
use crate::config::{ApprovalMode, AuthMode, Config, ConfigError, Provider};
#[cfg(feature = "torture")]
use crate::domain::clock::Skewed;
use crate::domain::clock::{Clock, SystemClock};
#[cfg(feature = "torture")]
use crate::faults;
use crate::feed::Feed;
pub use crate::http::Deadlines;
use crate::http::health::Scrape;
use crate::http::{self, Api, Authenticator, Cors, Rates, Streaming, Tickets};
use crate::llm::LanguageModel;
use crate::llm::remote::{Remote, RemoteConfig, RemoteError, Wire};
use crate::llm::scripted::Scripted;
use crate::metrics::Metrics;
pub use crate::operator::{
    CALL_STATES, CallLine, Fenced, Fencer, Finding, Operator, OperatorError, Purged, WAITING_STATES,
};
pub use crate::startup::summary;
use crate::store::{AgentLimits, Notifications, ProcessLock, Recovered, Store, StoreError};
use crate::tools::files::{DeleteFile, Files, ListFiles, ReadFile, WriteFile};
use crate::tools::gate::Gate;
use crate::tools::{RegistryError, ToolRegistry, Unmatched};
use poem::endpoint::BoxEndpoint;
use secrecy::{ExposeSecret, SecretString};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long a metrics request that is under way at the end may take.
const LAST_SCRAPE: Duration = Duration::from_secs(1);

/// What a process opens beside the connections of its clients: to the database, to models, to the issuer.
const OTHER_FILES: u64 = 100;

/// A server, ready to serve.
#[derive(Debug)]
pub struct App {
    config: Config,
    api: Api,
    auth: Arc<Authenticator>,
    tasks: Tasks,
    deadlines: Deadlines,
}

/// Why a server cannot be built or served. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct AppError {
    what: &'static str,
    why: String,
}

impl AppError {
    fn new(what: &'static str, why: impl ToString) -> Self {
        Self { what, why: why.to_string() }
    }
}

impl From<ConfigError> for AppError {
    fn from(error: ConfigError) -> Self {
        Self::new("configuration", error)
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        Self::new("database.url", error)
    }
}

impl From<RegistryError> for AppError {
    fn from(error: RegistryError) -> Self {
        Self::new("tools", error)
    }
}

impl From<RemoteError> for AppError {
    fn from(error: RemoteError) -> Self {
        let key = match &error {
            RemoteError::BaseUrl(_) => "model.base_url",
            RemoteError::ApiKey => "model.api_key",
            RemoteError::Client(_) => "model",
        };
        Self::new(key, error)
    }
}

/// The demo tools, in the folder that the configuration names.
///
/// # Errors
/// The folder cannot be made or opened.
pub fn demo_tools(config: &Config) -> Result<ToolRegistry, AppError> {
    let folder = &config.tools.files_dir;
    let failed = |error| AppError::new("tools.files_dir", format!("{}: {error}", folder.display()));
    let files = Files::open(folder).map_err(failed)?;
    let mut registry = ToolRegistry::new();
    registry.register(ListFiles(files.clone()))?;
    registry.register(ReadFile(files.clone()))?;
    registry.register(WriteFile(files.clone()))?;
    registry.register(DeleteFile(files))?;
    Ok(registry)
}

/// The model that the configuration names.
///
/// # Errors
/// Its provider cannot be used so.
pub fn configured_model(config: &Config) -> Result<Arc<dyn LanguageModel>, AppError> {
    let model = &config.model;
    let wire = match model.provider {
        Provider::Scripted => return Ok(Arc::new(Scripted::new())),
        Provider::OpenAi => Wire::OpenAiChat,
        Provider::OpenAiResponses => Wire::OpenAiResponses,
        Provider::Anthropic => Wire::Anthropic,
        Provider::Gemini => Wire::Gemini,
        Provider::Ollama => Wire::Ollama,
    };
    Ok(Arc::new(Remote::new(RemoteConfig {
        wire,
        id: model.name.clone().unwrap_or_default(),
        base_url: model.base_url.clone(),
        api_key: model.api_key.clone(),
        options: model.options.clone(),
    })?))
}

/// The OpenAPI document of every server.
///
/// # Errors
/// The in-memory database could not be opened.
pub async fn document() -> Result<String, AppError> {
    let mut config = Config::default();
    config.database.url = "sqlite::memory:".into();
    config.database.max_connections = 1;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::new([], 0.0);
    let store = connect(&config, clock.clone(), metrics.clone()).await?;
    let scripted: Arc<dyn LanguageModel> = Arc::new(Scripted::new());
    let tickets = Tickets::new(fresh_key(clock.as_ref())?, clock.clone());
    let app = App::join(App::builder(config).model(scripted), store, clock, metrics, tickets)?;
    Ok(http::document(app.api))
}

/// Brings the schema up to date, and touches nothing else: a server may be at work.
///
/// # Errors
/// The database cannot be opened or brought up to date.
pub async fn migrate(config: &Config) -> Result<(), AppError> {
    let store = connect(config, Arc::new(SystemClock), Metrics::new([], 0.0)).await?;
    store.migrate().await.map_err(|error| database_error(config, &error))
}

/// An operator at a terminal, with the database of the servers.
///
/// # Errors
/// There is no such database, it cannot be opened, or its schema is of another version.
pub async fn operator(config: &Config) -> Result<Operator, AppError> {
    is_there(config)?;
    Ok(Operator::new(up_to_date(config).await?, config.clone()))
}

/// What fences the database of the servers. On SQLite no server can begin while it is there.
///
/// # Errors
/// As [`operator`]; on SQLite also if a server is at work.
pub async fn fencer(config: &Config) -> Result<Fencer, AppError> {
    is_there(config)?;
    // Before this process has the database open itself.
    let sole = ProcessLock::take(config.database.url.expose_secret()).await;
    let sole = sole.map_err(|error| database_error(config, &error))?;
    Ok(Fencer::new(up_to_date(config).await?.held_by(sole)))
}

/// Connecting would make a database, and nothing would be found in it.
fn is_there(config: &Config) -> Result<(), AppError> {
    match Store::file(config.database.url.expose_secret()) {
        Some(path) if !path.exists() => Err(AppError::new("database.url", "there is no such database")),
        _ => Ok(()),
    }
}

async fn up_to_date(config: &Config) -> Result<Store, AppError> {
    let store = connect(config, Arc::new(SystemClock), Metrics::new([], 0.0)).await?;
    if !store.is_up_to_date().await.map_err(|error| database_error(config, &error))? {
        let why = "its schema is not the one of this version; run `holdpoint migrate` first";
        return Err(AppError::new("database.url", why));
    }
    Ok(store)
}

async fn connect(config: &Config, clock: Arc<dyn Clock>, metrics: Metrics) -> Result<Store, AppError> {
    let url = config.database.url.expose_secret();
    let connected = Store::connect(url, config.database.max_connections, clock, metrics).await;
    connected.map_err(|error| database_error(config, &error))
}

/// The driver's own words repeat the URL, and its password with it, and name no file.
fn database_error(config: &Config, error: &StoreError) -> AppError {
    let url = config.database.url.expose_secret();
    let why = match error.to_string() {
        why if url.is_empty() => why,
        why => why.replace(url, "…"),
    };
    match (error, Store::file(url)) {
        (StoreError::Database(_), Some(path)) => {
            AppError::new("database.url", format!("{}: {why}", path.display()))
        }
        _ => AppError::new("database.url", why),
    }
}

/// A fresh random key for tickets.
fn fresh_key(clock: &dyn Clock) -> Result<SecretString, AppError> {
    let key = clock.secret().ok_or_else(|| AppError::new("tickets", "the system gives no random numbers"))?;
    Ok(key.into())
}

#[cfg(not(feature = "torture"))]
fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

#[cfg(feature = "torture")]
fn clock() -> Arc<dyn Clock> {
    Arc::new(Skewed(faults::skew_micros()))
}

/// Lets this process open as many files as the system lets it, and says where that is too few for
/// `limits.connections`.
pub fn open_many_files(config: &Config) {
    let connections = config.limits.caps(config.auth.mode).connections;
    let wanted = connections.map_or(0, |max| u64::from(max.get()) + OTHER_FILES);
    match rlimit::increase_nofile_limit(rlimit::INFINITY) {
        Ok(allowed) if allowed < wanted => {
            tracing::warn!(
                allowed,
                wanted,
                "limits.connections: this process may open fewer files than that"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of open files stays as it is"),
    }
}

/// What a server is made of.
#[derive(Debug)]
pub struct AppBuilder {
    config: Config,
    tools: ToolRegistry,
    models: Vec<Arc<dyn LanguageModel>>,
    handler: Option<Arc<dyn ApprovalHandler>>,
}

impl AppBuilder {
    /// With these tools, and no others.
    #[must_use]
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.tools = tools;
        self
    }

    /// With this model as well. The first is the default.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn LanguageModel>) -> Self {
        self.models.push(model);
        self
    }

    /// With this approval handler, which is asked first about held calls: [`Deferred`] leaves them to the routes.
    #[must_use]
    pub fn handler(mut self, handler: impl ApprovalHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Joins the server; brings the schema up to date, and puts in order what an earlier process left behind.
    ///
    /// # Errors
    /// The configuration cannot be used or names a tool that is not there, or the database not be opened or brought up to
    /// date. In mode `manual` there is no approval handler, or the handler has no usable name.
    pub async fn build(mut self) -> Result<App, AppError> {
        self.config.check()?;
        self.tools.check()?;
        self.check_handler()?;
        self.tools.apply_rules(&self.config.tools.rules)?;
        for Unmatched { key, why } in self.tools.check_policy(&self.config.approval)? {
            tracing::warn!(key, "{why}");
        }
        warn_of_dangers(&self.config);
        App::start(self).await
    }

    fn check_handler(&self) -> Result<(), AppError> {
        match &self.handler {
            None if self.config.approval.mode == ApprovalMode::Manual => {
                let why = "in mode \"manual\" somebody has to be asked, and there is no approval handler; give one \
                           to the builder (`handlers::Deferred` leaves every call to the routes), or set \
                           approval.mode to \"auto-approve\" or \"auto-deny\"";
                Err(AppError::new("approval.mode", why))
            }
            Some(handler) if !handlers::is_name(handler.name()) => {
                let why = format!("name {:?}: expected 1 to 64 of a-z, A-Z, 0-9, _ and -", handler.name());
                Err(AppError::new("approval handler", why))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Warns of settings by which calls run without a person, or everybody is the one user.
fn warn_of_dangers(config: &Config) {
    let (approval, auth) = (&config.approval, &config.auth);
    if approval.mode == ApprovalMode::AutoApprove {
        tracing::warn!(
            key = "approval.mode",
            "auto-approve: calls of tools that ask run without an approval"
        );
    }
    if approval.always_allow.iter().any(|pattern| pattern.chars().all(|c| c == '*')) {
        let what = "every tool is allowed: no call is held, and rules that ask have no effect";
        tracing::warn!(key = "approval.always_allow", "{what}");
    }
    if auth.mode == AuthMode::None && auth.allow_insecure {
        let what = "everyone who reaches the server is its one user, and may approve every call";
        tracing::warn!(key = "auth.allow_insecure", "{what}");
    }
}

impl App {
    /// A server with this configuration, to be given its tools, its models and who is asked about held calls.
    pub fn builder(config: Config) -> AppBuilder {
        AppBuilder { config, tools: ToolRegistry::new(), models: Vec::new(), handler: None }
    }

    async fn start(parts: AppBuilder) -> Result<Self, AppError> {
        let config = &parts.config;
        #[cfg(feature = "torture")]
        tracing::error!(
            "this build has the feature `torture`: it breaks on purpose, and serves this machine alone"
        );
        let clock = clock();
        let names = parts.tools.specs().map(|spec| spec.name.clone());
        let metrics = Metrics::new(names, clock.now().as_micros() as f64 / 1e6);
        let sole = ProcessLock::take(config.database.url.expose_secret());
        let sole = sole.await.map_err(|error| database_error(config, &error))?;
        let store = Box::pin(connect(config, clock.clone(), metrics.clone())).await?.held_by(sole);
        store.migrate().await.map_err(|error| database_error(config, &error))?;
        let tickets = Tickets::new(store.ticket_key(fresh_key(clock.as_ref())?).await?, clock.clone());
        let app = Self::join(parts, store, clock, metrics, tickets)?;
        app.warn_of_inexact_numbers();
        // Large, and it would make everything that builds a server as large.
        Box::pin(app.prepare()).await?;
        app.auth.prepare();
        let (approvals, every) = (app.api.approvals.clone(), app.config.approval.sweep);
        app.tasks.spawn(async move { approvals.keep_swept(every).await });
        let (feed, database) = (app.api.feed.clone(), &app.config.database);
        let hints = Notifications::at(&database.url, database.direct_url.as_ref());
        app.tasks.spawn(async move { feed.keep_going(hints).await });
        let chat = app.api.chat.clone();
        app.tasks.spawn(async move { chat.keep_resuming(every).await });
        Ok(app)
    }

    fn join(
        parts: AppBuilder,
        store: Store,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        tickets: Tickets,
    ) -> Result<Self, AppError> {
        let AppBuilder { config, tools, models, handler } = parts;
        // Who is asked by a rule or a session alone is asked at the routes.
        let handler = handler.unwrap_or_else(|| Arc::new(Deferred));
        let tasks = Tasks::new();
        let auth = Authenticator::new(&config, clock.clone(), tasks.clone(), tickets.clone());
        let auth = Arc::new(auth.map_err(|error| AppError::new("auth", error))?);
        let owner = clock.uuid().to_string();
        let tools = Arc::new(tools);
        let models: Arc<[Arc<dyn LanguageModel>]> = models.into();
        let gate = Gate::new(tools.clone(), &config, &owner, handlers::actor(handler.as_ref()));
        let approval = config.approval.clone();
        let executor = Executor {
            store: store.clone(),
            gate,
            tasks: tasks.clone(),
            lease: approval.lease,
            start_deadline: approval.start_deadline,
            metrics: metrics.clone(),
            agents: AgentLimits {
                depth: config.limits.agent_depth.get(),
                per_run: config.limits.agents_per_run.get(),
            },
            delegated: Arc::default(),
        };
        let agent = Agent {
            store: store.clone(),
            executor: executor.clone(),
            clock: clock.clone(),
            model: config.model.clone(),
            limits: config.limits.clone(),
            approval: approval.clone(),
        };
        let caps = config.limits.caps(config.auth.mode);
        let approvals = Approvals::new(store.clone(), executor, handler, owner, &config);
        let feed = Feed::new(store.clone(), tasks.clone());
        let rates = Arc::new(Rates::new(&caps, config.limits.bodies_in_flight_bytes));
        let chat =
            Chat::new(store.clone(), tasks.clone(), agent, approvals.clone(), models.clone(), approval, caps);
        let deadlines = Deadlines::default();
        let streaming = Streaming {
            metrics: metrics.clone(),
            piece_bytes: config.limits.stream_buffer_bytes,
            keep_alive: config.stream.keep_alive,
            default_ui_dialect: config.stream.default_ui_dialect,
        };
        let scrape = Scrape::new(store.clone(), metrics.clone(), tasks.clone(), clock.clone());
        let decisions_max = config.limits.batch;
        let api = Api {
            store,
            chat,
            approvals,
            feed,
            tools,
            models,
            clock,
            rates,
            tickets,
            streaming,
            metrics,
            scrape,
            decisions_max,
            page_bytes: config.limits.page_bytes,
        };
        Ok(Self { config, api, auth, tasks, deadlines })
    }

    fn warn_of_inexact_numbers(&self) {
        for (tool, places) in self.api.approvals.gate().tools_with_inexact_numbers() {
            tracing::warn!(
                tool,
                ?places,
                "the tool asks and takes 64-bit integers: a call with one beyond 2^53 is invalid, because a page \
                 cannot show it exactly; let the tool take a text there, or set tools.<name>.exact_numbers = \"allow\""
            );
        }
    }

    async fn prepare(&self) -> Result<(), AppError> {
        let store = &self.api.store;
        for (setting, value) in store.unsafe_settings().await? {
            tracing::warn!(
                setting,
                value,
                "a crash of the database may lose decisions that were acknowledged"
            );
        }
        // On Postgres other processes may be alive: there only a lease tells.
        if store.has_one_writer() {
            let write = store.write().await?;
            let recovered = write.recover(self.config.approval.start_deadline).await?;
            write.commit().await?;
            let Recovered { interrupted_calls, repeated_calls, closed_turns } = recovered;
            if interrupted_calls + repeated_calls + closed_turns > 0 {
                tracing::warn!(
                    interrupted_calls,
                    repeated_calls,
                    closed_turns,
                    "an earlier process left work behind; its outcome is unknown, and what may be is begun again"
                );
            }
        }
        Ok(())
    }

    /// The same server, with other deadlines for its clients.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines.tellable();
        self
    }

    /// The whole server as an endpoint, for an app of one's own. Without authentication it answers only connections of
    /// this machine, to its own names, unless `auth.allow_insecure` says otherwise.
    pub fn endpoint(&self) -> BoxEndpoint<'static> {
        http::endpoint(self.api.clone(), self.settings(), self.auth.clone(), self.tasks.clone())
    }

    fn settings(&self) -> http::Settings {
        let server = &self.config.server;
        let loopback = server.bind.ip().is_loopback();
        http::Settings {
            body_bytes: self.config.limits.body_bytes,
            chat_body_bytes: self.config.limits.chat_body_bytes,
            message_bytes: self.config.limits.message_bytes,
            docs: self.config.serves_docs(),
            // With tokens there is a proxy, which may be on this machine and let everybody in.
            metrics: loopback && server.metrics_bind.is_none() && self.config.faces_only_this_machine(),
            cors: Cors::new(&server.cors_origins),
            deadlines: self.deadlines,
        }
    }

    /// The metrics, in the text format of OpenMetrics: what `/metrics` answers, for an app that has a route of its
    /// own for it.
    pub async fn metrics(&self) -> String {
        self.api.scrape.text().await
    }

    /// For an app of one's own that is about to leave: begins no turn and no approved call any more, lets what is under way
    /// finish for the grace time, then gives it up, and it is written that nobody knows its outcome.
    pub async fn finish(&self) {
        self.tasks.finish(self.config.server.grace, async {}).await;
    }

    /// Serves until `stop`, then lets what is under way finish for the grace time, and gives up the rest.
    ///
    /// # Errors
    /// The listener has no address, or one that faces more than this machine without leave; `server.metrics_bind` is
    /// taken.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Result<(), AppError> {
        let address = listener.local_addr().map_err(|error| AppError::new("server.bind", error))?;
        if !address.ip().is_loopback() && self.config.faces_only_this_machine() {
            let why = "without authentication only this machine may be faced; expected a loopback address, \
                       auth.mode = \"jwt\", or auth.allow_insecure = true";
            return Err(AppError::new("server.bind", why));
        }
        #[cfg(feature = "torture")]
        if !address.ip().is_loopback() {
            let why =
                "a build with the feature `torture` serves this machine alone; expected a loopback address";
            return Err(AppError::new("server.bind", why));
        }
        if !address.ip().is_loopback() {
            tracing::warn!(key = "server.bind", %address, "other machines may reach this address");
        }
        let beside = match self.config.server.metrics_bind {
            Some(address) => Some(metrics_listener(address).await?),
            None => None,
        };
        let limits = http::server::Limits {
            caps: self.config.limits.caps(self.config.auth.mode),
            deadlines: self.deadlines,
            grace: self.config.server.grace,
        };
        let endpoint = self.endpoint();
        let on_loopback = beside.as_ref().is_some_and(|(_, address)| address.ip().is_loopback());
        let operators =
            http::operators_endpoint(self.api.clone(), self.settings(), on_loopback, self.tasks.clone());
        // Until the end: how a server stops is worth seeing too.
        let over = CancellationToken::new();
        let serve_metrics = async {
            match beside {
                Some((listener, _)) => {
                    let limits = http::server::Limits { grace: LAST_SCRAPE, ..limits };
                    http::server::serve(listener, operators, Tasks::new(), over.cancelled(), limits).await
                }
                None => Ok(()),
            }
        };
        let serve = async {
            let served = http::server::serve(listener, endpoint, self.tasks, stop, limits).await;
            over.cancel();
            served
        };
        let (served, metrics_served) = tokio::join!(serve, serve_metrics);
        served.map_err(|error| AppError::new("server.bind", error))?;
        metrics_served.map_err(|error| AppError::new("server.metrics_bind", error))
    }
}

async fn metrics_listener(address: SocketAddr) -> Result<(TcpListener, SocketAddr), AppError> {
    let failed = |error| AppError::new("server.metrics_bind", format!("{address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, "the metrics are served");
    Ok((listener, address))
}
