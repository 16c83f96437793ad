//! Repairs of arguments that weak models write: `null` for an optional field, and a list or an object as JSON in a text.
//!
//! A repair is kept only if it makes an error of the schema go away and adds none, so arguments that fit are never
//! changed, and a text is read only where the text itself does not fit.

use super::registry::Registered;
use holdpoint_core::json::pointer;
use holdpoint_core::json::strict_json;
use holdpoint_core::tool::input::Input;
use serde_json::Value;

/// The most values that are tried in one call.
const TRIES_MAX: usize = 64;
/// The most errors that are compared.
const ERRORS_MAX: usize = 256;

impl Registered {
    /// Returns the arguments with the repairs that make them fit. `None` if they do not fit with any.
    pub(super) fn repaired(&self, input: &Input, depth_max: usize) -> Option<Input> {
        let mut root = Value::Object(input.clone());
        let mut errors = self.error_places(&root);
        let mut tries = 0;
        while let Some(place) = errors.first().cloned() {
            let mut found = None;
            for (candidate, repair) in candidates(&root, &place, depth_max) {
                tries += 1;
                if tries > TRIES_MAX {
                    return None;
                }
                let mut tried = root.clone();
                if !apply(&mut tried, &candidate, repair) {
                    continue;
                }
                let left = self.error_places(&tried);
                // What was in a text may need repairs of its own.
                let below = format!("{candidate}/");
                if left.iter().filter(|place| !place.starts_with(&below)).count() < errors.len() {
                    found = Some((tried, left));
                    break;
                }
            }
            (root, errors) = found?;
        }
        match root {
            Value::Object(input) => Some(input),
            _ => None,
        }
    }

    fn error_places(&self, input: &Value) -> Vec<String> {
        self.schema_errors(input).take(ERRORS_MAX).map(|error| error.instance_path().to_string()).collect()
    }
}

/// A change of one value.
enum Repair {
    Remove,
    Replace(Value),
}

/// Returns the repairs of the value at this place, or of a value in it.
fn candidates(root: &Value, place: &str, depth_max: usize) -> Vec<(String, Repair)> {
    let mut found = Vec::new();
    let mut open: Vec<(String, &Value)> =
        root.pointer(place).map(|value| (place.to_owned(), value)).into_iter().collect();
    while let Some((at, value)) = open.pop() {
        match value {
            Value::Null if !at.is_empty() => found.push((at, Repair::Remove)),
            Value::String(text) => {
                let begins = text.trim_start().starts_with(['[', '{']);
                if let Some(value) = begins.then(|| strict_json::parse(text, depth_max).ok()).flatten() {
                    found.push((at, Repair::Replace(value)));
                }
            }
            Value::Array(items) => {
                let items = items.iter().enumerate().rev();
                open.extend(items.map(|(index, item)| (pointer::join(&at, &index.to_string()), item)));
            }
            Value::Object(fields) => {
                open.extend(fields.iter().rev().map(|(name, field)| (pointer::join(&at, name), field)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        if found.len() == TRIES_MAX {
            break;
        }
    }
    found
}

/// Repairs the value at this place. An item of a list is not left out: that would move the others.
fn apply(root: &mut Value, at: &str, repair: Repair) -> bool {
    match repair {
        Repair::Replace(value) => root.pointer_mut(at).map(|place| *place = value).is_some(),
        Repair::Remove => {
            let Some((parent, name)) = at.rsplit_once('/') else { return false };
            let name = name.replace("~1", "/").replace("~0", "~");
            let parent = root.pointer_mut(parent).and_then(Value::as_object_mut);
            parent.is_some_and(|fields| fields.shift_remove(&name).is_some())
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::{DynTool, Permit, ToolError, ToolRegistry, ToolSpec};
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use holdpoint_core::tool::input::Input;
    use holdpoint_core::tool::secrets::SecretPaths;
    use serde_json::{Value, json};
    use std::sync::Arc;

    struct Schema(Value);

    impl DynTool for Schema {
        fn spec(&self) -> ToolSpec {
            ToolSpec::unclassified("t", "is tested", self.0.clone())
        }

        fn execute(&self, _permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
            async { Ok(Value::Null) }.boxed()
        }
    }

    #[test]
    fn arguments_are_repaired_only_where_they_do_not_fit_and_the_repair_does() {
        let schema = json!({ "type": "object", "additionalProperties": false, "required": ["path"], "properties": {
            "path": { "type": "string" },
            "note": { "type": "string" },
            "either": { "type": ["string", "null"] },
            "tags": { "type": "array", "items": { "type": "string" } },
            "where": { "type": "object", "properties": { "city": { "type": "string" }, "zip": { "type": "integer" } } },
            "maybe": { "anyOf": [{ "type": "array", "items": { "type": "integer" } }, { "type": "null" }] },
            "text": { "type": "string" },
            "any": {},
        } });
        let mut registry = ToolRegistry::new();
        registry.register_dyn(Arc::new(Schema(schema))).unwrap();
        let tool = registry.get("t").unwrap();
        let object = |value: Value| -> Input { value.as_object().unwrap().clone() };
        let deep = "[".repeat(40) + &"]".repeat(40);
        for (written, repaired) in [
            (json!({ "path": "a", "note": null }), Some(json!({ "path": "a" }))),
            (
                json!({ "path": "a", "tags": "[\"x\", \"y\"]" }),
                Some(json!({ "path": "a", "tags": ["x", "y"] })),
            ),
            (
                json!({ "path": "a", "where": " {\"city\": \"Bern\", \"zip\": null}", "note": null }),
                Some(json!({ "path": "a", "where": { "city": "Bern" } })),
            ),
            (
                json!({ "path": "a", "where": { "zip": null, "city": "Bern" } }),
                Some(json!({ "path": "a", "where": { "city": "Bern" } })),
            ),
            (json!({ "path": "a", "maybe": "[1, 2]" }), Some(json!({ "path": "a", "maybe": [1, 2] }))),
            // Required, or not what is expected in the text either.
            (json!({ "path": null }), None),
            (json!({ "path": "a", "tags": "x, y" }), None),
            (json!({ "path": "a", "tags": "{\"x\": 1}" }), None),
            (json!({ "path": "a", "tags": ["x", null] }), None),
            (json!({ "path": "a", "tags": "[\"x\", 1]" }), None),
            (json!({ "path": "a", "tags": deep }), None),
            (json!({ "path": "a", "where": "{\"city\": \"a\", \"city\": \"b\"}" }), None),
            (json!({ "path": "a", "more": 1, "note": null }), None),
            (json!({ "path": 1 }), None),
        ] {
            let found = tool.repaired(&object(written.clone()), 32).map(Value::Object);
            assert_eq!(found, repaired, "{written}");
        }
        // What fits stays, although it looks like something to repair.
        let fits = object(json!({ "path": "[1]", "either": null, "maybe": null, "text": "{}", "any": null }));
        assert!(tool.errors(&fits, &SecretPaths::default()).is_empty());
        assert_eq!(tool.repaired(&fits, 32), Some(fits.clone()));
        let many: Input = (0..1_000).map(|n| (format!("n{n}"), Value::Null)).collect();
        assert_eq!(tool.repaired(&many, 32), None);
    }
}
