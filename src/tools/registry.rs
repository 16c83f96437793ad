//! The registry: the tools of a server, by name.

use super::current::ServerTools;
use super::headline::Headline;
use super::output::as_json;
use super::remote_work::RemoteServer;
use super::schema::schema_of;
use super::sub_agent::{self, DynSubAgent, SubAgent, TypedSubAgent};
use super::{IdempotencyKey, Input, Permit, Requester, RiskLevel, Tool, ToolError, Verified};
use crate::config::ToolRules;
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint_core::json::canonical::{canonical_hash, inexact_numbers};
use holdpoint_core::json::pointer;
use holdpoint_core::text::cut;
use holdpoint_core::tool::definition::{Acceptance, UnusableTool};
use holdpoint_core::tool::headline::FilledHeadline;
use holdpoint_core::tool::remote::Remote;
use holdpoint_core::tool::secrets::{SecretPaths, ShownInput};
use holdpoint_core::tool::tool_definition::ToolDefinition;
use holdpoint_egress::standard_webhooks::Signer;
use jsonschema::PatternOptions;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// What is special about a tool of an MCP server.
pub(crate) struct OfServer {
    /// Its place.
    pub(crate) remote: Remote,
    pub(crate) definition_hash: String,
    /// Maximum size of each compiled pattern of its schema, in bytes.
    pub(crate) pattern_bytes_max: usize,
}

/// Maximum size of the states that a match with a pattern of a tool of an MCP server keeps, in bytes.
const PATTERN_CACHE_BYTES: usize = 256 * 1024;

/// The static properties of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// Whether a person has to approve each call.
    pub hil: bool,
    /// Whether running a call twice has the same effect as running it once.
    pub idempotent: bool,
    /// The risk of a call.
    pub risk: RiskLevel,
    /// The question to the approver of a call: [`Tool::HEADLINE`].
    pub headline: Option<String>,
    /// Whether the tool has previews: [`Tool::PREVIEW`].
    pub preview: bool,
    /// The JSON Schema of the inputs that the model chooses, which are an object.
    pub input_schema: Value,
    /// Inputs that the operator sets. The model neither sees nor chooses them. An approver sees them, and the tool
    /// adds them to the inputs of each call.
    pub constants: Input,
}

impl ToolSpec {
    /// Creates the spec of a tool that is known only at run time. Its properties are unverified, so the tool
    /// requires approval, has high risk, and is never run again.
    pub fn unclassified(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            hil: true,
            idempotent: false,
            risk: RiskLevel::High,
            headline: None,
            preview: false,
            input_schema,
            constants: Input::new(),
        }
    }

    pub(crate) fn constants(&self) -> Option<Input> {
        Some(&self.constants).filter(|constants| !constants.is_empty()).cloned()
    }

    fn of<T: Tool>() -> Self {
        Self {
            name: T::NAME.to_owned(),
            description: T::DESCRIPTION.to_owned(),
            hil: T::HIL,
            idempotent: T::IDEMPOTENT,
            risk: T::RISK,
            headline: T::HEADLINE.map(str::to_owned),
            preview: T::PREVIEW,
            input_schema: schema_of::<T::Input>(),
            constants: Input::new(),
        }
    }
}

/// A tool without its types, for tools that are known only at run time.
pub trait DynTool: Send + Sync + 'static {
    /// Returns the spec. The registry reads it once, at registration.
    fn spec(&self) -> ToolSpec;

    /// Runs the tool with the permit's inputs.
    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>>;

    /// Says what a call with these inputs would do: [`Tool::preview`]. The server calls this only if the spec
    /// has `preview`.
    fn preview<'a>(
        &'a self,
        _input: &'a Input,
        _requester: &'a Requester,
    ) -> BoxFuture<'a, Result<String, ToolError>> {
        async { Err(ToolError::new("the tool says nothing before it runs")) }.boxed()
    }

    /// Reports the outcome of a call that was cut off: [`Tool::verify`]. The default reports that the outcome
    /// is unknown.
    fn verify<'a>(&'a self, _key: &'a IdempotencyKey) -> BoxFuture<'a, Result<Verified<Value>, ToolError>> {
        async { Ok(Verified::Unknown) }.boxed()
    }
}

struct Typed<T>(T);

impl<T: Tool> DynTool for Typed<T> {
    fn spec(&self) -> ToolSpec {
        ToolSpec::of::<T>()
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        async move {
            let permit = permit
                .for_tool::<T>(T::NAME)
                .ok_or_else(|| ToolError::new("this is another tool's permit"))?;
            let input = typed::<T>(permit.input())?;
            Ok(as_json(self.0.execute(input, permit).await?))
        }
        .boxed()
    }

    fn preview<'a>(
        &'a self,
        input: &'a Input,
        requester: &'a Requester,
    ) -> BoxFuture<'a, Result<String, ToolError>> {
        async move { self.0.preview(typed::<T>(input)?, requester).await }.boxed()
    }

    fn verify<'a>(&'a self, key: &'a IdempotencyKey) -> BoxFuture<'a, Result<Verified<Value>, ToolError>> {
        async move {
            Ok(match self.0.verify(key).await? {
                Verified::Happened(output) => Verified::Happened(as_json(output)),
                Verified::NeverHappened => Verified::NeverHappened,
                Verified::Unknown => Verified::Unknown,
            })
        }
        .boxed()
    }
}

/// Returns the inputs as the tool reads them.
fn typed<T: Tool>(input: &Input) -> Result<T::Input, ToolError> {
    let read = || serde_json::from_value(Value::Object(input.clone()));
    catch_unwind(AssertUnwindSafe(read))
        .map_err(|_panic| ToolError::new("the inputs could not be read; the tool did not run"))?
        .map_err(|error| ToolError::new(format!("the inputs do not fit: {error}")))
}

/// Maximum number of reported errors for one input.
pub(super) const ERRORS_MAX: usize = 16;
/// Maximum length of one error message, in bytes. The message quotes the faulty value.
pub(super) const MESSAGE_BYTES_MAX: usize = 512;

/// The reason why a tool cannot be registered.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is not 1 to 64 of `a-z A-Z 0-9 _ -`.
    #[error("tool name {0:?}: expected 1 to 64 of a-z, A-Z, 0-9, _ and -")]
    Name(String),
    /// Another tool has the name.
    #[error("tool {0:?} is registered twice")]
    Twice(String),
    /// The sub-agent names a tool that is not registered.
    #[error("sub-agent {0:?}: there is no tool {1:?}")]
    NoTool(String, String),
    /// The input schema is not a valid schema, or not a schema of an object.
    #[error("tool {0:?}: the input schema {1}")]
    Schema(String, String),
    /// The tool has a constant that the inputs have too, or a constant that pages cannot show exactly.
    #[error("tool {0:?}: the constant {1:?}: {2}")]
    Constant(String, String, &'static str),
    /// The headline has a placeholder that is no property of the inputs, or a single brace.
    #[error("tool {0:?}: the headline: {1}")]
    Headline(String, String),
}

/// Prints the text: an error that `main` returns is printed with `Debug`.
impl fmt::Debug for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One error in proposed or edited inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputError {
    /// The place: a JSON pointer (RFC 6901).
    pub(crate) pointer: String,
    /// The expectation that the value does not meet.
    pub(crate) message: String,
}

/// The way in which a tool's calls are done. Each tool has one.
#[derive(Clone)]
pub(super) enum ExecutionKind {
    /// The tool executes the call.
    Execute(Arc<dyn DynTool>),
    /// A child thread executes the call.
    Delegate(Arc<dyn DynSubAgent>),
    /// A worker executes the call, outside of the servers, within this time.
    Worker(Duration),
}

#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) spec: ToolSpec,
    /// What models read of the spec. The same value for each step, so that it is adapted to a wire once.
    pub(crate) definition: Arc<ToolDefinition>,
    /// The hash of what a decision covers besides the inputs: the schema with the constants. For a tool of an MCP
    /// server, the whole definition.
    pub(crate) schema_hash: String,
    /// The places of the secrets in the inputs.
    pub(crate) secrets: SecretPaths,
    /// The place of the tool, if an MCP server has it.
    pub(crate) remote: Option<Remote>,
    /// The server itself, which may execute a call as a task.
    server: Option<Arc<dyn RemoteServer>>,
    /// Whether what an MCP server says about the tool is accepted.
    pub(crate) acceptance: Acceptance,
    /// The operator's rules for the tool.
    pub(super) rules: ToolRules,
    pub(super) does: ExecutionKind,
    /// The keys of a service that may report outcomes of the tool's calls later.
    pub(crate) callback_keys: Option<Arc<Signer>>,
    headline: Option<Headline>,
    validator: jsonschema::Validator,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.spec.name).finish()
    }
}

impl Registered {
    /// Checks a tool.
    fn new(spec: ToolSpec, does: ExecutionKind, of_server: Option<OfServer>) -> Result<Self, RegistryError> {
        let name = spec.name.clone();
        if !is_tool_name(&name) {
            return Err(RegistryError::Name(name));
        }
        if spec.input_schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(RegistryError::Schema(name, "is not one of an object".to_owned()));
        }
        let mut options = jsonschema::options();
        if let Some(of_server) = &of_server {
            let patterns = PatternOptions::fancy_regex().size_limit(of_server.pattern_bytes_max);
            options = options.with_pattern_options(patterns.dfa_size_limit(PATTERN_CACHE_BYTES));
        }
        let validator = options
            .should_validate_formats(true)
            .build(&spec.input_schema)
            .map_err(|error| RegistryError::Schema(name.clone(), format!("is not valid: {error}")))?;
        let headline = spec.headline.as_deref().map(|text| Headline::parse(text, &spec.input_schema));
        let headline = headline.transpose().map_err(|why| RegistryError::Headline(name.clone(), why))?;
        check_constants(&spec)?;
        let (remote, schema_hash) = match of_server {
            Some(OfServer { remote, definition_hash, .. }) => (Some(remote), definition_hash),
            None if spec.constants.is_empty() => (None, canonical_hash(&spec.input_schema)),
            None => (None, canonical_hash(&json!([spec.input_schema, spec.constants]))),
        };
        let rules = ToolRules::default();
        let (acceptance, callback_keys) = (Acceptance::Accepted, None);
        let server = None;
        Ok(Self {
            secrets: SecretPaths::of_schema(&spec.input_schema),
            definition: Arc::new(ToolDefinition::new(name, &spec.description, &spec.input_schema)),
            spec,
            schema_hash,
            remote,
            server,
            acceptance,
            rules,
            does,
            callback_keys,
            headline,
            validator,
        })
    }

    /// Checks a tool of an MCP server. [`with_acceptance`](Self::with_acceptance) sets whether its definition is accepted.
    ///
    /// # Errors
    /// The name or the schema is unusable.
    pub(crate) fn of_server(
        tool: Arc<dyn DynTool>,
        of_server: OfServer,
        server: Arc<dyn RemoteServer>,
    ) -> Result<Self, RegistryError> {
        let tool = Self::new(tool.spec(), ExecutionKind::Execute(tool), Some(of_server))?;
        Ok(Self { server: Some(server), ..tool })
    }

    /// Returns the tool with its definition accepted or not.
    pub(crate) fn with_acceptance(&self, acceptance: Acceptance) -> Self {
        Self { acceptance, ..self.clone() }
    }

    /// Whether the tool itself executes its calls, in a process of a server.
    pub(crate) fn executes(&self) -> bool {
        matches!(self.does, ExecutionKind::Execute(_))
    }

    /// Returns the longest execution of a call by a worker, if workers execute the calls.
    pub(crate) fn worker_timeout(&self) -> Option<Duration> {
        match self.does {
            ExecutionKind::Worker(timeout) => Some(timeout),
            ExecutionKind::Execute(_) | ExecutionKind::Delegate(_) => None,
        }
    }

    /// Returns the question to the approver of a call with these inputs, if the tool has one.
    pub(crate) fn headline(&self, input: &ShownInput) -> Option<FilledHeadline> {
        self.headline.as_ref().map(|headline| headline.filled(input.as_input()))
    }

    /// Returns the errors in these inputs. An error quotes the faulty value, unless the tool has secrets, or the call had
    /// some when the model made it.
    pub(crate) fn errors(&self, input: &Input, of_call: &SecretPaths) -> Vec<InputError> {
        let quotes = self.secrets.is_empty() && of_call.is_empty();
        let constants = input.keys().filter(|name| self.spec.constants.contains_key(*name));
        let constants = constants.map(|name| InputError {
            pointer: pointer::join("", name),
            message: "the operator sets this input".to_owned(),
        });
        let input = Value::Object(input.clone());
        let errors = self.validator.iter_errors(&input).map(|error| InputError {
            pointer: error.instance_path().to_string(),
            message: cut(
                if quotes { error.to_string() } else { error.masked().to_string() },
                MESSAGE_BYTES_MAX,
            ),
        });
        constants.chain(errors).take(ERRORS_MAX).collect()
    }

    /// Returns the errors in these inputs, by the schema alone.
    pub(super) fn schema_errors<'i>(
        &'i self,
        input: &'i Value,
    ) -> impl Iterator<Item = jsonschema::ValidationError<'i>> {
        self.validator.iter_errors(input)
    }

    /// Whether the inputs fit the tool's schema.
    pub(super) fn takes(&self, input: &Value) -> bool {
        self.validator.is_valid(input)
    }
}

/// The tools of a server.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    pub(super) tools: BTreeMap<String, Arc<Registered>>,
    /// The MCP servers, whose tools come and go.
    pub(super) servers: Vec<ServerTools>,
    /// The tools of MCP servers that cannot be used.
    pub(super) left_out: Vec<UnusableTool>,
    /// The operator's rules, also for tools that are not there now.
    pub(super) rules: BTreeMap<String, ToolRules>,
}

impl fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}

impl ToolRegistry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// Returns an error if the name or the schema is unusable, or if the name is taken.
    pub fn register<T: Tool>(&mut self, tool: T) -> Result<(), RegistryError> {
        self.register_dyn(Arc::new(Typed(tool)))
    }

    /// Adds a tool that is known only at run time.
    ///
    /// # Errors
    /// Returns the errors of [`register`](Self::register).
    pub fn register_dyn(&mut self, tool: Arc<dyn DynTool>) -> Result<(), RegistryError> {
        let spec = tool.spec();
        self.insert(spec, ExecutionKind::Execute(tool))
    }

    /// Lets the service with these keys report outcomes of this tool's calls later.
    pub(crate) fn take_callbacks(&mut self, tool: &str, keys: Arc<Signer>) {
        if let Some(tool) = self.tools.get_mut(tool).and_then(Arc::get_mut) {
            tool.callback_keys = Some(keys);
        }
    }

    /// Adds a tool whose calls are executed by a child thread.
    ///
    /// # Errors
    /// Returns the errors of [`register`](Self::register).
    pub fn register_sub_agent<T: SubAgent>(&mut self, agent: T) -> Result<(), RegistryError> {
        self.insert(sub_agent::spec::<T>(), ExecutionKind::Delegate(Arc::new(TypedSubAgent(agent))))
    }

    /// Adds a tool whose calls are executed by workers: programs that claim the calls over HTTP. No
    /// renewal extends an execution beyond `timeout`.
    ///
    /// # Errors
    /// Returns the errors of [`register`](Self::register).
    pub fn register_worker_tool(&mut self, spec: ToolSpec, timeout: Duration) -> Result<(), RegistryError> {
        self.insert(spec, ExecutionKind::Worker(timeout))
    }

    fn insert(&mut self, spec: ToolSpec, does: ExecutionKind) -> Result<(), RegistryError> {
        let tool = Registered::new(spec, does, None)?;
        let name = tool.spec.name.clone();
        if self.tools.contains_key(&name) {
            return Err(RegistryError::Twice(name));
        }
        self.tools.insert(name, Arc::new(tool));
        Ok(())
    }

    /// Checks that every tool that a sub-agent names is registered. Call this after all registrations.
    pub(crate) fn check(&self) -> Result<(), RegistryError> {
        for (name, registered) in &self.tools {
            let ExecutionKind::Delegate(agent) = &registered.does else { continue };
            let mut named = agent.tools().unwrap_or_default().iter();
            if let Some(missing) = named.find(|named| !self.may_have(named)) {
                return Err(RegistryError::NoTool(name.clone(), (*missing).to_owned()));
            }
        }
        Ok(())
    }

    /// Returns the specs of all tools, by name.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.values().map(|registered| &registered.spec)
    }

    /// Returns the names of the tools that execute their calls themselves and may know the outcomes.
    pub(crate) fn executing(&self) -> impl Iterator<Item = &String> {
        let executing = |(_, tool): &(&String, &Arc<Registered>)| tool.executes() && tool.remote.is_none();
        self.tools.iter().filter(executing).map(|(name, _)| name)
    }

    /// Returns the MCP servers that are connected and have tools.
    pub(crate) fn connected(&self) -> BTreeSet<&str> {
        self.tools.values().filter_map(|tool| Some(tool.remote.as_ref()?.server.as_str())).collect()
    }

    pub(super) fn remote_server(&self, name: &str) -> Option<Arc<dyn RemoteServer>> {
        let is_of_server = |tool: &&Arc<Registered>| tool.remote.as_ref().is_some_and(|it| it.server == name);
        self.tools.values().find(is_of_server)?.server.clone()
    }

    pub(super) fn server_with(&self, name: &str, remote: &Remote) -> Option<Arc<dyn RemoteServer>> {
        self.get(name).filter(|tool| tool.remote.as_ref() == Some(remote))?.server.clone()
    }

    pub(crate) fn registered(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.tools.values()
    }

    /// Returns the tools of MCP servers that cannot be used.
    pub(crate) fn left_out(&self) -> &[UnusableTool] {
        &self.left_out
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Registered>> {
        self.tools.get(name)
    }
}

/// Whether a tool can have this name.
pub(crate) fn is_tool_name(name: &str) -> bool {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= 64 && name.chars().all(usable)
}

fn check_constants(spec: &ToolSpec) -> Result<(), RegistryError> {
    let wrong = |name: &str, why| Err(RegistryError::Constant(spec.name.clone(), name.to_owned(), why));
    let inputs = spec.input_schema.get("properties");
    if let Some(name) = spec.constants.keys().find(|name| inputs.is_some_and(|it| it.get(name).is_some())) {
        return wrong(name, "the model chooses an input of this name");
    }
    match inexact_numbers(&spec.constants).first() {
        Some((at, _)) => wrong(at, "expected a number that a page can show exactly, or a text"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Late(Value, &'static str);

    impl DynTool for Late {
        fn spec(&self) -> ToolSpec {
            ToolSpec::unclassified(self.1, "known at run time", self.0.clone())
        }

        fn execute(&self, _permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
            async { Ok(Value::Null) }.boxed()
        }
    }

    #[test]
    fn a_tool_known_only_at_run_time_requires_approval_by_default() {
        let mut registry = ToolRegistry::new();
        registry.register_dyn(Arc::new(Late(json!({"type": "object"}), "late"))).unwrap();
        assert!(registry.specs().all(|spec| spec.hil && spec.risk == RiskLevel::High && !spec.idempotent));
    }

    #[test]
    fn unusable_tools_are_refused_by_name() {
        let mut registry = ToolRegistry::new();
        let object = json!({"type": "object"});
        let mut try_one = |schema: &Value, name| registry.register_dyn(Arc::new(Late(schema.clone(), name)));
        assert_eq!(try_one(&object, "ok"), Ok(()));
        assert_eq!(try_one(&object, "ok"), Err(RegistryError::Twice("ok".to_owned())));
        assert_eq!(try_one(&object, "a b"), Err(RegistryError::Name("a b".to_owned())));
        assert!(matches!(try_one(&json!({"type": "null"}), "n"), Err(RegistryError::Schema(..))));
        assert!(matches!(
            try_one(&json!({"type": "object", "properties": 3}), "p"),
            Err(RegistryError::Schema(..))
        ));
    }

    struct Lister;

    impl SubAgent for Lister {
        const NAME: &'static str = "lister";
        const DESCRIPTION: &'static str = "Lists.";
        const HIL: bool = false;
        const TOOLS: Option<&'static [&'static str]> = Some(&["lister", "list"]);
        type Input = BTreeMap<String, String>;

        fn task(&self, _: Self::Input) -> String {
            String::new()
        }
    }

    #[test]
    fn a_sub_agent_names_only_registered_tools() {
        let mut registry = ToolRegistry::new();
        registry.register_sub_agent(Lister).unwrap();
        let missing = RegistryError::NoTool("lister".to_owned(), "list".to_owned());
        assert_eq!(registry.check(), Err(missing));
        assert_eq!(registry.register_sub_agent(Lister), Err(RegistryError::Twice("lister".to_owned())));
        registry.register_dyn(Arc::new(Late(json!({"type": "object"}), "list"))).unwrap();
        assert_eq!(registry.check(), Ok(()));
    }

    #[test]
    fn an_input_error_has_the_pointer_of_the_value() {
        let mut registry = ToolRegistry::new();
        let schema = json!({"type": "object", "properties": {"path": {"type": "string"}},
                            "required": ["path"], "additionalProperties": false});
        registry.register_dyn(Arc::new(Late(schema, "t"))).unwrap();
        let errors = |value: Value| {
            registry.get("t").unwrap().errors(value.as_object().unwrap(), &SecretPaths::default())
        };
        assert!(errors(json!({"path": "a"})).is_empty());
        assert_eq!(errors(json!({"path": 1}))[0].pointer, "/path");
        assert_eq!(errors(json!({})).len(), 1);
        assert_eq!(errors(json!({"path": "a", "x": 1})).len(), 1);
    }
}
