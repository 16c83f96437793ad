//! Access to JSON of unknown shape.

use serde_json::Value;

static NULL: Value = Value::Null;

/// Access to a part of a value.
pub(crate) trait JsonPointer {
    /// Returns the value at a JSON pointer (RFC 6901), or null if the value has no such part.
    fn at(&self, pointer: &str) -> &Value;
}

impl JsonPointer for Value {
    fn at(&self, pointer: &str) -> &Value {
        self.pointer(pointer).unwrap_or(&NULL)
    }
}
