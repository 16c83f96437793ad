//! Tools as models read them.

use serde_json::Value;

/// A tool in the form that a model reads.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// The name of the tool.
    pub name: String,
    /// The purpose of the tool.
    pub description: String,
    /// A JSON Schema of the inputs.
    pub input_schema: Value,
}

impl ToolDefinition {
    /// Returns the definition of a tool with these inputs.
    pub fn new(name: String, description: &str, input_schema: &Value) -> Self {
        Self { name, description: description.to_owned(), input_schema: input_schema.clone() }
    }
}
