//! The OpenAPI document: the output of the derives, refined with facts that the derives cannot express.

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

/// The JSON pointer from an operation to its body.
const BODY: &str = "/requestBody/content/application~1json";

/// Returns the refined document for the document that the derives produce.
pub(super) fn refined(spec: &str) -> Value {
    let mut document: Value = serde_json::from_str(spec).unwrap_or_default();
    let schemas = document.pointer("/components/schemas").cloned().unwrap_or_default();
    let mut bodies = Vec::new();
    for operation in operations_mut(&mut document) {
        let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default().to_owned();
        for (status, response) in fields(operation.get_mut("responses")) {
            complete(&id, status, response);
        }
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
        for schema in parameters.filter_map(|parameter| parameter.get_mut("schema")) {
            whole_bounds(schema);
        }
        let Some(body) = operation.pointer_mut(BODY) else { continue };
        let Some(name) = body.get("schema").and_then(named) else { continue };
        if let Some(example) = schemas.get(&name).and_then(|schema| schema.get("example")) {
            set(body, json!({ "example": example }));
        }
        bodies.push((name, !FORGIVING.contains(&id.as_str())));
    }
    for (name, schema) in fields(document.pointer_mut("/components/schemas")) {
        if let Some(schema) = schema.as_object_mut() {
            // The examples are those of the bodies.
            schema.remove("example");
            if let Some((_, strict)) = bodies.iter().find(|(body, _)| body == name) {
                shape_body(schema, &schemas, *strict);
            }
        }
    }
    document
}

/// Returns each path with its operations by their methods. Paths are templates of the document:
/// `/threads/{thread_id}`.
pub(super) fn operations(document: &Value) -> impl Iterator<Item = (&str, Vec<(Method, &Value)>)> {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    paths.map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        let by_method = operations.filter_map(|(name, operation)| {
            Some((Method::from_bytes(name.to_ascii_uppercase().as_bytes()).ok()?, operation))
        });
        (path.as_str(), by_method.collect())
    })
}

/// Returns the names of the query parameters of an operation.
pub(super) fn query_names(operation: &Value) -> impl Iterator<Item = &str> {
    let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let of_query = parameters.filter(|parameter| parameter.get("in").is_some_and(|place| place == "query"));
    of_query.filter_map(|parameter| parameter.get("name")?.as_str())
}

fn operations_mut(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    fields(document.get_mut("paths")).flat_map(|(_, item)| fields(Some(item))).map(|(_, operation)| operation)
}

fn fields(value: Option<&mut Value>) -> impl Iterator<Item = (&String, &mut Value)> {
    value.and_then(Value::as_object_mut).into_iter().flatten()
}

fn set(value: &mut Value, more: Value) {
    if let (Value::Object(fields), Value::Object(more)) = (value, more) {
        fields.extend(more);
    }
}

/// Writes the bounds of an integer as integers. The framework writes fractions, which some generators reject.
fn whole_bounds(schema: &mut Value) {
    for bound in ["minimum", "maximum"] {
        let whole = schema.get(bound).and_then(Value::as_f64).filter(|bound| bound.fract() == 0.0);
        if let Some(whole) = whole {
            set(schema, json!({ bound: whole as i64 }));
        }
    }
}

/// Refines a body schema: an optional field may be null, and only a lenient body accepts unknown fields.
fn shape_body(schema: &mut Map<String, Value>, schemas: &Value, strict: bool) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, property) in fields(schema.get_mut("properties")) {
        if required.iter().any(|needed| needed == name) {
            continue;
        }
        if let Some(words) = words_of(property, schemas) {
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
fn words_of<'a>(property: &Value, schemas: &'a Value) -> Option<&'a Vec<Value>> {
    schemas.get(named(property.pointer("/allOf/0")?)?)?.get("enum")?.as_array()
}

/// Returns the name of the schema that a reference names.
fn named(reference: &Value) -> Option<String> {
    let (_, name) = reference.get("$ref")?.as_str()?.rsplit_once('/')?;
    Some(name.to_owned())
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
