//! Reading JSON that may have any shape.

use serde_json::Value;

static NULL: Value = Value::Null;

/// What stands somewhere in a value.
pub(crate) trait At {
    /// At this pointer (RFC 6901); null where there is nothing.
    fn at(&self, pointer: &str) -> &Value;
}

impl At for Value {
    fn at(&self, pointer: &str) -> &Value {
        self.pointer(pointer).unwrap_or(&NULL)
    }
}
