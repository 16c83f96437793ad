//! Permits: the rights to run tools. No tool can run without one.
//!
//! A tool takes a [`Permit`] of its own type by value. `Permit::committed` is private to this crate: it is called after
//! the commit that made the row `executing`, inserted with a `Cleared` of the policy, or moved from `approved`. The
//! permit names the user of the thread and carries the stored inputs. No permit exists for inputs that cannot be read.

use crate::call::request_sender::{InputRequests, RequestSender};
use crate::call::waited::WaitedTime;
use holdpoint_core::call::Execution;
use holdpoint_core::id::{RunId, ThreadId, ToolCallId};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::Edit;
use holdpoint_core::tool::tool_request::{Answer, Question, RequestKind};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The right to run one call of the tool `T` once. Without `T`, the tool is known only at run time.
///
/// A permit is created in one place: the store returns it after the commit that made the call `executing`.
/// The call was either stored in this state because the policy allows the call, or moved to it from `approved`
/// by compare-and-set. Running a tool takes the permit by value.
pub struct Permit<T: ?Sized = ()> {
    call: PermittedCall,
    tool: PhantomData<fn(&T)>,
}

/// A call that is committed as executing.
#[derive(Debug)]
pub(crate) struct CommittedCall {
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) tool_name: String,
    /// The user and the conversation of the call.
    pub(crate) conversation: Conversation,
    /// The inputs that may run.
    pub(crate) input: Input,
    /// The change of the inputs by an approver, if there was one.
    pub(crate) edit: Option<Edit>,
    /// The execution that holds the call.
    pub(crate) execution: Execution,
    /// The actors that approved these inputs.
    pub(crate) approved_by: Vec<String>,
}

/// The conversation in which a call was made.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The user of the thread.
    pub requester: Requester,
    pub thread_id: ThreadId,
    /// The root thread above the thread.
    pub session_id: ThreadId,
    pub run_id: RunId,
}

/// What a permit says about its call, whatever the tool.
struct PermittedCall {
    tool_call_id: ToolCallId,
    key: IdempotencyKey,
    thread_id: ThreadId,
    session_id: ThreadId,
    run_id: RunId,
    tool_name: String,
    input: Input,
    edit: Option<Edit>,
    execution: Execution,
    approved_by: Vec<String>,
    cancellation: CancellationToken,
    waited: WaitedTime,
    /// `None` until the tool begins.
    asks: Option<Arc<dyn InputRequests>>,
}

/// The key that identifies a call to the services that its tool uses. All attempts of the call have the same
/// key, and no other call has it.
///
/// A service that supports idempotency keys does nothing twice for the same key. Send the key as text, in the
/// header `Idempotency-Key` or wherever the service expects it. `Tool::verify` later asks the service about the
/// call by the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    text: String,
    requester: Requester,
}

impl IdempotencyKey {
    /// Creates the key of a call that was made on behalf of this user.
    pub fn of(tool_call_id: ToolCallId, requester: Requester) -> Self {
        Self { text: tool_call_id.to_string(), requester }
    }

    /// Returns the key as a service receives it: the call's id, which is a UUID.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the user on whose behalf the call was made. The tool uses this user's rights at a service.
    pub fn requester(&self) -> &Requester {
        &self.requester
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The user on whose behalf a tool runs: the user of the thread with the call, regardless of the approver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requester {
    pub tenant_id: String,
    pub user_id: String,
}

impl Requester {
    /// Returns the tenant of the user; `default` on a server without authentication.
    pub fn tenant_id(&self) -> &str {
        &self.tenant_id
    }

    /// Returns the user inside the tenant; `local` on a server without authentication.
    pub fn user_id(&self) -> &str {
        &self.user_id
    }
}

impl Permit {
    /// Creates a permit. Only the store calls this, once the call is committed as executing.
    pub(crate) fn committed(call: CommittedCall) -> Self {
        let CommittedCall { tool_call_id, tool_name, conversation, input, edit, execution, approved_by } =
            call;
        let Conversation { requester, thread_id, session_id, run_id } = conversation;
        let call = PermittedCall {
            tool_call_id,
            key: IdempotencyKey::of(tool_call_id, requester),
            thread_id,
            session_id,
            run_id,
            tool_name,
            input,
            edit,
            execution,
            approved_by,
            cancellation: CancellationToken::new(),
            waited: WaitedTime::default(),
            asks: None,
        };
        Self { call, tool: PhantomData }
    }

    /// Returns the permit of a tool that begins, and that asks people in this way.
    pub fn with_requests(mut self, asks: Arc<dyn InputRequests>) -> Self {
        self.call.asks = Some(asks);
        self
    }

    /// Returns the same right for the tool `T`, if the permit is for the tool of this name.
    pub fn for_tool<T: ?Sized>(self, name: &str) -> Option<Permit<T>> {
        let Self { call, tool: _ } = self;
        (call.tool_name == name).then_some(Permit { call, tool: PhantomData })
    }
}

impl<T: ?Sized> Permit<T> {
    pub fn tool_call_id(&self) -> ToolCallId {
        self.call.tool_call_id
    }

    /// Returns the thread of the call. For a call of a sub-agent, the thread of the sub-agent.
    pub fn thread_id(&self) -> ThreadId {
        self.call.thread_id
    }

    /// Returns the session of the call: the root thread above its thread, or that thread itself.
    pub fn session_id(&self) -> ThreadId {
        self.call.session_id
    }

    /// Returns the run of the call, which lasts from a user message to the final answer, pauses included.
    pub fn run_id(&self) -> RunId {
        self.call.run_id
    }

    /// Returns the key that identifies this call to the services that the tool uses.
    pub fn idempotency_key(&self) -> &IdempotencyKey {
        &self.call.key
    }

    /// Returns the number of this attempt at the call, from 1. Only a tool that is `IDEMPOTENT` gets a later
    /// attempt: the earlier attempt was cut off, and may have had its effect.
    pub fn attempt(&self) -> u32 {
        self.call.execution.attempt.unsigned_abs()
    }

    /// Returns the name of the tool that may run.
    pub fn tool_name(&self) -> &str {
        &self.call.tool_name
    }

    /// Returns the user on whose behalf the tool runs. The rights of this user limit the tool, not the rights
    /// of the approver: an approver permits the call and lends no rights.
    pub fn requester(&self) -> &Requester {
        self.call.key.requester()
    }

    /// Returns the actors that approved these inputs, in the order of their approvals: `user:<id>` or
    /// `handler:<name>`. Empty if the policy lets the call run without an approval.
    pub fn approved_by(&self) -> &[String] {
        &self.call.approved_by
    }

    /// Returns the conversation of the call, and its user.
    pub fn conversation(&self) -> Conversation {
        let PermittedCall { thread_id, session_id, run_id, .. } = self.call;
        Conversation { requester: self.requester().clone(), thread_id, session_id, run_id }
    }

    /// Returns the inputs that may run: the stored inputs as the approver saw or edited them.
    pub fn input(&self) -> &Input {
        &self.call.input
    }

    /// Returns the token that is triggered when the call has to stop: the call or its run was cancelled, its
    /// thread was deleted, its time is up, the server stops, or another process took the execution for lost.
    /// A result that the tool returns within `tools.cancel_grace` after that is the outcome of the call. Then
    /// the call becomes `interrupted`, and a later result still settles it.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.call.cancellation
    }

    /// Asks the people that may decide this call for the fields of a form, and returns the first answer. The handler of
    /// the process may answer as well. The schema describes an object: its `properties` are the fields, and a
    /// content that does not fit, or has another field, is refused before it gets here.
    ///
    /// Without an answer within `approval.answer_timeout` the answer is [`Answer::Cancel`]. The call stays
    /// `executing` meanwhile, and `tools.timeout` leaves the wait out. If the process dies, the call is cut off as
    /// in any other moment. A message of more than 4 KiB, a schema of more than 16 KiB and the eleventh request of a
    /// call reach no person: the answer is [`Answer::Cancel`]. So is that to a request after a cancel of the call. A
    /// dropped future withdraws the request.
    pub async fn ask(&self, message: &str, schema: Input) -> Answer {
        self.request_sender().send(Question::new(RequestKind::Custom, message, schema)).await
    }

    /// Returns the right of this execution to ask.
    pub fn request_sender(&self) -> RequestSender {
        RequestSender::new(
            self.call.asks.clone(),
            (self.call.tool_call_id, self.call.execution),
            self.call.waited.clone(),
        )
    }

    /// Returns the time that the execution waits for people.
    pub fn waited(&self) -> &WaitedTime {
        &self.call.waited
    }

    /// Returns the change of the inputs by an approver, if there was one.
    pub fn edit(&self) -> Option<&Edit> {
        self.call.edit.as_ref()
    }

    /// Returns the execution that this permit belongs to.
    pub fn execution(&self) -> Execution {
        self.call.execution
    }
}

impl<T: ?Sized> fmt::Debug for Permit<T> {
    /// Leaves out the inputs, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("tool_call_id", &self.call.tool_call_id)
            .field("tool_name", &self.call.tool_name)
            .finish_non_exhaustive()
    }
}
