//! The body of a chat: documented as one shape, read forgivingly.

use super::body;
use super::error::ApiError;
use super::ui_body;
use crate::chat::{Ask, PostedMessage, Wants};
use crate::domain::id::ToolCallId;
use crate::domain::run::RunOptions;
use crate::domain::strict_json;
use poem::{Request, RequestBody, Result};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiExtractor, ApiExtractorType, Enum, ExtractParamOptions, Object};
use serde_json::Value;
use std::collections::HashSet;

/// Longest name a caller may give a thread or a message, in characters.
const CLIENT_ID_MAX: usize = 64;

/// What to ask. All of it is optional, other fields are ignored: pages post their whole state; of a field that is
/// there twice the last counts, but a body that says yes to a call is refused then. Nothing at all means to go on.
#[derive(Debug, Object)]
struct ChatRequest {
    /// The words of a new user message; absent, null or empty means to go on.
    content: Option<String>,
    /// The model to ask, one of `GET /qa/models`; absent means the default.
    model: Option<String>,
    /// The tools the model may see, of `GET /tools`; absent means all.
    tool_selection: Option<Vec<String>>,
    /// The conversation as the page holds it, where `content` is absent. Of it are read the words of its user messages,
    /// the names of messages, and answers to held calls in parts.
    messages: Option<Vec<PostedView>>,
    /// The last message of the conversation alone, where `content` is absent.
    message: Option<PostedView>,
    /// What a page of AI SDK 5 to 7 posts for; absent or null means `submit-message`.
    trigger: Option<Trigger>,
    /// Whom such a page names, by our id or its own: with `submit-message` the user message that it edits, or the
    /// assistant's that it goes on with; with `regenerate-message` the answer that it wants anew. What nobody knows is
    /// taken for a message that never arrived.
    #[oai(rename = "messageId")]
    message_id: Option<String>,
}

/// The same, of a thread that the body names.
#[derive(Debug, Object)]
struct ChatByIdRequest {
    /// A thread's id, or the caller's own name for one: 1 to 64 characters.
    #[oai(validator(min_length = 1, max_length = 64))]
    id: String,
    #[oai(flatten)]
    request: ChatRequest,
}

/// What a page posts for.
#[derive(Debug, Enum)]
#[oai(rename_all = "kebab-case")]
enum Trigger {
    /// A new or edited message, or going on.
    SubmitMessage,
    /// Another answer to a user message.
    RegenerateMessage,
}

/// A message as a page holds it. Pages of AI SDK 4 hold its words in `content`, later ones in `parts`.
#[derive(Debug, Object)]
#[oai(rename = "PostedMessage")]
struct PostedView {
    /// The page's name for it: 1 to 64 characters; another one is none.
    id: Option<String>,
    /// user, assistant or another one.
    role: String,
    /// Its words.
    content: Option<String>,
    /// What it is made of, where it has no `content`. The new message of a user needs a text with words.
    parts: Option<Vec<PostedPart>>,
}

/// A part of a message. Of a user's, texts are read, several as lines of one; of an assistant's, answers to held calls.
#[derive(Debug, Object)]
struct PostedPart {
    /// `text`; or, where a held call is answered, `dynamic-tool` or `tool-` with the tool's name behind it.
    r#type: String,
    /// The words of a text.
    text: Option<String>,
    /// `approval-responded`, where a held call is answered.
    state: Option<String>,
    /// The answer to a held call.
    approval: Option<PostedApproval>,
}

/// An answer to a held call. Only what is wholly of this shape is one, and of one call not both yes and no.
#[derive(Debug, Object)]
struct PostedApproval {
    /// The call's id.
    id: String,
    /// Whether it may run, as it is stored.
    approved: bool,
    /// Why not: what is longer than 2000 characters is cut.
    reason: Option<String>,
}

/// A chat's body: documented as [`ChatRequest`], read forgivingly.
pub(super) struct ChatBody {
    /// The thread that it names.
    id: Option<String>,
    /// Whether it is one that pages of the UI message stream post.
    pub(super) is_ui: bool,
    pub(super) ask: Ask,
    /// The calls that the page shows somebody's yes to.
    pub(super) approved: HashSet<ToolCallId>,
}

/// The body of a chat that names its thread.
pub(super) struct ChatByIdBody {
    pub(super) id: String,
    pub(super) chat: ChatBody,
}

fn documented_as<T: Type>(required: bool) -> Option<MetaRequest> {
    let content = vec![MetaMediaType { content_type: body::CONTENT_TYPE, schema: T::schema_ref() }];
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
        let Some(text) = body::text(request, body).await? else {
            return Ok(Self::of_data_stream(None, Ask::go_on()));
        };
        let value = serde_json::from_str(&text)
            .map_err(|error| ApiError::bad_request(format!("body: expected JSON: {error}")))?;
        let chat = Self::read(value)?;
        if chat.ask.answers.iter().any(|answer| answer.approved) {
            // What can be read as a yes and as something else is no yes.
            strict_json::parse_passing_nul(&text)
                .map_err(|error| ApiError::bad_request(format!("body: {error}")))?;
        }
        Ok(chat)
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
    fn read(value: Value) -> Result<Self, ApiError> {
        let fields = match value {
            Value::String(content) => {
                let wants = words_or_continue(Some(content), None)?;
                let ask = Ask { wants, options: RunOptions::default(), answers: Vec::new() };
                return Ok(Self::of_data_stream(None, ask));
            }
            Value::Null => return Ok(Self::of_data_stream(None, Ask::go_on())),
            Value::Object(fields) => fields,
            _ => return Err(ApiError::bad_request("body: expected a JSON object or a string")),
        };
        let text = |field: &str| match fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(ApiError::bad_request(format!("{field}: expected a string"))),
        };
        // Where the path names the thread, nobody reads it.
        let id = name(fields.get("id"));
        let tools = match fields.get("tool_selection") {
            None | Some(Value::Null) => None,
            Some(list) => Some(
                serde_json::from_value(list.clone())
                    .map_err(|_| ApiError::bad_request("tool_selection: expected a list of tool names"))?,
            ),
        };
        let options = RunOptions { model: text("model")?, tools, ..RunOptions::default() };
        if ui_body::is_ui(&fields) {
            let ask = Ask { wants: ui_body::wants(&fields)?, options, answers: ui_body::answers(&fields) };
            let approved = ui_body::approved(&fields);
            return Ok(Self { id, is_ui: true, ask, approved });
        }
        let wants = if let Some(content) = text("content")? {
            words_or_continue(Some(content), None)?
        } else if let Some(message) = fields.get("message").filter(|message| !message.is_null()) {
            let posted = posted(message, "message")?;
            match posted.user_text {
                Some(text) => words_or_continue(Some(text), posted.id)?,
                None => Wants::Continue { message: posted.id },
            }
        } else if let Some(messages) = fields.get("messages").filter(|messages| !messages.is_null()) {
            let messages = messages
                .as_array()
                .ok_or_else(|| ApiError::bad_request("messages: expected a list"))?
                .iter()
                .enumerate()
                .map(|(place, message)| posted(message, &format!("messages[{place}]")));
            Wants::History { messages: messages.collect::<Result<_, _>>()? }
        } else {
            Wants::Continue { message: None }
        };
        let ask = Ask { wants, options, answers: Vec::new() };
        Ok(Self::of_data_stream(id, ask))
    }

    fn of_data_stream(id: Option<String>, ask: Ask) -> Self {
        Self { id, is_ui: false, ask, approved: HashSet::new() }
    }
}

fn words_or_continue(text: Option<String>, client_id: Option<String>) -> Result<Wants, ApiError> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(Wants::Continue { message: None }),
        Some(text) => Ok(Wants::New { text: content(&text, "content")?, client_id }),
    }
}

/// A user's words.
pub(super) fn content(text: &str, field: &str) -> Result<String, ApiError> {
    if text.contains('\0') {
        return Err(ApiError::bad_request(format!("{field}: the character U+0000 is not allowed")));
    }
    Ok(text.to_owned())
}

/// A name that a page gave something, if it can be one.
pub(super) fn name(value: Option<&Value>) -> Option<String> {
    let name = value.and_then(Value::as_str);
    name.filter(|name| (1..=CLIENT_ID_MAX).contains(&name.chars().count()) && !name.contains('\0'))
        .map(str::to_owned)
}

/// The words of a user message: its `content` if that is a text, else those of its text parts.
fn words(message: &Value, field: &str) -> Result<String, ApiError> {
    match message.get("content") {
        Some(Value::String(text)) => content(text, &format!("{field}.content")),
        _ => ui_body::words(message, field),
    }
}

/// What is read of a posted message: a user's words and its name.
fn posted(message: &Value, field: &str) -> Result<PostedMessage, ApiError> {
    let is_user = ui_body::is_of(message, "user");
    let user_text = if is_user { Some(words(message, field)?) } else { None };
    Ok(PostedMessage { user_text, id: name(message.get("id")) })
}
