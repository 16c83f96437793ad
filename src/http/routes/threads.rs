//! The routes of threads and their messages.

use crate::chat::DEFAULT_TITLE;
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Owner, User},
};
use crate::http::auth::Caller;
use crate::http::body::dialect_name::{DialectName, Format};
use crate::http::body::formats::{Id, Position, Time};
use crate::http::body::page::{Paged, RequestedSize, page_size};
use crate::http::body::page_message::PageMessage;
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::body::thread_ref::ThreadRef;
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::call::CallView;
use crate::tools::gate::Gate;
use holdpoint_core::id::ThreadId;
use holdpoint_core::message::{Body, File, Message, MessageStatus, Part, Role, Source, Usage};
use holdpoint_store::{NewThread, Read, Thread, ThreadActivity};
use poem_openapi::param::{Path, Query};
use poem_openapi::types::Example;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi, Union};
use serde::Deserialize;
use std::borrow::Cow;

/// Maximum length of a title, in characters.
const TITLE_MAX: usize = 200;

/// A conversation of one user.
#[derive(Debug, Object)]
#[oai(rename = "ChatThread", skip_serializing_if_is_none)]
struct ThreadView {
    /// The id of the thread. The server assigns it.
    thread_id: Id,
    /// The id of the root thread of the session.
    session_id: Id,
    /// The thread that this thread was created below. Absent for a root thread.
    parent_id: Option<Id>,
    /// The caller's own name for the thread.
    client_id: Option<String>,
    /// The title for lists of threads, as set last.
    title: String,
    /// When the thread was created.
    created_at: Time,
    /// When the thread last got a message or another title.
    updated_at: Time,
    /// The running run, otherwise the newest run that waits for a decision.
    active_run_id: Option<Id>,
    /// Number of pending calls.
    pending_count: u64,
    /// How full the model's context is. Only in the answer about one thread, once a server has counted tokens.
    context_tokens: Option<u64>,
    /// The most tokens of a request to the model, if known.
    context_limit: Option<u64>,
}

/// A new thread.
#[derive(Debug, Default, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct CreateThread {
    /// The title: 1 to 200 characters, at least one of them visible.
    #[oai(validator(min_length = 1, max_length = 200, pattern = "[^\\u0000-\\u0020\\u007f-\\u00a0]"))]
    title: Option<String>,
    /// The id of the parent thread, or the caller's own name for it.
    parent_id: Option<ThreadRef>,
}

impl Example for CreateThread {
    fn example() -> Self {
        Self { title: Some("Spring cleaning".to_owned()), parent_id: None }
    }
}

/// A change of a thread.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct UpdateThread {
    /// The title: 1 to 200 characters, at least one of them visible.
    #[oai(validator(min_length = 1, max_length = 200, pattern = "[^\\u0000-\\u0020\\u007f-\\u00a0]"))]
    title: String,
}

impl Example for UpdateThread {
    fn example() -> Self {
        Self { title: "Summer cleaning".to_owned() }
    }
}

#[derive(ApiResponse)]
enum Created {
    /// The thread was created.
    #[oai(status = 201)]
    Created(Json<ThreadView>),
}

#[derive(ApiResponse)]
enum Deleted {
    /// The thread is deleted. Every route answers 404 for it, and its pending calls are cancelled.
    #[oai(status = 204)]
    Deleted,
}

/// A message in the requested format.
#[derive(Debug, Union)]
#[oai(rename = "ListedMessage")]
enum AnyMessage {
    Message(MessageView),
    Page(PageMessage),
}

/// A message of a thread: of the user, or the answer of the model with its tool calls.
#[derive(Debug, Object)]
#[oai(rename = "Message", skip_serializing_if_is_none)]
pub(in crate::http) struct MessageView {
    /// The id of the message. The server assigns it.
    message_id: Id,
    /// The page's id for the message.
    client_id: Option<String>,
    /// The thread that contains the message.
    thread_id: Id,
    /// The run that the user message began, or that writes the response.
    run_id: Id,
    role: Word<Role>,
    status: Word<MessageStatus>,
    /// The text of the user, or the steps of the response with their calls, in order.
    parts: Vec<PartView>,
    usage: Option<UsageView>,
    /// When the message was stored first. A response grows after that.
    created_at: Time,
}

/// The number of tokens that the model's server counted for all steps of the response.
#[derive(Debug, Object)]
#[oai(rename = "Usage")]
struct UsageView {
    /// Tokens of what the model read.
    input_tokens: u64,
    /// Tokens of what the model wrote.
    output_tokens: u64,
}

/// The kind of a part: `step_start` begins a model call, `text` and `reasoning` have a `text`, `tool_call` has a
/// `tool_call`, `source` is a web page with a `url` and maybe a `title`, `file` is a generated file with a `url` and a
/// `media_type`.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case")]
enum PartType {
    StepStart,
    Text,
    Reasoning,
    ToolCall,
    Source,
    File,
}

/// A part of a message. Its `type` says which other fields it has. It is one schema and no union, because the unions of
/// generated clients cannot tell parts apart that have the same fields.
#[derive(Debug, Object)]
#[oai(rename = "MessagePart", skip_serializing_if_is_none)]
struct PartView {
    /// The text as written, or the reasoning of the model. It may be Markdown.
    text: Option<String>,
    tool_call: Option<CallView>,
    /// An `http` or `https` URL of a source, or a `data:` URL with the whole content of a file.
    url: Option<String>,
    /// The title of a source, if the model's server gives one.
    title: Option<String>,
    /// The media type of a file, for example `image/png`.
    media_type: Option<String>,
    r#type: PartType,
}

impl PartView {
    fn new(r#type: PartType) -> Self {
        Self { r#type, text: None, tool_call: None, url: None, title: None, media_type: None }
    }

    fn text(r#type: PartType, text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..Self::new(r#type) }
    }
}

impl MessageView {
    pub(in crate::http) fn of(message: &Message, thread: &Thread, gate: &Gate) -> Self {
        let parts = match &message.body {
            Body::User(text) => vec![PartView::text(PartType::Text, text)],
            Body::Assistant(_) => parts(message, thread, gate),
        };
        let usage = message.steps().iter().filter_map(|step| step.usage).reduce(Usage::plus);
        Self {
            message_id: Id::of(message.id),
            client_id: message.client_id.clone(),
            thread_id: Id::of(message.thread_id),
            run_id: Id::of(message.run_id),
            role: message.body.role().into(),
            status: message.status.into(),
            parts,
            usage: usage.map(|usage| UsageView {
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
            }),
            created_at: message.created_at.into(),
        }
    }
}

fn parts(message: &Message, thread: &Thread, gate: &Gate) -> Vec<PartView> {
    let mut parts = Vec::new();
    for step in message.steps() {
        parts.push(PartView::new(PartType::StepStart));
        parts.extend(step.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(PartView::text(PartType::Text, text)),
            Part::Reasoning { text } => Some(PartView::text(PartType::Reasoning, text)),
            Part::ToolCall { tool_call_id } => {
                let call = step.calls.iter().find(|call| call.id == *tool_call_id)?;
                let tool_call = Some(CallView::of(call, thread, gate));
                Some(PartView { tool_call, ..PartView::new(PartType::ToolCall) })
            }
            Part::Source(Source { url, title }) => {
                let url = Some(url.clone());
                Some(PartView { url, title: title.clone(), ..PartView::new(PartType::Source) })
            }
            Part::File(File { url, media_type }) => {
                let (url, media_type) = (Some(url.clone()), Some(media_type.clone()));
                Some(PartView { url, media_type, ..PartView::new(PartType::File) })
            }
        }));
    }
    parts
}

impl ThreadView {
    fn of(thread: &Thread, activity: ThreadActivity) -> Self {
        Self {
            thread_id: Id::of(thread.id),
            session_id: Id::of(thread.session_id),
            parent_id: thread.parent_id.map(Id::of),
            client_id: thread.client_id.clone(),
            title: thread.title.clone(),
            created_at: thread.created_at.into(),
            updated_at: thread.updated_at.into(),
            active_run_id: activity.active_run.map(Id::of),
            pending_count: activity.pending_count,
            context_tokens: None,
            context_limit: None,
        }
    }

    /// Reads the activity of one thread.
    async fn read(read: &Read, thread: &Thread) -> Result<Self, ApiError> {
        let activity = read.activity(std::slice::from_ref(thread)).await?;
        Ok(Self::of(thread, activity.get(&thread.id).copied().unwrap_or_default()))
    }
}

fn title(text: String) -> Result<String, ApiError> {
    let is_visible = |c| !matches!(c, '\0'..=' ' | '\u{7f}'..='\u{a0}');
    if !text.contains(is_visible) || text.chars().count() > TITLE_MAX {
        let expected = format!("title: expected 1 to {TITLE_MAX} characters, at least one of them visible");
        return Err(ApiError::bad_request(expected));
    }
    Ok(text)
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("createThread", &[User]),
    ("listThreads", &[User]),
    ("getThread", &[Owner]),
    ("updateThread", &[Owner]),
    ("deleteThread", &[Owner]),
    ("listMessages", &[Owner]),
];

pub(in crate::http) struct Threads(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Threads")]
impl Threads {
    /// Create a thread
    ///
    /// Every field of the body is optional, and so is the body.
    #[oai(path = "/threads", method = "post", operation_id = "createThread")]
    async fn create(&self, caller: Caller, body: Strict<Option<CreateThread>>) -> Result<Created, ApiError> {
        let body = body.0.unwrap_or_default();
        let title = body.title.map_or_else(|| Ok(DEFAULT_TITLE.to_owned()), title)?;
        let missing = || ApiError::bad_request("parent_id: expected the id of one of your threads");
        let write = self.0.store.write().await?;
        let parent = match body.parent_id {
            None => None,
            Some(name) => Some(write.thread_named(&caller.0, &name).await?.ok_or_else(missing)?),
        };
        let made = write.create_thread(&caller.0, NewThread { title, client_id: None, parent }).await?;
        let made = ThreadView::read(&write, &made).await?;
        write.commit().await?;
        Ok(Created::Created(Json(made)))
    }

    /// List the caller's threads, newest first
    ///
    /// Returns the threads of the caller, those of sub-agents included, without the deleted ones.
    #[oai(path = "/threads", method = "get", operation_id = "listThreads")]
    async fn list(
        &self,
        caller: Caller,
        /// Only the thread with this name, which the caller gave it.
        client_id: Query<Option<String>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<ThreadView>, ApiError> {
        let size = self::page_size(page_size.0)?;
        let before = cursor.0.map(|cursor| cursor.parse::<ThreadId>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        let name = client_id.0.as_deref();
        if name.is_some_and(|name| name.contains('\0')) {
            return Err(ApiError::bad_request("client_id: the character U+0000 is not allowed"));
        }
        let results = Paged::new(self.0.rates.in_flight.page(&caller.0).await?);
        let read = self.0.store.read().await?;
        let page = read.threads(&caller.0, name, before, size).await?;
        let activity = read.activity(&page.items).await?;
        Ok(results.of_rows(&page, |thread| {
            let activity = activity.get(&thread.id).copied().unwrap_or_default();
            (thread.id.to_string(), ThreadView::of(thread, activity))
        }))
    }

    /// Get a thread
    ///
    /// Returns the thread with its activity. Only the thread's user may see it.
    #[oai(path = "/threads/:thread_id", method = "get", operation_id = "getThread")]
    async fn get(
        &self,
        caller: Caller,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
    ) -> Result<Json<ThreadView>, ApiError> {
        let read = self.0.store.read().await?;
        let thread = read.thread_named(&caller.0, &thread_id).await?.ok_or_else(ApiError::not_found)?;
        let usage = read.newest_usage(thread.id).await?;
        let context_tokens = usage.map(|usage| usage.input_tokens.saturating_add(usage.output_tokens));
        let context_limit = self.0.chat.context_limit();
        Ok(Json(ThreadView { context_tokens, context_limit, ..ThreadView::read(&read, &thread).await? }))
    }

    /// Change the title of a thread
    ///
    /// Nothing else of a thread can be changed.
    #[oai(path = "/threads/:thread_id", method = "patch", operation_id = "updateThread")]
    async fn update(
        &self,
        caller: Caller,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
        body: Strict<UpdateThread>,
    ) -> Result<Json<ThreadView>, ApiError> {
        let title = &title(body.0.title)?;
        let rename = async |id| {
            let write = self.0.store.write().await?;
            let renamed = write.rename_thread(&caller.0, id, title).await?;
            let renamed = ThreadView::read(&write, &renamed.ok_or_else(ApiError::not_found)?).await?;
            write.commit().await?;
            Ok(Json(renamed))
        };
        self.0.with_thread(&caller, &thread_id, rename).await
    }

    /// Delete a thread
    ///
    /// Every route answers 404 for the thread, and its pending calls are cancelled. A running tool is asked
    /// to stop, and its call is settled.
    #[oai(path = "/threads/:thread_id", method = "delete", operation_id = "deleteThread")]
    async fn delete(
        &self,
        caller: Caller,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
    ) -> Result<Deleted, ApiError> {
        let delete = async |id| {
            let write = self.0.store.write().await?;
            let deleted = write.delete_thread(&caller.0, id).await?;
            let calls = deleted.ok_or_else(ApiError::not_found)?;
            write.commit().await?;
            self.0.approvals.renew_cancelled(calls);
            Ok(Deleted::Deleted)
        };
        self.0.with_thread(&caller, &thread_id, delete).await
    }

    /// List the messages of a thread: the newest page first, each page oldest first
    ///
    /// Each item is a `Message`. With the query parameter `format`, which pages of the AI SDK send, each item is a
    /// message as that version of the AI SDK holds it.
    #[oai(path = "/threads/:thread_id/messages", method = "get", operation_id = "listMessages")]
    async fn messages(
        &self,
        caller: Caller,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
        /// The format; if absent, messages with their parts and calls.
        format: Query<Option<DialectName<Format>>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Position>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<AnyMessage>, ApiError> {
        let size = self::page_size(page_size.0)?;
        let before = cursor.0.map(|cursor| cursor.parse::<i64>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        let mut results = Paged::new(self.0.rates.in_flight.page(&caller.0).await?);
        let read = self.0.store.read().await?;
        let thread = read.thread_named(&caller.0, &thread_id).await?.ok_or_else(ApiError::not_found)?;
        let page = read.messages_page(&thread, before, self.0.page(size)).await?;
        let dialect = format.0.map(|named| named.dialect);
        let (cards, gate) = (self.0.approvals.cards(&caller.0), self.0.approvals.gate());
        // Newest first: messages that do not fit go to the next page.
        for message in page.items.iter().rev() {
            let began = match (dialect, message.status) {
                // Other clients get the whole message in the stream.
                (Some(dialect), MessageStatus::Streaming) if !dialect.client.needs_earlier_steps => {
                    read.turn_began(&thread, message.run_id).await?
                }
                _ => None,
            };
            let shown = |output_bytes: Option<usize>| {
                let message = match output_bytes {
                    Some(bytes) => Cow::Owned(message.clone().with_outcomes_cut(bytes)),
                    None => Cow::Borrowed(message),
                };
                match dialect {
                    Some(dialect) => dialect
                        .reload(&message, began, &cards)
                        .map(|message| AnyMessage::Page(PageMessage(message))),
                    None => Some(AnyMessage::Message(MessageView::of(&message, &thread, &gate))),
                }
            };
            if !results.push_outputs(message.ordinal.to_string(), shown) {
                break;
            }
        }
        Ok(results.finish(page.has_more).reversed())
    }
}
