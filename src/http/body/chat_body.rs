//! Chat bodies: documented with one shape, parsed leniently.

use crate::chat::{Action, PostedMessage, ShownCalls, TurnRequest};
use crate::http::body::nullable::WordOrNull;
use crate::http::body::partial_json::{self, FieldValue};
use crate::http::body::posted::{
    Bounds, CLIENT_ID_MAX, Fields, MESSAGES_MAX, Message, Messages, Posted, Role, content, given_name,
};
use crate::http::body::shown_messages;
use crate::http::body::strict;
use crate::http::body::ui_body::{self, Requested};
use crate::http::failure::error::ApiError;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::run::RunOptions;
use poem::http::header::USER_AGENT;
use poem::{Request, RequestBody, Result};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::types::{Example, Type};
use poem_openapi::{ApiExtractor, ApiExtractorType, Enum, ExtractParamOptions, Object};
use std::collections::HashSet;

/// The request of a turn. All fields are optional, and unknown fields are ignored, because pages post their
/// whole state. The last value of a repeated field counts, but a body with a repeated field that approves a
/// call is refused. An empty request continues the run.
#[derive(Debug, Default, Object)]
#[oai(skip_serializing_if_is_none, example)]
struct ChatRequest {
    /// The text of a new user message, at most 256 KiB unless `limits.message_bytes` sets another limit.
    /// Absent, null or empty: continue the run.
    content: Option<String>,
    /// The model, one of `GET /qa/models`; the default model if absent.
    model: Option<String>,
    /// The names of the tools that the model may see, of `GET /tools`; all if absent.
    tool_selection: Option<Vec<String>>,
    /// The conversation as the page holds it, if `content` is absent: at most 50000 messages. The server
    /// reads the text of user messages, the ids of messages, decisions about held calls in the parts, and which
    /// calls the page shows without an end.
    messages: Option<Vec<PostedView>>,
    /// Only the last message of the conversation, if `content` is absent.
    message: Option<PostedView>,
    /// The purpose of the request, as pages of AI SDK 5 to 7 send it; absent or null means `submit-message`.
    trigger: Option<WordOrNull<Trigger>>,
    /// The message that the request is about, by its `message_id` or by the page's id for it. With
    /// `submit-message`: the user message that is edited, or the assistant message that is continued. With
    /// `regenerate-message`: the response to replace. An unknown id counts as a message that never arrived.
    #[oai(rename = "messageId")]
    message_id: Option<String>,
}

impl Example for ChatRequest {
    fn example() -> Self {
        Self { content: Some("delete notes.txt".to_owned()), ..Self::default() }
    }
}

/// The request of a turn, with the thread in the body.
#[derive(Debug, Object)]
#[oai(example)]
struct ChatByIdRequest {
    /// The id of a thread, or the caller's own name for one: 1 to 64 characters.
    #[oai(validator(min_length = 1, max_length = 64))]
    id: String,
    #[oai(flatten)]
    request: ChatRequest,
}

impl Example for ChatByIdRequest {
    fn example() -> Self {
        Self { id: "page-1".to_owned(), request: ChatRequest::example() }
    }
}

/// The purpose of a request.
#[derive(Debug, Enum)]
#[oai(rename_all = "kebab-case")]
enum Trigger {
    /// A new or edited message, or a continuation.
    SubmitMessage,
    /// Another response to a user message.
    RegenerateMessage,
}

/// A message as a page holds it. Pages of AI SDK 4 keep the text in `content`, later pages in `parts`.
#[derive(Debug, Object)]
#[oai(rename = "PostedMessage")]
struct PostedView {
    /// The page's id for the message: 1 to 64 characters. The server ignores any other id.
    id: Option<String>,
    /// user, assistant or another role.
    role: String,
    /// The text of the message.
    content: Option<String>,
    /// The parts of the message, if it has no `content`. A new user message needs a text part that is not
    /// empty, and has no other parts: models are given text only, so a file or data of the page gets 422
    /// `unsupported_part`.
    parts: Option<Vec<PostedPart>>,
}

/// A part of a message. The server reads text parts of user messages, joined by line breaks, and decisions
/// about held calls in assistant messages.
#[derive(Debug, Object)]
struct PostedPart {
    /// `text`; for a decision about a held call, `dynamic-tool`, or `tool-` followed by the name of the tool.
    r#type: String,
    /// The text of a text part.
    text: Option<String>,
    /// `approval-responded` for a decision about a held call.
    state: Option<String>,
    /// The decision about a held call.
    approval: Option<PostedApproval>,
}

/// A decision about a held call. The server ignores a value that does not have exactly this shape, and
/// contradicting decisions about one call.
#[derive(Debug, Object)]
struct PostedApproval {
    /// The held call: the `toolCallId` of its part.
    id: String,
    /// True approves the call with its stored inputs; false rejects it.
    approved: bool,
    /// The reason for a rejection. The server cuts it to 2000 characters.
    reason: Option<String>,
}

/// A chat body: documented as [`ChatRequest`], parsed leniently.
pub(in crate::http) struct ChatBody {
    /// The thread that the body names.
    id: Option<String>,
    /// Whether a page of the UI message stream posted the body.
    pub(in crate::http) is_ui: bool,
    /// Whether that page says that it is one of AI SDK 5.
    pub(in crate::http) is_sdk_5: bool,
    pub(in crate::http) ask: TurnRequest,
    /// The calls that the page shows as approved.
    pub(in crate::http) approved: HashSet<ToolCallId>,
}

/// A chat body that names its thread.
pub(in crate::http) struct ChatByIdBody {
    pub(in crate::http) id: String,
    pub(in crate::http) chat: ChatBody,
}

fn documented_as<T: Type>(required: bool) -> Option<MetaRequest> {
    let content = vec![MetaMediaType { content_type: strict::CONTENT_TYPE, schema: T::schema_ref() }];
    Some(MetaRequest { description: None, content, required })
}

impl<'a> ApiExtractor<'a> for ChatBody {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        ChatRequest::register(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        documented_as::<ChatRequest>(false)
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        let Some(bytes) = strict::bytes(request, body).await? else {
            return Ok(Self::of_data_stream(None, TurnRequest::continuation()));
        };
        let bounds = request.extensions().get::<Bounds>().copied().ok_or_else(ApiError::internal)?;
        let (posted, repeated) = partial_json::read(&strict::words(&bytes)?, &bounds)
            .map_err(|error| ApiError::bad_request(format!("body: expected JSON: {error}")))?;
        drop(bytes);
        let mut chat = Self::read(posted, &bounds)?;
        chat.is_sdk_5 = chat.is_ui && names_sdk_5(request);
        if let Some(posted_text) = chat.ask.user_text()
            && posted_text.len() > bounds.message_bytes
        {
            return Err(ApiError::message_too_long(bounds.message_bytes).into());
        }
        match repeated {
            // A body with two readings, one of which approves a call, must not approve the call.
            Some(why) if chat.ask.decisions.iter().any(|answer| answer.approved) => {
                Err(ApiError::bad_request(format!("body: {why}")).into())
            }
            Some(_) | None => Ok(chat),
        }
    }
}

impl<'a> ApiExtractor<'a> for ChatByIdBody {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        ChatByIdRequest::register(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        documented_as::<ChatByIdRequest>(true)
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        let mut chat = ChatBody::from_request(request, body, options).await?;
        let id = chat.id.take().ok_or_else(|| {
            ApiError::bad_request(format!("id: expected the thread's name, 1 to {CLIENT_ID_MAX} characters"))
        })?;
        Ok(Self { id, chat })
    }
}

impl ChatBody {
    fn read(posted: FieldValue<Posted>, bounds: &Bounds) -> Result<Self, ApiError> {
        let mut fields = match posted {
            FieldValue::Is(Posted::Text(words)) => {
                let action = words_or_continue(content(&words, "content")?, None);
                let ask = TurnRequest { action, ..TurnRequest::continuation() };
                return Ok(Self::of_data_stream(None, ask));
            }
            FieldValue::Is(Posted::Fields(fields)) => *fields,
            FieldValue::Null => return Ok(Self::of_data_stream(None, TurnRequest::continuation())),
            FieldValue::Absent | FieldValue::Other => {
                return Err(ApiError::bad_request("body: expected a JSON object or a string"));
            }
        };
        if fields.messages.as_is().is_some_and(|messages| messages.too_many) {
            return Err(ApiError::bad_request(format!("messages: expected at most {MESSAGES_MAX}")));
        }
        // `ChatBody` ignores the id, because the path names the thread.
        let id = given_name(std::mem::take(&mut fields.id));
        let tools = std::mem::take(&mut fields.tool_selection);
        let tools = tools.given(|| ApiError::bad_request("tool_selection: expected a list of tool names"))?;
        let model = std::mem::take(&mut fields.model);
        let model = model.given(|| ApiError::bad_request("model: expected a string"))?;
        let options = RunOptions {
            model: model.map(|label| label.0),
            tools: tools.map(|labels| labels.0),
            ..RunOptions::default()
        };
        let shown: ShownCalls = ui_body::shown_calls(&mut fields);
        if ui_body::is_ui(&fields) {
            let (answers, approved) = (ui_body::answers(&mut fields), ui_body::approved(&mut fields));
            let Requested { action, earlier } = ui_body::requested(fields, bounds)?;
            let ask = TurnRequest { action, options, decisions: answers, shown, key: None, earlier };
            return Ok(Self { id, is_ui: true, is_sdk_5: false, ask, approved });
        }
        let (decisions, Requested { action, earlier }) = (Vec::new(), requested(fields, bounds)?);
        let ask = TurnRequest { action, options, decisions, shown, key: None, earlier };
        Ok(Self::of_data_stream(id, ask))
    }

    /// Adds the key of the request.
    pub(in crate::http) fn with_key(mut self, key: Option<String>) -> Self {
        self.ask.key = key;
        self
    }

    fn of_data_stream(id: Option<String>, ask: TurnRequest) -> Self {
        Self { id, is_ui: false, is_sdk_5: false, ask, approved: HashSet::new() }
    }
}

/// Whether the user agent names AI SDK 5. Some of its releases do, in browsers that let a page set the header.
/// Nothing else distinguishes its requests from those of 6 and 7.
fn names_sdk_5(request: &Request) -> bool {
    let agent = request.header(USER_AGENT).unwrap_or_default();
    agent.split(' ').any(|product| product.starts_with("ai-sdk/5."))
}

/// Returns what a page of AI SDK 4 requests.
fn requested(fields: Fields, bounds: &Bounds) -> Result<Requested, ApiError> {
    if let Some(words) = fields.content.given(|| ApiError::bad_request("content: expected a string"))? {
        return Ok(words_or_continue(content(&words, "content")?, None).into());
    }
    let message = match fields.message {
        FieldValue::Absent | FieldValue::Null => None,
        FieldValue::Other => Some(Message::default()),
        FieldValue::Is(message) => Some(message),
    };
    if let Some(message) = message {
        ui_body::check_parts(&message, "message")?;
        let posted = posted(message, "message")?;
        let action = match posted.user_text {
            Some(text) => words_or_continue(text, posted.id),
            None => Action::Continue { message: posted.id },
        };
        return Ok(action.into());
    }
    let messages = fields.messages.given(|| ApiError::bad_request("messages: expected a list"))?;
    let Some(Messages { mut list, .. }) = messages else {
        return Ok(Action::Continue { message: None }.into());
    };
    // Only the last message is new. An earlier one is stored, or was refused.
    let Some(last) = list.pop() else { return Ok(Action::History { messages: Vec::new() }.into()) };
    let field = format!("messages[{}]", list.len());
    ui_body::check_parts(&last, &field)?;
    let last = posted(last, &field)?;
    let earlier = shown_messages::earlier(&list, checked_words, bounds.message_bytes);
    let messages = list.into_iter().map(shown).chain([last]).collect();
    Ok(Requested { action: Action::History { messages }, earlier })
}

fn words_or_continue(text: String, client_id: Option<String>) -> Action {
    match text.is_empty() {
        true => Action::Continue { message: None },
        false => Action::New { text, client_id },
    }
}

/// Returns the parts of a posted message that the server reads: the text of a user message, and the name.
fn posted(message: Message, field: &str) -> Result<PostedMessage, ApiError> {
    let user_text = match message.is_of(Role::User) {
        true => Some(words(&message, field)?),
        false => None,
    };
    Ok(PostedMessage { user_text, id: given_name(message.id) })
}

/// Returns a message before the last one, like [`posted`]. One that the server does not take was never stored, and has
/// no text.
fn shown(message: Message) -> PostedMessage {
    let is_user = message.is_of(Role::User);
    let user_text = is_user.then(|| checked_words(&message, "").ok()).flatten();
    PostedMessage { user_text, id: given_name(message.id) }
}

fn checked_words(message: &Message, field: &str) -> Result<String, ApiError> {
    ui_body::check_parts(message, field)?;
    words(message, field)
}

/// Returns the text of a user message: `content` if that is a string, otherwise the text parts.
fn words(message: &Message, field: &str) -> Result<String, ApiError> {
    match &message.content {
        FieldValue::Is(words) => content(words, &format!("{field}.content")),
        _ => ui_body::words(message, field),
    }
}
