//! The text of the bounds of a grant in its row.

use holdpoint_core::json::canonical::canonical_json;
use holdpoint_core::tool::input_bounds::{Bound, BoundTest, Folder, InputBounds, Origin};
use serde_json::{Map, Value, json};

/// Returns the text of the bounds, which is the same for the same bounds.
pub(crate) fn text_of(bounds: &InputBounds) -> String {
    let when: Vec<Value> = bounds.when().iter().map(bound).collect();
    canonical_json(&json!({ "when": when, "free": bounds.free() }))
}

/// Reads a text of [`text_of`].
pub(crate) fn read(text: &str) -> Option<InputBounds> {
    let value: Value = serde_json::from_str(text).ok()?;
    let when = value.get("when")?.as_array()?.iter().map(read_bound).collect::<Option<_>>()?;
    let free = value.get("free")?.as_array()?.iter().map(|free| Some(free.as_str()?.to_owned()));
    InputBounds::new(when, free.collect::<Option<_>>()?).ok()
}

fn bound(Bound { argument, test }: &Bound) -> Value {
    let (word, value) = match test {
        BoundTest::Above(than) => ("above", Value::Number(than.clone())),
        BoundTest::Below(than) => ("below", Value::Number(than.clone())),
        BoundTest::Equal(value) => ("equal", value.clone()),
        BoundTest::In(values) => ("in", Value::Array(values.clone())),
        BoundTest::Under(folder) => ("under", Value::String(folder.path().to_owned())),
        BoundTest::Origin(origin) => ("origin", Value::String(origin.text().to_owned())),
    };
    let argument = ("argument".to_owned(), Value::String(argument.clone()));
    Value::Object(Map::from_iter([argument, (word.to_owned(), value)]))
}

fn read_bound(value: &Value) -> Option<Bound> {
    let fields = value.as_object()?;
    let argument = fields.get("argument")?.as_str()?.to_owned();
    let (word, value) = fields.iter().find(|(word, _)| *word != "argument")?;
    let test = match (word.as_str(), value) {
        ("above", Value::Number(than)) => BoundTest::Above(than.clone()),
        ("below", Value::Number(than)) => BoundTest::Below(than.clone()),
        ("equal", value) => BoundTest::Equal(value.clone()),
        ("in", Value::Array(values)) => BoundTest::In(values.clone()),
        ("under", Value::String(path)) => BoundTest::Under(Folder::new(path)?),
        ("origin", Value::String(text)) => BoundTest::Origin(Origin::new(text)?),
        _ => return None,
    };
    Some(Bound { argument, test })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Number;

    #[test]
    fn the_text_of_bounds_reads_back() {
        let tests = [
            BoundTest::Above(Number::from(1)),
            BoundTest::Below(Number::from(2)),
            BoundTest::Equal(json!({ "a": [null] })),
            BoundTest::In(vec![json!(1), json!("b")]),
            BoundTest::Under(Folder::new("/a/b").unwrap()),
            BoundTest::Origin(Origin::new("http://localhost:8080").unwrap()),
        ];
        let when = tests.into_iter().map(|test| Bound { argument: "/x~1y".to_owned(), test }).collect();
        let bounds = InputBounds::new(when, vec!["/free".to_owned()]).unwrap();
        assert_eq!(read(&text_of(&bounds)), Some(bounds));
        assert_eq!(read(""), None);
    }
}
