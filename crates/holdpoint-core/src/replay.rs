//! The replay of stored messages as the events of the turns that wrote them.

use super::call::ToolCall;
use super::message::{Part, Step, StepStatus};
use super::turn::{FinishReason, HeldCallStatus, RenderedResult, TurnEvent};

/// Returns the events of the steps, with the calls in their current states.
pub fn replay(steps: &[Step]) -> Vec<TurnEvent<'static>> {
    let mut events = Vec::new();
    for step in steps {
        events.push(TurnEvent::StepStarted);
        for part in &step.parts {
            match part {
                Part::Text { text } => events.push(TurnEvent::Text(text.clone().into())),
                Part::Reasoning { text } => events.push(TurnEvent::Reasoning(text.clone().into())),
                Part::Source(source) => events.push(TurnEvent::Source(source.clone())),
                Part::File(file) => events.push(TurnEvent::File(file.clone())),
                Part::ToolCall { tool_call_id } => {
                    if let Some(call) = step.calls.iter().find(|call| call.id == *tool_call_id) {
                        events.push(stored(call));
                    }
                }
            }
            events.push(TurnEvent::PartEnded);
        }
        events.extend(step.calls.iter().filter(|call| !call.held).filter_map(ended));
        let held: Vec<HeldCallStatus> =
            step.calls.iter().filter(|call| call.held).map(HeldCallStatus::of).collect();
        if !held.is_empty() {
            events.push(TurnEvent::Held(held));
        }
        if step.status == StepStatus::Complete {
            let reason = if step.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
            events.push(TurnEvent::StepFinished { reason, usage: step.usage });
        }
    }
    events
}

fn stored(call: &ToolCall) -> TurnEvent<'static> {
    let (tool_call_id, tool_name) = (call.id, call.name.clone());
    TurnEvent::CallStored { tool_call_id, tool_name, input: call.shown_input() }
}

fn ended(call: &ToolCall) -> Option<TurnEvent<'static>> {
    RenderedResult::of(call).map(|shown| TurnEvent::CallEnded { tool_call_id: call.id, result: shown })
}
