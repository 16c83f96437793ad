//! Asking a model, and answering for a person.

use super::Api;
use super::auth::Caller;
use super::body::{JsonObject, Strict};
use super::chat_body::{ChatBody, ChatByIdBody};
use super::error::ApiError;
use super::payload::{Json, Tag};
use super::rates::StreamPlace;
use super::request_id::RequestId;
use super::stream_answer::{AttachedStream, ChatStream};
use super::turn_stream::Listener;
use crate::approvals::{Decided, DecisionRequest};
use crate::chat::{AskError, Started, ThreadName};
use crate::config::UiDialect;
use crate::domain::call::{State, ToolCall, words};
use crate::domain::decision::{Answer, Surface};
use crate::domain::dialect::Dialect;
use poem_openapi::param::{Header, Path, Query};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;
use std::collections::HashSet;

/// Longest reason of a rejection, in characters.
pub(super) const REASON_MAX: usize = 2000;

/// The dialects of a stream.
#[derive(Debug, Clone, Copy, Enum)]
enum Protocol {
    /// The data stream of AI SDK 4.
    #[oai(rename = "data-v1")]
    DataV1,
    /// The UI message stream of AI SDK 5.
    #[oai(rename = "ui-v5")]
    UiV5,
    /// The UI message stream of AI SDK 6 and 7.
    #[oai(rename = "ui-v6")]
    UiV6,
}

impl From<Protocol> for Dialect {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::DataV1 => Self::DataV1,
            Protocol::UiV5 => Self::Ui(UiDialect::V5),
            Protocol::UiV6 => Self::Ui(UiDialect::V6),
        }
    }
}

/// A decision about a held call.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, rename_all = "camelCase")]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ValidateTool {
    /// The call.
    tool_call_id: String,
    /// Whether it may run.
    is_validated: bool,
    /// Inputs to run in place of the proposed ones; absent or null means as proposed. Ignored when rejecting.
    validated_inputs: Option<JsonObject>,
    /// Why not, for the model and the record: at most 2000 characters.
    #[oai(validator(max_length = 2000))]
    reason: Option<String>,
    /// The `input_hash` of what was shown: 409 `stale` if it is out of date.
    input_hash: Option<String>,
}

/// What became of a decision.
#[derive(Debug, Object)]
#[oai(rename_all = "camelCase", skip_serializing_if_is_none)]
struct ValidateToolResult {
    /// Whether it was rejected as asked, or ran and gave a result.
    success: bool,
    /// What the model will read.
    result: String,
    tool_call_id: String,
    state: String,
    /// The inputs a person put in place of the model's.
    validated_inputs: Option<JsonObject>,
}

#[derive(ApiResponse)]
enum ValidateAnswer {
    /// Decided, and at its end.
    #[oai(status = 200)]
    Done(
        Json<ValidateToolResult>,
        /// `true` where the same had been decided before; the tool did not run again.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
    /// Decided, and still under way: ask again to wait again.
    #[oai(status = 202)]
    UnderWay(Json<ValidateToolResult>, #[oai(header = "idempotent-replayed")] Option<String>),
}

pub(super) struct Qa(pub(super) Api);

#[OpenApi(tag = "Tag::Chat")]
impl Qa {
    /// One turn of a thread, streamed
    ///
    /// The words of a new message, or nothing to go on after a decision or a failure. The turn goes on when
    /// the client goes away.
    #[oai(path = "/qa/chat_streamed/:thread_id", method = "post", operation_id = "chat")]
    async fn chat(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamPlace,
        /// A thread's id, or the caller's own name for it.
        thread_id: Path<String>,
        /// The dialect to answer in.
        #[oai(name = "x-stream-protocol")]
        protocol: Header<Option<Protocol>>,
        body: ChatBody,
    ) -> Result<ChatStream, ApiError> {
        let name = ThreadName::Known(thread_id.0);
        self.turn(caller, request_id, place, name, protocol.0, body).await
    }

    /// One turn of the thread that the body names, streamed
    ///
    /// `id` is a thread's id or the caller's own name for one, which the first message makes.
    #[oai(path = "/qa/chat_streamed", method = "post", operation_id = "chatById")]
    async fn chat_by_id(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamPlace,
        /// The dialect to answer in.
        #[oai(name = "x-stream-protocol")]
        protocol: Header<Option<Protocol>>,
        body: ChatByIdBody,
    ) -> Result<ChatStream, ApiError> {
        let name = ThreadName::OrNew(body.id);
        self.turn(caller, request_id, place, name, protocol.0, body.chat).await
    }

    /// Read along with the turn of a thread
    ///
    /// What `experimental_resume` of AI SDK 4 asks for. In `data-v1` the turn under way is told from its beginning, as
    /// the thread was when `format=v4` showed it; where none is, and every held call of the last message is decided and
    /// its answer not yet read by the model, the run goes on as after a continuation by POST; of several who ask at
    /// once, one does that and the others read along. Otherwise the answer is empty: with a call that still waits, and
    /// after a failure. In `ui-v5` and `ui-v6` it is as with `/stream` behind the path.
    #[oai(path = "/qa/chat_streamed/:thread_id", method = "get", operation_id = "attach")]
    async fn attach(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamPlace,
        /// A thread's id, or the caller's own name for it.
        thread_id: Path<String>,
        /// What the page calls the chat. Not read: the path names the thread.
        #[oai(name = "chatId")]
        _chat_id: Query<Option<String>>,
        /// The dialect to answer in; `data-v1` if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: Header<Option<Protocol>>,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = protocol.0.map_or(Dialect::DataV1, Dialect::from);
        let started = self.0.chat.attach(&caller.0, &thread_id.0, dialect).await?;
        Ok(self.attached(started, dialect, request_id, place))
    }

    /// Read along with the turn of the thread that the query names
    ///
    /// As with the thread in the path; but a name that nobody has used yet is answered with nothing, because a page
    /// asks before its first message.
    #[oai(path = "/qa/chat_streamed", method = "get", operation_id = "attachById")]
    async fn attach_by_id(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamPlace,
        /// A thread's id, or the caller's own name for it.
        #[oai(name = "chatId")]
        chat_id: Query<String>,
        /// The dialect to answer in; `data-v1` if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: Header<Option<Protocol>>,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = protocol.0.map_or(Dialect::DataV1, Dialect::from);
        let started = self.attach_if_there(&caller, &chat_id.0, dialect).await?;
        Ok(self.attached(started, dialect, request_id, place))
    }

    /// Read the message that the turn of a thread writes
    ///
    /// What `resumeStream` of AI SDK 5 and later asks for, where the page's `api` names the thread. The message that is
    /// being written is told whole, from its first part, under its id; `format=ui-v5` and `format=ui-v6` leave it out
    /// meanwhile. Where no turn is under way there is nothing to read, and none begins.
    #[oai(
        path = "/qa/chat_streamed/:thread_id/:chat_id/stream",
        method = "get",
        operation_id = "attachStream"
    )]
    async fn attach_stream(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamPlace,
        /// A thread's id, or the caller's own name for it.
        thread_id: Path<String>,
        /// What the page calls the chat. Not read: the thread is named before it.
        #[oai(name = "chat_id")]
        _chat_id: Path<String>,
        /// The dialect to answer in; what `stream.default_ui_dialect` says if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: Header<Option<Protocol>>,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = protocol.0.map_or_else(|| self.ui(), Dialect::from);
        let started = self.0.chat.attach(&caller.0, &thread_id.0, dialect).await?;
        Ok(self.attached(started, dialect, request_id, place))
    }

    /// Read the message that the turn of the chat's thread writes
    ///
    /// As with the thread before the chat; but a name that nobody has used yet is answered with nothing, because a page
    /// asks before its first message.
    #[oai(path = "/qa/chat_streamed/:chat_id/stream", method = "get", operation_id = "attachStreamById")]
    async fn attach_stream_by_id(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamPlace,
        /// A thread's id, or the caller's own name for it.
        chat_id: Path<String>,
        /// The dialect to answer in; what `stream.default_ui_dialect` says if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: Header<Option<Protocol>>,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = protocol.0.map_or_else(|| self.ui(), Dialect::from);
        let started = self.attach_if_there(&caller, &chat_id.0, dialect).await?;
        Ok(self.attached(started, dialect, request_id, place))
    }

    /// Decide a held call
    ///
    /// Approved, the tool runs now, once, and the answer is its outcome. The same decision again gives the
    /// stored outcome; another one is refused. The thread's user decides, and who has one of the roles that approve
    /// the tool's calls. Where the tool wants another person, or may not run on behalf of the thread's user, that user
    /// may only reject.
    #[oai(path = "/qa/validate_tool", method = "post", operation_id = "validateTool")]
    async fn validate_tool(
        &self,
        caller: Caller,
        body: Strict<ValidateTool>,
    ) -> Result<ValidateAnswer, ApiError> {
        let body = body.0;
        if body.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_MAX) {
            return Err(ApiError::bad_request(format!("reason: expected at most {REASON_MAX} characters")));
        }
        let Ok(tool_call_id) = body.tool_call_id.parse() else {
            // What is no id names no call, and who tries them all is counted.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let answer = if body.is_validated {
            Answer::Approve { inputs: body.validated_inputs.map(|inputs| inputs.0) }
        } else {
            Answer::Reject { reason: body.reason.filter(|reason| !reason.trim().is_empty()) }
        };
        let decision =
            DecisionRequest { tool_call_id, answer, input_hash: body.input_hash, surface: Surface::Rest };
        let Decided { call, replayed } = self.0.approvals.decide(&caller.0, decision).await?;
        let replayed = replayed.then(|| "true".to_owned());
        Ok(match call.end() {
            Some(_) => ValidateAnswer::Done(Json(ValidateToolResult::of(&call)), replayed),
            None => ValidateAnswer::UnderWay(Json(ValidateToolResult::of(&call)), replayed),
        })
    }
}

impl ValidateToolResult {
    fn of(call: &ToolCall) -> Self {
        let result = call.end().map_or(words::UNDER_WAY, |end| end.result.as_str());
        let state = match &call.state {
            // Who waits for the outcome need not tell a yes from its beginning.
            State::Approved(_) | State::Executing(..) => "executing",
            other => other.as_str(),
        };
        Self {
            success: matches!(call.state, State::Succeeded(..) | State::Rejected(_)),
            result: result.to_owned(),
            tool_call_id: call.id.to_string(),
            state: state.to_owned(),
            validated_inputs: call.edited_input().cloned().map(JsonObject),
        }
    }
}

impl Qa {
    /// The turn that answers.
    async fn turn(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamPlace,
        name: ThreadName,
        protocol: Option<Protocol>,
        body: ChatBody,
    ) -> Result<ChatStream, ApiError> {
        let unsaid = if body.is_ui { self.ui() } else { Dialect::DataV1 };
        let dialect = protocol.map_or(unsaid, Dialect::from);
        let ChatBody { ask, approved, .. } = body;
        let started = self.0.chat.ask(&caller.0, &name, ask, dialect).await?;
        let listener = Listener { dialect, request_id: request_id.0, place, approved };
        Ok(self.0.streaming.answer(started, listener))
    }

    /// What pages of the UI message stream are told that do not say which they are.
    fn ui(&self) -> Dialect {
        Dialect::Ui(self.0.streaming.default_ui_dialect)
    }

    /// The turn to read along with, if there is one, and a thread of this name.
    async fn attach_if_there(
        &self,
        caller: &Caller,
        name: &str,
        dialect: Dialect,
    ) -> Result<Option<Started>, ApiError> {
        match self.0.chat.attach(&caller.0, name, dialect).await {
            Err(AskError::NoThread) => Ok(None),
            found => Ok(found?),
        }
    }

    /// The turn that is read along, if there is one.
    fn attached(
        &self,
        started: Option<Started>,
        dialect: Dialect,
        request_id: RequestId,
        place: StreamPlace,
    ) -> AttachedStream {
        let listener = Listener { dialect, request_id: request_id.0, place, approved: HashSet::new() };
        let stream = started.map(|started| self.0.streaming.answer(started, listener));
        AttachedStream { dialect, stream }
    }
}
