//! Numbers that a page in JavaScript cannot show exactly. The inputs that a person approves must be the
//! inputs that run.

use super::InputError;
use super::gate::{Gate, PolicyContext};
use super::registry::{ERRORS_MAX, Registered};
use crate::config::ExactNumbers;
use holdpoint_core::json::canonical::{inexact_numbers, is_safe_integer, same};
use holdpoint_core::json::pointer;
use holdpoint_core::policy::{Requirement, SessionPolicy};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::SecretPaths;
use serde_json::{Number, Value};

impl Gate {
    fn requires_exact_numbers(&self, tool: &Registered) -> bool {
        tool.rules.exact_numbers.unwrap_or(self.exact_numbers()) == ExactNumbers::Require
    }

    /// Returns the numbers in inputs for an approver that a page cannot show exactly. A number that `shown`
    /// has at the same place was shown before, and is left out.
    pub(crate) fn inexact_numbers(
        &self,
        tool: &Registered,
        input: &Input,
        of_call: &SecretPaths,
        shown: Option<&Input>,
    ) -> Vec<InputError> {
        if !self.requires_exact_numbers(tool) {
            return Vec::new();
        }
        let was_shown = |at: &str| {
            let (shown, now) = (shown.and_then(|shown| pointer::find(shown, at)), pointer::find(input, at));
            shown.zip(now).is_some_and(|(shown, now)| same(shown, now))
        };
        inexact_numbers(input)
            .into_iter()
            .filter(|(pointer, _)| !was_shown(pointer))
            .take(ERRORS_MAX)
            .map(|(pointer, digits)| {
                let advice = if takes_text(tool, input, &pointer, &digits) {
                    "send it as a text".to_owned()
                } else {
                    let name = &tool.spec.name;
                    format!(
                        "the tool takes no text there, so an operator has to allow it: \
                         tools.{name}.exact_numbers = \"allow\""
                    )
                };
                let quotes = tool.secrets.is_empty() && of_call.is_empty();
                let number = if quotes { digits } else { "this".to_owned() };
                let message = format!("{number} is a number that a page cannot show exactly; {advice}");
                InputError { pointer, message }
            })
            .collect()
    }

    /// Returns the tools whose calls may be held, each with the places in its schema that accept 64-bit
    /// integers.
    pub(crate) fn tools_with_inexact_numbers(&self) -> Vec<(&str, Vec<String>)> {
        let session = SessionPolicy::default();
        let context = PolicyContext { roles: &[], session: &session, requester: "", grants: &[] };
        let needs_approval = |tool: &Registered| {
            // With empty inputs all arguments are absent, so all conditions of rules hold.
            matches!(self.ruling(tool, &Input::new(), context).requirement, Requirement::NeedsApproval)
        };
        let tools = self
            .registry()
            .registered()
            .filter(|tool| self.requires_exact_numbers(tool) && needs_approval(tool));
        tools
            .map(|tool| {
                let mut pointers = Vec::new();
                find_large_integers("", &tool.spec.input_schema, &mut pointers);
                (tool.spec.name.as_str(), pointers)
            })
            .filter(|(_, pointers)| !pointers.is_empty())
            .collect()
    }
}

/// Whether the tool accepts the digits as a text in place of the integer.
fn takes_text(tool: &Registered, input: &Input, pointer: &str, digits: &str) -> bool {
    let mut changed = Value::Object(input.clone());
    let Some(value_there) = changed.pointer_mut(pointer) else { return false };
    *value_there = Value::from(digits);
    tool.takes(&changed)
}

/// Collects the schemas of integers that may be beyond the exact range of a double. They are found by their
/// format (OpenAPI Format Registry, and the formats that `schemars` writes for Rust types), or by a bound.
fn find_large_integers(pointer: &str, schema: &Value, pointers: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let is_integer = fields.get("type").is_some_and(|kind| match kind {
                Value::Array(kinds) => kinds.iter().any(|kind| kind == "integer"),
                kind => kind == "integer",
            });
            let format = fields.get("format").and_then(Value::as_str).unwrap_or_default();
            let wide = matches!(format, "int64" | "uint64" | "int" | "uint" | "int128" | "uint128");
            let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
            let beyond = |bound: &Number| !is_safe_integer(bound);
            let far =
                bounds.iter().any(|key| fields.get(*key).and_then(Value::as_number).is_some_and(beyond));
            if is_integer && (wide || far) {
                pointers.push(pointer.to_owned());
            }
            for (key, value) in fields {
                find_large_integers(&pointer::join(pointer, key), value, pointers);
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                find_large_integers(&pointer::join(pointer, &n.to_string()), item, pointers);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::schema::schema_of;
    use schemars::JsonSchema;
    use serde_json::json;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Transfer {
        account: u64,
        cents: Option<i64>,
        lines: Vec<Line>,
        small: u32,
        share: f64,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Line {
        id: i64,
    }

    #[test]
    fn integers_of_64_bits_are_found_in_schemas_by_their_format_or_their_bounds() {
        let mut pointers = Vec::new();
        find_large_integers("", &schema_of::<Transfer>(), &mut pointers);
        pointers.sort();
        let expected = ["/properties/account", "/properties/cents", "/properties/lines/items/properties/id"];
        assert_eq!(pointers, expected);
        let mut pointers = Vec::new();
        let bounded = json!({ "properties": { "a": { "type": "integer", "maximum": 1_000_000_000_000_000_000_i64 },
                                              "b": { "type": "integer", "maximum": 1000 } } });
        find_large_integers("", &bounded, &mut pointers);
        assert_eq!(pointers, ["/properties/a"]);
    }
}
