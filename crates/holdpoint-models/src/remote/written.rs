//! Tools as a wire writes them. To adapt the schemas of hundreds of tools takes longer than to write them, so each tool is
//! adapted once, and copied for each request.

use super::schema::{SchemaRules, WireTool};
use crate::ToolDefinition;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The most tools that are kept.
const KEPT_MAX: usize = 4096;

/// The tools of the requests to one model.
pub(super) struct WrittenTools {
    rules: &'static SchemaRules,
    write: fn(WireTool<'_>) -> Value,
    /// By the address of the definition, which belongs to the definition as long as it is there.
    kept: Mutex<HashMap<usize, KeptDefinition>>,
}

/// A definition, and the tool as it is written.
type KeptDefinition = (Weak<ToolDefinition>, Arc<Value>);

impl WrittenTools {
    pub(super) fn new(rules: &'static SchemaRules, write: fn(WireTool<'_>) -> Value) -> Self {
        Self { rules, write, kept: Mutex::default() }
    }

    /// Returns the list of the tools whose names the servers of the wire accept.
    pub(super) fn list(&self, tools: &[Arc<ToolDefinition>]) -> Value {
        let accepted = tools.iter().filter(|tool| self.rules.accepts_name(&tool.name));
        accepted.map(|tool| (*self.of(tool)).clone()).collect()
    }

    fn of(&self, tool: &Arc<ToolDefinition>) -> Arc<Value> {
        let at = Arc::as_ptr(tool).addr();
        let mut kept = self.kept.lock();
        if let Some((of, written)) = kept.get(&at)
            && of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, tool))
        {
            return written.clone();
        }
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (of, _)| of.strong_count() > 0);
        }
        let written = Arc::new((self.write)(self.rules.tool(tool)));
        if kept.len() < KEPT_MAX {
            kept.insert(at, (Arc::downgrade(tool), written.clone()));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::super::gemini::TOOLS as GEMINI;
    use super::*;
    use serde_json::json;

    fn tool(name: &str) -> Arc<ToolDefinition> {
        let (name, description) = (name.to_owned(), String::new());
        Arc::new(ToolDefinition { name, description, input_schema: json!({ "type": "object" }) })
    }

    #[test]
    fn a_tool_is_adapted_once_and_another_one_in_its_place_again() {
        let tools = WrittenTools::new(&GEMINI, |tool| json!(tool.name));
        let first = tool("a");
        assert!(Arc::ptr_eq(&tools.of(&first), &tools.of(&first)));
        assert_eq!(tools.list(&[first, tool("b"), tool("3d")]), json!(["a", "b"]));
        for n in 0..2 * KEPT_MAX {
            let name = format!("t{n}");
            assert_eq!(tools.list(&[tool(&name)]), json!([name]));
        }
        assert!(tools.kept.lock().len() <= KEPT_MAX);
    }
}
