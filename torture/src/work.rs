//! The work of the tools under test.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The inputs of every tool.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Work {
    /// The number of the call, unique in the run.
    pub n: i64,
    /// The time before the effect, in milliseconds.
    pub ms: u64,
    /// The end of the tool.
    pub then: ToolEnding,
}

/// The end of a tool after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEnding {
    /// It succeeds.
    Ok,
    Fail,
    /// It breaks: a tool of a server panics, and the process of a remote tool ends.
    Crash,
    /// It never ends.
    Hang,
    /// A service accepts the call, and reports the success later. Elsewhere the same as `Ok`.
    Later,
}

/// Returns the schema of every tool. A changed one has one more field.
pub fn schema(changed: bool) -> Value {
    let mut fields = json!({
        "n": { "type": "integer" },
        "ms": { "type": "integer", "minimum": 0, "maximum": 600_000 },
        "then": { "enum": ["ok", "fail", "crash", "hang", "later"] },
    });
    if let Some(fields) = fields.as_object_mut().filter(|_| changed) {
        fields.insert("memo".to_owned(), json!({ "type": "string" }));
    }
    json!({ "type": "object", "properties": fields, "required": ["n", "ms", "then"], "additionalProperties": false })
}

/// Returns the SHA-256 of a value in canonical JSON (RFC 8785), computed apart from the server.
pub fn hash(value: &Value) -> String {
    let text = serde_json_canonicalizer::to_vec(value).unwrap_or_default();
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
