//! The result of a call as the model reads it.

use super::raw::{compact, exact};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// Returns the output of a call, or why it failed.
pub(super) fn outcome(result: CallToolResult) -> Result<Value, String> {
    if result.is_error == Some(true) { Err(text(&result.content)) } else { Ok(output(result)) }
}

/// Returns the output of a call. A text, unless the structured content says all that the texts say. Structured content
/// that JSON would change is a text too.
fn output(result: CallToolResult) -> Value {
    let text = text(&result.content);
    let Some(structured) = result.structured_content else { return Value::String(text) };
    if let Some(exact) = exact(&structured) {
        return Value::String(match text.is_empty() || compact(&text) == compact(exact) {
            true => exact.to_owned(),
            false => format!("{text}\n{exact}"),
        });
    }
    if text.is_empty() || serde_json::from_str::<Value>(&text).is_ok_and(|same| same == structured) {
        return structured;
    }
    Value::String(format!("{text}\n{structured}"))
}

/// Returns the content as a text. What is no text is named in its place.
fn text(content: &[ContentBlock]) -> String {
    content.iter().map(block).collect::<Vec<_>>().join("\n")
}

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
fn named(mime_type: &str, base64: &str, uri: Option<&str>) -> String {
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
    use crate::mcp::log_rate::LogRate;
    use crate::mcp::raw::admitted;
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
