//! The parts of a step as `message_steps.parts` has them: a JSON array.

use holdpoint_core::id::ToolCallId;
use holdpoint_core::message::{File, Part, Source};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A part in its stored form. Rows of earlier versions have this form, so a change must still read them.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StoredPart<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Reasoning {
        text: Cow<'a, str>,
    },
    ToolCall {
        tool_call_id: ToolCallId,
    },
    Source {
        url: Cow<'a, str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Cow<'a, str>>,
    },
    File {
        url: Cow<'a, str>,
        media_type: Cow<'a, str>,
    },
}

/// Returns the content of the column.
pub(crate) fn write_parts(parts: &[Part]) -> String {
    let stored: Vec<StoredPart<'_>> = parts.iter().map(StoredPart::of).collect();
    serde_json::json!(stored).to_string()
}

/// Reads the content of the column.
pub(crate) fn read_parts(text: &str) -> Result<Vec<Part>, serde_json::Error> {
    let stored: Vec<StoredPart<'static>> = serde_json::from_str(text)?;
    Ok(stored.into_iter().map(StoredPart::into_part).collect())
}

impl<'a> StoredPart<'a> {
    fn of(part: &'a Part) -> Self {
        match part {
            Part::Text { text } => Self::Text { text: text.into() },
            Part::Reasoning { text } => Self::Reasoning { text: text.into() },
            Part::ToolCall { tool_call_id } => Self::ToolCall { tool_call_id: *tool_call_id },
            Part::Source(Source { url, title }) => {
                Self::Source { url: url.into(), title: title.as_ref().map(Cow::from) }
            }
            Part::File(File { url, media_type }) => {
                Self::File { url: url.into(), media_type: media_type.into() }
            }
        }
    }

    fn into_part(self) -> Part {
        match self {
            Self::Text { text } => Part::Text { text: text.into_owned() },
            Self::Reasoning { text } => Part::Reasoning { text: text.into_owned() },
            Self::ToolCall { tool_call_id } => Part::ToolCall { tool_call_id },
            Self::Source { url, title } => {
                Part::Source(Source { url: url.into_owned(), title: title.map(Cow::into_owned) })
            }
            Self::File { url, media_type } => {
                Part::File(File { url: url.into_owned(), media_type: media_type.into_owned() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn each_part_has_the_form_of_the_rows_of_earlier_versions() {
        let source = |title: Option<&str>| {
            Part::Source(Source { url: "https://a.example/".to_owned(), title: title.map(str::to_owned) })
        };
        let parts = [
            (Part::Text { text: "Hi é \"".to_owned() }, r#"{"type":"text","text":"Hi é \""}"#),
            (Part::Reasoning { text: "hm".to_owned() }, r#"{"type":"reasoning","text":"hm"}"#),
            (
                Part::ToolCall { tool_call_id: ToolCallId::new(Uuid::from_u128(1)) },
                r#"{"type":"tool_call","tool_call_id":"00000000-0000-0000-0000-000000000001"}"#,
            ),
            (source(None), r#"{"type":"source","url":"https://a.example/"}"#),
            (source(Some("A")), r#"{"type":"source","url":"https://a.example/","title":"A"}"#),
            (
                Part::File(File {
                    url: "data:image/png;base64,AA==".to_owned(),
                    media_type: "image/png".to_owned(),
                }),
                r#"{"type":"file","url":"data:image/png;base64,AA==","media_type":"image/png"}"#,
            ),
        ];
        for (part, stored) in parts {
            let column = format!("[{stored}]");
            assert_eq!(write_parts(std::slice::from_ref(&part)), column);
            assert_eq!(read_parts(&column).unwrap(), [part]);
        }
        assert!(read_parts(r#"[{"type":"video"}]"#).is_err());
    }
}
