//! The OpenAPI document: the output of the derives, refined with facts that the derives cannot express.

use super::page::{PAGE_SIZE, PAGE_SIZE_MAX};
use crate::domain::call::CALL_STATES;
use crate::domain::event::EventType;
use poem::http::Method;
use serde_json::{Map, Value, json};

/// The operations with a lenient body: unknown fields, and other shapes of known fields, are accepted.
const FORGIVING: [&str; 2] = ["chat", "chatById"];

/// Links: the operation and the status of its response, the linked operation, the parameter or body field
/// that takes the value, and the expression for the value. Links that follow from ids in the path are not
/// listed.
const LINKS: [(&str, &str, &str, &str, &str); 10] = [
    ("chat", "200", "getRun", "run_id", "$response.header.x-run-id"),
    ("chat", "200", "cancelRun", "run_id", "$response.header.x-run-id"),
    ("chatById", "200", "getRun", "run_id", "$response.header.x-run-id"),
    ("chatById", "200", "cancelRun", "run_id", "$response.header.x-run-id"),
    ("getRun", "200", "validateTool", BODY_TOOL_CALL_ID, "$response.body#/pending/0"),
    ("getRun", "200", "getToolCall", "tool_call_id", "$response.body#/pending/0"),
    ("getRun", "200", "cancelToolCall", "tool_call_id", "$response.body#/pending/0"),
    ("validateTool", "200", "getToolCall", "tool_call_id", "$response.body#/toolCallId"),
    ("validateTool", "200", "validateTool", BODY_TOOL_CALL_ID, "$response.body#/toolCallId"),
    ("cancelToolCall", "200", "getToolCall", "tool_call_id", "$response.body#/tool_call_id"),
];
/// A field of the body, not a path parameter.
const BODY_TOOL_CALL_ID: &str = "toolCallId";

/// Returns an example body for an operation.
fn example(operation: &str) -> Option<Value> {
    Some(match operation {
        "chat" => json!({ "content": "delete notes.txt" }),
        "chatById" => json!({ "id": "page-1", "content": "delete notes.txt" }),
        "createThread" => json!({ "title": "Spring cleaning" }),
        "updateThread" => json!({ "title": "Summer cleaning" }),
        "setSessionPolicy" => json!({ "mode": "auto-deny" }),
        "approveRun" => json!({ "tool_call_id": "01890a5d-ac96-774b-bcce-b302099a8057" }),
        "rejectRun" => {
            json!({ "tool_call_id": "01890a5d-ac96-774b-bcce-b302099a8057", "reason": "not today" })
        }
        "decideInSession" => json!({ "decision": "allow_once" }),
        "validateTool" => {
            json!({ "toolCallId": "01890a5d-ac96-774b-bcce-b302099a8057", "isValidated": true })
        }
        "validateTools" => json!({ "decisions": [
            { "toolCallId": "01890a5d-ac96-774b-bcce-b302099a8057", "isValidated": true },
            { "toolCallId": "01890a5d-ac96-774b-bcce-b302099a8058", "isValidated": false, "reason": "not today" },
        ] }),
        _ => return None,
    })
}

/// The allowed values of string fields: schema, field, values.
const WORDS: [(&str, &str, &[&str]); 13] = [
    ("ToolCall", "state", &CALL_STATES),
    ("ToolCall", "risk_level", &RISKS),
    ("Tool", "risk_level", &RISKS),
    ("ValidateToolResult", "state", &CALL_STATES),
    ("DecisionResult", "state", &CALL_STATES),
    ("CancelToolCallResult", "state", &CALL_STATES),
    ("RunDecisionResult", "state", &CALL_STATES),
    ("SessionDecisionResult", "state", &CALL_STATES),
    ("Decision", "decision", &["approve", "reject", "expire", "cancel"]),
    ("Message", "role", &["user", "assistant"]),
    ("Message", "status", &["complete", "streaming", "interrupted", "superseded"]),
    ("Event", "type", EventType::WORDS),
    ("Run", "status", &["running", "waiting", "completed", "failed", "cancelled"]),
];
const RISKS: [&str; 3] = ["low", "medium", "high"];

/// The JSON pointer from an operation to its body.
const BODY: &str = "/requestBody/content/application~1json";

/// Returns the refined document for the document that the derives produce.
pub(super) fn refined(spec: &str) -> Value {
    let mut document: Value = serde_json::from_str(spec).unwrap_or_default();
    let mut strict = Vec::new();
    for operation in operations(&mut document) {
        let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default().to_owned();
        for parameter in items(operation.get_mut("parameters")) {
            shape_parameter(&id, parameter);
        }
        for (status, response) in fields(operation.get_mut("responses")) {
            complete(&id, status, response);
        }
        if let (Some(example), Some(body)) = (example(&id), operation.pointer_mut(BODY)) {
            set(body, json!({ "example": example }));
        }
        let body = operation.pointer(BODY).and_then(|body| body.pointer("/schema/$ref"));
        if let Some(body) = body.and_then(Value::as_str) {
            strict.push((body.trim_start_matches('#').to_owned(), !FORGIVING.contains(&id.as_str())));
        }
    }
    for (schema, body) in fields(document.pointer_mut("/components/schemas")) {
        for (name, property) in fields(body.get_mut("properties")) {
            shape_field(schema, name, property);
        }
    }
    let named = document.pointer("/components/schemas").cloned().unwrap_or_default();
    for (pointer, strict) in strict {
        if let Some(Value::Object(schema)) = document.pointer_mut(&pointer) {
            shape_body(schema, &named, strict);
        }
    }
    document
}

/// Returns each path with its methods. Paths are templates of the document: `/threads/{thread_id}`.
pub(super) fn methods(document: &Value) -> impl Iterator<Item = (&str, Vec<Method>)> {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    paths.map(|(path, item)| {
        let names = item.as_object().into_iter().flat_map(Map::keys);
        let methods = names.filter_map(|name| Method::from_bytes(name.to_ascii_uppercase().as_bytes()).ok());
        (path.as_str(), methods.collect())
    })
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    fields(document.get_mut("paths")).flat_map(|(_, item)| fields(Some(item))).map(|(_, operation)| operation)
}

fn fields(value: Option<&mut Value>) -> impl Iterator<Item = (&String, &mut Value)> {
    value.and_then(Value::as_object_mut).into_iter().flatten()
}

fn items(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

fn set(value: &mut Value, more: Value) {
    if let (Value::Object(fields), Value::Object(more)) = (value, more) {
        fields.extend(more);
    }
}

/// Refines a field by its name. A field name has the same format in every schema.
fn shape_field(schema: &str, name: &str, property: &mut Value) {
    let words = WORDS.iter().find(|words| (words.0, words.1) == (schema, name));
    let one_of_many = property.pointer_mut("/items").filter(|_| (schema, name) == ("Run", "pending"));
    if let Some(id) = one_of_many {
        set(id, json!({ "format": "uuid" }));
    } else if schema == "DecisionResult" && name == BODY_TOOL_CALL_ID {
        // The field echoes the request and may be any string.
    } else if (schema, name) == ("DecisionResult", "status") {
        set(property, json!({ "enum": [200, 202, 403, 404, 409, 422, 429, 500, 503] }));
    } else if let Some((_, _, words)) = words {
        set(property, json!({ "enum": words }));
    } else if name == "at" || name.ends_with("_at") {
        set(property, json!({ "format": "date-time" }));
    } else if name.ends_with("_hash") {
        set(property, json!({ "pattern": "^[0-9a-f]{64}$" }));
    } else if (name.ends_with("_id") && name != "client_id") || name == BODY_TOOL_CALL_ID {
        set(property, json!({ "format": "uuid" }));
    }
}

fn shape_parameter(operation: &str, parameter: &mut Value) {
    let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default();
    let shape = match (operation, name) {
        // The parameter may be the caller's own name for the thread.
        ("chat" | "attach", "thread_id") => return,
        (_, "page_size") => json!({ "minimum": 1, "maximum": PAGE_SIZE_MAX, "default": PAGE_SIZE }),
        ("listMessages" | "listRunEvents" | "listToolCallEvents", "cursor")
        | (_, "after" | "last-event-id") => {
            json!({ "pattern": "^[0-9]{1,18}$" })
        }
        (_, "cursor") => json!({ "format": "uuid" }),
        ("listApprovals" | "listThreadApprovals" | "listSessionApprovals", "state") => {
            json!({ "enum": CALL_STATES })
        }
        (_, name) if name.ends_with("_id") => json!({ "format": "uuid" }),
        _ => return,
    };
    if let Some(schema) = parameter.get_mut("schema") {
        set(schema, shape);
    }
}

/// Refines a body schema: an optional field may be null, and only a lenient body accepts unknown fields.
fn shape_body(schema: &mut Map<String, Value>, named: &Value, strict: bool) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, property) in fields(schema.get_mut("properties")) {
        if required.iter().any(|needed| needed == name) {
            continue;
        }
        if let Some(words) = words_of(property, named) {
            // A named schema would be nullable either at every use or at none.
            if let Value::Object(property) = property {
                property.remove("allOf");
            }
            // `nullable` alone does not add null to the values of an enum (OpenAPI 3.0.3, a clarification of
            // 3.0.0).
            let words: Vec<Value> = words.iter().cloned().chain([Value::Null]).collect();
            set(property, json!({ "type": "string", "enum": words, "nullable": true }));
        } else if property.get("type").is_some() {
            set(property, json!({ "nullable": true }));
        }
    }
    if strict {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

/// Returns the allowed values of a field that refers to a named enum schema.
fn words_of<'a>(property: &Value, named: &'a Value) -> Option<&'a Vec<Value>> {
    let name = property.pointer("/allOf/0/$ref")?.as_str()?.rsplit('/').next()?;
    named.get(name)?.get("enum")?.as_array()
}

fn complete(operation: &str, status: &str, response: &mut Value) {
    if let Some(Value::Object(headers)) = response.get_mut("headers") {
        // Header names are sent in lower case, and links must write them so.
        let lower = |(name, header): (String, Value)| (name.to_ascii_lowercase(), header);
        *headers = std::mem::take(headers).into_iter().map(lower).collect();
        if status == "405" {
            let allow = json!({ "description": "The methods of this route.", "required": true, "schema": { "type": "string" } });
            headers.insert("allow".to_owned(), allow);
        }
    }
    let from_here = LINKS.iter().filter(|link| (link.0, link.1) == (operation, status));
    let links: Map<String, Value> = from_here
        .map(|(_, _, to, place, value)| {
            let link = match *place {
                BODY_TOOL_CALL_ID => json!({ "operationId": to, "requestBody": { *place: value } }),
                _ => json!({ "operationId": to, "parameters": { *place: value } }),
            };
            ((*to).to_owned(), link)
        })
        .collect();
    if !links.is_empty() {
        set(response, json!({ "links": links }));
    }
}
