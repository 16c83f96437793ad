//! The body of a chat: documented as one shape, read forgivingly.

use super::body;
use super::error::ApiError;
use super::partial_json::{self, Found};
use super::posted::{Bounds, CLIENT_ID_MAX, Fields, MESSAGES_MAX, Message, Name, Posted, Role, Words};
use super::ui_body;
use crate::chat::{Action, PostedMessage, TurnRequest};
use crate::domain::id::ToolCallId;
use crate::domain::run::RunOptions;
use poem::{Request, RequestBody, Result};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiExtractor, ApiExtractorType, Enum, ExtractParamOptions, Object};
use std::collections::HashSet;

/// What to ask. All of it is optional, other fields are ignored: pages post their whole state; of a field that is
/// there twice the last counts, but a body that says yes to a call is refused then. Nothing at all means to go on.
#[derive(Debug, Object)]
struct ChatRequest {
    /// The words of a new user message, at most 256 KiB unless `limits.message_bytes` says otherwise; absent, null or
    /// empty means to go on.
    content: Option<String>,
    /// The model to ask, one of `GET /qa/models`; absent means the default.
    model: Option<String>,
    /// The tools the model may see, of `GET /tools`; absent means all.
    tool_selection: Option<Vec<String>>,
    /// The conversation as the page holds it, where `content` is absent: at most 50000 messages. Of it are read the
    /// words of its user messages, the names of messages, and answers to held calls in parts.
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
    pub(super) ask: TurnRequest,
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
        let Some(bytes) = body::bytes(request, body).await? else {
            return Ok(Self::of_data_stream(None, TurnRequest::continuation_of_any()));
        };
        let bounds = request.extensions().get::<Bounds>().copied().ok_or_else(ApiError::internal)?;
        let (posted, repeated) = partial_json::read(body::utf8(&bytes)?, &bounds)
            .map_err(|error| ApiError::bad_request(format!("body: expected JSON: {error}")))?;
        drop(bytes);
        let chat = Self::read(posted)?;
        if let Some(said) = chat.ask.user_text()
            && said.len() > bounds.message_bytes
        {
            return Err(ApiError::message_too_long(bounds.message_bytes).into());
        }
        match repeated {
            // What can be read as a yes and as something else is no yes.
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
    fn read(posted: Found<Posted>) -> Result<Self, ApiError> {
        let mut fields = match posted {
            Found::Is(Posted::Text(words)) => {
                let wants = words_or_continue(content(words, "content")?, None);
                let ask =
                    TurnRequest { action: wants, options: RunOptions::default(), decisions: Vec::new() };
                return Ok(Self::of_data_stream(None, ask));
            }
            Found::Is(Posted::Fields(fields)) => *fields,
            Found::Null => return Ok(Self::of_data_stream(None, TurnRequest::continuation_of_any())),
            Found::Absent | Found::Other => {
                return Err(ApiError::bad_request("body: expected a JSON object or a string"));
            }
        };
        if fields.messages.as_is().is_some_and(|messages| messages.too_many) {
            return Err(ApiError::bad_request(format!("messages: expected at most {MESSAGES_MAX}")));
        }
        // Where the path names the thread, it is not read.
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
        if ui_body::is_ui(&fields) {
            let (answers, approved) = (ui_body::answers(&mut fields), ui_body::approved(&mut fields));
            let ask = TurnRequest { action: ui_body::wants(fields)?, options, decisions: answers };
            return Ok(Self { id, is_ui: true, ask, approved });
        }
        let ask = TurnRequest { action: wants(fields)?, options, decisions: Vec::new() };
        Ok(Self::of_data_stream(id, ask))
    }

    fn of_data_stream(id: Option<String>, ask: TurnRequest) -> Self {
        Self { id, is_ui: false, ask, approved: HashSet::new() }
    }
}

/// What a page of AI SDK 4 wants.
fn wants(fields: Fields) -> Result<Action, ApiError> {
    if let Some(words) = fields.content.given(|| ApiError::bad_request("content: expected a string"))? {
        return Ok(words_or_continue(content(words, "content")?, None));
    }
    let message = match fields.message {
        Found::Absent | Found::Null => None,
        Found::Other => Some(Message::default()),
        Found::Is(message) => Some(message),
    };
    if let Some(message) = message {
        let posted = posted(message, || "message".to_owned())?;
        return Ok(match posted.user_text {
            Some(text) => words_or_continue(text, posted.id),
            None => Action::Continue { message: posted.id },
        });
    }
    let messages = fields.messages.given(|| ApiError::bad_request("messages: expected a list"))?;
    let Some(messages) = messages else { return Ok(Action::Continue { message: None }) };
    let messages = messages.list.into_iter().enumerate();
    let messages = messages.map(|(place, message)| posted(message, || format!("messages[{place}]")));
    Ok(Action::History { messages: messages.collect::<Result<_, _>>()? })
}

fn words_or_continue(text: String, client_id: Option<String>) -> Action {
    match text.is_empty() {
        true => Action::Continue { message: None },
        false => Action::New { text, client_id },
    }
}

/// A user's words.
pub(super) fn content(words: Words, field: &str) -> Result<String, ApiError> {
    match words.nul_at {
        Some(_) => Err(ApiError::bad_request(format!("{field}: the character U+0000 is not allowed"))),
        None => Ok(words.text),
    }
}

/// A name that a page gave something, if it is one.
pub(super) fn given_name(name: Found<Name>) -> Option<String> {
    name.is().map(|name| name.0)
}

/// What is read of a posted message: a user's words and its name. The words are its `content` if that is a text, else
/// those of its text parts.
fn posted(mut message: Message, field: impl Fn() -> String) -> Result<PostedMessage, ApiError> {
    let user_text = match (message.is_of(Role::User), std::mem::take(&mut message.content)) {
        (false, _) => None,
        (true, Found::Is(words)) => Some(content(words, &format!("{}.content", field()))?),
        (true, _) => Some(ui_body::words(&mut message, &field())?),
    };
    Ok(PostedMessage { user_text, id: given_name(message.id) })
}
