//! `{base_url}/models/{name}:streamGenerateContent` of Google (Gemini API reference, "Generating content" and
//! "Thought signatures").

use super::Wire;
use super::answer::{Answer, AnswerReader, Field, TextSoFar, error_in_stream, unreadable};
use super::conversation::{CALL, Call, Entry, Ids, Step, ToolResult, entries, offer, spoken};
use super::lenient::{self, Index, List, Text};
use super::schema::{SchemaRules, WireTool};
use super::written::WrittenTools;
use crate::provider::Provider;
use crate::{ModelError, ModelRequest, Speaker};
use holdpoint_core::turn::FinishReason;
use holdpoint_egress::Framing;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

const SIGNATURE: &str = "thoughtSignature";
/// The signature that Google defines for calls of another model ("Thought signatures", FAQ). Models from the
/// third generation on refuse a conversation in which the first call of a step has no signature.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Models that need no signatures.
const WITHOUT_SIGNATURES: [&str; 2] = ["gemini-1", "gemini-2"];

/// The keywords that the reference of `responseJsonSchema` lists, values of `enum` that are strings ("cannot be empty") or
/// numbers, `required` without names of which "property is not defined", the rules of `FunctionDeclaration` for names ("Must
/// start with a letter or an underscore"), and "At most 512 function declarations". A recursive reference is accepted in some
/// places only, so there are none. Two limits have no published number: "exceeds the maximum allowed nesting depth" was the
/// answer to a sixth schema within five others, and the bounds of lists are summed up ("Request contains an invalid argument"),
/// so they are in words.
pub(super) const TOOLS: SchemaRules = SchemaRules {
    keywords: Some(&[
        "type",
        "format",
        "title",
        "description",
        "enum",
        "items",
        "prefixItems",
        "minimum",
        "maximum",
        "anyOf",
        "oneOf",
        "properties",
        "additionalProperties",
        "required",
        "default",
    ]),
    references: false,
    depth_max: Some(5),
    listed: |value| value.is_number() || value.as_str().is_some_and(|text| !text.is_empty()),
    named_required: true,
    property: |name| {
        (1..=64).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    },
    name: |name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'),
    tools_max: Some(512),
};

/// `{base_url}/models/{name}:streamGenerateContent`.
pub(super) const WIRE: Wire = Wire {
    provider: Provider {
        name: "gemini",
        default_base_url: Some("https://generativelanguage.googleapis.com/v1beta"),
    },
    path: "/models/{model}:streamGenerateContent?alt=sse",
    key_header: ("x-goog-api-key", ""),
    headers: &[],
    framing: Framing::Sse,
    tools: &TOOLS,
    write_tool,
    body,
    reading: || Box::<Reader>::default(),
    #[cfg(test)]
    sample: tests::SAMPLE,
};

impl Provider {
    /// Google.
    pub const GEMINI: Self = WIRE.provider;
}

fn body(model: &str, request: &ModelRequest, tools: &WrittenTools) -> Map<String, Value> {
    let mut body = Map::new();
    if let Some(system) = &request.system {
        body.insert("systemInstruction".to_owned(), json!({ "parts": [{ "text": system }] }));
    }
    let signs = !WITHOUT_SIGNATURES.iter().any(|name| model.starts_with(name));
    let entries = entries(&request.messages, Ids::Own);
    body.insert("contents".to_owned(), contents(&entries, signs));
    let offer = offer(request, &entries, &TOOLS);
    if !offer.tools.is_empty() {
        let declarations = tools.list(&offer.tools);
        body.insert("tools".to_owned(), json!([{ "functionDeclarations": declarations }]));
        if !offer.may_call {
            body.insert("toolConfig".to_owned(), json!({ "functionCallingConfig": { "mode": "NONE" } }));
        }
    }
    body
}

fn write_tool(WireTool { name, description, parameters }: WireTool<'_>) -> Value {
    json!({ "name": name, "description": description, "parametersJsonSchema": parameters })
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
    #[serde(default)]
    candidates: List<Candidate>,
    usage_metadata: Option<Value>,
    prompt_feedback: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    #[serde(default)]
    index: Index,
    content: Option<Content>,
    #[serde(default)]
    finish_reason: Text,
    grounding_metadata: Option<Value>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: List<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[serde(default)]
    text: Text,
    thought: Option<Value>,
    #[serde(default)]
    thought_signature: Text,
    function_call: Option<FunctionCall>,
    inline_data: Option<InlineData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InlineData {
    #[serde(default)]
    mime_type: Text,
    #[serde(default)]
    data: Text,
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    id: Text,
    #[serde(default)]
    name: Text,
    args: Option<Box<RawValue>>,
}

/// Reads an answer.
#[derive(Default)]
struct Reader {
    /// The parts that go back, in their order. Text without a signature is joined. Thoughts without a
    /// signature are left out.
    parts: Vec<Value>,
    signed: bool,
    text: TextSoFar,
    thoughts: TextSoFar,
    /// The id, the name and the arguments of each call.
    calls: Vec<(Option<String>, String, Option<String>)>,
}

impl AnswerReader for Reader {
    fn read(&mut self, name: Option<&str>, data: &str, answer: &mut Answer) -> Result<(), ModelError> {
        // The events of this wire have no names. A named event counts only if it has their form.
        let chunk: Chunk = match serde_json::from_str(data) {
            Err(_) if name.is_some() => return Ok(()),
            read => read.map_err(unreadable)?,
        };
        if name.is_some() && chunk.candidates.0.is_empty() && chunk.prompt_feedback.is_none() {
            return Ok(());
        }
        error_in_stream(chunk.error.as_ref())?;
        if let Some(usage) = chunk.usage_metadata {
            let tokens = |field: &str| lenient::count(usage.get(field));
            let written = ["candidatesTokenCount", "thoughtsTokenCount"].into_iter().filter_map(tokens);
            answer.usage(tokens("promptTokenCount"), written.reduce(u64::saturating_add));
        }
        if chunk.prompt_feedback.is_some_and(|feedback| feedback.get("blockReason").is_some()) {
            answer.ends(FinishReason::ContentFilter);
        }
        let mut candidates = chunk.candidates.0.into_iter();
        let Some(candidate) = candidates.find(|candidate| candidate.index.0.unwrap_or(0) == 0) else {
            return Ok(());
        };
        let reason = candidate.finish_reason.filled();
        let reason = reason.filter(|reason| reason != "FINISH_REASON_UNSPECIFIED");
        for part in candidate.content.map(|content| content.parts.0).unwrap_or_default() {
            self.part(part, reason.is_some(), answer)?;
        }
        let grounding = candidate.grounding_metadata.unwrap_or_default();
        let chunks = grounding.get("groundingChunks").and_then(Value::as_array);
        for page in chunks.into_iter().flatten().filter_map(|chunk| chunk.get("web")) {
            answer.source(page.get("uri"), page.get("title"));
        }
        match reason.as_deref() {
            None => {}
            // Google has no finish reason for calls: an answer with calls ends with `STOP`.
            Some("STOP") if !self.calls.is_empty() => answer.ends(FinishReason::ToolCalls),
            Some(reason @ ("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL")) => {
                return Err(ModelError::Malformed(format!("it ended with {reason}")));
            }
            Some(reason) => answer.ends_with(reason)?,
        }
        Ok(())
    }

    fn state(&mut self, _: &Answer) -> Option<Value> {
        self.signed.then(|| std::mem::take(&mut self.parts).into())
    }
}

impl Reader {
    /// Reads a part. A part of the last chunk may repeat what was said before.
    fn part(&mut self, part: Part, is_last: bool, answer: &mut Answer) -> Result<(), ModelError> {
        let Part { text, thought, thought_signature: signature, function_call, inline_data } = part;
        let (thought, signature) = (thought.is_some_and(|thought| thought == true), signature.filled());
        if let Some(InlineData { mime_type, data }) = inline_data {
            // A file and its signature do not go back. A file in a thought is a draft.
            if !thought {
                answer.file(mime_type.0.unwrap_or_default(), data.as_str())?;
            }
            return Ok(());
        }
        let mut kept = Map::new();
        if let Some(FunctionCall { id, name, args }) = function_call {
            let call = (id.filled(), name.0.unwrap_or_default(), answer.as_written(args));
            // Only an id tells a repetition from a second call.
            if is_last && call.0.is_some() && self.calls.contains(&call) {
                return Ok(());
            }
            self.calls.push(call.clone());
            let (id, name, arguments) = call;
            let index = answer.whole_call(id, &name, arguments)?;
            kept.insert(CALL.to_owned(), index.into());
        } else {
            let say = if is_last { Answer::say_last } else { Answer::say };
            let (field, said) = match thought {
                true => (Field::Reasoning, &mut self.thoughts),
                false => (Field::Text, &mut self.text),
            };
            let text = say(answer, field, said, text.0.unwrap_or_default());
            if signature.is_none() && (thought || text.is_empty()) {
                return Ok(());
            }
            let before = self.parts.last_mut().and_then(Value::as_object_mut);
            if let Some(before) = before.filter(|it| signature.is_none() && !it.contains_key(SIGNATURE))
                && let Some(Value::String(words)) = before.get_mut("text")
            {
                words.push_str(text);
                return Ok(());
            }
            kept.insert("text".to_owned(), text.into());
            if thought {
                kept.insert("thought".to_owned(), true.into());
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

#[cfg(test)]
mod tests;
