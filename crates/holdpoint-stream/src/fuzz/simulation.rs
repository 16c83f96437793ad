//! The simulation of a scenario: the message as the server emits it, turn by turn, and in its final stored form.

use super::scenario::{self, CallFate, Hold, Outcome, Piece, Scenario, ScenarioCall, ScenarioStep, Verdict};
use holdpoint_core::call::{
    Approval, CallEnd, ExecutedBy, Execution, RiskLevel, State, StateKind, ToolCall, rejection,
};
use holdpoint_core::card::preview::Preview;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::{self, Decision, Surface};
use holdpoint_core::id::{ExecId, MessageId, RunId, ThreadId, ToolCallId};
use holdpoint_core::json::nesting::Nesting;
use holdpoint_core::message::{Body, Message, MessageStatus, Part, Step, StepStatus, Usage, Window};
use holdpoint_core::replay::replay;
use holdpoint_core::run::{TurnError, TurnErrorCode};
use holdpoint_core::text::model_texts;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::{SecretPaths, ShownInput};
use holdpoint_core::turn::{
    FinishReason, HeldCallStatus, HoldProgress, RenderedResult, SpentTokens, TurnEvent,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use uuid::Uuid;

/// The agent emits no arguments beyond this depth, and the gate rejects them.
const DEPTH_MAX: usize = 32;

const AT: Timestamp = Timestamp::from_micros(0);

/// A message as emitted and as stored.
pub(super) struct Simulated {
    pub(super) turns: Vec<Turn>,
    pub(super) message: Message,
    /// Whether the message continued after an incomplete call. AI SDK 4 numbers its steps by the calls that
    /// it received, including the incomplete call, which is not stored.
    pub(super) continued_after_incomplete_call: bool,
}

/// One turn, and the page that reads it.
pub(super) struct Turn {
    /// The decisions of the page about the calls that it shows, in the request of this turn.
    pub(super) answers: Vec<PageDecision>,
    /// The calls that the page shows as approved at this point.
    pub(super) approved: HashSet<ToolCallId>,
    /// The events before the turn, for a reloaded page that holds nothing of the message.
    pub(super) before: Option<Vec<TurnEvent<'static>>>,
    pub(super) events: Vec<TurnEvent<'static>>,
}

/// The decision of a page about a call.
#[derive(Clone, PartialEq)]
pub(super) struct PageDecision {
    pub(super) tool_call_id: ToolCallId,
    pub(super) approved: bool,
    pub(super) reason: Option<String>,
    /// Whether the answer is the decision in force.
    pub(super) accepted: bool,
}

impl Scenario {
    /// Emits the message like the server, as far as the scenario reaches.
    pub(super) fn simulate(&self) -> Simulated {
        let mut simulator = Simulator::of(self);
        for (n, step) in self.steps.iter().enumerate() {
            if !simulator.step(n, step, n + 1 == self.steps.len()) {
                break;
            }
        }
        let repeats = !simulator.open && self.repeated && !simulator.held.is_empty();
        if repeats && simulator.steps.last().is_some_and(|step| step.status == StepStatus::Complete) {
            simulator.begin_turn(false);
            simulator.finish(FinishReason::ToolCalls);
        }
        let message = Message {
            id: MessageId::new(Uuid::nil()),
            client_id: None,
            thread_id: ThreadId::new(Uuid::nil()),
            run_id: RunId::new(Uuid::nil()),
            ordinal: 1,
            body: Body::Assistant(simulator.steps),
            status: MessageStatus::Complete,
            created_at: AT,
        };
        let continued_after_incomplete_call = simulator.continued_after_incomplete_call;
        Simulated { turns: simulator.turns, message, continued_after_incomplete_call }
    }
}

struct Simulator<'a> {
    scenario: &'a Scenario,
    turns: Vec<Turn>,
    steps: Vec<Step>,
    /// Whether a turn is open.
    open: bool,
    spent: SpentTokens,
    /// The held calls of the last whole step, in their final states. `passed` marks whether another step
    /// started after that step.
    held: Vec<ToolCall>,
    passed: bool,
    holds: HashMap<ToolCallId, &'a Hold>,
    /// The calls that the page shows as approved.
    approved: HashSet<ToolCallId>,
    /// The number of calls so far.
    calls: u128,
    /// Whether the next delta starts a new part.
    part_ended: bool,
    /// The arguments of incomplete calls that are still to be emitted.
    unwritten: Vec<(ToolCallId, VecDeque<String>)>,
    continued_after_incomplete_call: bool,
}

impl<'a> Simulator<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        Self {
            scenario,
            turns: Vec::new(),
            steps: Vec::new(),
            open: false,
            spent: SpentTokens::default(),
            held: Vec::new(),
            passed: false,
            holds: HashMap::new(),
            approved: HashSet::new(),
            calls: 0,
            part_ended: false,
            unwritten: Vec::new(),
            continued_after_incomplete_call: false,
        }
    }

    fn emit(&mut self, event: TurnEvent<'static>) {
        self.turns.last_mut().unwrap().events.push(event);
    }

    fn finish(&mut self, reason: FinishReason) {
        self.emit(TurnEvent::Finished { reason, spent: self.spent });
        self.open = false;
    }

    fn fail(&mut self, code: TurnErrorCode, message: &str) {
        let error = TurnError { code, message: message.to_owned() };
        self.emit(TurnEvent::Failed { error, spent: self.spent });
        self.open = false;
    }

    fn begin_turn(&mut self, loaded_anew: bool) {
        let posts_answers = !loaded_anew && !self.passed;
        let answers: Vec<_> =
            self.held.iter().filter(|_| posts_answers).filter_map(|call| self.answer(call)).collect();
        let was_approved = |answers: &[PageDecision]| {
            let yes = answers.iter().filter(|answer| answer.approved);
            yes.map(|answer| answer.tool_call_id).collect::<Vec<_>>()
        };
        if loaded_anew {
            self.approved.clear();
        }
        self.approved.extend(was_approved(&answers));
        let before = loaded_anew.then(|| replay(&self.steps));
        self.turns.push(Turn { answers, approved: self.approved.clone(), before, events: Vec::new() });
        self.open = true;
        self.spent = SpentTokens::default();
        if self.held.is_empty() {
            return;
        }
        for event in TurnEvent::continuation(&self.steps) {
            self.emit(event);
        }
    }

    /// Returns the decision of the page about this call, if the page received the approval request and makes
    /// a decision.
    fn answer(&self, call: &ToolCall) -> Option<PageDecision> {
        let tool_call_id = call.id;
        let hold = self.holds.get(&tool_call_id)?;
        let asked = !hold.meanwhile || call.end().is_none();
        let approved = hold.page.filter(|_| asked)?;
        let reason = match &hold.verdict {
            _ if approved => None,
            Verdict::No(reason) => reason.clone(),
            _ => Some("I would rather not.".to_owned()),
        };
        let accepted = match &call.state {
            State::Rejected(_) => !approved,
            _ => approved && call.validated() == Some(true),
        };
        Some(PageDecision { tool_call_id, approved, reason, accepted })
    }

    fn end_of(&mut self, call: &ToolCall) {
        if let Some(shown) = RenderedResult::of(call) {
            self.emit(TurnEvent::CallEnded { tool_call_id: call.id, result: shown });
        }
    }

    /// Emits and stores one step. Returns whether the message continues.
    fn step(&mut self, n: usize, step: &'a ScenarioStep, last: bool) -> bool {
        if !self.open {
            self.begin_turn(step.loaded_anew && !self.turns.is_empty());
        }
        let before = self.steps.iter().filter_map(|step| step.usage).reduce(Usage::plus);
        self.spent.message = self.spent.message.or(before);
        self.emit(TurnEvent::StepStarted);
        self.passed = true;
        let broken = matches!(step.end, scenario::End::Broken(..));
        let mut current = Step {
            n: i32::try_from(n).unwrap(),
            status: if broken { StepStatus::Interrupted } else { StepStatus::Complete },
            parts: Vec::new(),
            calls: Vec::new(),
            usage: None,
            origin: None,
            provider_state: None,
            window: Window::default(),
            created_at: AT,
        };
        self.part_ended = false;
        for piece in &step.pieces {
            self.write_on();
            self.piece(&mut current, piece, last);
        }
        let continues = if let scenario::End::Broken(code, message) = &step.end {
            self.continued_after_incomplete_call |= !current.calls.is_empty() && !last;
            self.unwritten.clear();
            current.calls.clear();
            current.parts.retain(|part| !matches!(part, Part::ToolCall { .. }));
            self.fail(*code, message);
            true
        } else {
            while !self.unwritten.is_empty() {
                self.write_on();
            }
            self.calls_of(&mut current, step, last)
        };
        self.steps.push(current);
        continues
    }

    fn piece(&mut self, current: &mut Step, piece: &'a Piece, last: bool) {
        let ended = mem::replace(&mut self.part_ended, matches!(piece, Piece::End));
        let parts = &mut current.parts;
        match piece {
            Piece::Text(delta) | Piece::Thought(delta) if delta.is_empty() => self.part_ended = ended,
            Piece::Text(delta) => {
                match parts.last_mut() {
                    Some(Part::Text { text }) if !ended => text.push_str(delta),
                    _ => parts.push(Part::Text { text: delta.clone() }),
                }
                self.emit(TurnEvent::Text(delta.clone().into()));
            }
            Piece::Thought(delta) => {
                match parts.last_mut() {
                    Some(Part::Reasoning { text }) if !ended => text.push_str(delta),
                    _ => parts.push(Part::Reasoning { text: delta.clone() }),
                }
                self.emit(TurnEvent::Reasoning(delta.clone().into()));
            }
            Piece::End => self.emit(TurnEvent::PartEnded),
            Piece::Source(source) => {
                parts.push(Part::Source(source.clone()));
                self.emit(TurnEvent::Source(source.clone()));
            }
            Piece::File(file) => {
                parts.push(Part::File(file.clone()));
                self.emit(TurnEvent::File(file.clone()));
            }
            Piece::Call(call) => self.call(current, call, last),
        }
    }

    fn call(&mut self, current: &mut Step, planned: &'a ScenarioCall, last: bool) {
        self.calls += 1;
        let tool_call_id = ToolCallId::new(Uuid::from_u128(self.calls));
        current.parts.push(Part::ToolCall { tool_call_id });
        self.emit(TurnEvent::CallStarted { tool_call_id, tool_name: planned.tool.clone() });
        let mut nesting = Nesting::default();
        let written = planned.written.iter().map(|delta| nesting.within(delta, DEPTH_MAX).to_owned());
        // Pieces of secret inputs are never emitted.
        let written = if hides(planned) { VecDeque::new() } else { written.collect() };
        self.unwritten.push((tool_call_id, written));
        while !planned.beside && self.unwritten.iter().any(|(id, _)| *id == tool_call_id) {
            self.write_on();
        }
        let (held, state) = match &planned.fate {
            CallFate::Invalid(why) => (false, State::Invalid(ended(why))),
            CallFate::Duplicate => (false, State::Cancelled(None, ended(model_texts::DUPLICATE))),
            CallFate::Cleared(outcome) => (false, ran(outcome, None)),
            CallFate::Held(hold) => {
                self.holds.insert(tool_call_id, hold);
                (true, decided(hold, last, self.scenario.repeated))
            }
        };
        let mut call = stored(tool_call_id, current.n, planned, held, state);
        if let CallFate::Held(hold) = &planned.fate {
            let reason = match &hold.verdict {
                Verdict::No(reason) => reason.clone(),
                _ => None,
            };
            // The calls of a step are decided in the reverse order, those before the hold is emitted first.
            let since = if hold.meanwhile { 1000 } else { 2000 };
            let at = Timestamp::from_micros(since - i64::try_from(self.calls).unwrap());
            call.decision = in_force(&call, reason, at);
        }
        current.calls.push(call);
    }

    /// Emits the next chunk of arguments of each incomplete call.
    fn write_on(&mut self) {
        let mut deltas = Vec::new();
        self.unwritten.retain_mut(|(tool_call_id, written)| {
            let next = written.pop_front();
            deltas.extend(next.map(|delta| (*tool_call_id, delta)));
            !written.is_empty()
        });
        for (tool_call_id, delta) in deltas {
            self.emit(TurnEvent::CallArguments { tool_call_id, delta: delta.into() });
        }
    }

    /// Emits the calls of a whole step. Returns whether the message continues.
    fn calls_of(&mut self, current: &mut Step, step: &ScenarioStep, last: bool) -> bool {
        current.usage = step.usage.map(|(read, written)| Usage {
            input_tokens: u64::from(read),
            output_tokens: u64::from(written),
        });
        if let Some(usage) = current.usage {
            self.spent.add(usage);
        }
        for call in &current.calls {
            let invalid = matches!(call.state, State::Invalid(_));
            let input = if invalid { ShownInput::default() } else { call.shown_proposal() };
            self.emit(TurnEvent::CallStored { tool_call_id: call.id, tool_name: call.name.clone(), input });
        }
        // These calls are stored together with their ends.
        let ended = |call: &ToolCall| matches!(call.state, State::Invalid(_) | State::Cancelled(..));
        let runs = |call: &ToolCall| !call.held && !ended(call);
        for call in current.calls.iter().filter(|call| !call.held && ended(call)) {
            self.end_of(call);
        }
        let holds = current.calls.iter().any(|call| call.held);
        if matches!(step.end, scenario::End::Stopped) && !holds && current.calls.iter().any(runs) {
            for call in current.calls.iter_mut().filter(|call| runs(call)) {
                call.state = State::Executing(Approval { inputs: None, preview: None }, execution());
            }
            self.emit(TurnEvent::Cancelled { spent: self.spent });
            self.open = false;
            return false;
        }
        // The calls run concurrently, so the last one to start may end first.
        for call in current.calls.iter().rev().filter(|call| runs(call)) {
            self.end_of(call);
        }
        self.held = current.calls.iter().filter(|call| call.held).cloned().collect();
        self.passed = false;
        if holds {
            let held = self.held.iter().map(|call| {
                let waits = self.holds.get(&call.id).is_some_and(|hold| !hold.meanwhile);
                if waits { pending(call) } else { HeldCallStatus::of(call) }
            });
            let held = held.collect();
            self.emit(TurnEvent::Held(held));
        }
        let reason = if current.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        self.emit(TurnEvent::StepFinished { reason, usage: current.usage });
        if holds && step.answered && !last {
            let set_status = self.held.iter().map(HeldCallStatus::of).collect();
            self.emit(TurnEvent::Continued(set_status));
        } else if holds || current.calls.is_empty() {
            self.finish(reason);
        } else if last {
            self.fail(TurnErrorCode::StepLimit, "Enough.");
        }
        !current.calls.is_empty()
    }
}

/// Returns the status of the call at the time when it was stored.
fn pending(call: &ToolCall) -> HeldCallStatus {
    HeldCallStatus {
        decided: None,
        input_to_show: None,
        label: StateKind::Pending,
        progress: HoldProgress::Pending,
        ..HeldCallStatus::of(call)
    }
}

fn ended(result: &str) -> CallEnd {
    CallEnd { result: result.to_owned(), at: AT }
}

fn execution() -> Execution {
    Execution { id: ExecId::new(Uuid::nil()), attempt: 1, started_at: AT }
}

fn ran(outcome: &Outcome, inputs: Option<Input>) -> State {
    let yes = Approval { inputs, preview: None };
    match outcome {
        Outcome::Output(output) => State::Succeeded(yes, execution(), output.clone(), ended("")),
        Outcome::Failure(why) => State::Failed(yes, Some(execution()), ended(why)),
        Outcome::Unknown => State::Interrupted(yes, execution(), ended(model_texts::INTERRUPTED)),
    }
}

/// Returns the final state of a held call. The last calls are decided after all turns, unless they are
/// emitted again.
fn decided(hold: &Hold, last: bool, repeated: bool) -> State {
    let yes = || Approval { inputs: hold.edit.clone(), preview: None };
    match &hold.verdict {
        _ if last && !repeated && !hold.meanwhile => State::Pending,
        Verdict::Open if last => State::Pending,
        Verdict::Runs if last => State::Executing(yes(), execution()),
        Verdict::Yes(outcome) => ran(outcome, hold.edit.clone()),
        Verdict::No(reason) => State::Rejected(ended(&rejection(reason.as_deref()))),
        Verdict::Late => State::Expired(ended(model_texts::EXPIRED)),
        Verdict::NotStarted => State::Failed(yes(), None, ended(model_texts::NOT_STARTED)),
        Verdict::WithdrawnAfter => State::Cancelled(Some(yes()), ended(model_texts::CANCELLED)),
        Verdict::Withdrawn | Verdict::Runs | Verdict::Open => {
            State::Cancelled(None, ended(model_texts::CANCELLED))
        }
    }
}

/// Returns the decision about a call in this state.
fn in_force(call: &ToolCall, reason: Option<String>, at: Timestamp) -> Option<Decision> {
    let verdict = match (&call.state, call.validated()?) {
        (_, true) => decision::Verdict::Approve,
        (State::Expired(_), false) => decision::Verdict::Expire,
        (State::Cancelled(..), false) => decision::Verdict::Cancel,
        (_, false) => decision::Verdict::Reject,
    };
    Some(Decision {
        verdict,
        by: "user:local".to_owned(),
        on_behalf_of: None,
        at,
        edited: call.edited_input().is_some(),
        reason,
        input_hash: String::new(),
        surface: Surface::Rest,
        source: None,
        remember: None,
    })
}

/// Whether the inputs of the call are secret.
fn hides(planned: &ScenarioCall) -> bool {
    planned.input.len() == 2
}

fn stored(id: ToolCallId, step: i32, planned: &ScenarioCall, held: bool, state: State) -> ToolCall {
    ToolCall {
        id,
        thread_id: ThreadId::new(Uuid::nil()),
        message_id: MessageId::new(Uuid::nil()),
        run_id: RunId::new(Uuid::nil()),
        step,
        wire_call_id: id.to_string(),
        name: planned.tool.clone(),
        input: planned.input.clone(),
        secrets: if hides(planned) { SecretPaths::everything() } else { SecretPaths::default() },
        schema_hash: String::new(),
        held,
        risk: RiskLevel::Low,
        reason: None,
        preview: held.then(|| Preview::Text("Nothing.\nOr a little.".to_owned())),
        state,
        decision: None,
        created_at: AT,
        expires_at: None,
        remind_at: None,
        escalation: None,
        executed_by: ExecutedBy::Process,
        progress: None,
        model_input: None,
        unreadable: false,
    }
}
