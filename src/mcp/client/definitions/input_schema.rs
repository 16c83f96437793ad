//! The schema of the inputs of a server's tool. A server may be careless or hostile: what is odd but clear is read, and a
//! schema is refused if to compile it, or to check inputs against it, has no bound.

use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

const DEPTH_MAX: usize = 32;
/// Maximum number of subschemas, each counted as often as references name it.
const SUBSCHEMAS_MAX: usize = 10_000;
/// Maximum number of patterns, each counted as often as references name it. Each is compiled, and kept.
const PATTERNS_MAX: usize = 64;
/// Maximum number of subschemas of a recursive schema that one value is checked against.
const APPLIED_MAX: usize = 256;
/// Maximum number of steps to find that number.
const STEPS_MAX: usize = 200_000;

/// Keywords whose value is data, in which no keyword means anything.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keywords whose value has a schema for each name.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// Keywords that give a schema a name, to which a reference could lead.
const NAMES: [&str; 3] = ["$id", "id", "$anchor"];
/// Keywords that lead to a schema by the way in which it is used.
const DYNAMIC: [&str; 3] = ["$dynamicRef", "$recursiveRef", "$dynamicAnchor"];
/// The dialects of JSON Schema that are known, as parts of their addresses.
const DIALECTS: [&str; 5] = ["draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12"];
const DRAFT_4: &str = "http://json-schema.org/draft-04/schema#";
const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

/// Returns the schema against which inputs are checked, and the number of its patterns. The schema accepts the inputs that
/// the listed one accepts: objects. The error is the reason why it cannot be used.
pub(in crate::mcp) fn checked(listed: &Map<String, Value>) -> Result<(Map<String, Value>, usize), String> {
    let mut root = Value::Object(listed.clone());
    tidy(&mut root, Within::Schema, 0)?;
    let Value::Object(mut root) = root else { return Err("its schema is no object".to_owned()) };
    match root.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {}
        Some(kind) => return Err(format!("its schema is one of {kind}, and expected is one of an object")),
    }
    root.insert("type".to_owned(), "object".into());
    if let Some(dialect) = dialect(&root) {
        root.insert("$schema".to_owned(), dialect.into());
    } else {
        root.remove("$schema");
    }
    let root = Value::Object(root);
    let mut walk = Walk { root: &root, sizes: HashMap::new(), is_recursive: false };
    let counted = walk.size(&root, Within::Schema, 0, &mut Vec::new())?;
    if counted.parts > SUBSCHEMAS_MAX {
        return Err(format!("its schema has more than {SUBSCHEMAS_MAX} parts"));
    }
    if counted.patterns > PATTERNS_MAX {
        return Err(format!("its schema has more than {PATTERNS_MAX} patterns"));
    }
    if walk.is_recursive {
        Applied { root: &root, steps: 0 }.check()?;
    }
    let Value::Object(root) = root else { return Err("its schema is no object".to_owned()) };
    Ok((root, counted.patterns))
}

/// Returns the dialect of a schema: the one that it names, if it is known, or the old draft whose forms it has.
fn dialect(root: &Map<String, Value>) -> Option<String> {
    let named = root.get("$schema").and_then(Value::as_str);
    let is_known =
        |named: &&str| named.contains("json-schema.org/") && DIALECTS.iter().any(|it| named.contains(it));
    named.filter(is_known).or_else(|| old_draft(root, Within::Schema)).map(str::to_owned)
}

/// Returns the old draft, if the schema has a form that draft 2020-12 has not.
fn old_draft(fields: &Map<String, Value>, within: Within) -> Option<&'static str> {
    let mut found = None;
    for (key, value) in fields {
        let below = match within.below(key, value) {
            None => continue,
            Some(below) => below,
        };
        if within == Within::Schema {
            match (key.as_str(), value) {
                ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(_)) => return Some(DRAFT_4),
                ("items", Value::Array(_)) => found = Some(DRAFT_7),
                _ => {}
            }
        }
        let parts = match value {
            Value::Object(fields) => old_draft(fields, below),
            Value::Array(items) => {
                let parts = items.iter().filter_map(Value::as_object).map(|fields| old_draft(fields, below));
                parts.fold(None, |found, part| if part == Some(DRAFT_4) { part } else { found.or(part) })
            }
            _ => None,
        };
        match parts {
            Some(DRAFT_4) => return parts,
            other => found = found.or(other),
        }
    }
    found
}

/// What the fields of an object are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Keywords.
    Schema,
    /// Schemas by name.
    Names,
}

impl Within {
    /// Returns what the value of a field is. `None` for data.
    fn below(self, key: &str, value: &Value) -> Option<Self> {
        match self {
            Self::Names => Some(Self::Schema),
            Self::Schema if DATA.contains(&key) => None,
            Self::Schema if NAMED.contains(&key) && value.is_object() => Some(Self::Names),
            Self::Schema => Some(Self::Schema),
        }
    }
}

/// Removes what says nothing: `null` in place of a keyword's value, and names of parts.
fn tidy(schema: &mut Value, within: Within, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("its schema is deeper than {DEPTH_MAX} levels"));
    }
    match schema {
        Value::Object(fields) => {
            if within == Within::Schema {
                let named = NAMES.into_iter().find(|key| fields.get(*key).is_some_and(Value::is_string));
                let is_part = depth > 0 && named.is_some_and(|key| fields.get(key).is_some_and(is_address));
                if is_part && refers(fields) {
                    return Err("a part of its schema has an $id and references".to_owned());
                }
                fields.retain(|key, value| {
                    let is_name = NAMES.contains(&key.as_str()) && value.is_string();
                    !is_name && (!value.is_null() || matches!(key.as_str(), "const" | "default"))
                });
            }
            for (key, value) in fields {
                if let Some(below) = within.below(key, value) {
                    tidy(value, below, depth + 1)?;
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                tidy(item, Within::Schema, depth + 1)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Whether an `$id` changes the document that references are relative to.
fn is_address(id: &Value) -> bool {
    id.as_str().is_some_and(|id| !id.starts_with('#'))
}

fn refers(fields: &Map<String, Value>) -> bool {
    fields.iter().any(|(key, value)| {
        (key == "$ref" && value.is_string())
            || match value {
                Value::Object(fields) => refers(fields),
                Value::Array(items) => items.iter().filter_map(Value::as_object).any(refers),
                _ => false,
            }
    })
}

/// Returns the part of a schema to which a reference leads.
fn target<'a>(root: &'a Value, at: &str) -> Result<&'a Value, String> {
    let pointer = at.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
    let pointer = pointer.ok_or("its schema refers to another document")?;
    let decoded = percent_encoding::percent_decode_str(pointer).decode_utf8();
    let decoded = decoded.map_err(|_| "its schema has a reference that is not text")?;
    root.pointer(&decoded).ok_or_else(|| "its schema refers to a part that it does not have".to_owned())
}

#[derive(Debug, Clone, Copy)]
struct Size {
    parts: usize,
    patterns: usize,
}

impl Size {
    fn plus(self, other: Self) -> Self {
        Self {
            parts: self.parts.saturating_add(other.parts),
            patterns: self.patterns.saturating_add(other.patterns),
        }
    }
}

struct Walk<'a> {
    root: &'a Value,
    /// The sizes of the referenced schemas, by their pointers.
    sizes: HashMap<&'a str, Size>,
    /// Whether a part refers to a part around it.
    is_recursive: bool,
}

impl<'a> Walk<'a> {
    /// Returns the size of a schema. `through` are the references that lead here.
    fn size(
        &mut self,
        schema: &'a Value,
        within: Within,
        depth: usize,
        through: &mut Vec<&'a str>,
    ) -> Result<Size, String> {
        if depth > DEPTH_MAX {
            return Err(format!("its schema is deeper than {DEPTH_MAX} levels"));
        }
        let mut size = Size { parts: 1, patterns: 0 };
        match schema {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let Some(below) = within.below(key, value) else { continue };
                    let part = match (within, key.as_str(), value) {
                        (Within::Schema, "$ref", Value::String(at)) => self.referenced(at, through)?,
                        (Within::Schema, key, Value::String(_)) if DYNAMIC.contains(&key) => {
                            return Err(format!("its schema has {key}, and expected is $ref alone"));
                        }
                        (Within::Schema, "pattern", Value::String(_)) => Size { parts: 1, patterns: 1 },
                        (Within::Schema, "patternProperties", Value::Object(by_pattern)) => {
                            let patterns = Size { parts: 0, patterns: by_pattern.len() };
                            self.size(value, below, depth + 1, through)?.plus(patterns)
                        }
                        _ => self.size(value, below, depth + 1, through)?,
                    };
                    size = size.plus(part);
                }
            }
            Value::Array(items) => {
                for item in items {
                    size = size.plus(self.size(item, Within::Schema, depth + 1, through)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(size)
    }

    fn referenced(&mut self, at: &'a str, through: &mut Vec<&'a str>) -> Result<Size, String> {
        if let Some(size) = self.sizes.get(at) {
            return Ok(*size);
        }
        // A recursive part is compiled once.
        if through.contains(&at) {
            self.is_recursive = true;
            return Ok(Size { parts: 1, patterns: 0 });
        }
        let target = target(self.root, at)?;
        through.push(at);
        let size = self.size(target, Within::Schema, through.len(), through)?;
        through.pop();
        self.sizes.insert(at, size);
        Ok(size)
    }
}

/// The schemas that apply to one value of the inputs, for each place that a value can have. In a recursive schema there are
/// as many places as inputs can have, but few sets of schemas, unless the number of schemas grows with the depth.
struct Applied<'a> {
    root: &'a Value,
    steps: usize,
}

impl<'a> Applied<'a> {
    /// Follows each name and each index from the whole inputs down, until no new set of schemas is found.
    fn check(mut self) -> Result<(), String> {
        let (mut seen, mut open) = (HashSet::new(), vec![vec![self.root]]);
        while let Some(set) = open.pop() {
            let all = self.in_place(set)?;
            for mut below in self.below(&all)? {
                below.sort_unstable_by_key(|schema| std::ptr::from_ref::<Value>(schema).addr());
                let key: Vec<usize> =
                    below.iter().map(|schema| std::ptr::from_ref::<Value>(schema).addr()).collect();
                if seen.insert(key) {
                    open.push(below);
                }
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        let too_many = self.steps > STEPS_MAX;
        if too_many { Err("its recursive schema has too many forms".to_owned()) } else { Ok(()) }
    }

    /// Adds the schemas that apply to the same value.
    fn in_place(&mut self, set: Vec<&'a Value>) -> Result<Vec<&'a Map<String, Value>>, String> {
        let (mut all, mut open) = (Vec::new(), set);
        while let Some(schema) = open.pop() {
            let Value::Object(fields) = schema else { continue };
            self.step()?;
            if all.len() == APPLIED_MAX {
                return Err(format!(
                    "its recursive schema checks one value against more than {APPLIED_MAX} schemas"
                ));
            }
            all.push(fields);
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("$ref", Value::String(at)) => open.push(target(self.root, at)?),
                    ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => open.extend(schemas),
                    ("not" | "if" | "then" | "else", schema) => open.push(schema),
                    ("dependentSchemas" | "dependencies", Value::Object(named)) => {
                        open.extend(named.values())
                    }
                    _ => {}
                }
            }
        }
        Ok(all)
    }

    /// Returns the sets of schemas for the values below: one for each name that a schema has, one for each other name, one
    /// for the names, and the same for indexes.
    fn below(&mut self, all: &[&'a Map<String, Value>]) -> Result<Vec<Vec<&'a Value>>, String> {
        let mut sets = Vec::new();
        let properties = |fields: &'a Map<String, Value>| fields.get("properties").and_then(Value::as_object);
        let names: BTreeSet<&str> = all
            .iter()
            .filter_map(|fields| properties(fields))
            .flat_map(Map::keys)
            .map(String::as_str)
            .collect();
        for name in names.into_iter().map(Some).chain([None]) {
            let mut set = Vec::new();
            for fields in all {
                self.step()?;
                let own = name.and_then(|name| properties(fields)?.get(name));
                set.extend(own.or_else(|| fields.get("additionalProperties")));
                set.extend(fields.get("unevaluatedProperties"));
                let patterns = fields.get("patternProperties").and_then(Value::as_object);
                set.extend(patterns.into_iter().flat_map(Map::values));
            }
            sets.push(set);
        }
        sets.push(all.iter().filter_map(|fields| fields.get("propertyNames")).collect());
        let first = |fields: &'a Map<String, Value>| {
            fields.get("prefixItems").or_else(|| fields.get("items")).and_then(Value::as_array)
        };
        let longest = all.iter().filter_map(|fields| first(fields)).map(Vec::len).max().unwrap_or_default();
        for index in 0..=longest {
            let mut set = Vec::new();
            for fields in all {
                self.step()?;
                let rest = || fields.get("items").filter(|items| !items.is_array());
                let rest = || rest().or_else(|| fields.get("additionalItems"));
                set.extend(first(fields).and_then(|first| first.get(index)).or_else(rest));
                set.extend(fields.get("contains"));
                set.extend(fields.get("unevaluatedItems"));
            }
            sets.push(set);
        }
        sets.retain(|set| !set.is_empty());
        Ok(sets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(schema: &Value) -> Result<(Value, usize), String> {
        checked(schema.as_object().unwrap()).map(|(schema, patterns)| (Value::Object(schema), patterns))
    }

    #[test]
    fn a_schema_with_a_bounded_cost_is_accepted() {
        let schema = json!({ "type": "object", "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": { "a": { "$ref": "#/$defs/a" }, "b": { "$ref": "#/$defs/a" }, "id": { "type": "string" } },
            "$defs": { "a": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/b" }] }, "b": { "type": "null" } } });
        assert_eq!(read(&schema), Ok((schema, 0)));
        let pattern = json!({ "type": "string", "pattern": "^a" });
        let schema = json!({ "type": "object", "patternProperties": { "^x": {}, "^y": { "$ref": "#/$defs/p" } },
            "properties": { "pattern": { "$ref": "#/$defs/p" } }, "$defs": { "p": pattern } });
        assert_eq!(read(&schema).map(|(_, patterns)| patterns), Ok(5));
    }

    /// Schemas that real servers list, each with inputs that fit and inputs that do not.
    #[test]
    fn an_odd_but_clear_schema_checks_inputs() {
        let object = |fields: Value| {
            let mut schema = json!({ "type": "object" });
            schema.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            schema
        };
        let tree = json!({ "type": "object", "required": ["value"], "properties": { "value": { "type": "integer" },
            "left": { "$ref": "#/$defs/T" }, "right": { "anyOf": [{ "$ref": "#/$defs/T" }, { "type": "null" }] },
            "more": { "type": "array", "items": { "$ref": "#/$defs/T" } } } });
        let any_json = json!({ "anyOf": [{ "type": ["string", "number", "boolean", "null"] },
            { "type": "array", "items": { "$ref": "#/$defs/J" } }, { "type": "object", "additionalProperties": { "$ref": "#/$defs/J" } }] });
        for (schema, fits, fails) in [
            (json!({}), json!({ "any": 1 }), json!([])),
            (
                json!({ "required": null, "properties": { "a": { "type": "string", "enum": null } } }),
                json!({ "a": "x" }),
                json!({ "a": 1 }),
            ),
            (
                json!({ "type": ["object", "null"], "properties": { "a": { "type": "string" } } }),
                json!({ "a": "x" }),
                json!({ "a": 1 }),
            ),
            (
                json!({ "$ref": "#/$defs/A", "$defs": { "A": { "type": "object", "required": ["a"] } } }),
                json!({ "a": 1 }),
                json!({}),
            ),
            (
                json!({ "anyOf": [{ "type": "object", "required": ["a"] }, { "type": "object", "required": ["b"] }] }),
                json!({ "b": 1 }),
                json!({}),
            ),
            (
                object(
                    json!({ "$id": "https://a.example/tool", "properties": { "a": { "$id": "#/properties/a", "type": "string" } } }),
                ),
                json!({ "a": "x" }),
                json!({ "a": 1 }),
            ),
            (
                object(
                    json!({ "examples": [{ "id": "A-1", "$ref": "x" }], "default": { "$id": "y" }, "properties": {
                "default": { "type": "string" }, "enum": { "enum": [{ "$ref": "z" }] } } }),
                ),
                json!({ "default": "d" }),
                json!({ "default": 1 }),
            ),
            (
                object(json!({ "$schema": "https://unknown.example/schema", "required": ["a"] })),
                json!({ "a": 1 }),
                json!({}),
            ),
            (
                object(json!({ "properties": { "r": { "$ref": "#/definitions/Record%3Cstring%2Cany%3E" } },
                "definitions": { "Record<string,any>": { "type": "object" } } })),
                json!({ "r": {} }),
                json!({ "r": 1 }),
            ),
            (
                object(
                    json!({ "properties": { "pair": { "items": [{ "type": "string" }, { "type": "integer" }] } } }),
                ),
                json!({ "pair": ["a", 1] }),
                json!({ "pair": [1] }),
            ),
            (
                object(json!({ "properties": { "n": { "minimum": 1, "exclusiveMinimum": true } } })),
                json!({ "n": 2 }),
                json!({ "n": 1 }),
            ),
            (
                json!({ "$ref": "#/$defs/T", "$defs": { "T": tree } }),
                json!({ "value": 1, "left": { "value": 2, "more": [{ "value": 3 }] } }),
                json!({ "value": 1, "left": { "value": 2, "more": [{ "value": "x" }] } }),
            ),
            (
                object(
                    json!({ "properties": { "j": { "$ref": "#/$defs/J" }, "next": { "$ref": "#" } }, "$defs": { "J": any_json } }),
                ),
                json!({ "j": [{ "a": [1, null] }], "next": { "next": {} } }),
                json!({ "next": { "next": 1 } }),
            ),
        ] {
            let (read, _) = read(&schema).unwrap_or_else(|why| panic!("{why}: {schema}"));
            assert_eq!(read["type"], "object");
            let validator = jsonschema::options().build(&read).unwrap_or_else(|why| panic!("{why}: {read}"));
            assert!(validator.is_valid(&fits), "{schema} refuses {fits}");
            assert!(!validator.is_valid(&fails), "{schema} takes {fails}");
        }
    }

    #[test]
    fn a_schema_without_a_bound_is_refused_before_it_is_compiled() {
        let mut deep = json!({});
        for _ in 0..40 {
            deep = json!({ "items": deep });
        }
        let doubling = |n: usize| json!({ "anyOf": [{ "$ref": format!("#/$defs/{n}") }, { "$ref": format!("#/$defs/{n}") }] });
        let mut defs: Map<String, Value> = (0..30).map(|n| (n.to_string(), doubling(n + 1))).collect();
        defs.insert("30".to_owned(), json!({}));
        let twice = json!({ "anyOf": [{ "properties": { "a": { "$ref": "#" } } }, { "properties": { "a": { "$ref": "#" } } }] });
        let hidden = json!({ "properties": { "a": { "anyOf": [{ "items": { "$ref": "#" } }, { "contains": { "$ref": "#" } }] } } });
        for (schema, why) in [
            (deep, "deeper"),
            (json!({ "$ref": "https://evil.example/schema" }), "another document"),
            (json!({ "$ref": "other.json#/x" }), "another document"),
            (json!({ "$ref": "#" }), "more than 256 schemas"),
            (
                json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
                "more than 256 schemas",
            ),
            (twice, "more than 256 schemas"),
            (hidden, "more than 256 schemas"),
            (json!({ "$ref": "#/none" }), "does not have"),
            (json!({ "$dynamicRef": "#x" }), "$dynamicRef"),
            (
                json!({ "properties": { "a": { "$id": "https://a.example/", "items": { "$ref": "#" } } } }),
                "$id",
            ),
            (json!({ "$ref": "#/$defs/0", "$defs": defs }), "parts"),
            (json!({ "allOf": vec![json!({ "pattern": "a" }); PATTERNS_MAX + 1] }), "patterns"),
            (
                json!({ "allOf": vec![json!({ "$ref": "#/$defs/a" }); PATTERNS_MAX], "$defs": { "a": { "pattern": "a" } } }),
                "patterns",
            ),
            (json!({ "type": "string" }), "object"),
        ] {
            let refused = read(&schema).unwrap_err();
            assert!(refused.contains(why), "{refused}: expected {why}");
        }
    }
}
