//! Fields of JSON with the type that a test expects. A field with another type fails the test, which shows the JSON.

use serde_json::{Map, Value};
use std::fmt::Debug;

pub trait JsonFields: Debug {
    /// The value of this field, null if there is none.
    fn field(&self, name: &str) -> &Value;

    /// The text in this field.
    #[track_caller]
    fn text(&self, name: &str) -> &str {
        self.field(name).as_str().unwrap_or_else(|| panic!("`{name}` is no text: {self:?}"))
    }

    /// The list in this field.
    #[track_caller]
    fn list(&self, name: &str) -> &Vec<Value> {
        self.field(name).as_array().unwrap_or_else(|| panic!("`{name}` is no list: {self:?}"))
    }
}

impl JsonFields for Value {
    fn field(&self, name: &str) -> &Value {
        &self[name]
    }
}

impl JsonFields for Map<String, Value> {
    fn field(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}
