//! The cards of held calls: what one reader decides on, besides the stored call.

use super::Approvals;
use super::may_approve::{Proposal, block_of_operator};
use crate::tools::ToolRegistry;
use crate::tools::gate::Gates;
use holdpoint_core::Principal;
use holdpoint_core::call::input_hash;
use holdpoint_core::card::hold::{Card, Hold};
use holdpoint_stream::Cards;

/// The cards for the user of a thread.
#[derive(Debug)]
struct RequesterCards {
    gates: Gates,
    requester: Principal,
}

impl Approvals {
    /// Returns the cards for the user of the thread that is read.
    pub(crate) fn cards(&self, requester: &Principal) -> impl Cards + 'static {
        RequesterCards { gates: self.executor.gates.clone(), requester: requester.clone() }
    }
}

impl Cards for RequesterCards {
    fn card(&self, hold: &Hold) -> Card {
        let gate = self.gates.now();
        let registry = gate.registry();
        let tool = registry.get(&hold.tool_name);
        let may = registry.may_decide(&self.requester, true, &hold.tool_name, &[]);
        let (proposal, block) =
            (Proposal::of_hold(hold), block_of_operator(&gate, hold, &self.requester.roles));
        let obstacle = proposal.obstacle(&gate, may, block.as_ref());
        let approvals_needed = registry.quorum(&hold.tool_name).people;
        let unaccepted = tool.and_then(|tool| tool.acceptance.unaccepted()).cloned();
        let shown = hold.secrets.shown(&hold.input);
        let schema_hash = tool.map_or(&hold.schema_hash, |tool| &tool.schema_hash);
        Card {
            title: title_of(registry, &hold.tool_name),
            description: tool.map(|tool| tool.spec.description.clone()),
            headline: tool.filter(|_| !hold.unreadable).and_then(|tool| tool.headline(&shown)),
            parts: gate.card_parts(hold.into()),
            mcp: tool.and_then(|tool| tool.remote.clone()),
            constants: tool.and_then(|tool| tool.spec.constants()),
            input_hash: input_hash(&hold.tool_name, &hold.input, schema_hash, hold.preview.as_ref()),
            requested_by: self.requester.actor(),
            can_edit: proposal.can_edit(&gate, may, block.as_ref()),
            can_remember: obstacle.is_none() && approvals_needed == 1 && unaccepted.is_none(),
            obstacle,
            approvals_needed,
            unaccepted,
        }
    }

    fn reader(&self) -> String {
        self.requester.actor()
    }
}

/// Returns the name of a tool for people. The tool of an MCP server has the name that the server gives it.
pub(crate) fn title_of(registry: &ToolRegistry, tool_name: &str) -> String {
    let remote = registry.get(tool_name).and_then(|tool| tool.remote.as_ref());
    title(remote.map_or(tool_name, |remote| &remote.tool))
}

/// Returns the name of a tool in words: `Delete file` for `delete_file`.
fn title(tool_name: &str) -> String {
    let words = tool_name.replace(['_', '-'], " ");
    let mut chars = words.trim().chars();
    let Some(first) = chars.next() else { return tool_name.to_owned() };
    first.to_uppercase().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn the_title_of_a_tool_is_its_name_in_words() {
        for (name, expected) in [
            ("delete_file", "Delete file"),
            ("pay", "Pay"),
            ("send-e-mail", "Send e mail"),
            ("_", "_"),
            ("X1", "X1"),
        ] {
            assert_eq!(title(name), expected);
        }
    }
}
