//! The fields of a message that the wire does not know. The server may want them back with the message:
//! signatures, encrypted reasoning and the like.
//!
//! One rule merges them over the pieces of a message. Objects are merged field by field. An item of a list is
//! merged into the item with its index, or, without an index, into the last item of its type while that item
//! has no signature. Text is appended, unless it names something or repeats the whole text. `null` changes
//! nothing, and the last of other values counts. A whole message replaces what its pieces said.

use serde_json::{Map, Value};

/// The longest state that is kept, in bytes.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// Fields with a name or an id, which is whole in each piece.
const NAMES: [&str; 6] = ["type", "id", "name", "format", "object", "index"];
/// Fields of a list's items whose text arrives in pieces. The same piece may follow itself.
const TEXTS: [&str; 4] = ["text", "thinking", "summary", "content"];
/// Fields that end an item.
const SIGNATURES: [&str; 3] = ["signature", "data", "encrypted_content"];

/// The kept fields of one message or call.
#[derive(Debug, Default)]
pub(super) struct KeptFields {
    fields: Map<String, Value>,
    bytes: usize,
}

impl KeptFields {
    /// Adds the fields of a piece.
    pub(super) fn add(&mut self, piece: Map<String, Value>) {
        if self.takes(&piece) {
            for (field, value) in piece {
                merge(&field, self.fields.entry(field.clone()).or_insert(Value::Null), value);
            }
        }
    }

    /// Adds the fields of a whole message.
    pub(super) fn replace(&mut self, whole: Map<String, Value>) {
        if self.takes(&whole) {
            self.fields.extend(whole.into_iter().filter(|(_, value)| !is_nothing(value)));
        }
    }

    /// Returns the bytes that were added.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the fields.
    pub(super) fn take(&mut self) -> Map<String, Value> {
        let fields = std::mem::take(&mut self.fields);
        fields.into_iter().filter(|(_, value)| !is_nothing(value)).collect()
    }

    /// Counts the bytes of the fields. A part of a state is worth nothing, so that all of it is dropped over
    /// the limit.
    fn takes(&mut self, fields: &Map<String, Value>) -> bool {
        if fields.is_empty() || self.bytes > BYTES_MAX {
            return false;
        }
        let bytes: usize = fields.iter().map(|(field, value)| field.len() + value.to_string().len()).sum();
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > BYTES_MAX {
            let names: Vec<_> = fields.keys().collect();
            tracing::warn!(?names, "the fields that the model's server adds are too long to be sent back");
            self.fields.clear();
        }
        self.bytes <= BYTES_MAX
    }
}

/// Returns whether a value has no content that a server could want back.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn merge(field: &str, held: &mut Value, piece: Value) {
    match (held, piece) {
        (_, Value::Null) => {}
        (Value::String(text), Value::String(more)) if !NAMES.contains(&field) => {
            if TEXTS.contains(&field) || *text != more {
                text.push_str(&more);
            }
        }
        (Value::Object(fields), Value::Object(more)) => {
            for (field, value) in more {
                merge(&field, fields.entry(field.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(items), Value::Array(more)) => {
            for item in more {
                match items.iter_mut().rfind(|held| is_continued_by(held, &item)) {
                    Some(held) => merge("", held, item),
                    None => items.push(item),
                }
            }
        }
        (held, piece) if held.is_null() => *held = first(piece),
        (held, piece) => *held = piece,
    }
}

/// Returns the first piece of a value, with the items of a list merged.
fn first(piece: Value) -> Value {
    if !piece.is_array() {
        return piece;
    }
    let mut list = Value::Array(Vec::new());
    merge("", &mut list, piece);
    list
}

/// Returns whether an item of a list is a further piece of an earlier item.
fn is_continued_by(held: &Value, item: &Value) -> bool {
    let same = |field: &str| held.get(field) == item.get(field);
    let has = |value: &Value, fields: &[&str]| {
        fields.iter().any(|field| value.get(field).is_some_and(|value| !is_nothing(value)))
    };
    if item.get("index").is_some() {
        return same("index") && same("type");
    }
    let is_piece = item.get("type").is_some() && same("type") && !has(held, &SIGNATURES);
    is_piece && (has(item, &TEXTS) || has(item, &SIGNATURES)) && has(held, &TEXTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(pieces: &[Value]) -> Value {
        let mut kept = KeptFields::default();
        for piece in pieces {
            kept.add(piece.as_object().cloned().unwrap());
        }
        kept.take().into()
    }

    #[test]
    fn pieces_of_a_field_are_merged() {
        let block = |text: &str| json!({"thinking_blocks": [{"type": "thinking", "thinking": text}]});
        let signed = json!({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "s"}]});
        assert_eq!(
            kept(&[block("ha"), block("ha"), signed, block("b")]),
            json!({"thinking_blocks": [
                {"type": "thinking", "thinking": "haha", "signature": "s"}, {"type": "thinking", "thinking": "b"}]}),
            "a block ends with its signature"
        );
        let detail = |index: u8, text: &str| json!({"d": [{"index": index, "text": text, "format": "f"}]});
        assert_eq!(
            kept(&[detail(0, "a"), detail(1, "b"), detail(0, "c")]),
            json!({"d": [{"index": 0, "text": "ac", "format": "f"}, {"index": 1, "text": "b", "format": "f"}]})
        );
        assert_eq!(
            kept(&[
                json!({"opaque": "x", "n": 1, "o": {"a": "1"}}),
                json!({"opaque": null, "n": 2, "o": {"a": "2"}})
            ]),
            json!({"opaque": "x", "n": 2, "o": {"a": "12"}})
        );
        assert_eq!(kept(&[json!({"cot": "x"}), json!({"cot": "x"})]), json!({"cot": "x"}), "said twice");
        assert_eq!(kept(&[json!({"a": null, "b": "", "c": [], "d": {}})]), json!({}));
    }

    #[test]
    fn a_whole_message_replaces_the_pieces() {
        let mut kept = KeptFields::default();
        kept.add(json!({"a": "1", "b": "2"}).as_object().cloned().unwrap());
        kept.replace(json!({"a": "1x", "b": null}).as_object().cloned().unwrap());
        assert_eq!(Value::from(kept.take()), json!({"a": "1x", "b": "2"}));
    }

    #[test]
    fn fields_over_the_limit_are_dropped_together() {
        let long = json!({"a": "x".repeat(BYTES_MAX)});
        assert_eq!(kept(&[json!({"b": 1}), long, json!({"c": 1})]), json!({}));
    }
}
