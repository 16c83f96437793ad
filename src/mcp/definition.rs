//! The definitions that a server lists. A server may be hostile, so each definition is checked before its schema is
//! compiled.

use crate::domain::canonical::{canonical_hash, canonical_json};
use crate::domain::text::cut;
use crate::domain::visible::{escaped, escaped_lines, show_texts};
use rmcp::model::Tool;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Maximum size of one definition, in bytes of JSON.
const DEFINITION_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a title, in bytes.
const TITLE_BYTES_MAX: usize = 120;
/// Maximum depth of a schema.
const DEPTH_MAX: usize = 32;
/// Maximum number of subschemas, each counted as often as references name it.
const SUBSCHEMAS_MAX: usize = 10_000;
/// Maximum number of patterns, each counted as often as references name it. Each is compiled, and kept.
const PATTERNS_MAX: usize = 64;
/// Begins the hashed text, so that the hash of a definition is the hash of nothing else.
const LABEL: &str = "holdpoint.mcp.tool.v1";

/// A tool as its server defines it: everything that the model or an approver reads of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Definition {
    /// The name at the server.
    pub(super) name: String,
    /// The name for people, if the server gives one.
    pub(super) title: Option<String>,
    /// What the tool does.
    pub(super) description: String,
    /// The schema of the inputs.
    pub(super) input_schema: Value,
    /// The hash of the whole definition.
    pub(super) hash: String,
    /// The whole definition, as canonical JSON.
    pub(super) text: String,
    /// The number of patterns in the schema of the inputs.
    pub(super) patterns: usize,
}

impl Definition {
    /// Reads what a server lists. The error is the reason why the tool cannot be used.
    pub(super) fn of(server: &str, tool: &Tool) -> Result<Self, String> {
        let Tool { name, title, description, input_schema, output_schema, annotations, .. } = tool;
        let whole = json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input_schema,
            "outputSchema": output_schema,
            "annotations": annotations,
        });
        let text = canonical_json(&whole);
        if text.len() > DEFINITION_BYTES_MAX {
            return Err(format!("its definition is longer than {DEFINITION_BYTES_MAX} bytes"));
        }
        let mut input_schema = Value::Object(Map::clone(input_schema));
        let patterns = check_schema(&input_schema)?;
        if let Value::Object(schema) = &mut input_schema {
            show_texts(schema);
        }
        let description = description.as_deref().or(title.as_deref()).unwrap_or(name);
        let shown = title.as_deref().or_else(|| annotations.as_ref()?.title.as_deref());
        Ok(Self {
            name: name.to_string(),
            title: shown.map(|title| escaped(&cut(title.trim().to_owned(), TITLE_BYTES_MAX))),
            description: escaped_lines(description),
            input_schema,
            hash: canonical_hash(&json!([LABEL, server, whole])),
            text,
            patterns,
        })
    }
}

/// Refuses a schema that is deep, that has many parts or patterns, that refers to another document, or that refers to
/// itself. The cost to compile it and to validate inputs would have no bound. Returns the number of patterns.
pub(super) fn check_schema(schema: &Value) -> Result<usize, String> {
    let counted = Walk { root: schema, sizes: HashMap::new() }.size(schema, 0, &mut Vec::new())?;
    if counted.parts > SUBSCHEMAS_MAX {
        return Err(format!("its schema has more than {SUBSCHEMAS_MAX} parts"));
    }
    if counted.patterns > PATTERNS_MAX {
        return Err(format!("its schema has more than {PATTERNS_MAX} patterns"));
    }
    Ok(counted.patterns)
}

/// The size of a schema.
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
}

impl<'a> Walk<'a> {
    /// Returns the size of a schema. `within` are the references that lead here.
    fn size(&mut self, schema: &'a Value, depth: usize, within: &mut Vec<&'a str>) -> Result<Size, String> {
        if depth > DEPTH_MAX {
            return Err(format!("its schema is deeper than {DEPTH_MAX} levels"));
        }
        let mut size = Size { parts: 1, patterns: 0 };
        match schema {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let part = match (key.as_str(), value) {
                        ("$ref", Value::String(at)) => self.referenced(at, within)?,
                        (
                            "$dynamicRef" | "$recursiveRef" | "$id" | "id" | "$anchor" | "$dynamicAnchor",
                            Value::String(_),
                        ) => {
                            return Err(format!("its schema has {key}, and expected is $ref alone"));
                        }
                        ("pattern", Value::String(_)) => Size { parts: 1, patterns: 1 },
                        ("patternProperties", Value::Object(by_pattern)) => {
                            let patterns = Size { parts: 0, patterns: by_pattern.len() };
                            self.size(value, depth + 1, within)?.plus(patterns)
                        }
                        _ => self.size(value, depth + 1, within)?,
                    };
                    size = size.plus(part);
                }
            }
            Value::Array(items) => {
                for item in items {
                    size = size.plus(self.size(item, depth + 1, within)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(size)
    }

    fn referenced(&mut self, at: &'a str, within: &mut Vec<&'a str>) -> Result<Size, String> {
        if let Some(size) = self.sizes.get(at) {
            return Ok(*size);
        }
        let pointer = at.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or("its schema refers to another document")?;
        // A reference to a part around it repeats itself, by this reference or by one below it.
        if within.contains(&at) || within.len() > DEPTH_MAX {
            return Err("its schema refers to itself".to_owned());
        }
        let target = self.root.pointer(pointer).ok_or("its schema refers to a part that it does not have")?;
        within.push(at);
        let size = self.size(target, within.len(), within)?;
        within.pop();
        self.sizes.insert(at, size);
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(schema: Value) -> Result<usize, String> {
        check_schema(&schema)
    }

    #[test]
    fn a_schema_with_a_bounded_cost_is_accepted() {
        let schema = json!({ "type": "object", "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": { "a": { "$ref": "#/$defs/a" }, "b": { "$ref": "#/$defs/a" }, "id": { "type": "string" } },
            "$defs": { "a": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/b" }] }, "b": { "type": "null" } } });
        assert_eq!(checked(schema), Ok(0));
        let pattern = json!({ "type": "string", "pattern": "^a" });
        let schema = json!({ "type": "object", "patternProperties": { "^x": {}, "^y": { "$ref": "#/$defs/p" } },
            "properties": { "pattern": { "$ref": "#/$defs/p" } }, "$defs": { "p": pattern } });
        assert_eq!(checked(schema), Ok(5));
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
        for (schema, why) in [
            (deep, "deeper"),
            (json!({ "$ref": "https://evil.example/schema" }), "another document"),
            (json!({ "$ref": "other.json#/x" }), "another document"),
            (json!({ "$ref": "#" }), "itself"),
            (json!({ "properties": { "next": { "$ref": "#" } } }), "itself"),
            (
                json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
                "itself",
            ),
            (json!({ "$ref": "#/none" }), "does not have"),
            (json!({ "$dynamicRef": "#x" }), "$dynamicRef"),
            (json!({ "$id": "https://a.example/", "$ref": "#" }), "$id"),
            (json!({ "$ref": "#/$defs/0", "$defs": defs }), "parts"),
            (json!({ "allOf": vec![json!({ "pattern": "a" }); PATTERNS_MAX + 1] }), "patterns"),
            (
                json!({ "allOf": vec![json!({ "$ref": "#/$defs/a" }); PATTERNS_MAX], "$defs": { "a": { "pattern": "a" } } }),
                "patterns",
            ),
        ] {
            let refused = checked(schema).unwrap_err();
            assert!(refused.contains(why), "{refused}: expected {why}");
        }
    }

    #[test]
    fn what_the_model_or_an_approver_reads_changes_the_hash() {
        let of = |changes: Value| {
            let mut tool = json!({ "name": "t", "description": "d", "inputSchema": { "type": "object" } });
            tool.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            Definition::of("s", &serde_json::from_value(tool).unwrap()).unwrap()
        };
        let first = of(json!({}));
        assert_eq!(of(json!({ "_meta": { "a": 1 } })), first);
        for changes in [
            json!({ "name": "u" }),
            json!({ "title": "T" }),
            json!({ "description": "D" }),
            json!({ "inputSchema": { "type": "object", "properties": {} } }),
            json!({ "outputSchema": { "type": "object" } }),
            json!({ "annotations": { "readOnlyHint": true } }),
        ] {
            assert_ne!(of(changes).hash, first.hash);
        }
        let hidden = of(json!({ "description": "d\u{e0041}\n",
            "inputSchema": { "type": "object", "properties": { "a": { "description": "x\u{202e}" } } } }));
        assert_eq!(hidden.description, "d\\u{e0041}\n");
        assert_eq!(hidden.input_schema["properties"]["a"]["description"], "x\\u{202e}");
    }
}
