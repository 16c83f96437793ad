//! Sub-agents. Their task is the note of the call.

use super::Probe;
use holdpoint::tools::{SubAgent, ToolRegistry};

/// Starts without an approval, and has all tools.
struct Helper;
/// Requires an approval before it starts.
struct Errand;
/// Has one tool, `look`, and a system prompt.
pub struct Clerk;
/// Panics before it starts.
struct Clumsy;

impl SubAgent for Helper {
    const NAME: &'static str = "helper";
    const DESCRIPTION: &'static str = "Helps.";
    const HIL: bool = false;
    type Input = Probe;

    fn task(&self, input: Probe) -> String {
        input.note
    }
}

impl SubAgent for Errand {
    const NAME: &'static str = "errand";
    const DESCRIPTION: &'static str = "Goes on an errand.";
    const HIL: bool = true;
    type Input = Probe;

    fn task(&self, input: Probe) -> String {
        input.note
    }
}

impl SubAgent for Clerk {
    const NAME: &'static str = "clerk";
    const DESCRIPTION: &'static str = "Looks things up.";
    const HIL: bool = false;
    const TOOLS: Option<&'static [&'static str]> = Some(&["look"]);
    const INSTRUCTIONS: Option<&'static str> = Some("You are a clerk.");
    type Input = Probe;

    fn task(&self, input: Probe) -> String {
        format!("Look up: {}", input.note)
    }
}

impl SubAgent for Clumsy {
    const NAME: &'static str = "clumsy";
    const DESCRIPTION: &'static str = "Breaks.";
    const HIL: bool = false;
    type Input = Probe;

    fn task(&self, _: Probe) -> String {
        panic!("it broke")
    }
}

/// Adds the agents that need no tool of their own: `helper`, `errand` and `clumsy`.
pub fn add_agents(tools: &mut ToolRegistry) {
    tools.register_sub_agent(Helper).unwrap();
    tools.register_sub_agent(Errand).unwrap();
    tools.register_sub_agent(Clumsy).unwrap();
}
