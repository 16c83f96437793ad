//! The OpenAPI document: the output of the derives, refined with facts that the derives cannot express.

use crate::http::body::payload::Tag;
use poem::http::Method;
use poem_openapi::Tags;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The operations with a lenient body: unknown fields, and other shapes of known fields, are accepted.
const FORGIVING: [&str; 2] = ["chat", "chatById"];

/// The objects inside of bodies that accept no unknown field.
const WITHIN_BODIES: [&str; 3] = ["RememberScope", "GrantCondition", "ProgressReport"];

/// Links: the operation and the status of its response, the linked operation, the parameter that takes the value, and
/// the expression for the value. Links that follow from ids in the path are not listed.
const LINKS: [(&str, &str, &str, &str, &str); 10] = [
    ("chat", "200", "getRun", "run_id", "$response.header.x-run-id"),
    ("chat", "200", "cancelRun", "run_id", "$response.header.x-run-id"),
    ("chatById", "200", "getRun", "run_id", "$response.header.x-run-id"),
    ("chatById", "200", "cancelRun", "run_id", "$response.header.x-run-id"),
    ("getRun", "200", "getToolCall", "tool_call_id", "$response.body#/pending/0"),
    ("getRun", "200", "cancelToolCall", "tool_call_id", "$response.body#/pending/0"),
    ("validateTool", "200", "getToolCall", "tool_call_id", "$response.body#/toolCallId"),
    ("validateTool", "202", "getToolCall", "tool_call_id", "$response.body#/toolCallId"),
    ("cancelToolCall", "200", "getToolCall", "tool_call_id", "$response.body#/tool_call_id"),
    ("cancelToolCall", "202", "getToolCall", "tool_call_id", "$response.body#/tool_call_id"),
];

/// A body whose fields depend on the word of one of them.
struct Dependent {
    schema: &'static str,
    /// The field with the word.
    field: &'static str,
    alternatives: &'static [Alternative],
}

/// The fields of a body with this word.
struct Alternative {
    word: &'static str,
    required: &'static [&'static str],
    left_out: &'static [&'static str],
}

const DEPENDENT: [Dependent; 1] = [Dependent {
    schema: "SettleCall",
    field: "outcome",
    alternatives: &[
        Alternative { word: "succeeded", required: &[], left_out: &["error"] },
        Alternative { word: "failed", required: &["error"], left_out: &["result"] },
        Alternative { word: "unknown", required: &[], left_out: &["result", "error"] },
    ],
}];

/// The JSON pointer from an operation to its body.
const BODY: &str = "/requestBody/content/application~1json";

/// Returns the refined document for the document that the derives produce. Requests of the operations
/// `with_own_credentials` need no token.
pub(in crate::http) fn refined(spec: &str, with_own_credentials: &BTreeSet<&str>) -> Value {
    let mut document: Value = serde_json::from_str(spec).unwrap_or_default();
    let schemas = document.pointer("/components/schemas").cloned().unwrap_or_default();
    let mut bodies = Vec::new();
    for operation in operations_mut(&mut document) {
        let id = operation.get("operationId").and_then(Value::as_str).unwrap_or_default().to_owned();
        if with_own_credentials.contains(id.as_str()) {
            set(operation, json!({ "security": [] }));
        }
        for (status, response) in fields(operation.get_mut("responses")) {
            complete(&id, status, response);
        }
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
        parameters.filter_map(|parameter| parameter.get_mut("schema")).for_each(whole_bounds);
        let Some(body) = operation.pointer_mut(BODY) else { continue };
        let Some(name) = body.get("schema").and_then(named) else { continue };
        if let Some(example) = schemas.get(&name).and_then(|schema| schema.get("example")) {
            set(body, json!({ "example": example }));
        }
        bodies.push((name, !FORGIVING.contains(&id.as_str())));
    }
    for (name, schema) in fields(document.pointer_mut("/components/schemas")) {
        open_objects(schema);
        name_words(name, schema);
        if let Some(schema) = schema.as_object_mut() {
            // The examples are those of the bodies.
            schema.remove("example");
            if let Some((_, strict)) = bodies.iter().find(|(body, _)| body == name) {
                shape_body(schema, *strict);
            }
            if WITHIN_BODIES.contains(&name.as_str()) {
                schema.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            fields(schema.get_mut("properties")).for_each(|(_, property)| whole_bounds(property));
            if let Some(alternatives) = alternatives(name) {
                schema.insert(ONE_OF.to_owned(), alternatives);
            }
        }
    }
    document
}

/// The key of the alternatives of a body.
const ONE_OF: &str = "oneOf";

/// Returns the alternatives of a body in [`DEPENDENT`].
fn alternatives(schema_name: &str) -> Option<Value> {
    let Dependent { field, alternatives, .. } = DEPENDENT.iter().find(|it| it.schema == schema_name)?;
    let alternative = |Alternative { word, required, left_out }: &Alternative| {
        let mut properties = Map::new();
        properties.insert((*field).to_owned(), json!({ "enum": [word] }));
        for name in *required {
            properties.insert((*name).to_owned(), json!({ "type": "string" }));
        }
        for name in *left_out {
            // OpenAPI 3.0 has no type of null alone.
            properties
                .insert((*name).to_owned(), json!({ "type": "string", "enum": [null], "nullable": true }));
        }
        let required: Vec<&str> = std::iter::once(*field).chain(required.iter().copied()).collect();
        json!({ "required": required, "properties": properties })
    };
    Some(alternatives.iter().map(alternative).collect())
}

/// The parameter by which pages choose the form of listed messages.
const FORM: &str = "format";
/// The JSON pointer to the schema of a listed message, which has all forms.
const LISTED: &str = "/components/schemas/PageOf_ListedMessage/properties/results/items/$ref";
/// The schema of a message without that parameter.
const MESSAGE: &str = "#/components/schemas/Message";

/// The fields that are a word or an object.
const WORD_OR_OBJECT: [&str; 2] = [
    "/components/schemas/ValidateTool/properties/remember",
    "/components/schemas/DecideInSession/properties/remember",
];

/// Returns the document for generators: the operations of [`Tag::Streams`] and the forms of messages for pages are left
/// out, with the schemas that only they use. So are the alternatives of bodies, of which a generator makes a type
/// without names, and the words of [`WORD_OR_OBJECT`].
pub(in crate::http) fn for_generators(document: &Value) -> Value {
    let mut document = document.clone();
    for operation in operations_mut(&mut document) {
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.retain(|parameter| parameter.get("name") != Some(&json!(FORM)));
        }
    }
    if let Some(listed) = document.pointer_mut(LISTED) {
        *listed = json!(MESSAGE);
    }
    for place in WORD_OR_OBJECT {
        if let Some(field) = document.pointer_mut(place)
            && let Some(object) = field.pointer("/anyOf/1").cloned()
        {
            *field = object;
        }
    }
    let left_out = json!(Tag::Streams.name());
    for (_, item) in fields(document.get_mut("paths")) {
        if let Some(methods) = item.as_object_mut() {
            methods.retain(|_, operation| operation.pointer("/tags/0") != Some(&left_out));
        }
    }
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        paths.retain(|_, item| item.as_object().is_some_and(|methods| !methods.is_empty()));
    }
    if let Some(tags) = document.get_mut("tags").and_then(Value::as_array_mut) {
        tags.retain(|tag| tag.get("name") != Some(&left_out));
    }
    let mut used = BTreeSet::new();
    let schemas = document.pointer("/components/schemas").cloned().unwrap_or_default();
    use_schemas(document.get("paths").unwrap_or(&Value::Null), &schemas, &mut used);
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        schemas.retain(|name, _| used.contains(name));
        for Dependent { schema, .. } in DEPENDENT {
            schemas.get_mut(schema).and_then(Value::as_object_mut).map(|schema| schema.remove(ONE_OF));
        }
    }
    document
}

/// Adds the names of the schemas to which a value refers, directly or through other schemas.
fn use_schemas(value: &Value, schemas: &Value, used: &mut BTreeSet<String>) {
    if let Some(name) = named(value)
        && let Some(schema) = schemas.get(&name)
        && used.insert(name)
    {
        use_schemas(schema, schemas, used);
    }
    match value {
        Value::Object(fields) => fields.values().for_each(|value| use_schemas(value, schemas, used)),
        Value::Array(items) => items.iter().for_each(|item| use_schemas(item, schemas, used)),
        _ => {}
    }
}

/// Returns each path with its operations by their methods. Paths are templates of the document:
/// `/threads/{thread_id}`.
pub(in crate::http) fn operations(document: &Value) -> impl Iterator<Item = (&str, Vec<(Method, &Value)>)> {
    let paths = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    paths.map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        let by_method = operations.filter_map(|(name, operation)| {
            Some((Method::from_bytes(name.to_ascii_uppercase().as_bytes()).ok()?, operation))
        });
        (path.as_str(), by_method.collect())
    })
}

pub(in crate::http) fn query_names(operation: &Value) -> impl Iterator<Item = &str> {
    let parameters = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let of_query =
        parameters.filter(|parameter| parameter.get("in").is_some_and(|location| location == "query"));
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

/// Names the words of an enum together with its schema: `RUN_STATUS_FAILED`. Generated Go has the words of all enums in
/// one namespace.
fn name_words(schema_name: &str, schema: &mut Value) {
    let Some(words) = schema.get("enum").and_then(Value::as_array) else { return };
    let mut prefix = String::new();
    for letter in schema_name.chars() {
        if letter.is_ascii_uppercase() && !prefix.is_empty() {
            prefix.push('_');
        }
        prefix.push(letter.to_ascii_uppercase());
    }
    let name = |word: &Value| {
        let word = word.as_str().unwrap_or_default().to_ascii_uppercase().replace(['.', '-'], "_");
        format!("{prefix}_{word}")
    };
    let names: Vec<String> = words.iter().map(name).collect();
    set(schema, json!({ "x-enum-varnames": names }));
}

/// Writes `additionalProperties` that may be anything as `true`: not every generator knows the empty schema there.
fn open_objects(schema: &mut Value) {
    for (name, value) in fields(Some(schema)) {
        if name == "additionalProperties" && *value == json!({}) {
            *value = Value::Bool(true);
        }
        open_objects(value);
    }
}

/// Refines a body schema: an optional field may be null, and only a lenient body accepts unknown fields.
fn shape_body(schema: &mut Map<String, Value>, strict: bool) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, property) in fields(schema.get_mut("properties")) {
        if property.get("type").is_some() && !required.iter().any(|needed| needed == name) {
            set(property, json!({ "nullable": true }));
        }
    }
    if strict {
        schema.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
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
        .map(|(_, _, to, parameter, value)| {
            ((*to).to_owned(), json!({ "operationId": to, "parameters": { *parameter: value } }))
        })
        .collect();
    if !links.is_empty() {
        set(response, json!({ "links": links }));
    }
}
