//! The composition root: the only module that names concrete components and connects them.

mod deliveries;
mod error;
mod tools;

use crate::agent::{Agent, Executor, Heartbeats, Tasks, Wake};
use crate::approvals::Approvals;
use crate::approvals::handlers::{self, ApprovalHandler, Deferred};
use crate::chat::Chat;
use crate::config::{ApprovalMode, AuthMode, Config, Database, Provider};
use crate::entropy::{Entropy, SystemEntropy};
use crate::feed::Feed;
use crate::http::Scrape;
use crate::http::{self, Api, Authenticator, Cors, DialectHint, Rates, Streaming, Tickets};
pub use crate::operator::{
    CALL_STATES, CallLine, Fenced, Fencer, FieldChange, Finding, Operator, OperatorError, Purged, ToolLine,
    WAITING_STATES, WebhookLine,
};
pub use crate::startup::summary;
use crate::tools::gate::Gates;
use crate::tools::{CurrentTools, ToolRegistry, Unmatched};
pub use error::AppError;
pub use holdpoint_core::clock::{Clock, SystemClock, Timestamp};
use holdpoint_metrics::Metrics;
use holdpoint_models::LanguageModel;
use holdpoint_models::remote::{Remote, RemoteConfig, Wire};
use holdpoint_models::scripted::Scripted;
#[doc(inline)]
pub use holdpoint_serve::Deadlines;
use holdpoint_serve::WriteDeadline;
use holdpoint_store::{AgentLimits, Notifications, ProcessLock, RecoveredWork, Store, StoreError};
pub use holdpoint_store::{Commit, CommitFailed, CommitHook};
use poem::EndpointExt;
use poem::endpoint::BoxEndpoint;
use secrecy::{ExposeSecret, SecretString};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
pub use tools::configured_tools;
#[cfg(feature = "demo")]
pub use tools::demo_tools;
pub use uuid::Uuid;

/// The grace time of a metrics request that is in progress at shutdown.
const LAST_SCRAPE: Duration = Duration::from_secs(1);

/// The number of files that a process opens besides client connections: database, models and issuer.
#[cfg(feature = "cli")]
const OTHER_FILES: u64 = 100;

/// A server that is ready to serve.
#[derive(Debug)]
pub struct App {
    config: Box<Config>, // Boxed, so that it adds nothing to the future of `serve`.
    api: Api,
    auth: Arc<Authenticator>,
    tasks: Tasks,
    deadlines: Deadlines,
}

/// Returns the model that the configuration names.
///
/// # Errors
/// The configured provider cannot be used with these settings.
pub fn configured_model(config: &Config) -> Result<Arc<dyn LanguageModel>, AppError> {
    let model = &config.model;
    if model.provider == Provider::SCRIPTED {
        return Ok(Arc::new(Scripted::new()));
    }
    let unknown = || AppError::new("model.provider", "no wire has this name");
    Ok(Arc::new(Remote::new(RemoteConfig {
        wire: Wire::by_name(model.provider.as_str()).ok_or_else(unknown)?,
        id: model.name.clone().unwrap_or_default(),
        base_url: model.base_url.clone(),
        api_key: model.api_key.clone(),
        options: model.options.clone(),
        idle_timeout: model.idle_timeout,
    })?))
}

/// Returns the OpenAPI document, which is the same for every server: for generators, or with every operation if `full`.
///
/// # Errors
/// The in-memory database cannot be opened.
pub async fn document(full: bool) -> Result<String, AppError> {
    let config = Config { database: Database::in_memory(), ..Config::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::new([], 0.0);
    let store = connect(&config, clock.clone(), metrics.clone()).await?;
    let scripted: Arc<dyn LanguageModel> = Arc::new(Scripted::new());
    let tickets = Tickets::new(fresh_key(&SystemEntropy)?, clock.clone());
    let app = App::join(App::builder(config).model(scripted), store, metrics, tickets)?;
    Ok(http::document(&app.api, full).to_owned())
}

/// Brings the schema up to date and changes nothing else. Servers may be running.
///
/// # Errors
/// The database cannot be opened or brought up to date.
pub async fn migrate(config: &Config) -> Result<(), AppError> {
    let store = connect(config, Arc::new(SystemClock), Metrics::new([], 0.0)).await?;
    store.migrate().await.map_err(|error| database_error(config, &error))
}

/// Returns the operator interface to the database of the servers.
///
/// # Errors
/// The database does not exist, cannot be opened, or has a schema of another version.
pub async fn operator(config: &Config) -> Result<Operator, AppError> {
    is_there(config)?;
    Ok(Operator::new(up_to_date(config).await?, config.clone()))
}

/// Returns the fencer of the servers' database. On SQLite, no server can start while the fencer exists.
///
/// # Errors
/// As [`operator`]. On SQLite, also if a server is running.
pub async fn fencer(config: &Config) -> Result<Fencer, AppError> {
    is_there(config)?;
    // The process lock comes first: this process must not have the database open itself when it takes the
    // lock.
    let sole = ProcessLock::take(config.database.url.expose_secret()).await;
    let sole = sole.map_err(|error| database_error(config, &error))?;
    Ok(Fencer::new(up_to_date(config).await?.held_by(sole)))
}

/// Refuses a SQLite file that does not exist. A connection would create an empty database.
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
    let connected = Store::connect(&config.database, clock, metrics).await;
    connected.map_err(|error| database_error(config, &error))
}

/// Converts a store error without the secrets of the URL. The driver's text repeats the URL with its
/// password, and does not name the file.
fn database_error(config: &Config, error: &StoreError) -> AppError {
    let url = config.database.url.expose_secret();
    let why = match error.to_string() {
        why if url.is_empty() => why,
        why => why.replace(url, "…"),
    };
    match (error, Store::file(url)) {
        (StoreError::InPublic { .. }, _) => AppError::new("database.schema", why),
        (StoreError::Database(_), Some(path)) => {
            AppError::new("database.url", format!("{}: {why}", path.display()))
        }
        _ => AppError::new("database.url", why),
    }
}

/// Returns a new random key for tickets.
fn fresh_key(entropy: &dyn Entropy) -> Result<SecretString, AppError> {
    let key = entropy.secret();
    let key = key.ok_or_else(|| AppError::new("tickets", "the system gives no random numbers"))?;
    Ok(key.into())
}

/// Raises the limit of open files of this process as far as the system allows. Logs a warning if the result
/// is too low for `limits.connections`.
#[cfg(feature = "cli")]
pub fn open_many_files(config: &Config) {
    let connections = config.limits.caps(config.auth.mode).connections;
    let needed = connections.map_or(0, |max| u64::from(max.get()) + OTHER_FILES);
    match rlimit::increase_nofile_limit(rlimit::INFINITY) {
        Ok(allowed) if allowed < needed => {
            tracing::warn!(
                allowed,
                needed,
                "limits.connections: this process may open fewer files than that"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// The components of a server.
#[derive(Debug)]
pub struct AppBuilder {
    config: Config,
    tools: ToolRegistry,
    models: Vec<Arc<dyn LanguageModel>>,
    handler: Option<Arc<dyn ApprovalHandler>>,
    clock: Arc<dyn Clock>,
    commit_hook: Option<Arc<dyn CommitHook>>,
}

impl AppBuilder {
    /// Sets the tools. The server has no other tools.
    #[must_use]
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.tools = tools;
        self
    }

    /// Adds a model. The first model is the default.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn LanguageModel>) -> Self {
        self.models.push(model);
        self
    }

    /// Sets the approval handler, which the server asks first about a held call. [`Deferred`] leaves every
    /// call to the routes.
    #[must_use]
    pub fn handler(mut self, handler: impl ApprovalHandler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Sets the clock of the process, for tests of wrong clocks. The default is [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the hook at the commits of the server, for tests of crash safety.
    #[must_use]
    pub fn commit_hook(mut self, hook: Arc<dyn CommitHook>) -> Self {
        self.commit_hook = Some(hook);
        self
    }

    /// Builds the server. Brings the schema up to date, and recovers the unfinished work of an earlier
    /// process.
    ///
    /// # Errors
    /// The configuration is invalid or names an unknown tool. The database cannot be opened or brought up to
    /// date. In mode `manual` there is no approval handler, or the handler has an unusable name.
    pub async fn build(mut self) -> Result<App, AppError> {
        self.config.check()?;
        tools::announce(&mut self.tools, &self.config)?;
        self.tools.check()?;
        self.check_handler()?;
        self.tools.apply_rules(&self.config.tools.rules)?;
        for Unmatched { key, why } in self.tools.check_policy(&self.config.approval)? {
            tracing::warn!(key, "{why}");
        }
        warn_of_dangers(&self.config);
        // Boxed for the same reason as in `start`.
        Box::pin(App::start(self)).await
    }

    fn check_handler(&self) -> Result<(), AppError> {
        match &self.handler {
            None if self.config.approval.mode == ApprovalMode::Manual => {
                let why = "in mode \"manual\" an approval handler is required; give one \
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

/// Warns of settings by which calls run without an approval, or by which every caller is the same user.
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
        let what = "every caller is the one user of the server, and may approve every call";
        tracing::warn!(key = "auth.allow_insecure", "{what}");
    }
}

impl App {
    /// Returns the builder of a server with this configuration. The builder takes the tools, the models and
    /// the approval handler.
    pub fn builder(config: Config) -> AppBuilder {
        AppBuilder {
            config,
            tools: ToolRegistry::new(),
            models: Vec::new(),
            handler: None,
            clock: Arc::new(SystemClock),
            commit_hook: None,
        }
    }

    async fn start(parts: AppBuilder) -> Result<Self, AppError> {
        let config = &parts.config;
        let (clock, hook) = (parts.clock.clone(), parts.commit_hook.clone());
        let names = parts.tools.names();
        let metrics = Metrics::new(names, clock.now().as_micros() as f64 / 1e6);
        let sole = ProcessLock::take(config.database.url.expose_secret());
        let sole = sole.await.map_err(|error| database_error(config, &error))?;
        let store =
            Box::pin(connect(config, clock.clone(), metrics.clone())).await?.held_by(sole).hooked(hook);
        store.migrate().await.map_err(|error| database_error(config, &error))?;
        let tickets = Tickets::new(store.ticket_key(fresh_key(&SystemEntropy)?).await?, clock.clone());
        let app = Self::join(parts, store, metrics, tickets)?;
        app.warn_of_inexact_numbers();
        #[cfg(feature = "mcp")]
        let servers = tools::mcp_servers(&app.config, &app.api, &app.tasks)?;
        // The future is large. Boxing keeps it out of the futures of all callers.
        Box::pin(app.prepare()).await?;
        app.auth.prepare();
        app.tasks.spawn_background(app.api.approvals.heartbeats().run());
        #[cfg(feature = "mcp")]
        for server in servers {
            app.tasks.spawn_background(server);
        }
        let (approvals, every) = (app.api.approvals.clone(), app.config.approval.sweep);
        app.tasks.spawn(approvals.clone().run_claims());
        app.tasks.spawn(async move { approvals.run_sweeper(every).await });
        let (feed, hints) = (app.api.feed.clone(), Notifications::of(&app.config.database));
        app.tasks.spawn(async move { feed.run_sequencer(hints).await });
        let chat = app.api.chat.clone();
        app.tasks.spawn(async move { chat.run_resumer(every).await });
        Box::pin(app.api.deliveries.start()).await?;
        Ok(app)
    }

    fn join(parts: AppBuilder, store: Store, metrics: Metrics, tickets: Tickets) -> Result<Self, AppError> {
        let AppBuilder { config, tools, models, handler, clock, commit_hook: _ } = parts;
        // Without a handler, rules and sessions can still hold calls. The routes decide these calls.
        let handler = handler.unwrap_or_else(|| Arc::new(Deferred));
        let tasks = Tasks::new();
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let auth = Authenticator::new(
            &config,
            store.clone(),
            clock.clone(),
            tasks.clone(),
            tickets.clone(),
            entropy.clone(),
        );
        let auth = Arc::new(auth.map_err(|error| AppError::new("auth", error))?);
        let owner = clock.uuid().to_string();
        let tools = CurrentTools::new(tools);
        let models: Arc<[Arc<dyn LanguageModel>]> = models.into();
        let gates = Gates::new(tools.clone(), &config, &owner, handlers::actor(handler.as_ref()));
        let approval = config.approval.clone();
        let heartbeats = Heartbeats::new(store.clone(), tasks.clone(), metrics.clone(), approval.lease);
        let executor = Executor {
            store: store.clone(),
            gates,
            tasks: tasks.clone(),
            heartbeats,
            lease: approval.lease,
            start_deadline: approval.start_deadline,
            metrics: metrics.clone(),
            agents: AgentLimits {
                depth: config.limits.agent_depth.get(),
                per_run: config.limits.agents_per_run.get(),
            },
            wake: Wake::default(),
        };
        let agent = Agent::new(executor.clone(), clock.clone(), entropy.clone(), &config);
        let caps = config.limits.caps(config.auth.mode);
        let approvals = Approvals::new(store.clone(), executor, handler, owner, entropy, &config);
        let feed = Feed::new(store.clone(), tasks.clone());
        let rates = Arc::new(Rates::new(&caps, &config.limits));
        let chat =
            Chat::new(store.clone(), tasks.clone(), agent, approvals.clone(), models.clone(), approval, caps);
        let deadlines = Deadlines::default();
        let streaming = Streaming {
            metrics: metrics.clone(),
            piece_bytes: config.limits.stream_buffer_bytes,
            keep_alive: config.stream.keep_alive,
            default_ui_dialect: config.stream.default_ui_dialect,
            hint: DialectHint::default(),
        };
        let deliveries = deliveries::prepare(&config, &store, &feed, &tasks, &clock, &metrics, &approvals)?;
        let scrape = Scrape::new(&store, &metrics, &tasks, &clock, &deliveries);
        let decisions_max = config.limits.batch;
        let api = Api {
            store,
            chat,
            approvals,
            feed,
            deliveries,
            tools,
            models,
            clock,
            rates,
            tickets,
            sign_ins: auth.sign_ins(),
            streaming,
            metrics,
            scrape,
            decisions_max,
            page_bytes: config.limits.page_bytes,
        };
        Ok(Self { config: Box::new(config), api, auth, tasks, deadlines })
    }

    fn warn_of_inexact_numbers(&self) {
        for (tool, pointers) in self.api.approvals.gate().tools_with_inexact_numbers() {
            tracing::warn!(
                tool,
                ?pointers,
                "a call of this tool with an integer beyond 2^53 is invalid, because a page cannot show it \
                 exactly; use a string in the schema, or set tools.<name>.exact_numbers = \"allow\""
            );
        }
    }

    async fn prepare(&self) -> Result<(), AppError> {
        let store = &self.api.store;
        for (setting, value) in store.unsafe_settings().await? {
            tracing::warn!(setting, value, "a crash of the database may lose acknowledged decisions");
        }
        // Recovery is for one writer. On Postgres other processes may be alive, and only an expired lease
        // shows lost work.
        if store.has_one_writer() {
            let write = store.write().await?;
            let recovered = write.recover(self.config.approval.start_deadline).await?;
            write.commit().await?;
            let RecoveredWork { interrupted_calls, repeated_calls, closed_turns } = recovered;
            if interrupted_calls + repeated_calls + closed_turns > 0 {
                tracing::warn!(
                    interrupted_calls,
                    repeated_calls,
                    closed_turns,
                    "an earlier process left unfinished work; interrupted calls have an unknown outcome"
                );
            }
        }
        Ok(())
    }

    /// Returns the same server with other deadlines for its clients.
    #[must_use]
    pub fn with_deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Returns the whole server as an endpoint for another poem app. Without authentication, the endpoint
    /// answers only connections of this machine that use a name of this machine, unless `auth.allow_insecure`
    /// is set.
    pub fn endpoint(&self) -> BoxEndpoint<'static> {
        WriteDeadline::new(self.routes(), self.deadlines.taking).boxed()
    }

    fn routes(&self) -> BoxEndpoint<'static> {
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
            console: self.config.serves_console(),
            // With tokens there is a proxy. The proxy may run on this machine and forward requests of any
            // client.
            metrics: loopback && server.metrics_bind.is_none() && self.config.faces_only_this_machine(),
            cors: Cors::new(&server.cors_origins),
            deadlines: self.deadlines,
        }
    }

    /// Returns the metrics in the text format of OpenMetrics, as `/metrics` does. For an app with a metrics
    /// route of its own.
    pub async fn metrics(&self) -> String {
        self.api.scrape.text().await
    }

    /// Shuts the server down, for an app that embeds it. Starts no further turn and no further approved call.
    /// Waits up to the grace time for running work, then abandons the rest and stores its outcome as unknown.
    pub async fn finish(&self) {
        self.tasks.finish(self.config.server.grace, async {}).await;
    }

    /// Serves until `stop` completes. Then waits up to the grace time for running work, and abandons the
    /// rest.
    ///
    /// # Errors
    /// The listener has no address, or an address that is not loopback without permission for that. The
    /// address `server.metrics_bind` is in use.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> Result<(), AppError> {
        let address = listener.local_addr().map_err(|error| AppError::new("server.bind", error))?;
        if !address.ip().is_loopback() && self.config.faces_only_this_machine() {
            let why = "without authentication the server may only listen on loopback; expected a loopback \
                       address, auth.mode = \"jwt\", or auth.allow_insecure = true";
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
        let endpoint = self.routes();
        let on_loopback = beside.as_ref().is_some_and(|(_, address)| address.ip().is_loopback());
        let operators =
            http::operators_endpoint(self.api.clone(), self.settings(), on_loopback, self.tasks.clone());
        // The metrics listener serves until the main listener has stopped, so that a scrape can observe the
        // shutdown.
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
