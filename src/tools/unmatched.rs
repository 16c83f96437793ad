//! Parts of the operator's policy that match no tool, or no argument of the matching tools.

use super::ToolRegistry;
use crate::config::{Approval, ConfigError};
use holdpoint_core::policy::Tools;
use serde_json::Value;

/// Maximum depth to which a schema is followed. A schema that refers to itself has no end.
const DEPTH_MAX: usize = 64;

/// A part of the policy that matches less than it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmatched {
    pub(crate) key: String,
    /// The reason, with the names that do not match.
    pub(crate) why: String,
}

impl ToolRegistry {
    /// Returns the parts of the policy that match nothing. A pattern may name tools of another build.
    ///
    /// # Errors
    /// Returns an error for a name, without `*` and `?`, that no tool has. The name is misspelt, and the tool
    /// that it should forbid would run.
    pub(crate) fn check_policy(&self, policy: &Approval) -> Result<Vec<Unmatched>, ConfigError> {
        let mut unmatched = self.check_names("approval.always_deny", &policy.always_deny)?;
        unmatched.extend(self.check_names("approval.always_allow", &policy.always_allow)?);
        for (at, rule) in policy.rules.iter().enumerate() {
            unmatched.extend(self.check_names(&format!("approval.rules[{at}].tools"), &rule.tools)?);
            let tools = Tools::new(&rule.tools);
            let about = || self.specs().filter(|spec| tools.contains(&spec.name));
            for (nth, condition) in rule.when.iter().enumerate() {
                let argument = condition.argument.as_str();
                let without = about().filter(|spec| excludes(&spec.input_schema, argument));
                let without: Vec<&str> = without.map(|spec| spec.name.as_str()).collect();
                if !without.is_empty() {
                    let without = without.join(", ");
                    unmatched.push(Unmatched {
                        key: format!("approval.rules[{at}].when[{nth}].argument"),
                        why: format!("these tools take no {argument:?}, so the condition holds: {without}"),
                    });
                }
            }
        }
        Ok(unmatched)
    }

    fn check_names(&self, key: &str, names: &[String]) -> Result<Vec<Unmatched>, ConfigError> {
        let is_pattern = |name: &&String| name.contains(['*', '?']);
        if let Some(unknown) = names.iter().find(|name| !is_pattern(name) && !self.may_have(name)) {
            let expected = format!("expected one of [{}], or a pattern with * or ?", self.names().join(", "));
            let why = format!("there is no tool {unknown:?}; {expected}");
            return Err(ConfigError::Value { key: key.to_owned(), why });
        }
        let matches_none = |pattern: &&String| {
            let pattern = Tools::new(std::slice::from_ref(*pattern));
            self.servers.is_empty() && !self.specs().any(|spec| pattern.contains(&spec.name))
        };
        let none = names.iter().filter(is_pattern).filter(matches_none);
        let why = |pattern: &String| format!("no tool matches {pattern:?}");
        Ok(none.map(|pattern| Unmatched { key: key.to_owned(), why: why(pattern) }).collect())
    }
}

/// Whether no value that fits the schema has a member at this pointer. If this is uncertain, the result is
/// false.
fn excludes(schema: &Value, pointer: &str) -> bool {
    let unescaped = |token: &str| token.replace("~1", "/").replace("~0", "~");
    let path: Vec<String> = pointer.split('/').skip(1).map(unescaped).collect();
    Walk { root: schema }.excludes(schema, &path, 0)
}

struct Walk<'a> {
    root: &'a Value,
}

impl Walk<'_> {
    fn excludes(&self, schema: &Value, path: &[String], depth: usize) -> bool {
        let Value::Object(fields) = schema else { return schema == &Value::Bool(false) };
        let Some((first, rest)) = path.split_first() else { return false };
        if depth == DEPTH_MAX {
            return false;
        }
        let excluded_by = |schema: &Value| self.excludes(schema, path, depth + 1);
        if let Some(at) = fields.get("$ref").and_then(Value::as_str) {
            // Old drafts ignore all keywords next to `$ref`.
            return at.strip_prefix('#').and_then(|at| self.root.pointer(at)).is_some_and(excluded_by);
        }
        let all_of = |name: &str| fields.get(name).and_then(Value::as_array);
        if all_of("allOf").is_some_and(|schemas| schemas.iter().any(excluded_by)) {
            return true;
        }
        let either = |name: &str| all_of(name).is_some_and(|schemas| schemas.iter().all(excluded_by));
        if either("anyOf") || either("oneOf") {
            return true;
        }
        let may_be = |kind: &str| match fields.get("type") {
            Some(Value::String(only)) => only == kind,
            Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
            _ => true,
        };
        let below = |schema: &Value| self.excludes(schema, rest, depth + 1);
        let no_member = || match fields.get("properties").and_then(|all| all.get(first)) {
            Some(schema) => below(schema),
            None if fields.contains_key("patternProperties") => false,
            None => fields.get("additionalProperties").is_some_and(below),
        };
        let no_item = || match first.parse::<usize>() {
            // The form of array indexes in JSON pointers.
            Ok(index) if index.to_string() == *first => {
                let listed = fields.get("prefixItems").and_then(|items| items.get(index));
                listed.or(fields.get("items").filter(|items| !items.is_array())).is_some_and(below)
            }
            _ => true,
        };
        (!may_be("object") || no_member()) && (!may_be("array") || no_item())
    }
}

#[cfg(test)]
mod tests {
    use super::excludes;
    use serde_json::{Value, json};

    #[test]
    fn only_pointers_that_a_schema_certainly_lacks_are_excluded() {
        let closed = json!({ "type": "object", "additionalProperties": false, "properties": {
            "a": { "type": "string" }, "b~/": {}, "n": { "type": ["integer", "null"] },
            "list": { "type": "array", "prefixItems": [{ "type": "string" }], "items": { "$ref": "#/$defs/in" } },
            "in": { "$ref": "#/$defs/in" }, "self": { "$ref": "#/properties/self" }, "else": { "$ref": "http://x" },
            "any": { "anyOf": [{ "$ref": "#/$defs/in" }, { "type": "null" }] },
            "all": { "allOf": [{ "$ref": "#/$defs/in" }, { "type": "object" }] },
            "one": { "oneOf": [{ "$ref": "#/$defs/in" }, {}] },
        }, "$defs": { "in": { "type": "object", "properties": { "x": {} }, "additionalProperties": false } } });
        for pointer in [
            "/z",
            "/a/0",
            "/n/x",
            "/b",
            "/list/x",
            "/list/0/x",
            "/list/1/y",
            "/list/01",
            "/in/y",
            "/any/y",
            "/all/y",
        ] {
            assert!(excludes(&closed, pointer), "{pointer}");
        }
        for pointer in [
            "/a",
            "/b~0~1",
            "/b~0~1/x",
            "/n",
            "/list",
            "/list/0",
            "/list/1",
            "/list/7/x",
            "/in",
            "/in/x",
            "/in/x/y",
            "/self/x",
            "/else/x",
            "/any/x",
            "/all/x",
            "/one/y",
        ] {
            assert!(!excludes(&closed, pointer), "{pointer}");
        }
        let open: [Value; 4] = [
            json!({ "type": "object" }),
            json!({ "type": "object", "properties": { "a": {} } }),
            json!({ "type": "object", "patternProperties": { "^x": {} }, "additionalProperties": false }),
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        ];
        assert!(open.iter().all(|schema| !excludes(schema, "/z")));
        assert!(excludes(&open[3], "/z/y"), "what is more is a text");
    }
}
