//! What the library cannot read of a message of a server is read here, item by item. An item that cannot be read is left
//! out by its name, or replaced by a sentence, and the rest counts.

use crate::mcp::client::message::output::named;
use holdpoint_core::text::cut;
use holdpoint_core::text::visible::visible;
use rmcp::model::{
    CallToolResult, ClientRequest, ContentBlock, DetailedTask, ElicitRequest, ElicitRequestParams,
    ElicitationSchema, GetTaskResult, InputRequest, InputRequests, InputRequiredResult, ListToolsResult,
    MetaObject, RequestMetaObject, ServerRequest, ServerResult, Task, TaskPayload, Tool,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The field of the metadata of a listing that has the definitions which cannot be read.
const UNREAD: &str = "holdpoint/unread";
/// The field of the metadata of a form that has its schema, if the library cannot read the schema.
const SCHEMA: &str = "holdpoint/schema";
/// The method that asks for the fields of a form.
const FORM: &str = "elicitation/create";
/// Maximum length of a name that a server gives, in bytes.
const NAME_BYTES_MAX: usize = 100;
/// In place of content that cannot be read.
const UNKNOWN: &str = "[content of an unknown kind]";
/// In place of the message of a form that has none.
const NO_MESSAGE: &str = "The server asks, and does not say what for.";

/// What an own request expects as its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mcp) enum Expected {
    /// The result of a call, or how the call continues.
    Call,
    /// A page of the listed tools.
    Tools,
    Task,
    /// Anything else. It counts as the library reads it.
    Other,
}

/// A definition that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in crate::mcp) struct Unread {
    /// The name of the tool, as far as it has one.
    pub(in crate::mcp) tool: String,
    /// The field that cannot be read.
    pub(in crate::mcp) field: String,
}

impl Expected {
    pub(in crate::mcp) fn by(request: &ClientRequest) -> Self {
        match request {
            ClientRequest::CallToolRequest(_) => Self::Call,
            ClientRequest::ListToolsRequest(_) => Self::Tools,
            ClientRequest::GetTaskRequest(_) => Self::Task,
            _ => Self::Other,
        }
    }
}

/// Returns an answer as the library should have read it. An answer without a readable part stays as it is.
pub(in crate::mcp) fn answer(expected: Expected, result: ServerResult) -> ServerResult {
    let read = match (expected, &result) {
        (Expected::Other, _)
        | (
            Expected::Call,
            ServerResult::CallToolResult(_)
            | ServerResult::InputRequiredResult(_)
            | ServerResult::CreateTaskResult(_)
            | ServerResult::TaskAckResult(_)
            | ServerResult::EmptyResult(_),
        )
        | (Expected::Tools, ServerResult::ListToolsResult(_))
        | (Expected::Task, ServerResult::GetTaskResult(_)) => None,
        (Expected::Call, other) => serde_json::to_value(other).ok().and_then(call),
        (Expected::Tools, other) => {
            serde_json::to_value(other).ok().and_then(tools).map(ServerResult::ListToolsResult)
        }
        (Expected::Task, other) => {
            serde_json::to_value(other).ok().and_then(task).map(ServerResult::GetTaskResult)
        }
    };
    read.unwrap_or(result)
}

/// Reads a request for the fields of a form that the library does not know as one.
pub(in crate::mcp) fn request(request: &mut ServerRequest) {
    let ServerRequest::CustomRequest(custom) = request else { return };
    if custom.method == FORM
        && let Some(params) = form(custom.params.take().unwrap_or_default())
    {
        let mut read = ElicitRequest::new(params);
        read.extensions = std::mem::take(&mut custom.extensions);
        *request = ServerRequest::ElicitRequest(read);
    }
}

/// Returns the schema of a form: that of its metadata, if the library could not read it.
pub(in crate::mcp) fn schema(
    meta: Option<RequestMetaObject>,
    schema: ElicitationSchema,
) -> Option<Map<String, Value>> {
    let kept = meta.and_then(|mut meta| meta.remove(SCHEMA));
    match kept.or_else(|| serde_json::to_value(schema).ok())? {
        Value::Object(schema) => Some(schema),
        _ => None,
    }
}

/// Returns the definitions of a listing that cannot be read.
pub(in crate::mcp) fn unread(listing: &mut ListToolsResult) -> Vec<Unread> {
    let unread = listing.meta.as_mut().and_then(|meta| meta.0.remove(UNREAD));
    unread.and_then(|unread| serde_json::from_value(unread).ok()).unwrap_or_default()
}

/// Returns the result of a call of any shape.
pub(in crate::mcp) fn result(fields: Map<String, Value>) -> CallToolResult {
    let known = Value::Object(fields);
    if let Ok(result) = CallToolResult::deserialize(&known) {
        return result;
    }
    let Value::Object(mut fields) = known else { return CallToolResult::default() };
    let mut result = CallToolResult::default();
    if ["content", "structuredContent", "isError"].iter().any(|field| fields.contains_key(*field)) {
        let content = fields.remove("content");
        // Some servers have a kind of content for failures.
        let is_error =
            fields.get("isError").map_or_else(|| content.as_ref().is_some_and(has_error), says_yes);
        result.is_error = Some(is_error);
        result.content = blocks(content);
        result.structured_content = fields.remove("structuredContent");
        return result;
    }
    // The server answers in words of its own.
    fields.retain(|field, _| !matches!(field.as_str(), "_meta" | "resultType"));
    if !fields.is_empty() {
        result.structured_content = Some(Value::Object(fields));
    }
    result
}

fn call(answer: Value) -> Option<ServerResult> {
    let mut fields = match answer {
        Value::Object(fields) => fields,
        content @ (Value::Array(_) | Value::String(_)) => Map::from_iter([("content".to_owned(), content)]),
        other => Map::from_iter([("structuredContent".to_owned(), other)]),
    };
    match fields.get("resultType").and_then(Value::as_str) {
        Some("task") => None,
        Some("input_required") => {
            let asked = fields.remove("inputRequests").map(inputs);
            let state = fields.get("requestState").and_then(Value::as_str).map(str::to_owned);
            (asked.is_some() || state.is_some())
                .then(|| ServerResult::InputRequiredResult(InputRequiredResult::new(asked, state)))
        }
        _ => Some(ServerResult::CallToolResult(result(fields))),
    }
}

fn tools(answer: Value) -> Option<ListToolsResult> {
    let Value::Object(mut fields) = answer else { return None };
    let Some(Value::Array(listed)) = fields.remove("tools") else { return None };
    let (mut tools, mut unread) = (Vec::new(), Vec::new());
    for mut definition in listed {
        if let Value::Object(fields) = &mut definition {
            // Nothing reads these.
            fields.retain(|field, _| !matches!(field.as_str(), "icons" | "_meta" | "execution"));
        }
        match Tool::deserialize(&definition) {
            Ok(tool) => tools.push(tool),
            Err(_) => unread.push(json!({ "tool": name_of(&definition), "field": odd_field(&definition) })),
        }
    }
    let mut read = ListToolsResult::with_all_items(tools);
    read.next_cursor = fields.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
    read.meta = Some(MetaObject(Map::from_iter([(UNREAD.to_owned(), Value::Array(unread))])));
    Some(read)
}

fn name_of(definition: &Value) -> String {
    let name = definition.get("name").and_then(Value::as_str).unwrap_or("a tool without a name");
    cut(name.to_owned(), NAME_BYTES_MAX)
}

/// Returns the first field for which a definition cannot be read.
fn odd_field(definition: &Value) -> String {
    let Value::Object(fields) = definition else { return "the whole".to_owned() };
    let is_odd = |field: &str, value: &Value| {
        let mut plain = json!({ "name": "t", "inputSchema": {} });
        if let Some(plain) = plain.as_object_mut() {
            plain.insert(field.to_owned(), value.clone());
        }
        Tool::deserialize(plain).is_err()
    };
    let missing = ["name", "inputSchema"].into_iter().find(|field| !fields.contains_key(*field));
    let odd = || fields.iter().find(|(field, value)| is_odd(field, value)).map(|(field, _)| field.as_str());
    cut(missing.or_else(odd).unwrap_or("the whole").to_owned(), NAME_BYTES_MAX)
}

fn task(answer: Value) -> Option<GetTaskResult> {
    let Value::Object(mut fields) = answer else { return None };
    let requests = fields.remove("inputRequests")?;
    let task = Task::deserialize(Value::Object(fields)).ok()?;
    let payload = TaskPayload::InputRequired { input_requests: inputs(requests) };
    Some(GetTaskResult::new(DetailedTask::new(task, payload)))
}

fn inputs(requests: Value) -> InputRequests {
    let Value::Object(requests) = requests else { return InputRequests::new() };
    requests.into_iter().filter_map(|(key, request)| Some((key, input(request)?))).collect()
}

fn input(request: Value) -> Option<InputRequest> {
    if let Ok(request) = InputRequest::deserialize(&request) {
        return Some(request);
    }
    let Value::Object(mut request) = request else { return None };
    if request.get("method").and_then(Value::as_str) != Some(FORM) {
        return None;
    }
    let params = form(request.remove("params").unwrap_or_default())?;
    Some(InputRequest::Elicitation(ElicitRequest::new(params)))
}

/// Returns a form whose schema is the one of the server.
fn form(params: Value) -> Option<ElicitRequestParams> {
    let Value::Object(mut params) = params else { return None };
    let text = |field: &str| params.get(field).and_then(Value::as_str).map(str::to_owned);
    let message = text("message").unwrap_or_else(|| NO_MESSAGE.to_owned());
    if text("mode").is_some_and(|mode| mode != "form") {
        // Nothing but a form is asked.
        let (url, elicitation_id) = (String::new(), String::new());
        return Some(ElicitRequestParams::UrlElicitationParams { meta: None, message, url, elicitation_id });
    }
    let schema = params.remove("requestedSchema").filter(Value::is_object);
    let schema = schema.unwrap_or_else(|| json!({ "type": "object" }));
    let mut meta = RequestMetaObject::default();
    meta.insert(SCHEMA.to_owned(), schema);
    Some(ElicitRequestParams::FormElicitationParams {
        meta: Some(meta),
        message,
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    })
}

fn has_error(content: &Value) -> bool {
    let is_error = |part: &Value| part.get("type").and_then(Value::as_str) == Some("error");
    content.as_array().map_or_else(|| is_error(content), |parts| parts.iter().any(is_error))
}

fn blocks(content: Option<Value>) -> Vec<ContentBlock> {
    match content {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(blocks)) => blocks.iter().map(block).collect(),
        Some(single) => vec![block(&single)],
    }
}

fn block(value: &Value) -> ContentBlock {
    ContentBlock::deserialize(value).unwrap_or_else(|_| ContentBlock::text(words(value)))
}

/// Returns what can be said of a part of a content.
fn words(part: &Value) -> String {
    let Value::Object(fields) = part else {
        return part.as_str().map_or_else(|| UNKNOWN.to_owned(), str::to_owned);
    };
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    if let Some(text) = text("text") {
        return text.to_owned();
    }
    let mime_type = text("mimeType");
    match (text("type"), text("data"), text("uri")) {
        (Some(kind @ ("image" | "audio")), Some(data), _) => named(mime_type.unwrap_or(kind), data, None),
        (Some("resource_link"), _, Some(uri)) => match mime_type {
            Some(mime_type) => format!("[{mime_type}, {uri}]"),
            None => format!("[{uri}]"),
        },
        (Some("resource"), _, _) => match fields.get("resource") {
            Some(Value::Object(resource)) => of_resource(resource),
            _ => UNKNOWN.to_owned(),
        },
        (Some("text"), ..) => match fields.get("text") {
            Some(value @ (Value::Object(_) | Value::Array(_) | Value::Number(_) | Value::Bool(_))) => {
                value.to_string()
            }
            _ => UNKNOWN.to_owned(),
        },
        (Some(kind), ..) => {
            format!("[content of an unknown kind: {}]", visible(&cut(kind.to_owned(), NAME_BYTES_MAX)))
        }
        (None, ..) => UNKNOWN.to_owned(),
    }
}

fn of_resource(resource: &Map<String, Value>) -> String {
    let text = |field: &str| resource.get(field).and_then(Value::as_str);
    match (text("text"), text("blob"), text("uri")) {
        (Some(text), ..) => text.to_owned(),
        (None, Some(blob), uri) => named(text("mimeType").unwrap_or("application/octet-stream"), blob, uri),
        (None, None, Some(uri)) => format!("[{uri}]"),
        (None, None, None) => "[a resource of an unknown kind]".to_owned(),
    }
}

/// Whether a value that should be a boolean says yes.
fn says_yes(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::String(text) => {
            !matches!(text.trim().to_ascii_lowercase().as_str(), "" | "false" | "no" | "0")
        }
        Value::Number(number) => number.as_f64() != Some(0.0),
        // The error itself, in place of the word that there is one.
        Value::Array(_) | Value::Object(_) => true,
    }
}
