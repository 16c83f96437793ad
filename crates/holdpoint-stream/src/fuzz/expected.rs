//! The message that a page has to hold after it read a stream. It equals the reload, except for the
//! differences that a reload may have; these fields are replaced by the values that this page has to show.

use super::PageEnd;
use super::simulation::{PageDecision, Simulated, Turn};
use crate::{Dialect, NoTools};
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::tool::secrets::ShownInput;
use holdpoint_core::turn::{HeldCallStatus, HoldProgress, Refusal, RenderedResult, TurnEvent};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The id of the request in which all turns are emitted.
pub(super) const REQUEST: &str = "r1";

impl Simulated {
    /// Returns the message that the page holds after it read the turns.
    pub(super) fn held(&self, dialect: &Dialect) -> Value {
        let mut message = dialect
            .reload(&self.message, None, &NoTools)
            .unwrap_or_else(|| json!({ "id": self.message.id, "role": "assistant", "parts": [] }));
        let page = self.turns.iter().fold(HashMap::new(), |page, turn| read(page, turn, dialect));
        for call in self.message.calls() {
            let on_page = &page[&call.id];
            for part in parts_of(&mut message, call.id) {
                if call.edited_input().is_some() {
                    match dialect.is_ui {
                        true => part["input"] = input(&on_page.input),
                        false => part["args"] = json!(on_page.input),
                    }
                }
                if call.held && dialect.page.keeps_own_answer {
                    on_page.answered(call, part);
                }
            }
        }
        if dialect.is_ui {
            self.mark_late(&mut message);
        }
        message
    }

    /// Marks the decisions that the page's own answers came after. A reload does not know these answers.
    fn mark_late(&self, message: &mut Value) {
        let mut late: HashMap<ToolCallId, bool> = HashMap::new();
        for turn in &self.turns {
            for event in turn.before.iter().flatten().chain(&turn.events) {
                let (TurnEvent::Held(calls) | TurnEvent::Continued(calls)) = event else { continue };
                for call in calls.iter().filter(|call| call.decided.is_some()) {
                    let answer = turn.answers.iter().find(|answer| answer.tool_call_id == call.tool_call_id);
                    late.insert(call.tool_call_id, answer.is_some_and(|answer| !answer.accepted));
                }
            }
        }
        let parts = message["parts"].as_array_mut().unwrap().iter_mut();
        for part in parts.filter(|part| part["type"] == "data-tool-decision") {
            let id = part["id"].as_str().unwrap().parse().unwrap();
            if late[&id] {
                part["data"]["late"] = json!(true);
            }
        }
    }

    /// Returns the end that the page has to report for each turn.
    pub(super) fn ends(&self, dialect: &Dialect) -> Vec<Value> {
        self.turns.iter().map(|turn| end(turn.events.last().unwrap(), dialect)).collect()
    }
}

fn end(last: &TurnEvent<'_>, dialect: &Dialect) -> Value {
    let (reason, spent) = match last {
        TurnEvent::Finished { reason, spent } => (reason.word(), spent),
        TurnEvent::Cancelled { spent } => ("other", spent),
        TurnEvent::Failed { error, .. } => {
            let (code, message) = (error.code.word(), &error.message);
            return json!({ "error": format!("{code}: {message} (request {REQUEST})") });
        }
        other => panic!("no end: {other:?}"),
    };
    match dialect.page.end {
        PageEnd::ReasonAndUsage => {
            let (read, written) = (spent.turn.input_tokens, spent.turn.output_tokens);
            let usage =
                json!({ "promptTokens": read, "completionTokens": written, "totalTokens": read + written });
            json!({ "finishReason": reason, "usage": usage })
        }
        PageEnd::Nothing => json!({}),
        PageEnd::Reason => json!({ "finishReason": reason }),
    }
}

/// A call as the page received it.
struct PageCall {
    input: ShownInput,
    /// The last progress of a held call.
    progress: Option<HoldProgress>,
    /// The decision of this page since the last approval request.
    answer: Option<PageDecision>,
}

fn read(
    mut page: HashMap<ToolCallId, PageCall>,
    turn: &Turn,
    dialect: &Dialect,
) -> HashMap<ToolCallId, PageCall> {
    let before = turn.before.as_ref().filter(|_| dialect.client.needs_earlier_steps);
    if before.is_some() {
        page.clear();
    }
    for answer in &turn.answers {
        page.get_mut(&answer.tool_call_id).unwrap().answer = Some(answer.clone());
    }
    for event in before.into_iter().flatten().chain(&turn.events) {
        match event {
            TurnEvent::CallStored { tool_call_id, input, .. } => {
                let on_page = PageCall { input: input.clone(), progress: None, answer: None };
                page.insert(*tool_call_id, on_page);
            }
            TurnEvent::Held(calls) => {
                for call in calls {
                    page.get_mut(&call.tool_call_id).unwrap().set_status(call, true, dialect);
                }
            }
            TurnEvent::Continued(calls) => {
                for call in calls {
                    page.get_mut(&call.tool_call_id).unwrap().set_status(call, false, dialect);
                }
            }
            _ => {}
        }
    }
    page
}

impl PageCall {
    fn set_status(&mut self, call: &HeldCallStatus, shows_approval: bool, dialect: &Dialect) {
        self.progress = Some(call.progress.clone());
        if shows_approval || call.progress == HoldProgress::Pending {
            self.answer = None;
        }
        if let (HoldProgress::Ended(_), Some(edited)) = (&call.progress, &call.input_to_show)
            && dialect.is_ui
        {
            self.input = edited.clone();
        }
    }

    /// Sets the page's own decision. No chunk of a stream carries the decision of another decider.
    fn answered(&self, call: &ToolCall, part: &mut Value) {
        let decided_here = self.answer.as_ref().is_some_and(|answer| match &call.state {
            State::Rejected(_) => !answer.approved,
            _ => answer.approved && call.validated() == Some(true),
        });
        if decided_here {
            return;
        }
        let mut approval = json!({ "id": call.id });
        if let Some(PageDecision { approved, reason, .. }) = &self.answer {
            approval["approved"] = json!(approved);
            if let Some(reason) = reason {
                approval["reason"] = json!(reason);
            }
        }
        part["approval"] = approval;
        match self.progress.as_ref().unwrap() {
            // An approval is not emitted before the call ends.
            HoldProgress::InProgress if self.answer.is_none() => part["state"] = json!("approval-requested"),
            HoldProgress::Ended(RenderedResult::Refused(Refusal::Expired | Refusal::Cancelled, text))
                if self.answer.as_ref().is_some_and(|answer| answer.approved) =>
            {
                part["state"] = json!("output-error");
                part["errorText"] = json!(text);
            }
            _ => {}
        }
    }
}

/// Returns all places of the call in a message.
fn parts_of(message: &mut Value, call: ToolCallId) -> Vec<&mut Value> {
    let id = json!(call);
    let Value::Object(fields) = message else { panic!("{message}") };
    let (mut found, lists) = (Vec::new(), ["parts", "toolInvocations"]);
    for (name, list) in fields.iter_mut().filter(|(name, _)| lists.contains(&name.as_str())) {
        let all = list.as_array_mut().unwrap().iter_mut();
        let calls = all.filter_map(|it| match name.as_str() {
            "parts" if it.get("toolInvocation").is_some() => it.get_mut("toolInvocation"),
            _ => Some(it),
        });
        found.extend(calls.filter(|it| it["toolCallId"] == id));
    }
    found
}

fn input(input: &ShownInput) -> Value {
    json!(crate::dialect::ui::parts::Readable::Input(input))
}
