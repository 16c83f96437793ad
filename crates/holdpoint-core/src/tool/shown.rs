//! The inputs of a call as people read them: secrets are masked.

use crate::call::{State, ToolCall};
use crate::tool::secrets::{Edit, ShownInput};

impl ToolCall {
    /// Returns the inputs that a page shows in a message. For an invalid call the inputs are empty.
    pub fn shown_input(&self) -> ShownInput {
        match self.state {
            State::Invalid(_) => ShownInput::default(),
            _ => self.secrets.shown(self.effective_input()),
        }
    }

    /// Returns the proposed inputs for people. Those of an invalid call may be anything, with a secret anywhere: if the
    /// tool has secrets, they are empty.
    pub fn shown_proposal(&self) -> ShownInput {
        match self.state {
            State::Invalid(_) if !self.secrets.is_empty() => ShownInput::default(),
            _ => self.secrets.shown(&self.input),
        }
    }

    /// Returns the inputs as the model wrote them, if they were repaired. Before the repair a secret may be anywhere, so a
    /// call of a tool with secrets has none.
    pub fn shown_model_input(&self) -> Option<ShownInput> {
        let written = self.model_input.as_ref().filter(|_| self.secrets.is_empty());
        written.map(|written| self.secrets.shown(written))
    }

    /// Returns the inputs that an approver put in place of the model's, for people.
    pub fn shown_edit(&self) -> Option<ShownInput> {
        self.edited_input().map(|edited| self.secrets.shown(edited))
    }

    /// Returns the change of the inputs by an approver, if there was one.
    pub fn edit(&self) -> Option<Edit> {
        let to = self.shown_edit()?;
        Some(Edit { from: self.secrets.shown(&self.input), to })
    }

    /// Returns the places of the secrets in the proposed inputs and in those that replaced them.
    pub fn secret_pointers(&self) -> Vec<String> {
        let mut found = self.secrets.pointers(&self.input);
        found.extend(self.edited_input().into_iter().flat_map(|edited| self.secrets.pointers(edited)));
        found.sort_unstable();
        found.dedup();
        found
    }
}
