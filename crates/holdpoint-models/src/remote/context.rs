//! Whether a server refuses a conversation because it is longer than the model can read.
//!
//! Servers agree neither on a status nor on a code nor on words for it, so the tables have those of each. A limit of
//! tokens in a time is another matter, and passes by itself.

use crate::ModelError;
use serde_json::Value;

/// The codes and types of an error.
const CODES: [&str; 4] = [
    // OpenAI on both wires ("Error codes"), also in `response.failed`; Azure, Groq, Cerebras.
    "context_length_exceeded",
    // llama.cpp (`tools/server`).
    "exceed_context_size_error",
    // GitHub Models.
    "model_max_prompt_tokens_exceeded",
    // LiteLLM.
    "context_window_exceeded",
];

/// Pieces of messages, in lower case.
const WORDS: [&str; 26] = [
    // OpenAI, DeepSeek and vLLM: "This model's maximum context length is N tokens. However, …". OpenRouter: "This
    // endpoint's …". Mistral: "… too large for model with N maximum context length". SGLang, NVIDIA: "Input length (N)
    // exceeds model's maximum context length (M)".
    "maximum context length",
    // OpenAI on `/responses`: "Your input exceeds the context window of this model."
    "exceeds the context window",
    // Anthropic, and Claude at Bedrock and Vertex: "prompt is too long: N tokens > M maximum". Fireworks.
    "prompt is too long",
    // Anthropic, with `max_tokens` beside a conversation that still fits.
    "exceed context limit",
    // Gemini: "The input token count (N) exceeds the maximum number of tokens allowed (M)."
    "exceeds the maximum number of tokens allowed",
    // llama.cpp and Ollama: "the request exceeds the available context size, try increasing it".
    "exceeds the available context size",
    // llama.cpp, in a stream.
    "context size has been exceeded",
    // Ollama: "the input length exceeds the context length".
    "exceeds the context length",
    // vLLM: "The decoder prompt (length N) is longer than the maximum model length of M."
    "longer than the maximum model length",
    // SGLang: "The input (N tokens) is longer than the model's context length (M tokens)."
    "longer than the model's context length",
    // Text Generation Inference, Together: "`inputs` tokens + `max_new_tokens` must be <= M".
    "tokens + `max_new_tokens` must be <=",
    // Bedrock.
    "input is too long for requested model",
    "too many input tokens",
    // xAI: "This model's maximum prompt length is N but the request contains M tokens."
    "maximum prompt length is",
    // Groq, Cerebras: "Please reduce the length of the messages or completion."
    "reduce the length of the messages",
    // GitHub Models: "prompt token count of N exceeds the limit of M".
    "prompt token count of",
    // Kimi: "Your request exceeded model token limit: N", and "total message size N exceeds limit M".
    "exceeded model token limit",
    "total message size",
    // GLM.
    "prompt exceeds max length",
    // MiniMax.
    "context window exceeds limit",
    // DashScope: "Range of input length should be [1, N]".
    "range of input length should be",
    // Poolside: "Input length N exceeds the maximum allowed input length of M tokens."
    "exceeds the maximum allowed input length",
    // Perplexity: "The total length of all messages is too long."
    "length of all messages is too long",
    // LM Studio: "… the initial prompt is greater than the context length", and "… when context the overflows".
    "greater than the context length",
    "when context the overflows",
    // LiteLLM puts the name of its error before the words of the server.
    "contextwindowexceedederror",
];

/// Words in a code or a message about a limit of tokens in a time.
const FOR_NOW: [&str; 5] = ["rate_limit", "rate limit", "tokens per minute", "throttl", "please wait"];

/// Returns the error of a response with this status and body, if it says that the conversation is too long. `why` is
/// the text for the log.
pub(super) fn refusal(status: u16, body: &str, why: &str) -> Option<ModelError> {
    let error = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    // Status 413 is about the bytes of the request, which are the conversation.
    let is_full = status != 429 && (says_full(&error) || status == 413 && !is_for_now(&error));
    is_full.then(|| ModelError::ContextFull(why.to_owned()))
}

/// Returns whether an error says that the conversation is too long. Only the message counts, and not the whole body: some
/// servers repeat the conversation in it.
pub(super) fn says_full(error: &Value) -> bool {
    let has_code = codes(error).any(|code| CODES.contains(&code));
    let has_words = || messages(error).any(|message| WORDS.iter().any(|words| message.contains(words)));
    (has_code || has_words()) && !is_for_now(error)
}

fn is_for_now(error: &Value) -> bool {
    let is_for_now = |text: &str| FOR_NOW.iter().any(|words| text.contains(words));
    codes(error).any(is_for_now) || messages(error).any(|message| is_for_now(&message))
}

fn codes(error: &Value) -> impl Iterator<Item = &str> {
    let error = error.get(0).unwrap_or(error);
    let error = error.get("error").unwrap_or(error);
    ["code", "type", "status"].into_iter().filter_map(|field| error.get(field)?.as_str())
}

/// Returns the messages in an error, in lower case. OpenRouter has the message of the server that it forwards to in `metadata`.
fn messages(error: &Value) -> impl Iterator<Item = String> {
    let raw = error.pointer("/error/metadata/raw").or_else(|| error.pointer("/metadata/raw"));
    let message = sentence(error).or_else(|| error.as_str());
    [message, raw.and_then(Value::as_str)].into_iter().flatten().map(str::to_lowercase)
}

/// Returns the message in an error, if there is one.
pub(super) fn sentence(error: &Value) -> Option<&str> {
    let error = error.get(0).unwrap_or(error);
    let mut pointers = ["/error/message", "/error", "/message", "/detail"].iter();
    pointers.find_map(|pointer| error.pointer(pointer)?.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_full(status: u16, body: &str) -> bool {
        matches!(refusal(status, body, "why"), Some(ModelError::ContextFull(why)) if why == "why")
    }

    #[test]
    fn a_conversation_that_is_too_long_is_recognised_in_the_words_of_each_server() {
        let in_error = |message: &str| json!({ "error": { "message": message } });
        let bodies = [
            json!({ "error": { "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded" } }),
            json!({ "error": { "message": "no", "code": "context_length_exceeded" } }),
            in_error(
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ),
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum" } }),
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "input length and `max_tokens` exceed context limit: 195000 + 8192 > 200000" } }),
            json!([{ "error": { "code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)." } }]),
            json!({ "error": { "code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096 } }),
            json!({ "error": "the input length exceeds the context length" }),
            json!({ "object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 4200 tokens in the messages.", "type": "BadRequestError", "code": 400 }),
            in_error(
                "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            ),
            json!({ "object": "error", "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens)." }),
            json!({ "object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error", "code": "3051" }),
            json!({ "message": "Input is too long for requested model." }),
            json!({ "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens" }),
            in_error("This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
            in_error("Please reduce the length of the messages or completion."),
            in_error("Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)"),
            in_error("total message size 10176584 exceeds limit 2097152"),
            in_error("Input length 131393 exceeds the maximum allowed input length of 131040 tokens."),
            in_error("400 Input length (265330) exceeds model's maximum context length (262144)."),
            in_error("litellm.ContextWindowExceededError: BedrockException: Context Window Error"),
            json!({ "error": { "message": "Provider returned error", "code": 400, "metadata": { "raw": "{\"message\":\"Prompt contains 9 tokens, too large for model with 8 maximum context length\"}" } } }),
        ];
        for body in &bodies {
            assert!(is_full(400, &body.to_string()), "{body}");
            assert!(!is_full(429, &body.to_string()), "{body}");
        }
        assert!(is_full(413, "<html>413 Request Entity Too Large</html>"));
        assert!(is_full(500, r#"{"error":{"code":500,"message":"Context size has been exceeded."}}"#));
        assert!(is_full(400, "prompt is too long"), "no JSON");
    }

    #[test]
    fn other_refusals_are_not_about_the_length_of_the_conversation() {
        let in_input = json!({ "detail": [{ "loc": ["body", "messages"], "msg": "Input should be a valid list",
            "input": "the user asks about the maximum context length" }] });
        let bodies = [
            in_input,
            json!({ "error": { "message": "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000", "type": "tokens", "code": "rate_limit_exceeded" } }),
            json!({ "message": "Too many tokens, please wait before trying again." }),
            json!({ "error": { "message": "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", "code": "invalid_value" } }),
            json!({ "error": { "message": "Unexpected role 'user' after role 'tool'", "code": "3230" } }),
        ];
        for body in &bodies {
            for status in [400, 422] {
                assert!(!is_full(status, &body.to_string()), "{body}");
            }
        }
        assert!(!is_full(413, &bodies[1].to_string()), "a limit of tokens in a minute");
        assert!(!is_full(400, ""));
    }
}
