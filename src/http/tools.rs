//! The routes of tools and models.

use super::Api;
use super::auth::Caller;
use super::body::JsonObject;
use super::call::RiskLevel;
use super::error::ApiError;
use super::payload::{Json, Tag};
use crate::llm::LanguageModel;
use crate::tools::ToolSpec;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use std::sync::Arc;

/// A tool that the model may call.
#[derive(Debug, Object)]
#[oai(rename = "Tool")]
struct ToolView {
    /// The name by which models call the tool.
    tool_name: String,
    /// What the tool does, as models read it.
    description: String,
    /// Human in the loop: whether a person must approve each call.
    hil: bool,
    /// Whether running a call twice has the same effect as running it once.
    idempotent: bool,
    risk_level: RiskLevel,
    /// The JSON Schema of the inputs.
    input_schema: JsonObject,
}

/// The tools that the caller may see.
#[derive(Debug, Object)]
struct Tools {
    /// In the order of their names.
    results: Vec<ToolView>,
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

impl ToolView {
    fn of(spec: &ToolSpec) -> Self {
        Self {
            tool_name: spec.name.clone(),
            description: spec.description.clone(),
            hil: spec.hil,
            idempotent: spec.idempotent,
            risk_level: spec.risk.into(),
            input_schema: JsonObject(spec.input_schema.as_object().cloned().unwrap_or_default()),
        }
    }
}

pub(super) struct ToolRoutes(pub(super) Api);

#[OpenApi]
impl ToolRoutes {
    /// List the tools
    ///
    /// Returns the tools that may run on behalf of the caller, and the tools whose calls the caller may
    /// approve for others.
    #[oai(path = "/tools", method = "get", operation_id = "listTools", tag = "Tag::Tools")]
    async fn list(&self, caller: Caller) -> Result<Json<Tools>, ApiError> {
        let specs = self.0.tools.visible_to(&caller.0);
        Ok(Json(Tools { results: specs.map(ToolView::of).collect() }))
    }

    /// Get a tool
    ///
    /// Returns the tool under the rules of the list: 404 for a tool that the caller may neither use nor approve.
    #[oai(path = "/tools/:name", method = "get", operation_id = "getTool", tag = "Tag::Tools")]
    async fn get(
        &self,
        caller: Caller,
        /// The `tool_name` of the tool.
        name: Path<String>,
    ) -> Result<Json<ToolView>, ApiError> {
        let mut specs = self.0.tools.visible_to(&caller.0);
        let spec = specs.find(|spec| spec.name == name.0).ok_or_else(ApiError::not_found)?;
        Ok(Json(ToolView::of(spec)))
    }

    /// List the models
    ///
    /// Returns the models that a turn may select with `model`.
    #[oai(path = "/qa/models", method = "get", operation_id = "listModels", tag = "Tag::Chat")]
    async fn models(&self, _caller: Caller) -> Result<Json<Models>, ApiError> {
        let models = self.0.models.iter().enumerate();
        let view = |(place, model): (usize, &Arc<dyn LanguageModel>)| ModelView {
            id: model.id().to_owned(),
            provider: model.provider().to_owned(),
            default: place == 0,
        };
        Ok(Json(Models { results: models.map(view).collect() }))
    }
}
