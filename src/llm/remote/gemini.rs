//! `{base_url}/models/{name}:streamGenerateContent` of Google (Gemini API reference, "Generating content" and
//! "Thought signatures").

use super::answer::{Answer, Reading, error_in_stream, unreadable};
use super::text;
use crate::domain::turn::FinishReason;
use crate::llm::{ModelCall, ModelError, ModelMessage, ModelRequest};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// In a state, the place of a call among the parts: its number.
const CALL: &str = "call";
const SIGNATURE: &str = "thoughtSignature";

/// The body of a request.
pub(super) fn body(request: &ModelRequest) -> Map<String, Value> {
    let mut body = Map::new();
    if let Some(system) = &request.system {
        body.insert("systemInstruction".to_owned(), json!({ "parts": [{ "text": system }] }));
    }
    body.insert("contents".to_owned(), contents(&request.messages));
    if !request.tools.is_empty() {
        let declarations = request.tools.iter().map(|tool| {
            let (name, description, schema) = (&tool.name, &tool.description, &tool.input_schema);
            json!({ "name": name, "description": description, "parametersJsonSchema": schema })
        });
        let declarations: Value = declarations.collect();
        body.insert("tools".to_owned(), json!([{ "functionDeclarations": declarations }]));
    }
    body
}

fn contents(messages: &[ModelMessage]) -> Value {
    let mut written: Vec<Value> = Vec::new();
    // The answers of a step are one content, as many as its calls.
    let mut answers: Vec<Value> = Vec::new();
    for message in messages {
        if let ModelMessage::Tool { call_id, tool_name, text } = message {
            let response = json!({ "result": text });
            answers.push(json!({
                "functionResponse": { "id": call_id, "name": text::name(tool_name), "response": response }
            }));
            continue;
        }
        if !answers.is_empty() {
            written.push(json!({ "role": "user", "parts": std::mem::take(&mut answers) }));
        }
        match message {
            ModelMessage::User(text) => {
                written.push(json!({ "role": "user", "parts": [{ "text": text::spoken(text) }] }));
            }
            ModelMessage::Assistant { text, calls, provider_state } => {
                let parts = said(text, calls, provider_state.as_ref());
                written.push(json!({ "role": "model", "parts": parts }));
            }
            ModelMessage::Tool { .. } => {}
        }
    }
    if !answers.is_empty() {
        written.push(json!({ "role": "user", "parts": answers }));
    }
    written.into()
}

fn said(text: &str, calls: &[ModelCall], state: Option<&Value>) -> Vec<Value> {
    let call = |call: &ModelCall| json!({ "functionCall": { "id": call.id, "name": text::name(&call.tool_name), "args": call.input } });
    if let Some(parts) = state.and_then(Value::as_array) {
        let part = |part: &Value| {
            let Some(index) = part.get(CALL).and_then(Value::as_u64) else { return Some(part.clone()) };
            let mut written = call(usize::try_from(index).ok().and_then(|index| calls.get(index))?);
            if let (Some(signature), Some(fields)) = (part.get(SIGNATURE), written.as_object_mut()) {
                fields.insert(SIGNATURE.to_owned(), signature.clone());
            }
            Some(written)
        };
        return parts.iter().filter_map(part).collect();
    }
    let mut parts = Vec::new();
    if !text.trim().is_empty() || calls.is_empty() {
        parts.push(json!({ "text": text::spoken(text) }));
    }
    parts.extend(calls.iter().map(call));
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
}

#[derive(Deserialize)]
struct FunctionCall {
    id: Option<String>,
    name: Option<String>,
    args: Option<Value>,
}

/// Reads an answer.
#[derive(Default)]
pub(super) struct Reader {
    /// What goes back: its parts in their order. Words without a signature are put together, thoughts without one
    /// are left out.
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
        match candidate.finish_reason.as_deref() {
            None | Some("" | "FINISH_REASON_UNSPECIFIED") => {}
            // A call that it could not write is told as no call.
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
        let Part { text, thought, thought_signature: signature, function_call } = part;
        let thought = thought.unwrap_or(false);
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
