//! Tools in the form that the servers of a wire accept.
//!
//! A server refuses a whole request for one keyword in the schema of one tool. So the model reads an adapted schema.
//! Inputs are checked against the tool's own schema, which stays as it is. What the adapted schema cannot say is said in
//! words, in the description of the tool or of the value.
//!
//! The form depends on the tool and on the wire alone, so the same tool is always sent with the same bytes.

use crate::ToolDefinition;
use holdpoint_core::text::cut;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// The most schemas in the schema of one tool, with references in place.
const PARTS_MAX: usize = 5_000;
/// The longest schema in words, in bytes.
const WORDS_BYTES_MAX: usize = 4 << 10;
/// Begins what a tool's description says about its inputs.
const OF_INPUTS: &str = "The inputs also have to fit this JSON Schema:";
/// Begins what a value's description says about the value.
const OF_VALUE: &str = "The value also has to fit this JSON Schema:";

/// Keywords that no server needs, and that some refuse or misread.
const NEVER: [&str; 8] =
    ["$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment"];
/// Keywords that servers refuse in the schema of the inputs itself.
const NOT_AT_ROOT: [&str; 12] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "enum",
    "const",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
];
/// Keywords whose value is a schema.
const SCHEMA: [&str; 11] = [
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "items",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value has a schema for each name.
const NAMED: [&str; 4] = ["patternProperties", "dependentSchemas", "$defs", "definitions"];

/// What the servers of a wire accept.
pub(super) struct SchemaRules {
    /// The accepted keywords. `None` for all keywords of draft 2020-12.
    pub(super) keywords: Option<&'static [&'static str]>,
    /// Whether references to definitions are accepted.
    pub(super) references: bool,
    /// The most schemas within each other, that of the inputs counted.
    pub(super) depth_max: Option<usize>,
    /// Whether a list of allowed values can have this value.
    pub(super) listed: fn(&Value) -> bool,
    /// Whether a required property has to have a schema.
    pub(super) named_required: bool,
    /// Whether a property can have this name.
    pub(super) property: fn(&str) -> bool,
    /// Whether a tool can have this name, among the names of tools of holdpoint.
    pub(super) name: fn(&str) -> bool,
    /// The most tools of a request at the wire's own servers.
    pub(super) tools_max: Option<usize>,
}

/// Everything that draft 2020-12 allows. A wire names what its servers refuse.
pub(super) const ACCEPTED: SchemaRules = SchemaRules {
    keywords: None,
    references: true,
    depth_max: None,
    listed: |_| true,
    named_required: false,
    property: |_| true,
    name: |_| true,
    tools_max: None,
};

/// A tool as a wire writes it.
pub(super) struct WireTool<'a> {
    pub(super) name: &'a str,
    pub(super) description: Cow<'a, str>,
    pub(super) parameters: Value,
}

impl SchemaRules {
    /// Whether the servers of the wire accept a tool of this name.
    pub(super) fn accepts_name(&self, name: &str) -> bool {
        (self.name)(name)
    }

    /// Returns a tool in the form that the servers of the wire accept.
    pub(super) fn tool<'a>(&self, tool: &'a ToolDefinition) -> WireTool<'a> {
        let ToolDefinition { name, description, input_schema } = tool;
        let (mut parameters, unsaid) =
            Writer { root: input_schema, rules: self, within: Vec::new(), parts: 0 }.inputs();
        if let Some(most) = self.depth_max {
            bound_depth(&mut parameters, most);
        }
        let description = match in_words(OF_INPUTS, unsaid) {
            Some(words) if description.is_empty() => Cow::Owned(words),
            Some(words) => Cow::Owned(format!("{description}\n\n{words}")),
            None => Cow::Borrowed(description.as_str()),
        };
        WireTool { name, description, parameters: Value::Object(parameters) }
    }

    fn has(&self, keyword: &str) -> bool {
        self.keywords.is_none_or(|keywords| keywords.contains(&keyword))
    }
}

/// Returns the part of a schema that is not accepted, in words.
fn in_words(begin: &str, unsaid: Map<String, Value>) -> Option<String> {
    (!unsaid.is_empty())
        .then(|| format!("{begin} {}", cut(Value::Object(unsaid).to_string(), WORDS_BYTES_MAX)))
}

/// Says in the description of a value what its schema cannot say.
fn say(schema: &mut Map<String, Value>, unsaid: Map<String, Value>) {
    let Some(words) = in_words(OF_VALUE, unsaid) else { return };
    let before = schema.get("description").and_then(Value::as_str).filter(|text| !text.is_empty());
    let description = before.map_or_else(|| words.clone(), |before| format!("{before}\n{words}"));
    schema.insert("description".to_owned(), description.into());
}

/// Returns the schemas directly within a schema.
fn parts(schema: &mut Map<String, Value>) -> Vec<&mut Map<String, Value>> {
    let mut parts = Vec::new();
    for (key, value) in schema {
        let key = key.as_str();
        if SCHEMA.contains(&key) {
            parts.extend(value.as_object_mut());
        } else if LIST.contains(&key) {
            parts.extend(value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut));
        } else if key == "properties" || NAMED.contains(&key) {
            let named = value.as_object_mut().into_iter().flat_map(Map::values_mut);
            parts.extend(named.filter_map(Value::as_object_mut));
        }
    }
    parts
}

/// Says in words what is in more schemas within each other than these. The last one has no others in it, so a list, which needs
/// a schema of its items, is in words as a whole.
fn bound_depth(schema: &mut Map<String, Value>, most: usize) {
    if most > 1 {
        return parts(schema).into_iter().for_each(|part| bound_depth(part, most.saturating_sub(1)));
    }
    if parts(schema).is_empty() {
        return;
    }
    let is_list = is_list(schema);
    let is_said = |key: &str| matches!(key, "title" | "description") || (key == "type" && !is_list);
    let (said, unsaid) = std::mem::take(schema).into_iter().partition(|(key, _)| is_said(key));
    *schema = said;
    say(schema, unsaid);
}

struct Writer<'a> {
    root: &'a Value,
    rules: &'a SchemaRules,
    /// The references that lead to the schema that is written.
    within: Vec<&'a str>,
    /// The number of schemas so far.
    parts: usize,
}

impl<'a> Writer<'a> {
    /// Returns the schema of the inputs, and what it cannot say.
    fn inputs(mut self) -> (Map<String, Value>, Map<String, Value>) {
        let (mut out, mut unsaid) = (Map::new(), Map::new());
        if let Value::Object(fields) = self.root {
            self.input_fields(fields, &mut out, &mut unsaid);
        }
        out.insert("type".to_owned(), "object".into());
        out.entry("properties").or_insert_with(|| json!({}));
        self.without_refused_required(&mut out, &mut unsaid);
        (out, unsaid)
    }

    fn input_fields(
        &mut self,
        fields: &'a Map<String, Value>,
        out: &mut Map<String, Value>,
        unsaid: &mut Map<String, Value>,
    ) {
        let refused = NOT_AT_ROOT.into_iter().filter_map(|key| Some((key, fields.get(key)?)));
        let mut alternatives = Vec::new();
        for (key, value) in refused.filter(|(_, value)| !value.is_null()) {
            unsaid.insert(key.to_owned(), value.clone());
            if let ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) = (key, value) {
                alternatives.extend(branches);
            }
        }
        self.write(fields, &NOT_AT_ROOT, out, unsaid);
        let target = fields.get("$ref").and_then(Value::as_str).and_then(|at| Some((at, self.target(at)?)));
        if let Some((at, Value::Object(target))) = target
            && !self.within.contains(&at)
        {
            out.remove("$ref");
            self.within.push(at);
            let mut within = Map::new();
            self.input_fields(target, &mut within, unsaid);
            self.within.pop();
            for (key, value) in within {
                out.entry(key).or_insert(value);
            }
        }
        // The model has to know the inputs that only an alternative names.
        for branch in alternatives {
            let branch =
                branch.get("$ref").and_then(Value::as_str).and_then(|at| self.target(at)).unwrap_or(branch);
            let Some(Value::Object(named)) = branch.get("properties") else { continue };
            for (name, schema) in named.iter().filter(|(name, _)| (self.rules.property)(name)) {
                let known = out.get("properties").is_some_and(|known| known.get(name).is_some());
                if !known {
                    let schema = self.schema(schema);
                    let properties = out.entry("properties").or_insert_with(|| json!({}));
                    if let Value::Object(properties) = properties {
                        properties.insert(name.clone(), schema);
                    }
                }
            }
            if out.get("additionalProperties") == Some(&Value::Bool(false)) {
                out.remove("additionalProperties");
            }
        }
    }

    fn schema(&mut self, schema: &'a Value) -> Value {
        self.parts += 1;
        let Value::Object(fields) = schema else {
            let nothing = schema == &Value::Bool(false) && self.rules.has("not");
            return if nothing { json!({ "not": {} }) } else { json!({}) };
        };
        if self.parts > PARTS_MAX {
            return json!({});
        }
        let (mut out, mut unsaid) = (Map::new(), Map::new());
        self.write(fields, &[], &mut out, &mut unsaid);
        if let Some(at) = fields.get("$ref").and_then(Value::as_str).filter(|at| !self.keeps(at)) {
            out.remove("$ref");
            self.in_place(at, &mut out);
        }
        if is_list(&out) {
            out.entry("items").or_insert_with(|| json!({}));
        }
        self.without_refused_required(&mut out, &mut unsaid);
        say(&mut out, unsaid);
        Value::Object(out)
    }

    /// Writes the fields of a schema, except these keywords.
    fn write(
        &mut self,
        fields: &'a Map<String, Value>,
        except: &[&str],
        out: &mut Map<String, Value>,
        unsaid: &mut Map<String, Value>,
    ) {
        for (key, value) in fields {
            let key = key.as_str();
            let is_named_id = key == "id" && !value.is_string();
            if except.contains(&key)
                || (NEVER.contains(&key) && !is_named_id)
                || (value.is_null() && !matches!(key, "const" | "default"))
            {
                continue;
            }
            match (key, value) {
                ("$ref", _) => {
                    out.insert(key.to_owned(), value.clone());
                }
                ("$defs" | "definitions", _) if !self.rules.references => {}
                ("properties", Value::Object(named)) => {
                    let accepted = named.iter().filter(|(name, _)| (self.rules.property)(name));
                    let accepted: Vec<_> = accepted.collect();
                    let written =
                        accepted.into_iter().map(|(name, schema)| (name.clone(), self.schema(schema)));
                    let written = Value::Object(written.collect());
                    out.insert(key.to_owned(), written);
                }
                ("required", Value::Array(_)) => {
                    out.insert(key.to_owned(), value.clone());
                }
                ("required" | "additionalItems", _) => {}
                // Draft 7: a list of schemas for the first items, and a schema for the rest.
                ("items", Value::Array(first)) => {
                    let first: Vec<Value> = first.iter().map(|schema| self.schema(schema)).collect();
                    let rest = fields.get("additionalItems").map(|rest| self.schema(rest));
                    out.insert("items".to_owned(), rest.unwrap_or_else(|| json!({})));
                    if self.rules.has("prefixItems") {
                        out.insert("prefixItems".to_owned(), first.into());
                    }
                }
                // Draft 4: whether the bound itself is excluded.
                ("exclusiveMinimum", Value::Bool(_)) | ("exclusiveMaximum", Value::Bool(_)) => {}
                ("minimum" | "maximum", bound) => {
                    let exclusive = if key == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
                    let excluded = fields.get(exclusive) == Some(&Value::Bool(true));
                    let key = if excluded { exclusive } else { key };
                    let said = if self.rules.has(key) { &mut *out } else { &mut *unsaid };
                    said.insert(key.to_owned(), bound.clone());
                }
                ("const", value) if !self.rules.has("const") && (self.rules.listed)(value) => {
                    out.insert("enum".to_owned(), json!([value]));
                }
                ("enum", Value::Array(values)) if !values.iter().all(self.rules.listed) => {
                    unsaid.insert(key.to_owned(), value.clone());
                }
                _ if !self.rules.has(key) => {
                    unsaid.insert(key.to_owned(), value.clone());
                }
                (_, Value::Object(_) | Value::Bool(_)) if SCHEMA.contains(&key) => {
                    let whether = value.is_boolean()
                        && matches!(
                            key,
                            "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems"
                        );
                    let written = if whether { value.clone() } else { self.schema(value) };
                    out.insert(key.to_owned(), written);
                }
                (_, Value::Array(schemas)) if LIST.contains(&key) => {
                    // No value fits the schema that some libraries write for what is optional.
                    let schemas = schemas.iter().filter(|schema| key != "anyOf" || !fits_nothing(schema));
                    let schemas: Vec<Value> = schemas.map(|schema| self.schema(schema)).collect();
                    out.insert(key.to_owned(), schemas.into());
                }
                (_, Value::Object(named)) if NAMED.contains(&key) => {
                    let named = named.iter().map(|(name, schema)| (name.clone(), self.schema(schema)));
                    let named = Value::Object(named.collect());
                    out.insert(key.to_owned(), named);
                }
                _ => {
                    out.insert(key.to_owned(), value.clone());
                }
            }
        }
        if let Some(Value::Object(named)) = fields.get("properties") {
            self.without_refused_names(named, out, unsaid);
        }
    }

    /// Takes out the properties whose names are refused.
    fn without_refused_names(
        &self,
        named: &Map<String, Value>,
        out: &mut Map<String, Value>,
        unsaid: &mut Map<String, Value>,
    ) {
        let accepts = self.rules.property;
        let refused = named.iter().filter(|(name, _)| !accepts(name));
        let refused: Map<String, Value> =
            refused.map(|(name, schema)| (name.clone(), schema.clone())).collect();
        if refused.is_empty() {
            return;
        }
        // The value has other properties too.
        out.remove("additionalProperties");
        unsaid.insert("properties".to_owned(), refused.into());
    }

    /// Takes out the required properties that are refused there.
    fn without_refused_required(&self, out: &mut Map<String, Value>, unsaid: &mut Map<String, Value>) {
        let Some(Value::Array(required)) = out.get("required") else { return };
        let named = out.get("properties");
        let is_accepted = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            let is_named = named.is_some_and(|named| named.get(name).is_some());
            (self.rules.property)(name) && (is_named || !self.rules.named_required)
        };
        let (said, refused): (Vec<Value>, Vec<Value>) = required.iter().cloned().partition(is_accepted);
        if !refused.is_empty() {
            out.insert("required".to_owned(), said.into());
            unsaid.insert("required".to_owned(), refused.into());
        }
    }

    /// Writes the target of a reference in its place. A target within itself is named by its type alone.
    fn in_place(&mut self, at: &'a str, out: &mut Map<String, Value>) {
        let Some(target) = self.target(at) else { return };
        if self.within.contains(&at) {
            let again = at.rsplit('/').next().unwrap_or_default();
            if let Some(kind) = target.get("type") {
                out.entry("type").or_insert_with(|| kind.clone());
            }
            out.entry("description").or_insert_with(|| format!("{again}, as above").into());
            return;
        }
        self.within.push(at);
        if let Value::Object(target) = self.schema(target) {
            for (key, value) in target {
                out.entry(key).or_insert(value);
            }
        }
        self.within.pop();
    }

    /// Whether the servers of the wire resolve the reference.
    fn keeps(&self, at: &str) -> bool {
        let name = at.strip_prefix("#/$defs/").or_else(|| at.strip_prefix("#/definitions/"));
        self.rules.references && name.is_some_and(|name| !name.is_empty() && !name.contains(['/', '%', '~']))
    }

    fn target(&self, at: &str) -> Option<&'a Value> {
        let pointer = at.strip_prefix('#')?;
        let decoded = percent_encoding::percent_decode_str(pointer).decode_utf8().ok()?;
        self.root.pointer(&decoded)
    }
}

fn is_list(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    }
}

fn fits_nothing(schema: &Value) -> bool {
    schema == &Value::Bool(false) || schema == &json!({ "not": {} })
}

#[cfg(test)]
mod tests;
