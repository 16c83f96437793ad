//! The result of a call as the model reads it.

use crate::mcp::client::message::raw::{compact, exact};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// In place of the reason of a failure that has none.
const NO_REASON: &str = "its server does not say why";

/// Returns the output of a call, or why it failed.
pub(in crate::mcp) fn outcome(result: CallToolResult) -> Result<Value, String> {
    let is_error = result.is_error == Some(true);
    let output = output(result);
    if !is_error {
        return Ok(output);
    }
    Err(match output {
        Value::Null => NO_REASON.to_owned(),
        Value::String(text) if text.trim().is_empty() => NO_REASON.to_owned(),
        Value::String(text) => text,
        structured => structured.to_string(),
    })
}

/// Returns the output of a call: the text, the structured content, or both if neither repeats the other. Structured
/// content that JSON would change is a text too.
fn output(result: CallToolResult) -> Value {
    let texts: Vec<String> = result.content.iter().map(block).collect();
    let text = texts.join("\n");
    let Some(structured) = result.structured_content else { return Value::String(text) };
    if let Some(exact) = exact(&structured) {
        return Value::String(match text.is_empty() || compact(&text) == compact(exact) {
            true => exact.to_owned(),
            false => format!("{text}\n{exact}"),
        });
    }
    if text.is_empty() || says(&text, &structured) {
        return structured;
    }
    if wrapped(&structured).is_some_and(|value| repeats(value, &text, &texts)) {
        return Value::String(text);
    }
    Value::String(format!("{text}\n{structured}"))
}

/// Returns the value of the only field of an object. Servers wrap a text so, because structured content had to be an
/// object.
fn wrapped(structured: &Value) -> Option<&Value> {
    let fields = structured.as_object().filter(|fields| fields.len() == 1)?;
    fields.values().next()
}

/// Whether a value says what the texts say, together or one by one.
fn repeats(value: &Value, text: &str, texts: &[String]) -> bool {
    let one_by_one = |items: &Vec<Value>| {
        items.len() == texts.len() && items.iter().zip(texts).all(|(item, text)| says(text, item))
    };
    says(text, value) || value.as_array().is_some_and(one_by_one)
}

/// Whether a text is this value: the same text, or its JSON.
fn says(text: &str, value: &Value) -> bool {
    match value {
        Value::String(same) if same.trim() == text.trim() => true,
        value => serde_json::from_str::<Value>(text).is_ok_and(|same| same == *value),
    }
}

/// Returns a part of the content as a text. What is no text is named in its place.
fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => named(&image.mime_type, &image.data, None),
        ContentBlock::Audio(audio) => named(&audio.mime_type, &audio.data, None),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                named(mime_type.as_deref().unwrap_or("application/octet-stream"), blob, Some(uri))
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => match &link.mime_type {
            Some(mime_type) => format!("[{mime_type}, {}]", link.uri),
            None => format!("[{}]", link.uri),
        },
        _ => "[content of an unknown kind]".to_owned(),
    }
}

/// Returns the name of content that is no text: `[image/png, 12 kB]`.
pub(in crate::mcp) fn named(mime_type: &str, base64: &str, uri: Option<&str>) -> String {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    let size = if bytes < 1000 { format!("{bytes} B") } else { format!("{} kB", bytes.div_ceil(1000)) };
    match uri {
        Some(uri) => format!("[{mime_type}, {size}, {uri}]"),
        None => format!("[{mime_type}, {size}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::output;
    use crate::mcp::client::log::log_rate::LogRate;
    use crate::mcp::client::message::raw::admitted;
    use serde_json::{Value, json};

    fn of(result: Value) -> Value {
        output(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn texts_stay_and_other_content_is_named_in_its_place() {
        let blob = "A".repeat(16_000);
        let shown = of(json!({ "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "data": blob, "mimeType": "image/png" },
            { "type": "audio", "data": "QQ==", "mimeType": "audio/wav" },
            { "type": "resource", "resource": { "uri": "a:b", "text": "two" } },
            { "type": "resource", "resource": { "uri": "a:c", "blob": "QUFB", "mimeType": "application/pdf" } },
            { "type": "resource_link", "uri": "https://x.example/", "name": "x" },
        ] }));
        let expected = "one\n[image/png, 12 kB]\n[audio/wav, 1 B]\ntwo\n[application/pdf, 3 B, a:c]\n[https://x.example/]";
        assert_eq!(shown, json!(expected));
    }

    #[test]
    fn structured_content_is_the_output_if_the_text_only_repeats_it() {
        let (text, structured) = (json!({ "type": "text", "text": "{\"n\": 1}" }), json!({ "n": 1 }));
        assert_eq!(of(json!({ "content": [text], "structuredContent": structured })), structured);
        assert_eq!(of(json!({ "structuredContent": structured })), structured);
        assert_eq!(of(json!({ "content": [], "structuredContent": null })), json!(null));
        let other = json!({ "type": "text", "text": "one" });
        assert_eq!(
            of(json!({ "content": [other], "structuredContent": structured })),
            json!("one\n{\"n\":1}")
        );
        assert_eq!(of(json!({ "content": [] })), json!(""));
    }

    #[test]
    fn what_repeats_the_text_is_given_once() {
        let texts = |texts: &[&str]| {
            json!(texts.iter().map(|text| json!({ "type": "text", "text": text })).collect::<Vec<_>>())
        };
        for (said, structured, output) in [
            (&["hi"][..], json!("hi"), json!("hi")),
            (&["hi\n"], json!("hi"), json!("hi")),
            (&["hi"], json!({ "content": "hi" }), json!("hi")),
            (&["hi"], json!({ "result": "hi" }), json!("hi")),
            (&["3"], json!({ "result": 3 }), json!("3")),
            (&["a", "b"], json!({ "result": ["a", "b"] }), json!("a\nb")),
            (&["a", "{\"n\": 1}"], json!({ "result": ["a", { "n": 1 }] }), json!("a\n{\"n\": 1}")),
            (&["[1, 2]"], json!([1, 2]), json!([1, 2])),
            (&["3 files"], json!({ "files": 3 }), json!("3 files\n{\"files\":3}")),
            (&["hi"], json!({ "content": "hi", "more": 1 }), json!("hi\n{\"content\":\"hi\",\"more\":1}")),
            (&["a"], json!({ "result": ["a", "b"] }), json!("a\n{\"result\":[\"a\",\"b\"]}")),
        ] {
            let result = json!({ "content": texts(said), "structuredContent": structured });
            assert_eq!(of(result.clone()), output, "{result}");
        }
    }

    #[test]
    fn a_failure_has_the_structured_content_too() {
        let why = |result: Value| super::outcome(serde_json::from_value(result).unwrap()).unwrap_err();
        let structured = json!({ "line": 121, "why": "missing ;" });
        let words = r#"{"line":121,"why":"missing ;"}"#;
        assert_eq!(why(json!({ "content": [], "isError": true, "structuredContent": structured })), words);
        let text = json!([{ "type": "text", "text": "it broke" }]);
        let both = json!({ "content": text, "isError": true, "structuredContent": structured });
        assert_eq!(why(both), format!("it broke\n{words}"));
        assert_eq!(why(json!({ "content": text, "isError": true })), "it broke");
        assert_eq!(why(json!({ "content": [], "isError": true })), "its server does not say why");
    }

    #[test]
    fn structured_content_that_json_would_change_is_a_text() {
        let exact = r#"{"n": 12345678901234567890123, "n": 1}"#;
        let of_text = |text: Option<&str>| {
            let content =
                text.map_or_else(String::new, |text| json!({ "type": "text", "text": text }).to_string());
            let message = format!(r#"{{"result":{{"content":[{content}],"structuredContent":{exact}}}}}"#);
            let message: Value =
                serde_json::from_str(&admitted(&message, &LogRate::new("s", "")).unwrap()).unwrap();
            of(message["result"].clone())
        };
        assert_eq!(of_text(None), json!(exact));
        assert_eq!(of_text(Some("{\n  \"n\":12345678901234567890123,\n  \"n\":1\n}")), json!(exact));
        assert_eq!(of_text(Some("{\"n\":1}")), json!(format!("{{\"n\":1}}\n{exact}")));
    }
}
