//! Entries for the Criterion benches, which are a crate of their own (`benches/parts.rs`) and cannot reach private
//! parts.

use crate::agent::project;
use crate::config::Config;
use crate::tools::gate::{Gate, Gates, PolicyContext};
use crate::tools::{CurrentTools, ToolRegistry};
use bytes::BytesMut;
use holdpoint_core::call::{Approval, CallEnd, ExecutedBy, Execution, RiskLevel, State, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::{ExecId, MessageId, RunId, ThreadId, ToolCallId};
use holdpoint_core::message::{Body, Message, MessageStatus, Part, Step, StepStatus, Window};
use holdpoint_core::policy::{Judgement, SessionPolicy};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::SecretPaths;
use holdpoint_core::turn::{FinishReason, SpentTokens, TurnEvent};
use holdpoint_store::{SealKind, SentText, Transcript};
use holdpoint_stream::{Audience, Dialect};
use serde_json::json;
use uuid::Uuid;

const AT: Timestamp = Timestamp::from_micros(0);

/// A text of about four characters with a character that JSON escapes.
const TOKEN: &str = "on\"e";

/// The model that wrote the answers of a [`StoredThread`].
const ORIGIN: &str = "bench";

/// A turn with one text, and the dialect of its reader.
#[derive(Debug)]
pub struct TextTurn {
    dialect: &'static Dialect,
    events: Vec<TurnEvent<'static>>,
}

impl TextTurn {
    /// Returns a turn with this number of tokens for each dialect, with the name of the dialect.
    pub fn in_each_dialect(tokens: usize) -> impl Iterator<Item = (&'static str, Self)> {
        Dialect::ALL.iter().copied().map(move |dialect| {
            let text = std::iter::repeat_with(|| TurnEvent::Text(TOKEN.into())).take(tokens);
            let end = [
                TurnEvent::PartEnded,
                TurnEvent::StepFinished { reason: FinishReason::Stop, usage: None },
                TurnEvent::Finished { reason: FinishReason::Stop, spent: SpentTokens::default() },
            ];
            let events = std::iter::once(TurnEvent::StepStarted).chain(text).chain(end).collect();
            (dialect.name, Self { dialect, events })
        })
    }

    /// Encodes the turn.
    #[must_use]
    pub fn encode(&self) -> BytesMut {
        let message_id = MessageId::new(Uuid::nil());
        let audience = Audience::new(message_id, "");
        let (mut encoder, mut out) = (self.dialect.encoder(audience), BytesMut::new());
        encoder.begin(&mut out);
        self.events.iter().for_each(|event| encoder.event(event, &mut out));
        encoder.end(&mut out);
        out
    }
}

/// A thread as read from the database. Each answer has a text and a call that succeeded, and the model has read the
/// result of the call.
#[derive(Debug)]
pub struct StoredThread {
    transcript: Transcript,
    answer: MessageId,
}

impl StoredThread {
    /// Returns a thread with this many messages of the user and as many answers.
    #[must_use]
    pub fn new(turns: u32) -> Self {
        let mut transcript = Transcript::default();
        let mut answer = MessageId::new(Uuid::nil());
        for turn in 0..turns {
            let (question, call) = (message_id(2 * turn), call(turn));
            answer = call.message_id;
            let sent = SentText { kind: SealKind::Answer, text: result(turn), message_id: answer };
            transcript.sent.insert(call.id, vec![sent]);
            transcript.questions.insert(answer, question);
            transcript.messages.push(message(question, Body::User(format!("Delete the file {turn}."))));
            transcript.messages.push(message(answer, Body::Assistant(vec![step(call)])));
        }
        Self { transcript, answer }
    }

    /// Computes the history for the next step of the last answer, and returns the number of its messages for the
    /// model.
    #[must_use]
    pub fn history(&self) -> usize {
        project(&self.transcript, self.answer, false, ORIGIN).messages.len()
    }
}

/// The gate of a server, with the policy of its configuration.
#[derive(Debug)]
pub struct JudgingGate(Gate);

impl JudgingGate {
    /// Returns a gate for these tools.
    #[must_use]
    pub fn new(tools: ToolRegistry, config: &Config) -> Self {
        Self(Gates::new(CurrentTools::new(tools), config, "bench", String::new()).now())
    }

    /// Judges a call, and returns whether the call is held; `None` if it neither is held nor runs.
    #[must_use]
    pub fn holds(&self, tool_name: &str, arguments: &str) -> Option<bool> {
        let session = SessionPolicy::default();
        let context = PolicyContext { roles: &[], session: &session, requester: "user", grants: &[] };
        match self.0.judge(tool_name, arguments, context, |_| true).judgement {
            Judgement::Cleared(..) => Some(false),
            Judgement::Held { .. } => Some(true),
            Judgement::Blocked { .. }
            | Judgement::Duplicate(_)
            | Judgement::ExpiredBefore(_)
            | Judgement::RejectedBefore { .. }
            | Judgement::Invalid(_) => None,
        }
    }
}

fn message_id(n: u32) -> MessageId {
    MessageId::new(Uuid::from_u128(n.into()))
}

fn message(id: MessageId, body: Body) -> Message {
    Message {
        id,
        client_id: None,
        thread_id: ThreadId::new(Uuid::nil()),
        run_id: RunId::new(Uuid::nil()),
        ordinal: 0,
        body,
        status: MessageStatus::Complete,
        created_at: AT,
    }
}

fn step(call: ToolCall) -> Step {
    let text = "I delete this file, because it is not needed any more.".to_owned();
    Step {
        n: 0,
        status: StepStatus::Complete,
        parts: vec![Part::Text { text }, Part::ToolCall { tool_call_id: call.id }],
        calls: vec![call],
        usage: None,
        origin: Some(ORIGIN.to_owned()),
        provider_state: None,
        window: Window::default(),
        created_at: AT,
    }
}

fn call(turn: u32) -> ToolCall {
    let execution = Execution { id: ExecId::new(Uuid::nil()), attempt: 1, started_at: AT };
    let end = CallEnd { result: result(turn), at: AT };
    ToolCall {
        id: ToolCallId::new(Uuid::from_u128(turn.into())),
        thread_id: ThreadId::new(Uuid::nil()),
        message_id: message_id(2 * turn + 1),
        run_id: RunId::new(Uuid::nil()),
        step: 0,
        wire_call_id: format!("call_{turn}"),
        name: "delete_file".to_owned(),
        input: Input::from_iter([("path".to_owned(), json!(format!("/srv/data/file-{turn}.txt")))]),
        secrets: SecretPaths::default(),
        schema_hash: String::new(),
        held: true,
        risk: RiskLevel::High,
        reason: None,
        preview: None,
        state: State::Succeeded(
            Approval { inputs: None, preview: None },
            execution,
            json!({ "deleted": turn }),
            end,
        ),
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

fn result(turn: u32) -> String {
    format!("The file {turn} is deleted.")
}
