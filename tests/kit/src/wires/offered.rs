//! The rules of the providers for the tools that a request offers, in the words of their refusals. A server refuses the whole
//! request for one keyword of one tool.

use crate::valid_history::is_plain;
use serde_json::{Map, Value};

/// Where a wire has the parts of a tool, and what its servers accept in them.
#[derive(Debug)]
pub(super) struct ToolRules {
    /// The pointer to the list of the tools.
    pub(super) list: &'static str,
    /// The pointer to the name of a tool.
    pub(super) name: &'static str,
    /// The pointer to the schema of its inputs.
    pub(super) schema: &'static str,
    /// The known keywords. `None` for those of draft 2020-12.
    pub(super) keywords: Option<&'static [&'static str]>,
    /// Whether references are resolved.
    pub(super) references: bool,
    /// The most schemas within each other.
    pub(super) depth_max: usize,
    /// Whether the name of a tool is accepted.
    pub(super) tool: fn(&str) -> bool,
    /// Whether the name of a property is accepted.
    pub(super) property: fn(&str) -> bool,
    /// Whether `enum` may have a value.
    pub(super) listed: fn(&Value) -> bool,
    /// Whether a required property has to have a schema.
    pub(super) named_required: bool,
}

/// What all servers accept.
pub(super) const ACCEPTED: ToolRules = ToolRules {
    list: "/tools",
    name: "/name",
    schema: "/parameters",
    keywords: None,
    references: true,
    depth_max: usize::MAX,
    tool: |_| true,
    property: |_| true,
    listed: |_| true,
    named_required: false,
};

/// Keywords that are refused in the schema of the inputs itself.
const NOT_AT_ROOT: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "$ref"];
/// Keywords with one schema.
const ONE: [&str; 10] = [
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
];
/// Keywords with a list of schemas.
const MANY: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords with a schema for each name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "$defs"];

/// The tools of a request.
pub(super) fn tools_in<'a>(rules: &ToolRules, body: &'a Value) -> Result<&'a [Value], String> {
    match body.pointer(rules.list) {
        _ if body["tools"].is_null() => Ok(&[]),
        Some(Value::Array(tools)) => Ok(tools),
        _ => Err(format!("tools are no list: {}", body["tools"])),
    }
}

/// The names of the offered tools, if the servers of the wire accept each of them.
pub(super) fn offered(rules: &ToolRules, body: &Value) -> Result<Vec<String>, String> {
    let check = |tool: &Value| {
        let name = tool.pointer(rules.name).and_then(Value::as_str);
        let name = name.ok_or(format!("a tool has no name: {tool}"))?;
        if !is_plain(name) || !(rules.tool)(name) {
            return Err(format!("the tool {name:?} has a name that is refused"));
        }
        let schema = tool.pointer(rules.schema).unwrap_or(&Value::Null);
        match refusal(rules, schema) {
            Some(why) => Err(format!("invalid schema for {name}: {why}: {schema}")),
            None => Ok(name.to_owned()),
        }
    };
    tools_in(rules, body)?.iter().map(check).collect()
}

/// What the servers of a wire say against the schema of a tool.
fn refusal(rules: &ToolRules, schema: &Value) -> Option<String> {
    let Value::Object(root) = schema else { return Some("it is no object".to_owned()) };
    if schema["type"] != "object" || NOT_AT_ROOT.iter().any(|key| root.contains_key(*key)) {
        return Some("it has to have type 'object', and no combinator at the top level".to_owned());
    }
    if !schema["properties"].is_object() {
        return Some("object schema missing properties".to_owned());
    }
    if !jsonschema::draft202012::meta::is_valid(schema) {
        return Some("it has to match JSON Schema draft 2020-12".to_owned());
    }
    part_refusal(rules, schema, root, 1)
}

fn part_refusal(rules: &ToolRules, root: &Value, part: &Map<String, Value>, depth: usize) -> Option<String> {
    if depth > rules.depth_max {
        return Some("it exceeds the maximum allowed nesting depth".to_owned());
    }
    let is_list = |kind: &Value| {
        kind == "array" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|it| it == "array"))
    };
    if part.get("type").is_some_and(is_list) && !part.contains_key("items") {
        return Some("array schema missing items".to_owned());
    }
    let mut parts: Vec<&Value> = Vec::new();
    for (key, value) in part {
        let key = key.as_str();
        if rules.keywords.is_some_and(|keywords| !keywords.contains(&key)) {
            return Some(format!("unknown name {key:?}"));
        }
        match value {
            Value::String(at) if key == "$ref" => {
                let target = at.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
                if !rules.references || target.is_none() {
                    return Some(format!("the reference {at} is not resolved"));
                }
            }
            Value::Array(values) if key == "enum" && !values.iter().all(rules.listed) => {
                return Some("a value of enum cannot be empty".to_owned());
            }
            Value::Array(names) if key == "required" && rules.named_required => {
                let named = part.get("properties").and_then(Value::as_object);
                let is_there = |name: &Value| named.is_some_and(|it| it.contains_key(name.as_str().unwrap()));
                if !names.iter().all(is_there) {
                    return Some("a required property is not defined".to_owned());
                }
            }
            Value::Object(named) if NAMED.contains(&key) => {
                if key == "properties" && !named.keys().all(|name| (rules.property)(name)) {
                    return Some("property keys have to match a pattern".to_owned());
                }
                parts.extend(named.values());
            }
            Value::Array(schemas) if MANY.contains(&key) => parts.extend(schemas),
            Value::Object(_) if ONE.contains(&key) => parts.push(value),
            _ => {}
        }
    }
    parts.into_iter().find_map(|part| match part {
        Value::Object(part) => part_refusal(rules, root, part, depth + 1),
        _ => Some(format!("{part} is no object")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wires::WIRES;
    use serde_json::json;

    /// Whether servers with these rules refuse a schema.
    type IsFault = fn(&ToolRules) -> bool;

    #[test]
    fn each_fault_of_a_tool_is_refused_by_the_servers_that_refuse_it() {
        const ALL: IsFault = |_| true;
        let of = |schema: Value| json!({ "type": "object", "properties": { "a": schema } });
        let deep = (0..4).fold(json!({}), |within, _| json!({ "type": "array", "items": within }));
        let faults: Vec<(Value, IsFault)> = vec![
            (of(json!({ "type": "string" })), |_| false),
            (json!("object"), ALL),
            (json!({ "type": "object" }), ALL),
            (json!({ "properties": {} }), ALL),
            (json!({ "type": "object", "properties": {}, "anyOf": [{}] }), ALL),
            (of(json!({ "type": "array" })), ALL),
            (of(json!({ "anyOf": [{ "type": ["array", "null"] }] })), ALL),
            (of(json!({ "items": [{}] })), ALL),
            (of(json!({ "minimum": 1, "exclusiveMinimum": true })), ALL),
            (of(json!({ "description": null })), ALL),
            (of(json!({ "$ref": "#/$defs/gone" })), ALL),
            (of(json!(true)), ALL),
            (of(json!({ "$ref": "#" })), |it| !it.references),
            (of(json!({ "pattern": "a" })), |it| it.keywords.is_some()),
            (of(json!({ "type": "array", "items": {}, "maxItems": 1 })), |it| it.keywords.is_some()),
            (of(json!({ "enum": ["a", ""] })), |it| !(it.listed)(&json!(""))),
            (of(json!({ "type": "object", "required": ["b"] })), |it| it.named_required),
            (of(deep), |it| it.depth_max < 6),
            (json!({ "type": "object", "properties": { "$filter": {} } }), |it| !(it.property)("$filter")),
            (json!({ "type": "object", "properties": { "a.b": {} } }), |it| !(it.property)("a.b")),
        ];
        for (schema, is_fault) in &faults {
            for wire in WIRES {
                let rules = &wire.facts().tools;
                let refused = refusal(rules, schema);
                assert_eq!(refused.is_some(), is_fault(rules), "{wire:?}: {schema}: {refused:?}");
            }
            let of_some = WIRES.iter().any(|wire| is_fault(&wire.facts().tools));
            assert!(of_some || schema == &faults[0].0, "no wire has the rule of {schema}");
        }
    }
}
