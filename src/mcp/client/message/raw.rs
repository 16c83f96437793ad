//! What a server has sent, as a text, before the library reads it.

use crate::mcp::client::log::log_rate::LogRate;
use holdpoint_core::json::strict_json;
use holdpoint_core::output::DEPTH_MAX;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::ops::Range;

/// Maximum size of one message of a server, in bytes. A longer message is dropped while it arrives.
pub(in crate::mcp) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum size of a message that is no answer, in bytes. The forms that people are asked are shorter.
const REQUEST_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of values in a message. Each takes many times the memory of its text. A listing has fewer tools then, and
/// structured content is a text.
const VALUES_MAX: usize = 60_000;
/// The only field of an object that has its place: a text that is JSON, and would change if it was read as JSON. A server
/// that sends this field itself gets its text as the output.
const EXACT: &str = "holdpoint/exact";

/// The parts of a message that decide how it is read.
#[derive(Deserialize)]
struct Message<'a> {
    method: Option<IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// The parts of a result that are changed: the tools of a listing, and the values that are the output of a call, in its
/// own result or in that of a task.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    #[serde(borrow)]
    tools: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// Returns what is read of a message. `None`: a request or a notification that is too long, anything as long that is no
/// message, and a message of too many values. A server may send many of them at once, and each is kept until it is
/// answered.
///
/// The library reads values of JSON, which have no long integers and each key once. Structured content that would change
/// is in the message as a text, as the output of an HTTP tool would be. So is one of too many values.
pub(in crate::mcp) fn admitted<'a>(text: &'a str, log: &LogRate) -> Option<Cow<'a, str>> {
    let read = match serde_json::from_str::<Message<'_>>(text) {
        Ok(Message { method: None, result: Some(result) }) => {
            changed(text, result, log).map_or(Cow::Borrowed(text), Cow::Owned)
        }
        Ok(_) | Err(_) if text.len() <= REQUEST_BYTES_MAX => Cow::Borrowed(text),
        Ok(_) | Err(_) => {
            log.left_out();
            return None;
        }
    };
    if values(&read) > VALUES_MAX {
        log.left_out();
        return None;
    }
    Some(read)
}

/// Returns the text with other words in place of the parts of its result that are read otherwise, if it has any.
fn changed(text: &str, result: &RawValue, log: &LogRate) -> Option<String> {
    let outcome: Outcome<'_> = serde_json::from_str(result.get()).ok()?;
    let of_task = outcome.result.and_then(|result| serde_json::from_str::<Outcome<'_>>(result.get()).ok());
    let of_task = of_task.and_then(|of_task| of_task.structured_content);
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    if let Some(rest) = outcome.tools.and_then(|tools| beyond(&tools, text)) {
        log.tools_left_out();
        changes.push((rest, String::new()));
    }
    for content in [outcome.structured_content, of_task].into_iter().flatten().map(RawValue::get) {
        if values(content) > VALUES_MAX || strict_json::parse(content, DEPTH_MAX).is_err() {
            changes.push((place(content, text)?, json!({ EXACT: content }).to_string()));
        }
    }
    changes.sort_by_key(|(place, _)| place.start);
    let (mut changed, mut done) = (String::new(), 0);
    for (place, words) in &changes {
        changed.push_str(text.get(done..place.start)?);
        changed.push_str(words);
        done = place.end;
    }
    changed.push_str(text.get(done..)?);
    (!changes.is_empty()).then_some(changed)
}

/// Returns the place of the tools that are beyond the limit of values, with the comma before them.
fn beyond(tools: &[&RawValue], text: &str) -> Option<Range<usize>> {
    let mut sum = 0_usize;
    let mut kept = tools.iter().take_while(|tool| {
        sum = sum.saturating_add(values(tool.get()));
        // The message has other values.
        sum <= VALUES_MAX / 2
    });
    let last = kept.by_ref().last();
    let end = place(tools.last()?.get(), text)?.end;
    let start = match last {
        Some(last) => place(last.get(), text)?.end,
        None => place(tools.first()?.get(), text)?.start,
    };
    (start < end).then_some(start..end)
}

fn place(part: &str, text: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    Some(start..start.checked_add(part.len())?)
}

/// Returns the largest number of values that a JSON text can have.
fn values(json: &str) -> usize {
    let (mut values, mut in_text, mut is_escaped) = (1_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' | b',' | b':' if !in_text => values = values.saturating_add(1),
            _ => {}
        }
    }
    values
}

/// Returns the text that has the place of this structured content, if there is one.
pub(in crate::mcp) fn exact(structured: &Value) -> Option<&str> {
    let fields = structured.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(EXACT)?.as_str()
}

/// Returns JSON without the blanks between its parts.
pub(in crate::mcp) fn compact(json: &str) -> String {
    let (mut in_text, mut is_escaped) = (false, false);
    let is_kept = |c: &char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_text,
            '"' => in_text = !in_text,
            _ => {}
        }
        in_text || !c.is_ascii_whitespace()
    };
    json.chars().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Cow<'_, str>> {
        admitted(text, &LogRate::new("s", "its messages"))
    }

    #[test]
    fn only_an_answer_may_be_long() {
        let long = "x".repeat(REQUEST_BYTES_MAX);
        assert!(read(&format!(r#"{{"id":1,"result":{{"a":"{long}"}}}}"#)).is_some());
        for refused in [
            format!(r#"{{"id":1,"method":"elicitation/create","params":{{"message":"{long}"}}}}"#),
            format!(r#"{{"method":"ping","id":1,"result":{{"a":"{long}"}}}}"#),
            format!(r#"{{"id":1,"error":{{"message":"{long}"}}}}"#),
            format!(r#"{{"id":1,"result":{{"a":"{long}"}}"#),
            format!(r#"["{long}"]"#),
        ] {
            assert!(read(&refused).is_none(), "{}", &refused[..60]);
        }
        for short in [r#"{"id":1,"method":"ping"}"#, "[]", "no JSON"] {
            assert_eq!(read(short).as_deref(), Some(short));
        }
    }

    #[test]
    fn structured_content_that_would_change_is_a_text_and_everything_else_stays() {
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        let many = format!("[{}0]", "0,".repeat(VALUES_MAX));
        for inexact in [
            r#"{"n": 12345678901234567890123}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":[{"c":1,"c":1}]}}"#,
            "[1e400]",
            r#"["\ud800"]"#,
            &deep,
            &many,
        ] {
            for (before, after) in [
                (r#"{"jsonrpc":"2.0","id":1,"result":{"content":[], "structuredContent":"#, r#" ,"x":[1]}}"#),
                (r#"{"result":{"status":"completed","result":{"structured\u0043ontent":"#, r#"}},"id":1}"#),
            ] {
                let message = format!("{before}{inexact}{after}");
                let read: Value = serde_json::from_str(&read(&message).unwrap()).unwrap();
                let result = read["result"].get("result").unwrap_or(&read["result"]);
                assert_eq!(exact(&result["structuredContent"]), Some(inexact));
            }
            let both = format!(
                r#"{{"result":{{"structuredContent":{inexact},"result":{{"structuredContent":{inexact}}}}}}}"#
            );
            let read: Value = serde_json::from_str(&read(&both).unwrap()).unwrap();
            assert_eq!(exact(&read["result"]["structuredContent"]), Some(inexact));
            assert_eq!(exact(&read["result"]["result"]["structuredContent"]), Some(inexact));
        }
        for same in [
            r#"{"result":{"structuredContent":{"n":18446744073709551615,"f":1.5}}}"#,
            r#"{"result":{"structuredContent":null}}"#,
            r#"{"result":{"tools":[{"inputSchema":{"a":1,"a":2}}]}}"#,
            r#"{"method":"x","result":{"structuredContent":{"a":1,"a":2}}}"#,
        ] {
            assert!(matches!(read(same), Some(Cow::Borrowed(_))), "{same}");
        }
        assert_eq!(exact(&json!({ EXACT: "1", "b": 1 })), None);
    }

    #[test]
    fn blanks_outside_of_texts_are_left_out() {
        assert_eq!(compact("{ \"a b\\\" c\" :\n[1, \"\\\\\" , 2 ] }"), "{\"a b\\\" c\":[1,\"\\\\\",2]}");
    }

    #[test]
    fn a_listing_has_fewer_tools_and_no_other_message_more_values_than_the_limit() {
        let tool = |name: &str, values: usize| {
            let schema = vec!["{}"; values].join(",");
            format!(r#"{{"name":"{name}","inputSchema":{{"allOf":[{schema}]}}}}"#)
        };
        for (sizes, kept) in [
            (vec![VALUES_MAX], vec![]),
            (vec![5, VALUES_MAX, 5], vec!["t0"]),
            (vec![5, VALUES_MAX / 10, 5], vec!["t0", "t1", "t2"]),
        ] {
            let tools: Vec<_> =
                sizes.iter().enumerate().map(|(n, size)| tool(&format!("t{n}"), *size)).collect();
            let listing =
                format!(r#"{{"id":1,"result":{{"tools":[ {} ],"nextCursor":"a"}}}}"#, tools.join(" , "));
            let listing: Value = serde_json::from_str(&read(&listing).unwrap()).unwrap();
            let names =
                listing["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
            assert_eq!(names.collect::<Vec<_>>(), kept);
            assert_eq!(listing["result"]["nextCursor"], "a");
        }
        let blocks = vec![r#"{"type":"text","text":"a,b"}"#; VALUES_MAX / 4].join(",");
        assert!(read(&format!(r#"{{"id":1,"result":{{"content":[{blocks}]}}}}"#)).is_none());
        let commas =
            format!(r#"{{"id":1,"result":{{"content":[],"text":"\"{}"}}}}"#, ",[{:".repeat(VALUES_MAX));
        assert!(read(&commas).is_some(), "they are in a text");
    }
}
