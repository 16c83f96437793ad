//! Conversations that are longer than the model can read.

use super::{Stage, on_each_wire};
use crate::support::{Reply, ScriptedAnswer, Wire};
use serde_json::json;

/// How servers of the wire refuse such a conversation: status and body.
fn refusals(wire: Wire) -> Vec<(u16, String)> {
    let message = |words: &str| json!({ "error": { "message": words } }).to_string();
    let too_large = (413, "<html>413 Request Entity Too Large</html>".to_owned());
    let own = match wire.facts().provider {
        "anthropic" => (400, message("prompt is too long: 213462 tokens > 200000 maximum")),
        "gemini" => {
            (400, message("The input token count (9) exceeds the maximum number of tokens allowed (8)."))
        }
        "ollama" => (400, message("the request exceeds the available context size, try increasing it")),
        "openai-responses" => (400, json!({ "error": { "code": "context_length_exceeded" } }).to_string()),
        // A server of this kind that takes its own refusal for a fault. It is not asked again.
        _ => (500, message("This model's maximum context length is 8 tokens. However, you requested 9.")),
    };
    vec![own, too_large]
}

async fn a_conversation_that_is_too_long_has_a_code_of_its_own_and_is_not_sent_again(wire: Wire) {
    let stage = Stage::on(wire).await;
    for (status, body) in refusals(wire) {
        stage.upstream.then(Reply::refuses(status, &body));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "context_full", "").await;
        let error = turn.one('3').as_str().unwrap();
        assert!(error.contains("Begin a new one, or edit an earlier message."), "{error}");
        stage.next_turn_works(&thread).await;
    }
    let words = "prompt is too long: 213462 tokens > 200000 maximum";
    let answer = ScriptedAnswer::on(wire).event(wire.error(false, words).to_string());
    stage.upstream.answers(&answer);
    let (thread, turn) = stage.run_turn().await;
    stage.failed(&thread, &turn, "context_full", "").await;
    stage.next_turn_works(&thread).await;
    assert_eq!(stage.upstream.requests().len(), 6, "none was sent again");
}
on_each_wire!(side by side a_conversation_that_is_too_long_has_a_code_of_its_own_and_is_not_sent_again);
