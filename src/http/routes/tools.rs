//! The routes of tools and models.

use crate::http::Api;
use crate::http::access::{Access, CallerKind::User};
use crate::http::auth::Caller;
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::JsonObject;
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::definitions::UnacceptedView;
use crate::tools::Registered;
use holdpoint_core::Principal;
use holdpoint_core::call::RiskLevel;
use holdpoint_core::tool::definition::UnusableTool;
use holdpoint_core::tool::remote::Remote;
use holdpoint_models::LanguageModel;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use std::sync::Arc;

/// A tool that the model may call.
#[derive(Debug, Object)]
#[oai(rename = "Tool", skip_serializing_if_is_none)]
struct ToolView {
    /// The name by which models call the tool.
    tool_name: String,
    /// What the tool does, as models read it.
    description: String,
    /// Human in the loop: whether a person must approve each call.
    hil: bool,
    /// Whether running a call twice has the same effect as running it once.
    idempotent: bool,
    risk_level: Word<RiskLevel>,
    /// Whether the tool says what a call would do before it is decided. An approval with other inputs then has to name
    /// a `preview_hash`.
    preview: bool,
    /// The JSON Schema of the inputs.
    input_schema: JsonObject,
    mcp: Option<McpToolView>,
    unaccepted_definition: Option<UnacceptedView>,
    /// Whether the caller may accept the `unaccepted_definition`. False if there is none.
    can_accept: bool,
}

/// The place of a tool that an MCP server has; absent for other tools.
#[derive(Debug, Object)]
#[oai(rename = "McpTool")]
pub(in crate::http) struct McpToolView {
    /// The name of the server in the configuration.
    server: String,
    /// The name of the tool at the server.
    tool: String,
}

/// A tool that an MCP server lists and that no model gets, because its definition cannot be used.
#[derive(Debug, Object)]
#[oai(rename = "LeftOutTool")]
struct LeftOutView {
    /// The name of the server in the configuration.
    server: String,
    /// The name of the tool at the server.
    tool: String,
    /// Why the tool cannot be used.
    why: String,
}

/// The tools that the caller may see.
#[derive(Debug, Object)]
struct Tools {
    /// In the order of their names.
    results: Vec<ToolView>,
    /// The tools of MCP servers that cannot be used, for a caller that may accept definitions; empty for others.
    left_out: Vec<LeftOutView>,
}

/// A model that a turn may select.
#[derive(Debug, Object)]
#[oai(rename = "Model")]
struct ModelView {
    /// The name that requests select the model by.
    id: String,
    /// The wire of the model's server, for example `openai`.
    provider: String,
    /// Whether this model responds if a request selects none.
    default: bool,
}

/// The models of this server.
#[derive(Debug, Object)]
struct Models {
    /// In the order of the configuration, the default model first.
    results: Vec<ModelView>,
}

impl McpToolView {
    pub(in crate::http) fn of(remote: &Remote) -> Self {
        Self { server: remote.server.clone(), tool: remote.tool.clone() }
    }
}

impl LeftOutView {
    fn of(tool: &UnusableTool) -> Self {
        let UnusableTool { server, tool, why } = tool;
        Self { server: server.clone(), tool: tool.clone(), why: why.clone() }
    }
}

impl ToolView {
    fn of(tool: &Registered, may_accept: bool) -> Self {
        let (spec, unaccepted) = (&tool.spec, tool.acceptance.unaccepted());
        Self {
            tool_name: spec.name.clone(),
            description: spec.description.clone(),
            hil: spec.hil,
            idempotent: spec.idempotent,
            risk_level: spec.risk.into(),
            preview: spec.preview,
            input_schema: JsonObject(spec.input_schema.as_object().cloned().unwrap_or_default()),
            mcp: tool.remote.as_ref().map(McpToolView::of),
            unaccepted_definition: unaccepted.map(UnacceptedView::of),
            can_accept: unaccepted.is_some() && may_accept,
        }
    }
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access =
    &[("listTools", &[User]), ("getTool", &[User]), ("listModels", &[User])];

pub(in crate::http) struct ToolRoutes(pub(in crate::http) Api);

#[OpenApi]
impl ToolRoutes {
    /// List the tools
    ///
    /// Returns the tools that may run on behalf of the caller, the tools whose calls the caller may approve for
    /// others, and the tools whose definitions the caller may accept.
    #[oai(path = "/tools", method = "get", operation_id = "listTools", tag = "Tag::Tools")]
    async fn list(&self, caller: Caller) -> Result<Json<Tools>, ApiError> {
        let (tools, may_accept) = (self.0.tools.now(), self.0.approvals.may_accept(&caller.0));
        let seen = tools.registered().filter(|tool| is_seen(tool, &caller.0, may_accept));
        let left_out = tools.left_out().iter().filter(|_| may_accept).map(LeftOutView::of);
        Ok(Json(Tools {
            results: seen.map(|tool| ToolView::of(tool, may_accept)).collect(),
            left_out: left_out.collect(),
        }))
    }

    /// Get a tool
    ///
    /// Returns the tool under the rules of the list: 404 for a tool that the list does not show to the caller.
    #[oai(path = "/tools/:name", method = "get", operation_id = "getTool", tag = "Tag::Tools")]
    async fn get(
        &self,
        caller: Caller,
        /// The `tool_name` of the tool.
        name: Path<String>,
    ) -> Result<Json<ToolView>, ApiError> {
        let (tools, may_accept) = (self.0.tools.now(), self.0.approvals.may_accept(&caller.0));
        let tool = tools.get(&name.0).filter(|tool| is_seen(tool, &caller.0, may_accept));
        Ok(Json(ToolView::of(tool.ok_or_else(ApiError::not_found)?, may_accept)))
    }

    /// List the models
    ///
    /// Returns the models that a turn may select with `model`.
    #[oai(path = "/qa/models", method = "get", operation_id = "listModels", tag = "Tag::Chat")]
    async fn models(&self, _caller: Caller) -> Result<Json<Models>, ApiError> {
        let models = self.0.models.iter().enumerate();
        let view = |(index, model): (usize, &Arc<dyn LanguageModel>)| ModelView {
            id: model.id().to_owned(),
            provider: model.provider().to_owned(),
            default: index == 0,
        };
        Ok(Json(Models { results: models.map(view).collect() }))
    }
}

/// Whether the caller sees the tool. A caller that may accept definitions also sees a tool whose definition is not accepted.
fn is_seen(tool: &Registered, principal: &Principal, may_accept: bool) -> bool {
    tool.is_visible_to(principal) || (may_accept && tool.acceptance.unaccepted().is_some())
}
