//! What is known of a tool: its definition, its inputs, its secrets.

pub mod assignment;
pub mod definition;
pub mod headline;
pub mod input;
pub mod input_bounds;
pub mod remote;
pub mod secrets;
pub(crate) mod shown;
pub mod tool_definition;
pub mod tool_request;
