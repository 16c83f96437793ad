//! The record of people that read the secret inputs of a call.

use crate::event::new_event::Subject;
use crate::{LockedCall, Write};
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;

impl Write {
    /// Records that this actor reads the secrets of a locked call, whose card has this hash.
    pub fn inputs_revealed(
        &self,
        LockedCall { call, thread, .. }: &LockedCall,
        actor: &str,
        input_hash: &str,
    ) {
        let data = EventData::InputsRevealed {
            tool_name: call.name.clone(),
            input_hash: input_hash.to_owned(),
            secret_paths: call.secrets.patterns(),
        };
        self.event(EventType::ToolInputsRevealed, actor, &Subject::call(thread, call), data);
    }
}
