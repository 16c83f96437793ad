//! The JSON schema of a tool's inputs.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Returns the schema of a tool's inputs.
pub(super) fn schema_of<I: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut input_schema = settings.into_generator().into_root_schema_for::<I>().to_value();
    if let Some(schema) = input_schema.as_object_mut() {
        schema.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    input_schema
}
