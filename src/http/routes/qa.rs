//! The chat routes.

use crate::approvals::Denied;
use crate::chat::{AdmitError, StartedTurn, ThreadName};
use crate::config::UiDialect;
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Owner, User},
};
use crate::http::auth::Caller;
use crate::http::body::chat_body::{ChatBody, ChatByIdBody};
use crate::http::body::dialect_name::{DialectName, Protocol};
use crate::http::body::formats::Text;
use crate::http::body::payload::Tag;
use crate::http::body::thread_ref::{ClientName, ThreadRef, checked_key};
use crate::http::failure::error::ApiError;
use crate::http::middleware::rates::StreamSlot;
use crate::http::middleware::request_id::RequestId;
use crate::http::stream::stream_response::{AttachedStream, ChatStream};
use crate::http::stream::turn_stream::Listener;
use holdpoint_stream::Dialect;
use poem_openapi::OpenApi;
use poem_openapi::param::{Header, Path, Query};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The header that names a request, so that the client can repeat it.
type KeyHeader = Header<Option<Text<ClientName>>>;
/// The header that names the dialect of the stream.
type DialectHeader = Header<Option<DialectName<Protocol>>>;

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("chat", &[Owner]),
    ("chatById", &[User]),
    ("attach", &[Owner]),
    ("attachById", &[User]),
    ("attachStream", &[Owner]),
    ("attachStreamById", &[User]),
];

pub(in crate::http) struct Qa(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Streams")]
impl Qa {
    /// Run a turn of a thread
    ///
    /// The body has the text of a new user message, or no text to continue the run after a decision or a
    /// failure. The response streams the turn. The turn continues if the client disconnects.
    #[oai(path = "/qa/chat_streamed/:thread_id", method = "post", operation_id = "chat")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn chat(
        &self,
        caller: Caller,
        request_id: RequestId,
        slot: StreamSlot,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
        /// The dialect of the stream.
        #[oai(name = "x-stream-protocol")]
        protocol: DialectHeader,
        /// A name of the request, 1 to 64 characters, for a new message without an id. A repeated request with
        /// the same key streams the answer of the first one.
        #[oai(name = "idempotency-key")]
        key: KeyHeader,
        body: ChatBody,
    ) -> Result<ChatStream, ApiError> {
        let (name, body) = (ThreadName::Known(thread_id.0.into()), body.with_key(checked_key(key)?));
        self.turn(caller, request_id, slot, name, named(protocol), body).await
    }

    /// Run a turn of the thread that the body names
    ///
    /// `id` is the id of a thread, or the caller's own name for one. The first message under a new name
    /// creates the thread.
    #[oai(path = "/qa/chat_streamed", method = "post", operation_id = "chatById")]
    async fn chat_by_id(
        &self,
        caller: Caller,
        request_id: RequestId,
        slot: StreamSlot,
        /// The dialect of the stream.
        #[oai(name = "x-stream-protocol")]
        protocol: DialectHeader,
        /// A name of the request, 1 to 64 characters, for a new message without an id. A repeated request with
        /// the same key streams the answer of the first one.
        #[oai(name = "idempotency-key")]
        key: KeyHeader,
        body: ChatByIdBody,
    ) -> Result<ChatStream, ApiError> {
        let (name, body) = (ThreadName::OrNew(body.id), body.chat.with_key(checked_key(key)?));
        self.turn(caller, request_id, slot, name, named(protocol), body).await
    }

    /// Attach to the turn of a thread
    ///
    /// Serves `experimental_resume` of AI SDK 4. In `data-v1` the response streams the running turn from its
    /// beginning, which continues the thread as `format=v4` returned it. If no turn is running, every held
    /// call of the last message is decided, and the model has not read an outcome yet, the server continues
    /// the run as for a continuation by POST. Of several concurrent requests one continues the run, and the
    /// others attach to it. Otherwise the response is empty, for example if a call is still pending or after
    /// a failure. In the other dialects the route behaves like the path with `/stream` at its end.
    #[oai(path = "/qa/chat_streamed/:thread_id", method = "get", operation_id = "attach")]
    async fn attach(
        &self,
        caller: Caller,
        request_id: RequestId,
        slot: StreamSlot,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
        /// The page's id of the chat. Ignored, because the path names the thread.
        #[oai(name = "chatId")]
        _chat_id: Query<Option<String>>,
        /// The dialect of the stream; `data-v1` if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: DialectHeader,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = named(protocol).unwrap_or(Dialect::DATA_V1);
        let started = self.0.chat.attach(&caller.0, &thread_id.0, dialect.client).await?;
        self.attached(&caller, started, dialect, request_id, slot)
    }

    /// Attach to the turn of the thread that the query names
    ///
    /// Behaves like the route with the thread in the path. A name without a thread gets an empty response
    /// instead of 404, because a page attaches before its first message.
    #[oai(path = "/qa/chat_streamed", method = "get", operation_id = "attachById")]
    async fn attach_by_id(
        &self,
        caller: Caller,
        request_id: RequestId,
        slot: StreamSlot,
        /// The id of the thread, or the caller's own name for it.
        #[oai(name = "chatId")]
        chat_id: Query<String>,
        /// The dialect of the stream; `data-v1` if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: DialectHeader,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = named(protocol).unwrap_or(Dialect::DATA_V1);
        let started = self.attach_if_there(&caller, &chat_id.0, dialect).await?;
        self.attached(&caller, started, dialect, request_id, slot)
    }

    /// Attach to the message that the turn of a thread writes
    ///
    /// Serves `resumeStream` of AI SDK 5 and later, if the page's `api` contains the thread. The response
    /// streams the whole current message under its id, from the first part. The formats of these pages leave
    /// that message out while the turn is running. If no turn is running, the response is empty and no
    /// turn starts.
    #[oai(
        path = "/qa/chat_streamed/:thread_id/:chat_id/stream",
        method = "get",
        operation_id = "attachStream"
    )]
    async fn attach_stream(
        &self,
        caller: Caller,
        request_id: RequestId,
        slot: StreamSlot,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
        /// The page's id of the chat. Ignored, because the segment before it names the thread.
        #[oai(name = "chat_id")]
        _chat_id: Path<ThreadRef>,
        /// The dialect of the stream; `stream.default_ui_dialect` if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: DialectHeader,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = named(protocol).unwrap_or_else(|| self.ui());
        let started = self.0.chat.attach(&caller.0, &thread_id.0, dialect.client).await?;
        self.attached(&caller, started, dialect, request_id, slot)
    }

    /// Attach to the message that the turn of the chat's thread writes
    ///
    /// Behaves like the route with the thread before the chat. A name without a thread gets an empty response
    /// instead of 404, because a page attaches before its first message.
    #[oai(path = "/qa/chat_streamed/:chat_id/stream", method = "get", operation_id = "attachStreamById")]
    async fn attach_stream_by_id(
        &self,
        caller: Caller,
        request_id: RequestId,
        slot: StreamSlot,
        /// The id of the thread, or the caller's own name for it.
        chat_id: Path<ThreadRef>,
        /// The dialect of the stream; `stream.default_ui_dialect` if absent.
        #[oai(name = "x-stream-protocol")]
        protocol: DialectHeader,
    ) -> Result<AttachedStream, ApiError> {
        let dialect = named(protocol).unwrap_or_else(|| self.ui());
        let started = self.attach_if_there(&caller, &chat_id.0, dialect).await?;
        self.attached(&caller, started, dialect, request_id, slot)
    }
}

impl Qa {
    /// Admits the turn and returns its stream.
    async fn turn(
        &self,
        caller: Caller,
        request_id: RequestId,
        slot: StreamSlot,
        name: ThreadName,
        named: Option<&'static Dialect>,
        body: ChatBody,
    ) -> Result<ChatStream, ApiError> {
        let unsaid = if body.is_ui { self.ui() } else { Dialect::DATA_V1 };
        if named.is_none() && body.is_sdk_5 && self.0.streaming.default_ui_dialect != UiDialect::V5 {
            return Err(ApiError::bad_request(
                "x-stream-protocol: expected ui-v5 in a request of AI SDK 5. \
                 Send this header, or set stream.default_ui_dialect = \"ui-v5\" for all pages.",
            ));
        }
        let dialect = named.unwrap_or(unsaid);
        let is_guess = named.is_none() && body.is_ui && self.guesses();
        let ChatBody { ask, approved, .. } = body;
        // With a loaded message a page posts the stored decision as if it were an answer of its own.
        let own = ask.decisions.iter().filter(|answer| !ask.shown.on_time.contains(&answer.tool_call_id));
        let answers = own.map(|answer| (answer.tool_call_id, answer.approved)).collect();
        let cards = Arc::new(self.0.approvals.cards(&caller.0));
        let started = Box::pin(self.0.chat.admit(&caller.0, &name, ask, dialect.client)).await?;
        let listener =
            Listener { dialect, is_guess, request_id: request_id.0, slot, approved, answers, cards };
        self.0.streaming.answer(started, listener)
    }

    /// Returns the dialect of pages of the UI message stream that do not select a version.
    fn ui(&self) -> &'static Dialect {
        self.0.streaming.default_ui_dialect.dialect()
    }

    /// Whether the operator left the dialect of such pages at its default.
    fn guesses(&self) -> bool {
        self.0.streaming.default_ui_dialect == UiDialect::default()
    }

    /// Returns the turn to attach to, if there is one; `None` also if no thread has this name.
    async fn attach_if_there(
        &self,
        caller: &Caller,
        name: &str,
        dialect: &'static Dialect,
    ) -> Result<Option<StartedTurn>, ApiError> {
        match self.0.chat.attach(&caller.0, name, dialect.client).await {
            Err(AdmitError::Denied(Denied::NotFound)) => Ok(None),
            found => Ok(found?),
        }
    }

    /// Returns the stream of the attached turn, if there is one.
    fn attached(
        &self,
        caller: &Caller,
        started: Option<StartedTurn>,
        dialect: &'static Dialect,
        request_id: RequestId,
        slot: StreamSlot,
    ) -> Result<AttachedStream, ApiError> {
        let (approved, answers) = <(HashSet<_>, HashMap<_, _>)>::default();
        let cards = Arc::new(self.0.approvals.cards(&caller.0));
        // A page that attaches has posted before.
        let is_guess = false;
        let listener =
            Listener { dialect, is_guess, request_id: request_id.0, slot, approved, answers, cards };
        let stream = started.map(|started| self.0.streaming.answer(started, listener)).transpose()?;
        Ok(AttachedStream { dialect, stream })
    }
}

fn named(protocol: DialectHeader) -> Option<&'static Dialect> {
    protocol.0.map(|named| named.dialect)
}
