//! Outputs and results that are cut so that a message fits on a page of a list.

use super::call::{State, ToolCall};
use super::message::{Body, Message};
use super::text::cut_with;
use serde_json::Value;

/// Returns the end of an output or result that is cut for a list. It names the route with the whole.
pub fn cut_mark(tool_call_id: &str) -> String {
    format!(" […cut; GET /tool_calls/{tool_call_id} returns the whole]")
}

impl Message {
    /// Returns the message with the outputs and results of its calls cut to `bytes_max` each.
    pub fn with_outcomes_cut(mut self, bytes_max: usize) -> Self {
        if let Body::Assistant(steps) = &mut self.body {
            steps.iter_mut().flat_map(|step| &mut step.calls).for_each(|call| call.cut_outcome(bytes_max));
        }
        self
    }
}

impl ToolCall {
    /// Cuts the output and the result text for a list, where they are longer than `bytes_max`. The mark at their end
    /// names the route with the whole.
    fn cut_outcome(&mut self, bytes_max: usize) {
        let mark = cut_mark(&self.id.to_string());
        if let State::Succeeded(_, _, output, _) = &mut self.state {
            let text = match &*output {
                Value::String(text) => Some(text.clone()),
                Value::Array(_) | Value::Object(_) => Some(output.to_string()),
                Value::Null | Value::Bool(_) | Value::Number(_) => None,
            };
            if let Some(text) = text.filter(|text| text.len() > bytes_max) {
                *output = Value::String(cut_with(text, bytes_max, &mark));
            }
        }
        if let Some(end) = self.state.end_mut() {
            end.result = cut_with(std::mem::take(&mut end.result), bytes_max, &mark);
        }
    }
}
