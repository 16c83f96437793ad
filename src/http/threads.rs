//! The routes of threads and their messages.

use super::Api;
use super::auth::Caller;
use super::body::Strict;
use super::call::CallView;
use super::dialect_name::{Format, Named};
use super::error::ApiError;
use super::formats::{Id, Position, Time};
use super::page::{Paged, RequestedSize, page_size};
use super::payload::{Json, Tag};
use crate::approvals::Approvals;
use crate::chat::DEFAULT_TITLE;
use crate::domain::id::ThreadId;
use crate::domain::message::{self, Body, File, Message, Part, Source, Usage};
use crate::store::{NewThread, Read, Thread, ThreadActivity};
use poem_openapi::param::{Path, Query};
use poem_openapi::types::{Any, Example};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi, Union};
use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a title, in characters.
const TITLE_MAX: usize = 200;

/// A conversation.
#[derive(Debug, Object)]
#[oai(rename = "Thread", skip_serializing_if_is_none)]
struct ThreadView {
    thread_id: Id,
    /// The id of the root thread of the session.
    session_id: Id,
    parent_id: Option<Id>,
    /// The caller's own name for the thread.
    client_id: Option<String>,
    title: String,
    created_at: Time,
    updated_at: Time,
    /// The running run, otherwise the newest run that waits for a decision.
    active_run_id: Option<Id>,
    /// Number of pending calls.
    pending_count: u64,
}

/// A new thread.
#[derive(Debug, Default, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct CreateThread {
    /// The title: 1 to 200 characters, at least one of them visible.
    #[oai(validator(min_length = 1, max_length = 200, pattern = "[^\\u0000-\\u0020\\u007f-\\u00a0]"))]
    title: Option<String>,
    /// The id of the parent thread.
    parent_id: Option<Id>,
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
enum AnyMessage {
    Message(MessageView),
    Held(Any<Value>),
}

/// The author of a message.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename = "MessageRole", rename_all = "snake_case")]
enum Role {
    User,
    Assistant,
}

/// The status of a message.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename_all = "snake_case", remote = "message::MessageStatus")]
enum MessageStatus {
    Complete,
    Streaming,
    Interrupted,
    Superseded,
}

/// A message.
#[derive(Debug, Object)]
#[oai(rename = "Message", skip_serializing_if_is_none)]
struct MessageView {
    message_id: Id,
    /// The page's id for the message.
    client_id: Option<String>,
    thread_id: Id,
    run_id: Id,
    role: Role,
    status: MessageStatus,
    parts: Vec<PartView>,
    usage: Option<UsageView>,
    created_at: Time,
}

/// The number of tokens.
#[derive(Debug, Object)]
#[oai(rename = "Usage")]
struct UsageView {
    input_tokens: u64,
    output_tokens: u64,
}

/// A part of a message.
#[derive(Debug, Union)]
#[expect(clippy::large_enum_variant, reason = "the derive accepts no Box, and a part lives for one response")]
#[oai(rename = "Part", discriminator_name = "type")]
enum PartView {
    #[oai(mapping = "step_start")]
    StepStart(StepStartPart),
    #[oai(mapping = "text")]
    Text(TextPart),
    #[oai(mapping = "reasoning")]
    Reasoning(ReasoningPart),
    #[oai(mapping = "tool_call")]
    ToolCall(ToolCallPart),
    #[oai(mapping = "source")]
    Source(SourcePart),
    #[oai(mapping = "file")]
    File(FilePart),
}

/// The begin of a model call.
#[derive(Debug, Object)]
struct StepStartPart {}

/// A text.
#[derive(Debug, Object)]
struct TextPart {
    text: String,
}

/// The model's reasoning.
#[derive(Debug, Object)]
struct ReasoningPart {
    text: String,
}

/// A tool call.
#[derive(Debug, Object)]
struct ToolCallPart {
    tool_call: CallView,
}

/// A web page that is a source of the text.
#[derive(Debug, Object)]
#[oai(skip_serializing_if_is_none)]
struct SourcePart {
    /// An `http` or `https` URL.
    url: String,
    title: Option<String>,
}

/// A file that the model generated.
#[derive(Debug, Object)]
struct FilePart {
    /// A `data:` URL with the whole content.
    url: String,
    media_type: String,
}

impl MessageView {
    fn of(message: &Message, thread: &Thread, approvals: &Approvals) -> Self {
        let (role, parts) = match &message.body {
            Body::User(text) => (Role::User, vec![PartView::Text(TextPart { text: text.clone() })]),
            Body::Assistant(_) => (Role::Assistant, parts(message, thread, approvals)),
        };
        let usage = message.steps().iter().filter_map(|step| step.usage).reduce(Usage::plus);
        Self {
            message_id: Id::of(message.id),
            client_id: message.client_id.clone(),
            thread_id: Id::of(message.thread_id),
            run_id: Id::of(message.run_id),
            role,
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

fn parts(message: &Message, thread: &Thread, approvals: &Approvals) -> Vec<PartView> {
    let mut parts = Vec::new();
    for step in message.steps() {
        parts.push(PartView::StepStart(StepStartPart {}));
        parts.extend(step.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(PartView::Text(TextPart { text: text.clone() })),
            Part::Reasoning { text } => Some(PartView::Reasoning(ReasoningPart { text: text.clone() })),
            Part::ToolCall { tool_call_id } => {
                let call = step.calls.iter().find(|call| call.id == *tool_call_id)?;
                let tool_call = CallView::of(call, thread, approvals);
                Some(PartView::ToolCall(ToolCallPart { tool_call }))
            }
            Part::Source(Source { url, title }) => {
                Some(PartView::Source(SourcePart { url: url.clone(), title: title.clone() }))
            }
            Part::File(File { url, media_type }) => {
                Some(PartView::File(FilePart { url: url.clone(), media_type: media_type.clone() }))
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

pub(super) struct Threads(pub(super) Api);

#[OpenApi(tag = "Tag::Threads")]
impl Threads {
    /// Create a thread
    #[oai(path = "/threads", method = "post", operation_id = "createThread")]
    async fn create(&self, caller: Caller, body: Strict<Option<CreateThread>>) -> Result<Created, ApiError> {
        let body = body.0.unwrap_or_default();
        let title = body.title.map_or_else(|| Ok(DEFAULT_TITLE.to_owned()), title)?;
        let missing = || ApiError::bad_request("parent_id: expected the id of one of your threads");
        let parent = body.parent_id.map(|id| id.parse().map_err(|_| missing())).transpose()?;
        let write = self.0.store.write().await?;
        let parent = match parent {
            None => None,
            Some(id) => Some(write.thread(&caller.0, id).await?.ok_or_else(missing)?),
        };
        let made = write.create_thread(&caller.0, NewThread { title, client_id: None, parent }).await?;
        let made = ThreadView::read(&write, &made).await?;
        write.commit().await?;
        Ok(Created::Created(Json(made)))
    }

    /// List the caller's threads, newest first
    #[oai(path = "/threads", method = "get", operation_id = "listThreads")]
    async fn list(
        &self,
        caller: Caller,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<ThreadView>, ApiError> {
        let size = self::page_size(page_size.0)?;
        let before = cursor.0.map(|cursor| cursor.parse::<ThreadId>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        let read = self.0.store.read().await?;
        let page = read.threads(&caller.0, before, size).await?;
        let activity = read.activity(&page.items).await?;
        let mut results = Paged::new(self.0.page_bytes);
        for thread in &page.items {
            let activity = activity.get(&thread.id).copied().unwrap_or_default();
            if !results.push(thread.id.to_string(), [ThreadView::of(thread, activity)]) {
                break;
            }
        }
        Ok(results.finish(page.has_more))
    }

    /// Get a thread
    #[oai(path = "/threads/:thread_id", method = "get", operation_id = "getThread")]
    async fn get(&self, caller: Caller, thread_id: Path<Id>) -> Result<Json<ThreadView>, ApiError> {
        let id = id(&thread_id)?;
        let read = self.0.store.read().await?;
        let thread = read.thread(&caller.0, id).await?.ok_or_else(ApiError::not_found)?;
        Ok(Json(ThreadView::read(&read, &thread).await?))
    }

    /// Change the title of a thread
    #[oai(path = "/threads/:thread_id", method = "patch", operation_id = "updateThread")]
    async fn update(
        &self,
        caller: Caller,
        thread_id: Path<Id>,
        body: Strict<UpdateThread>,
    ) -> Result<Json<ThreadView>, ApiError> {
        let title = title(body.0.title)?;
        let id = id(&thread_id)?;
        let write = self.0.store.write().await?;
        let renamed = write.rename_thread(&caller.0, id, &title).await?;
        let renamed = ThreadView::read(&write, &renamed.ok_or_else(ApiError::not_found)?).await?;
        write.commit().await?;
        Ok(Json(renamed))
    }

    /// Delete a thread
    ///
    /// Every route answers 404 for the thread, and its pending calls are cancelled. A running tool is asked
    /// to stop, and its call is settled.
    #[oai(path = "/threads/:thread_id", method = "delete", operation_id = "deleteThread")]
    async fn delete(&self, caller: Caller, thread_id: Path<Id>) -> Result<Deleted, ApiError> {
        let id = id(&thread_id)?;
        let write = self.0.store.write().await?;
        let deleted = write.delete_thread(&caller.0, id).await?;
        let calls = deleted.ok_or_else(ApiError::not_found)?;
        write.commit().await?;
        self.0.approvals.ask_to_stop(calls);
        Ok(Deleted::Deleted)
    }

    /// List the messages of a thread: the newest page first, each page oldest first
    #[oai(path = "/threads/:thread_id/messages", method = "get", operation_id = "listMessages")]
    async fn messages(
        &self,
        caller: Caller,
        thread_id: Path<Id>,
        /// The format; if absent, messages with their parts and calls.
        format: Query<Option<Named<Format>>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Position>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<AnyMessage>, ApiError> {
        let size = self::page_size(page_size.0)?;
        let before = cursor.0.map(|cursor| cursor.parse::<i64>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        let id = id(&thread_id)?;
        let read = self.0.store.read().await?;
        let thread = read.thread(&caller.0, id).await?.ok_or_else(ApiError::not_found)?;
        let page = read.messages_page(&thread, before, self.0.page(size)).await?;
        let dialect = format.0.map(|named| named.dialect);
        let cards = self.0.approvals.cards(&caller.0);
        let mut results = Paged::new(self.0.page_bytes);
        // Newest first: messages that do not fit go to the next page.
        for message in page.items.iter().rev() {
            let shown = match dialect {
                Some(dialect) => {
                    let began = match message.status {
                        // Other clients get the whole message in the stream.
                        message::MessageStatus::Streaming if !dialect.client.needs_earlier_steps => {
                            read.turn_began(&thread, message.run_id).await?
                        }
                        _ => None,
                    };
                    dialect.reload(message, began, &cards).map(|held| AnyMessage::Held(Any(held)))
                }
                None => Some(AnyMessage::Message(MessageView::of(message, &thread, &self.0.approvals))),
            };
            if !results.push(message.ordinal.to_string(), shown) {
                break;
            }
        }
        Ok(results.finish(page.has_more).reversed())
    }
}

/// Parses the id of a thread in a path. An invalid id is reported as an unknown thread.
fn id(text: &Path<Id>) -> Result<ThreadId, ApiError> {
    text.0.parse().map_err(|_| ApiError::not_found())
}
