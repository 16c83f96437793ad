//! The inputs of calls.

use serde_json::{Map, Value};

/// The named inputs of a call.
pub type Input = Map<String, Value>;
