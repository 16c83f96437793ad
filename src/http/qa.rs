//! Asking a model.

use super::Api;
use super::auth::Caller;
use super::chat_body::{ChatBody, ChatByIdBody};
use super::error::ApiError;
use super::payload::Tag;
use super::rates::StreamSlot;
use super::request_id::RequestId;
use super::stream_answer::{AttachedStream, ChatStream};
use super::turn_stream::Listener;
use crate::chat::{AdmitError, Started, ThreadName};
use crate::config::UiDialect;
use crate::stream::Dialect;
use poem_openapi::param::{Header, Path, Query};
use poem_openapi::{Enum, OpenApi};
use std::collections::HashSet;

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
        place: StreamSlot,
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
        place: StreamSlot,
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
        place: StreamSlot,
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
        place: StreamSlot,
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
        place: StreamSlot,
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
        place: StreamSlot,
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
}

impl Qa {
    /// The turn that answers.
    async fn turn(
        &self,
        caller: Caller,
        request_id: RequestId,
        place: StreamSlot,
        name: ThreadName,
        protocol: Option<Protocol>,
        body: ChatBody,
    ) -> Result<ChatStream, ApiError> {
        let unsaid = if body.is_ui { self.ui() } else { Dialect::DataV1 };
        let dialect = protocol.map_or(unsaid, Dialect::from);
        let ChatBody { ask, approved, .. } = body;
        let started = self.0.chat.admit(&caller.0, &name, ask, dialect).await?;
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
            Err(AdmitError::NoThread) => Ok(None),
            found => Ok(found?),
        }
    }

    /// The turn that is read along, if there is one.
    fn attached(
        &self,
        started: Option<Started>,
        dialect: Dialect,
        request_id: RequestId,
        place: StreamSlot,
    ) -> AttachedStream {
        let listener = Listener { dialect, request_id: request_id.0, place, approved: HashSet::new() };
        let stream = started.map(|started| self.0.streaming.answer(started, listener));
        AttachedStream { dialect, stream }
    }
}
