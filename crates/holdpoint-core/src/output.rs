//! The output of a tool, as stored. The depth is measured before anything serialises the output.

use super::text::cut;
use serde_json::Value;

/// Maximum depth of a stored output, in levels of arrays and objects. serde_json reads at most 128 levels;
/// events, messages and responses add a few levels around an output.
pub const DEPTH_MAX: usize = 100;

/// An output that can be stored and read again.
#[derive(Debug, Clone, PartialEq)]
pub struct Output(Value);

impl Output {
    /// Creates the output. A value longer than `bytes_max` becomes the beginning of its text. A value that is
    /// too deep becomes a sentence about that.
    pub fn new(value: Value, bytes_max: usize) -> Self {
        if is_too_deep(&value) {
            drop_deep(value);
            return Self(Value::String(too_deep()));
        }
        match value {
            Value::String(text) => Self(Value::String(cut(text, bytes_max))),
            other => {
                let text = other.to_string();
                Self(if text.len() > bytes_max { Value::String(cut(text, bytes_max)) } else { other })
            }
        }
    }

    /// Returns the value that the tool returned.
    pub fn as_value(&self) -> &Value {
        &self.0
    }
}

/// Returns the text that replaces an output that is too deep.
pub fn too_deep() -> String {
    format!(
        "The tool succeeded, but its output is nested more than {DEPTH_MAX} levels deep and was not kept."
    )
}

/// Returns the text that replaces an output that is not JSON.
pub fn not_json(why: &serde_json::Error) -> String {
    format!("The tool succeeded, but its output cannot be written as JSON and was not kept: {why}")
}

/// Whether a value has more levels than are stored. This is a loop, because a recursion as deep as the value
/// overflows the stack.
pub fn is_too_deep(value: &Value) -> bool {
    let mut ahead = vec![(value, 0)];
    while let Some((value, around)) = ahead.pop() {
        let inner = around + 1;
        match value {
            Value::Array(_) | Value::Object(_) if inner > DEPTH_MAX => return true,
            Value::Array(items) => {
                ahead.extend(items.iter().filter(|it| has_levels(it)).map(|it| (it, inner)))
            }
            Value::Object(fields) => {
                ahead.extend(fields.values().filter(|it| has_levels(it)).map(|it| (it, inner)));
            }
            _ => {}
        }
    }
    false
}

/// Drops a value of any depth. The drop code of the compiler is recursive.
fn drop_deep(value: Value) {
    let mut ahead = vec![value];
    while let Some(value) = ahead.pop() {
        match value {
            Value::Array(items) => ahead.extend(items.into_iter().filter(has_levels)),
            Value::Object(fields) => ahead.extend(fields.into_iter().map(|(_, it)| it).filter(has_levels)),
            _ => {}
        }
    }
}

fn has_levels(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(depth: usize) -> Value {
        // `json!` would serialise the inner value, which is a recursion.
        (0..depth).fold(json!(1), |inner, level| match level % 2 {
            0 => Value::Array(vec![json!(2), inner]),
            _ => Value::Object([("a".to_owned(), inner)].into_iter().collect()),
        })
    }

    #[test]
    fn an_output_is_kept_up_to_the_maximal_depth_and_replaced_beyond_it() {
        let kept = Output::new(nested(DEPTH_MAX), usize::MAX);
        assert_eq!(kept.as_value(), &nested(DEPTH_MAX));
        assert_eq!(&serde_json::from_str::<Value>(&kept.as_value().to_string()).unwrap(), kept.as_value());
        for depth in [DEPTH_MAX + 1, 1_000_000] {
            assert_eq!(Output::new(nested(depth), usize::MAX).as_value(), &too_deep());
        }
    }

    #[test]
    fn a_long_output_is_cut_to_the_beginning_of_its_text() {
        for long in [json!("x".repeat(100)), json!(["x".repeat(100)])] {
            let output = Output::new(long, 50);
            let Value::String(kept) = output.as_value() else { panic!() };
            assert!(kept.len() <= 50 && kept.ends_with("[…cut]"), "{kept}");
        }
        assert_eq!(Output::new(json!(["x"]), 50).as_value(), &json!(["x"]));
    }
}
