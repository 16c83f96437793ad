//! Streams that users of other clients have reported, each with what it means.

use super::*;

const ANTHROPIC: Wire = crate::remote::anthropic::WIRE;
const RESPONSES: Wire = crate::remote::responses::WIRE;
const GEMINI: Wire = crate::remote::gemini::WIRE;

fn read_all(cases: &[(Wire, &[&str], &str)]) {
    for (wire, events, expected) in cases {
        assert_eq!(line_of(*wire, events), *expected, "{events:#?}");
    }
}

#[rustfmt::skip]
#[test]
fn chat_streams_of_other_servers_are_read() {
    let stop = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    let calls = r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#;
    read_all(&[
        // BerriAI/litellm#20480: the id in each piece, and a summary with the arguments as text within text.
        (CHAT, &[r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"go","arguments":"{\"n\":"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"1}"}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"go","arguments":"\"{\\\"n\\\":1}\""}}]}}]}"#, calls],
            r#"<0 go#a 0:{"n": 0:1} 0> tool-calls"#),
        // abundantbeing/hermes-browser-extension#11: the whole message at the end.
        (CHAT, &[r#"{"choices":[{"delta":{"content":"Hel"}}]}"#, r#"{"choices":[{"delta":{"content":"lo."}}]}"#,
            r#"{"choices":[{"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}]}"#], "Hel lo. stop"),
        // linagora/openrag#462, jeremychone/rust-genai#164: the last words beside a reason, which comes twice.
        (CHAT, &[r#"{"choices":[{"delta":{"content":"Bonjour."},"finish_reason":"stop"}]}"#, stop, "[DONE]"], "Bonjour. stop"),
        // skye-harris/hass_local_openai_llm#92: two reasons, the second with the counts.
        (CHAT, &[r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"go","arguments":"{}"}}]}}]}"#, calls,
            r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#],
            "<0 go#a 0:{} 0> tool-calls 3/4"),
        // SillyTavern/SillyTavern#5948, Effect-TS/effect#6346: names that are null in further pieces.
        (CHAT, &[r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"go","arguments":""},"name":null}]},"raw_output":null}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":null,"arguments":"{}"},"name":null}]}}]}"#, calls],
            "<0 go#a 0:{} 0> tool-calls"),
        // cloudflare/ai#651: a piece of text that is a number.
        (CHAT, &[r#"{"choices":[{"index":0,"delta":{"content":"$0.00"}}]}"#, r#"{"choices":[{"index":0,"delta":{"content":5}}]}"#, stop], "$0.00 5 stop"),
        // diegosouzapw/OmniRoute#8210, tontinton/maki#980: an error beside no choices.
        (CHAT, &[r#"{"choices":[],"error":{"code":429,"message":"no","metadata":{"error_type":"rate_limit_exceeded"}}}"#],
            "the model's server is unavailable: error in the stream: no"),
        // dcdpr/jp#978: one that a retry does not help.
        (CHAT, &[r#"{"choices":[],"error":{"code":400,"message":"prompt is too long"}}"#],
            "the conversation is longer than the model can read: error in the stream: prompt is too long"),
    ]);
}

#[rustfmt::skip]
#[test]
fn streams_of_responses_of_other_servers_are_read() {
    let text = r#"{"type":"message","content":[{"type":"output_text","text":"Hi."}]}"#;
    let completed = |output: &str| format!(r#"{{"type":"response.completed","response":{{"status":"completed","output":[{output}]}}}}"#);
    let (empty, whole) = (completed(""), completed(text));
    let delta = r#"{"type":"response.output_text.delta","item_id":"m","delta":"Hi."}"#;
    read_all(&[
        // Sophomoresty/gemini-web2api#57: only the whole part.
        (RESPONSES, &[r#"{"type":"response.created"}"#, r#"{"type":"response.output_text.done","text":"Hi."}"#, &empty], "Hi. stop"),
        // TanStack/ai#937: an empty part, and the text only at the end.
        (RESPONSES, &[r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#, &whole], "Hi. stop"),
        // open-webui/open-webui#27800, BerriAI/litellm#32724, QuantumNous/new-api#4362: an end without the text of the pieces.
        (RESPONSES, &[delta, &empty], "Hi. stop"),
        // agentgateway/agentgateway#2281: closing events that are blank.
        (RESPONSES, &[delta, r#"{"type":"response.content_part.done","item_id":"m","part":{"type":"output_text","text":""}}"#,
            r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[]}}"#, &empty], "Hi. stop"),
        // maximhq/bifrost#5169: reasoning that no item announces.
        (RESPONSES, &[r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"So."}"#, delta, &empty], "(So.) Hi. stop"),
        // docker/docker-agent#2976: arguments before the begin of their call.
        (RESPONSES, &[r#"{"type":"response.function_call_arguments.delta","item_id":"f","output_index":0,"delta":"{}"}"#,
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"f","call_id":"a","name":"go","arguments":""}}"#, &empty],
            "<0 go#a 0:{} 0> tool-calls"),
        // lidge-jun/opencodex#996: another id of the item in each event.
        (RESPONSES, &[r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"x1","call_id":"a","name":"go","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","item_id":"x2","output_index":0,"delta":"{}"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"x3","call_id":"a","name":"go","arguments":"{}"}}"#,
            r#"{"type":"response.completed","response":{"output":[{"type":"function_call","id":"x4","call_id":"a","name":"go","arguments":"{}"}]}}"#],
            "<0 go#a 0:{} 0> tool-calls"),
    ]);
}

#[rustfmt::skip]
#[test]
fn streams_of_messages_of_other_servers_are_read() {
    let (end, over) = (r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#, r#"{"type":"message_stop"}"#);
    let call = |index: u8| format!(r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","id":"a","name":"go","input":{{}}}}}}"#);
    let piece = |index: u8, delta: &str| format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#);
    let stop = |index: u8| format!(r#"{{"type":"content_block_stop","index":{index}}}"#);
    read_all(&[
        // sgl-project/sglang#24293: text in the block of a call.
        (ANTHROPIC, &[&call(0), &piece(0, r#"{"type":"text_delta","text":"Hi"}"#), &piece(0, r#"{"type":"text_delta","text":"."}"#),
            &piece(0, r#"{"type":"input_json_delta","partial_json":"{}"}"#), &stop(0), end, over], "<0 go#a Hi . 0:{} 0> tool-calls"),
        // QuantumNous/new-api#5482, NousResearch/hermes-agent#45908: indexes with gaps, and ends of blocks that never began.
        (ANTHROPIC, &[&stop(1), &call(4), &stop(3), &piece(4, r#"{"type":"input_json_delta","partial_json":"{}"}"#), &stop(4), end, over],
            "<0 go#a 0:{} 0> tool-calls"),
        // anthropics/anthropic-sdk-python#1273, BerriAI/litellm#30115: pieces of text whose begin is missing.
        (ANTHROPIC, &[&piece(0, r#"{"type":"thinking_delta","thinking":"So."}"#), &piece(1, r#"{"type":"text_delta","text":"Hi."}"#),
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, over], "(So.) Hi. stop"),
    ]);
}

#[rustfmt::skip]
#[test]
fn streams_of_gemini_from_other_servers_are_read() {
    let (words, reason) = (r#"{"candidates":[{"content":{"parts":[{"text":"Hi."}]}}]}"#, r#"{"candidates":[{"content":{"parts":[]},"finishReason":"STOP"}]}"#);
    read_all(&[
        // Chevey339/kelivo#1003: a reason before the text, and at its end.
        (GEMINI, &[reason, reason, words, reason, reason], "Hi. stop"),
        // windingwind/zotero-pdf-translate#806: a reason in each chunk.
        (GEMINI, &[&words.replace("}}]}", r#"},"finishReason":"STOP"}]}"#), &words.replace("}}]}", r#"},"finishReason":"STOP"}]}"#)], "Hi. Hi. stop"),
        // livekit/agents#4307: a call, and its reason in a later chunk.
        (GEMINI, &[r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"go","args":{}}}]}}]}"#, reason], "<0 go# 0:{} 0> tool-calls"),
    ]);
    // ankit373/hydra#855: a list of chunks in place of events.
    assert_eq!(line(GEMINI, &format!("[{words}\n,\n{reason}]")), "Hi. stop");
}

#[test]
fn documents_in_place_of_streams_are_read() {
    let whole =
        r#"{"object":"chat.completion","choices":[{"message":{"content":"Hi."},"finish_reason":"stop"}]}"#;
    // decolua/9router#3492: a document that ends as a stream does.
    assert_eq!(line(CHAT, &format!("{whole}\n\ndata: [DONE]\n\n")), "Hi. stop");
    let message = r#"{"type":"message","content":[{"type":"text","text":"Hi."},{"type":"tool_use","id":"a","name":"go","input":{"n":1}}],"stop_reason":"tool_use"}"#;
    assert_eq!(line(ANTHROPIC, message), r#"Hi. <0 go#a 0:{"n":1} 0> tool-calls"#);
    for (error, expected) in [
        (
            r#"{"error":{"message":"insufficient balance"}}"#,
            format!("{FAILED}error in the stream: insufficient balance"),
        ),
        (r#"{"message":"slow down","code":429}"#, format!("{UNAVAILABLE}error in the stream: slow down")),
        (r#"{"detail":"no"}"#, format!("{FAILED}error in the stream: no")),
    ] {
        for wire in [CHAT, RESPONSES, ANTHROPIC, GEMINI] {
            assert_eq!(line(wire, error), expected, "{wire:?}");
        }
    }
    let html = Bytes::from_static(b"<html>\nSign in\n</html>\n");
    let read = read_typed(CHAT, vec![html], Some("text/html"));
    assert_eq!(read.error.unwrap(), format!("{FAILED}it answered with text/html, not with a stream"));
}
