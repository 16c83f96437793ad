//! A planned message as the server tells it, turn by turn, and as it is stored in the end.

use super::plan::{self, Goes, Outcome, Piece, Plan, PlannedCall, PlannedStep, Verdict};
use crate::domain::call::{Approval, End, Execution, Input, RiskLevel, State, ToolCall, rejection, words};
use crate::domain::clock::Timestamp;
use crate::domain::id::{ExecId, MessageId, RunId, ThreadId, ToolCallId};
use crate::domain::message::{Body, Message, MessageStatus, Part, Step, StepStatus, Usage};
use crate::domain::nesting::Nesting;
use crate::domain::run::{TurnError, TurnErrorCode};
use crate::domain::turn::{FinishReason, Shown, Spent, Standing, Stands, TurnEvent};
use serde_json::{Value, json};
use uuid::Uuid;

/// The request in which all is told.
pub(super) const REQUEST: &str = "r1";

/// The agent tells nothing of arguments that is nested deeper, and the gate refuses them.
const DEPTH_MAX: usize = 32;

const AT: Timestamp = Timestamp::from_micros(0);

/// A message as it was told, and as it is stored.
pub(super) struct Told {
    pub(super) turns: Vec<Vec<TurnEvent<'static>>>,
    pub(super) message: Message,
}

impl Told {
    /// How the client has to say that each turn ended.
    pub(super) fn ends(&self) -> Vec<Value> {
        let finish = |reason: &str, usage: &Usage| {
            let (read, written) = (usage.input_tokens, usage.output_tokens);
            let usage =
                json!({ "promptTokens": read, "completionTokens": written, "totalTokens": read + written });
            json!({ "finishReason": reason, "usage": usage })
        };
        let end = |events: &Vec<TurnEvent<'_>>| match events.last() {
            Some(TurnEvent::Finished { reason, spent }) => finish(reason.as_str(), &spent.turn),
            Some(TurnEvent::Cancelled { spent }) => finish("other", &spent.turn),
            Some(TurnEvent::Failed { error, .. }) => {
                json!({ "error": format!("{}: {} (request {REQUEST})", error.code.as_str(), error.message) })
            }
            other => panic!("no end: {other:?}"),
        };
        self.turns.iter().map(end).collect()
    }
}

impl Plan {
    /// Tells the message as far as the server would.
    pub(super) fn tell(&self) -> Told {
        let mut teller = Teller { plan: self, told: Vec::new(), open: false, held: Vec::new(), calls: 0 };
        let mut steps = Vec::new();
        for (n, step) in self.steps.iter().enumerate() {
            let last = n + 1 == self.steps.len();
            let (step, goes_on) = teller.step(n, step, last);
            steps.push(step);
            if !goes_on {
                break;
            }
        }
        let tells_again = !teller.open && self.told_again && !teller.held.is_empty();
        if tells_again && steps.last().is_some_and(|step| step.status == StepStatus::Complete) {
            teller.begin_turn();
            teller.finish(FinishReason::ToolCalls);
        }
        let message = Message {
            id: MessageId::new(Uuid::nil()),
            client_id: None,
            thread_id: ThreadId::new(Uuid::nil()),
            run_id: RunId::new(Uuid::nil()),
            ordinal: 1,
            body: Body::Assistant(steps),
            status: MessageStatus::Complete,
            created_at: AT,
        };
        Told { turns: teller.told, message }
    }
}

struct Teller<'a> {
    plan: &'a Plan,
    told: Vec<Vec<TurnEvent<'static>>>,
    /// Whether a turn is under way.
    open: bool,
    /// The held calls of the last whole step, as they will stand.
    held: Vec<ToolCall>,
    /// How many calls there are so far.
    calls: u128,
}

impl Teller<'_> {
    fn say(&mut self, event: TurnEvent<'static>) {
        self.told.last_mut().unwrap().push(event);
    }

    fn finish(&mut self, reason: FinishReason) {
        let turn = Usage { input_tokens: 7, output_tokens: 1 };
        self.say(TurnEvent::Finished { reason, spent: Spent { turn, message: None } });
        self.open = false;
    }

    fn fail(&mut self, code: TurnErrorCode, message: &str) {
        let error = TurnError { code, message: message.to_owned() };
        self.say(TurnEvent::Failed { error, spent: Spent::default() });
        self.open = false;
    }

    fn begin_turn(&mut self) {
        self.told.push(Vec::new());
        self.open = true;
        let held = self.held.clone();
        if held.is_empty() {
            return;
        }
        self.say(TurnEvent::Continued(held.iter().map(Standing::of).collect()));
    }

    fn end_of(&mut self, call: &ToolCall) {
        if let Some(shown) = Shown::of(call) {
            self.say(TurnEvent::CallEnded { tool_call_id: call.id, shown });
        }
    }

    /// Tells one step; then what is stored of it, and whether the message goes on.
    fn step(&mut self, n: usize, step: &PlannedStep, last: bool) -> (Step, bool) {
        if !self.open {
            self.begin_turn();
        }
        self.say(TurnEvent::StepStarted);
        let broken = matches!(step.end, plan::End::Broken(..));
        let mut said = Step {
            n: i32::try_from(n).unwrap(),
            status: if broken { StepStatus::Interrupted } else { StepStatus::Complete },
            parts: Vec::new(),
            calls: Vec::new(),
            usage: None,
            origin: None,
            provider_state: None,
            created_at: AT,
        };
        for piece in &step.says {
            match piece {
                Piece::Text(text) => self.text(&mut said.parts, text),
                Piece::Thought(text) => self.thought(&mut said.parts, text),
                // A client counts on from a call that broke off, which nobody else knows of.
                Piece::Call(_) if broken && !last => {}
                Piece::Call(call) => self.call(&mut said, call, last),
            }
        }
        if let plan::End::Broken(code, message) = &step.end {
            said.calls.clear();
            said.parts.retain(|part| !matches!(part, Part::ToolCall { .. }));
            self.fail(*code, message);
            return (said, true);
        }
        let goes_on = self.calls_of(&mut said, step, last);
        (said, goes_on)
    }

    fn text(&mut self, parts: &mut Vec<Part>, delta: &str) {
        if delta.is_empty() {
            return;
        }
        match parts.last_mut() {
            Some(Part::Text { text }) => text.push_str(delta),
            _ => parts.push(Part::Text { text: delta.to_owned() }),
        }
        self.say(TurnEvent::Text(delta.to_owned().into()));
    }

    fn thought(&mut self, parts: &mut Vec<Part>, delta: &str) {
        if delta.is_empty() {
            return;
        }
        match parts.last_mut() {
            Some(Part::Reasoning { text }) => text.push_str(delta),
            _ => parts.push(Part::Reasoning { text: delta.to_owned() }),
        }
        self.say(TurnEvent::Reasoning(delta.to_owned().into()));
    }

    fn call(&mut self, said: &mut Step, planned: &PlannedCall, last: bool) {
        self.calls += 1;
        let tool_call_id = ToolCallId::new(Uuid::from_u128(self.calls));
        said.parts.push(Part::ToolCall { tool_call_id });
        self.say(TurnEvent::CallStarted { tool_call_id, tool_name: planned.tool.clone() });
        let mut nesting = Nesting::default();
        for delta in &planned.written {
            let delta = nesting.within(delta, DEPTH_MAX).to_owned();
            self.say(TurnEvent::CallArguments { tool_call_id, delta: delta.into() });
        }
        let (held, state) = match &planned.goes {
            Goes::Invalid(why) => (false, State::Invalid(ended(why))),
            Goes::Cleared(outcome) => (false, ran(outcome)),
            Goes::Held(verdict) => (true, decided(verdict, last, self.plan.told_again)),
        };
        said.calls.push(stored(tool_call_id, said.n, &planned.tool, &planned.input, held, state));
    }

    /// Tells the calls of a whole step. Whether the message goes on.
    fn calls_of(&mut self, said: &mut Step, step: &PlannedStep, last: bool) -> bool {
        for call in &said.calls {
            let input = call.shown_input().clone();
            self.say(TurnEvent::CallStored { tool_call_id: call.id, tool_name: call.name.clone(), input });
        }
        for call in said.calls.iter().filter(|call| matches!(call.state, State::Invalid(_))) {
            self.end_of(call);
        }
        let runs = |call: &ToolCall| !call.held && !matches!(call.state, State::Invalid(_));
        let holds = said.calls.iter().any(|call| call.held);
        if matches!(step.end, plan::End::Stopped) && !holds && said.calls.iter().any(runs) {
            for call in said.calls.iter_mut().filter(|call| runs(call)) {
                call.state = State::Executing(Approval { inputs: None }, execution());
            }
            self.say(TurnEvent::Cancelled { spent: Spent::default() });
            self.open = false;
            return false;
        }
        // Side by side, the last to begin may be the first to end.
        for call in said.calls.iter().rev().filter(|call| runs(call)) {
            self.end_of(call);
        }
        self.held = said.calls.iter().filter(|call| call.held).cloned().collect();
        if holds {
            let held = self.held.iter().map(|call| Standing {
                tool_call_id: call.id,
                tool_name: call.name.clone(),
                shown_anew: None,
                word: State::Pending.validation_word(),
                stands: Stands::Pending,
            });
            let held = held.collect();
            self.say(TurnEvent::Held(held));
        }
        let reason = if said.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        let usage = step.usage.map(|(read, written)| Usage {
            input_tokens: u64::from(read),
            output_tokens: u64::from(written),
        });
        self.say(TurnEvent::StepFinished { reason, usage });
        if holds || said.calls.is_empty() {
            self.finish(reason);
        } else if last {
            self.fail(TurnErrorCode::StepLimit, "Enough.");
        }
        !said.calls.is_empty()
    }
}

fn ended(result: &str) -> End {
    End { result: result.to_owned(), at: AT }
}

fn execution() -> Execution {
    Execution { id: ExecId::new(Uuid::nil()), started_at: AT }
}

fn ran(outcome: &Outcome) -> State {
    let yes = Approval { inputs: None };
    match outcome {
        Outcome::Output(output) => State::Succeeded(yes, execution(), output.clone(), ended("")),
        Outcome::Failure(why) => State::Failed(yes, Some(execution()), ended(why)),
        Outcome::Unknown => State::Interrupted(yes, execution(), ended(words::INTERRUPTED)),
    }
}

/// How a held call stands in the end. What stands last is decided outside all that is told, unless it is told again.
fn decided(verdict: &Verdict, last: bool, told_again: bool) -> State {
    match verdict {
        _ if last && !told_again => State::Pending,
        Verdict::Open if last => State::Pending,
        Verdict::Yes(outcome) => ran(outcome),
        Verdict::No(reason) => State::Rejected(ended(&rejection(Some(reason)))),
        Verdict::Late => State::Expired(ended(words::EXPIRED)),
        Verdict::Withdrawn | Verdict::Open => State::Cancelled(None, ended(words::CANCELLED)),
    }
}

fn stored(id: ToolCallId, step: i32, tool: &str, input: &Input, held: bool, state: State) -> ToolCall {
    ToolCall {
        id,
        thread_id: ThreadId::new(Uuid::nil()),
        message_id: MessageId::new(Uuid::nil()),
        run_id: RunId::new(Uuid::nil()),
        step,
        wire_call_id: id.to_string(),
        name: tool.to_owned(),
        input: input.clone(),
        schema_hash: String::new(),
        held,
        risk: RiskLevel::Low,
        reason: None,
        state,
        decision: None,
        created_at: AT,
        expires_at: None,
    }
}
