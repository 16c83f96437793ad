//! Asking a model, and answering for a person.

use super::Api;
use super::auth::Caller;
use super::body::{self, JsonObject, Strict};
use super::error::ApiError;
use super::payload::{DataStream, Json, Tag};
use super::request_id::RequestId;
use crate::approvals::{Decided, DecisionRequest};
use crate::chat::{Ask, PostedMessage, Started, ThreadName};
use crate::domain::call::{State, ToolCall, words};
use crate::domain::decision::{Answer, Surface};
use crate::domain::run::RunOptions;
use crate::domain::turn::TurnEvent;
use crate::stream::data_v1;
use bytes::BytesMut;
use futures::stream;
use poem::{Body, Request, RequestBody, Result};
use poem_openapi::param::{Header, Path};
use poem_openapi::registry::{MetaMediaType, MetaRequest, Registry};
use poem_openapi::types::{Any, Type};
use poem_openapi::{ApiExtractor, ApiExtractorType, ApiResponse, Enum, ExtractParamOptions, Object, OpenApi};
use serde::Deserialize;
use serde_json::Value;

/// Longest name a caller may give a thread or a message, in characters.
const CLIENT_ID_MAX: usize = 64;
/// Longest reason of a rejection, in characters.
const REASON_MAX: usize = 2000;

/// What to ask. All of it is optional, other fields are ignored: pages post their whole state. Nothing at all
/// means to go on.
#[derive(Debug, Object)]
struct ChatRequest {
    /// The words of a new user message; absent, null or empty means to go on.
    content: Option<String>,
    /// The model to ask.
    model: Option<String>,
    /// The tools the model may see; absent means all.
    tool_selection: Option<Vec<String>>,
    /// The thread, where the path names none.
    id: Option<String>,
    /// The conversation as the page holds it. Only the words of its user messages are read.
    messages: Option<Vec<Any<Value>>>,
    /// The last message of the conversation alone.
    message: Option<Any<Value>>,
}

/// A chat's body: documented as [`ChatRequest`], read forgivingly.
struct ChatBody {
    id: Option<String>,
    ask: Ask,
}

impl<'a> ApiExtractor<'a> for ChatBody {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        ChatRequest::register(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        let schema = ChatRequest::schema_ref();
        let content = vec![MetaMediaType { content_type: body::CONTENT_TYPE, schema }];
        Some(MetaRequest { description: None, content, required: false })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        let Some(text) = body::text(request, body).await? else {
            return Ok(Self { id: None, ask: Ask::Continue });
        };
        let value = serde_json::from_str(&text)
            .map_err(|error| ApiError::bad_request(format!("body: expected JSON: {error}")))?;
        Ok(Self::read(value)?)
    }
}

impl ChatBody {
    fn read(value: Value) -> Result<Self, ApiError> {
        let fields = match value {
            Value::String(content) => {
                let ask = words_or_continue(Some(content), None, RunOptions::default())?;
                return Ok(Self { id: None, ask });
            }
            Value::Null => return Ok(Self { id: None, ask: Ask::Continue }),
            Value::Object(fields) => fields,
            _ => return Err(ApiError::bad_request("body: expected a JSON object or a string")),
        };
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(ApiError::bad_request(format!("{name}: expected a string"))),
        };
        // Where the path names the thread, nobody reads it.
        let id = fields.get("id").and_then(Value::as_str).map(str::to_owned);
        let tools = match fields.get("tool_selection") {
            None | Some(Value::Null) => None,
            Some(list) => Some(
                serde_json::from_value(list.clone())
                    .map_err(|_| ApiError::bad_request("tool_selection: expected a list of tool names"))?,
            ),
        };
        let options = RunOptions { model: text("model")?, tools };
        let ask = if fields.contains_key("trigger") {
            return Err(ui_message_stream());
        } else if let Some(content) = text("content")? {
            words_or_continue(Some(content), None, options)?
        } else if let Some(message) = fields.get("message").filter(|message| !message.is_null()) {
            let posted = posted(message, "message")?;
            match posted.user_text {
                Some(text) => words_or_continue(Some(text), posted.id, options)?,
                None => Ask::Continue,
            }
        } else if let Some(messages) = fields.get("messages").filter(|messages| !messages.is_null()) {
            let messages = messages
                .as_array()
                .ok_or_else(|| ApiError::bad_request("messages: expected a list"))?
                .iter()
                .enumerate()
                .map(|(place, message)| posted(message, &format!("messages[{place}]")));
            Ask::History { messages: messages.collect::<Result<_, _>>()?, options }
        } else {
            Ask::Continue
        };
        Ok(Self { id, ask })
    }
}

fn words_or_continue(
    text: Option<String>,
    client_id: Option<String>,
    options: RunOptions,
) -> Result<Ask, ApiError> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(Ask::Continue),
        Some(text) => Ok(Ask::New { text: without_nul(text, "content")?, client_id, options }),
    }
}

fn without_nul(text: String, field: &str) -> Result<String, ApiError> {
    if text.contains('\0') {
        return Err(ApiError::bad_request(format!("{field}: the character U+0000 is not allowed")));
    }
    Ok(text)
}

/// What is read of a posted message: a user's words and its name.
fn posted(message: &Value, field: &str) -> Result<PostedMessage, ApiError> {
    let is_user = message.get("role").and_then(Value::as_str) == Some("user");
    let user_text = match (is_user, message.get("content")) {
        (false, _) => None,
        (true, Some(Value::String(text))) => Some(without_nul(text.clone(), &format!("{field}.content"))?),
        (true, None) if message.get("parts").is_some() => return Err(ui_message_stream()),
        (true, _) => return Err(ApiError::bad_request(format!("{field}.content: expected a string"))),
    };
    let id = message.get("id").and_then(Value::as_str);
    let id = id.filter(|id| (1..=CLIENT_ID_MAX).contains(&id.chars().count()) && !id.contains('\0'));
    Ok(PostedMessage { user_text, id: id.map(str::to_owned) })
}

fn ui_message_stream() -> ApiError {
    ApiError::bad_request(
        "body: this is what AI SDK 5 and later post; this server speaks the data stream of AI SDK 4 (data-v1)",
    )
}

/// The dialects of a stream.
#[derive(Debug, Enum)]
enum Dialect {
    /// The data stream of AI SDK 4.
    #[oai(rename = "data-v1")]
    DataV1,
}

#[derive(ApiResponse)]
enum ChatStream {
    /// The turn, as it is said. Failures after this are in the stream.
    #[oai(status = 200)]
    Stream(
        DataStream,
        #[oai(header = "x-vercel-ai-data-stream")] String,
        /// The run that answers.
        #[oai(header = "x-run-id")]
        String,
    ),
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
        /// A thread's id, or the caller's own name for it.
        thread_id: Path<String>,
        /// The dialect to answer in.
        #[oai(name = "x-stream-protocol")]
        _dialect: Header<Option<Dialect>>,
        body: ChatBody,
    ) -> Result<ChatStream, ApiError> {
        let started = self.0.chat.ask(&caller.0, &ThreadName::Known(thread_id.0), body.ask).await?;
        Ok(stream_of(started, request_id))
    }

    /// One turn of the thread that the body names, streamed
    ///
    /// `id` is a thread's id or the caller's own name for one, which the first message makes.
    #[oai(path = "/qa/chat_streamed", method = "post", operation_id = "chatById")]
    async fn chat_by_id(
        &self,
        caller: Caller,
        request_id: RequestId,
        /// The dialect to answer in.
        #[oai(name = "x-stream-protocol")]
        _dialect: Header<Option<Dialect>>,
        body: ChatBody,
    ) -> Result<ChatStream, ApiError> {
        let id = body.id.filter(|id| (1..=CLIENT_ID_MAX).contains(&id.chars().count()) && !id.contains('\0'));
        let id = id.ok_or_else(|| {
            ApiError::bad_request(format!("id: expected the thread's name, 1 to {CLIENT_ID_MAX} characters"))
        })?;
        let started = self.0.chat.ask(&caller.0, &ThreadName::OrNew(id), body.ask).await?;
        Ok(stream_of(started, request_id))
    }

    /// Decide a held call
    ///
    /// Approved, the tool runs now, once, and the answer is its outcome. The same decision again gives the
    /// stored outcome; another one is refused.
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
        // What is no id names no call.
        let tool_call_id = body.tool_call_id.parse().map_err(|_| ApiError::not_found())?;
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

/// The stream of a turn. Dropping it ends the reading, not the turn.
fn stream_of(started: Started, request_id: RequestId) -> ChatStream {
    let run_id = started.run_id.to_string();
    let reader = started.log.reader();
    let pieces = stream::unfold((reader, request_id), |(mut reader, request_id)| async move {
        let mut out = BytesMut::new();
        let more = reader.next(|event: &TurnEvent| data_v1::encode(event, &request_id.0, &mut out)).await;
        more.then(|| (Ok::<_, std::io::Error>(out.freeze()), (reader, request_id)))
    });
    ChatStream::Stream(DataStream(Body::from_bytes_stream(pieces)), "v1".to_owned(), run_id)
}
