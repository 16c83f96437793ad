//! `{base_url}/models/{name}:streamGenerateContent` of Google (Gemini API reference, "Generating content" and
//! "Thought signatures").

use super::Wire;
use super::answer::{Answer, Reading, error_in_stream, unreadable};
use super::conversation::{CALL, Call, Entry, Ids, Step, ToolResult, entries, offer, spoken};
use super::schema::{self, WireTool};
use crate::config::Provider;
use crate::domain::turn::FinishReason;
use crate::egress::Framing;
use crate::llm::{ModelError, ModelRequest, Speaker};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

const SIGNATURE: &str = "thoughtSignature";
/// The signature that Google defines for calls of another model ("Thought signatures", FAQ). Models from the
/// third generation on refuse a conversation in which the first call of a step has no signature.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Models that need no signatures.
const WITHOUT_SIGNATURES: [&str; 2] = ["gemini-1", "gemini-2"];

/// `{base_url}/models/{name}:streamGenerateContent` of Google.
pub(super) const WIRE: Wire = Wire {
    provider: Provider::GEMINI,
    path: "/models/{model}:streamGenerateContent?alt=sse",
    key_header: ("x-goog-api-key", ""),
    headers: &[],
    framing: Framing::Sse,
    tools: &schema::GEMINI,
    body,
    reading: || Box::<Reader>::default(),
};

/// The body of a request.
fn body(model: &str, request: &ModelRequest) -> Map<String, Value> {
    let mut body = Map::new();
    if let Some(system) = &request.system {
        body.insert("systemInstruction".to_owned(), json!({ "parts": [{ "text": system }] }));
    }
    let signs = !WITHOUT_SIGNATURES.iter().any(|name| model.starts_with(name));
    let entries = entries(&request.messages, Ids::Own);
    body.insert("contents".to_owned(), contents(&entries, signs));
    let offer = offer(request, &entries, &schema::GEMINI);
    if !offer.tools.is_empty() {
        let declarations = schema::GEMINI.tools(&offer.tools).map(|tool| {
            let WireTool { name, description, parameters } = tool;
            json!({ "name": name, "description": description, "parametersJsonSchema": parameters })
        });
        let declarations: Value = declarations.collect();
        body.insert("tools".to_owned(), json!([{ "functionDeclarations": declarations }]));
        if !offer.may_call {
            body.insert("toolConfig".to_owned(), json!({ "functionCallingConfig": { "mode": "NONE" } }));
        }
    }
    body
}

fn contents(entries: &[Entry<'_>], signs: bool) -> Value {
    let mut contents = Vec::new();
    for entry in entries {
        match entry {
            Entry::User(text) => {
                contents.push(json!({ "role": "user", "parts": [{ "text": spoken(text) }] }))
            }
            Entry::Step(step) => {
                contents.push(json!({ "role": "model", "parts": step_parts(step, signs) }));
                // One content holds the answers of all calls.
                let answer = |answer: &ToolResult<'_>| {
                    let ToolResult { id, name, text } = answer;
                    json!({ "functionResponse": { "id": id, "name": name, "response": { "result": text } } })
                };
                let answers: Vec<_> = step.answers.iter().map(answer).collect();
                if !answers.is_empty() {
                    contents.push(json!({ "role": "user", "parts": answers }));
                }
            }
        }
    }
    contents.into()
}

fn step_parts(step: &Step<'_>, signs: bool) -> Vec<Value> {
    let call = |call: &Call<'_>, part: Option<&Value>| {
        let Call { id, name, input } = call;
        let mut written = json!({ "functionCall": { "id": id, "name": name, "args": input } });
        if let (Some(signature), Some(fields)) =
            (part.and_then(|part| part.get(SIGNATURE)), written.as_object_mut())
        {
            fields.insert(SIGNATURE.to_owned(), signature.clone());
        }
        written
    };
    if let Some(parts) = step.placed(call) {
        return parts;
    }
    let mut parts = Vec::new();
    if !step.text.trim().is_empty() || step.calls.is_empty() {
        parts.push(json!({ "text": spoken(step.text) }));
    }
    let unsigned = json!({ SIGNATURE: NO_SIGNATURE });
    let foreign = signs && matches!(step.speaker, Speaker::Another);
    let first = |position: usize| (foreign && position == 0).then_some(&unsigned);
    parts.extend(step.calls.iter().enumerate().map(|(position, made)| call(made, first(position))));
    parts
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    candidates: Option<Vec<Candidate>>,
    usage_metadata: Option<Value>,
    prompt_feedback: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    index: Option<u64>,
    content: Option<Content>,
    finish_reason: Option<String>,
    grounding_metadata: Option<Value>,
}

#[derive(Deserialize)]
struct Content {
    parts: Option<Vec<Part>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    thought: Option<bool>,
    thought_signature: Option<String>,
    function_call: Option<FunctionCall>,
    inline_data: Option<InlineData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InlineData {
    mime_type: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct FunctionCall {
    id: Option<String>,
    name: Option<String>,
    args: Option<Box<RawValue>>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    /// The parts that go back, in their order. Text without a signature is joined. Thoughts without a
    /// signature are left out.
    parts: Vec<Value>,
    signed: bool,
    calls: bool,
}

impl Reading for Reader {
    fn read(&mut self, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        let chunk: Chunk = serde_json::from_str(data).map_err(unreadable)?;
        error_in_stream(chunk.error.as_ref())?;
        if let Some(usage) = chunk.usage_metadata {
            let tokens = |field: &str| usage.get(field).and_then(Value::as_u64);
            let written = ["candidatesTokenCount", "thoughtsTokenCount"].into_iter().filter_map(tokens);
            answer.usage(tokens("promptTokenCount"), written.reduce(u64::saturating_add));
        }
        if chunk.prompt_feedback.is_some_and(|feedback| feedback.get("blockReason").is_some()) {
            answer.ends(FinishReason::ContentFilter);
        }
        let mut candidates = chunk.candidates.into_iter().flatten();
        let Some(candidate) = candidates.find(|candidate| candidate.index.unwrap_or(0) == 0) else {
            return Ok(());
        };
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.part(part, answer)?;
        }
        let grounding = candidate.grounding_metadata.unwrap_or_default();
        let chunks = grounding.get("groundingChunks").and_then(Value::as_array);
        for page in chunks.into_iter().flatten().filter_map(|chunk| chunk.get("web")) {
            answer.source(page.get("uri"), page.get("title"));
        }
        match candidate.finish_reason.as_deref() {
            None | Some("" | "FINISH_REASON_UNSPECIFIED") => {}
            // Google has no finish reason for calls: an answer with calls ends with `STOP`.
            Some("STOP") if self.calls => answer.ends(FinishReason::ToolCalls),
            Some("STOP") => answer.ends(FinishReason::Stop),
            Some("MAX_TOKENS") => answer.ends(FinishReason::Length),
            Some("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII") => {
                answer.ends(FinishReason::ContentFilter);
            }
            Some(reason @ ("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL")) => {
                return Err(ModelError::Malformed(format!("it ended with {reason}")));
            }
            Some(_) => answer.ends(FinishReason::Other),
        }
        Ok(())
    }

    fn state(&mut self) -> Option<Value> {
        self.signed.then(|| std::mem::take(&mut self.parts).into())
    }
}

impl Reader {
    fn part(&mut self, part: Part, answer: &mut Answer) -> Result<(), ModelError> {
        let Part { text, thought, thought_signature: signature, function_call, inline_data } = part;
        let thought = thought.unwrap_or(false);
        if let Some(InlineData { mime_type, data }) = inline_data {
            // A file and its signature do not go back. A file in a thought is a draft.
            if !thought {
                answer.file(mime_type.unwrap_or_default(), &data.unwrap_or_default())?;
            }
            return Ok(());
        }
        let mut kept = Map::new();
        if let Some(call) = function_call {
            self.calls = true;
            let index = answer.whole_call(call.id, call.name.as_deref().unwrap_or_default(), call.args)?;
            kept.insert(CALL.to_owned(), index.into());
        } else {
            let text = text.unwrap_or_default();
            if signature.is_none() && (thought || text.is_empty()) {
                if thought {
                    answer.reasoning(text);
                }
                return Ok(());
            }
            let before = self.parts.last_mut().and_then(Value::as_object_mut);
            if let Some(before) = before.filter(|it| signature.is_none() && !it.contains_key(SIGNATURE))
                && let Some(Value::String(words)) = before.get_mut("text")
            {
                words.push_str(&text);
                answer.text(text);
                return Ok(());
            }
            kept.insert("text".to_owned(), text.as_str().into());
            if thought {
                kept.insert("thought".to_owned(), true.into());
                answer.reasoning(text);
            } else {
                answer.text(text);
            }
        }
        if let Some(signature) = signature {
            self.signed = true;
            kept.insert(SIGNATURE.to_owned(), signature.into());
        }
        self.parts.push(kept.into());
        Ok(())
    }
}
