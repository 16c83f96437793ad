//! Puts the pieces of calls right before rig puts them together.
//!
//! - rig tells a call's id when the call ends, its name when it begins. [`ModelEvent::CallStarted`] has both,
//!   so the id travels behind the name.
//! - rig takes arguments that are empty so far for whole ones. A next piece without a place, or with an id of
//!   its own, then begins a call without a name, which is dropped, and the call that was meant ends with `{}`.
//!   So each piece has a place, and only one with a name has an id.
//! - rig keeps the first name a call has. One that comes in pieces would be another tool's.
//!
//! An event without a piece of a call goes on as it came; one with an error ends the answer.
//!
//! [`ModelEvent::CallStarted`]: crate::llm::ModelEvent::CallStarted

use super::failure::words;
use crate::llm::ModelError;
use rig_core::wire::WireFrame;
use serde_json::{Map, Value};

/// Stands between a call's name and its id.
pub(super) const ID_FOLLOWS: char = '\u{1f}';
/// Where the places of calls begin that the server gave none.
const UNPLACED: u64 = 1 << 20;

/// Puts the pieces of one answer right, in their order.
#[derive(Default)]
pub(super) struct Pieces {
    begun: Vec<Begun>,
}

/// A call that has a name.
struct Begun {
    place: u64,
    id: Option<String>,
    name: String,
}

impl Pieces {
    /// An event's data as rig gets it.
    pub(super) fn frame(&mut self, data: String) -> Result<WireFrame, ModelError> {
        // Nearly every event is a piece of text, and is not parsed here.
        if !data.contains("\"tool_calls\"") && !data.contains("\"error\"") {
            return Ok(WireFrame::Text(data));
        }
        let Ok(mut event) = serde_json::from_str::<Value>(&data) else {
            // rig finds that too, and says what is wrong.
            return Ok(WireFrame::Text(data));
        };
        let failed = match event.get("error") {
            Some(Value::Object(error)) => !error.is_empty(),
            Some(Value::String(error)) => !error.is_empty(),
            _ => event.get("object").is_some_and(|object| object == "error"),
        };
        if failed {
            // rig would log the server's words, and overlook an error beside a choice.
            return Err(ModelError::Upstream(format!("error in the stream: {}", words(&data))));
        }
        let mut changed = false;
        for choice in event.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten() {
            let said = if choice.get("delta").is_some_and(Value::is_object) { "delta" } else { "message" };
            let pieces = choice.get_mut(said).and_then(|said| said.get_mut("tool_calls"));
            for piece in pieces.and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(piece) = piece {
                    changed |= self.put_right(piece)?;
                }
            }
        }
        Ok(WireFrame::Text(if changed { event.to_string() } else { data }))
    }

    /// Whether it changed the piece.
    fn put_right(&mut self, piece: &mut Map<String, Value>) -> Result<bool, ModelError> {
        fn text(value: Option<&Value>) -> Option<&str> {
            value.and_then(Value::as_str).filter(|text| !text.is_empty())
        }
        // What rig takes for no id is none here.
        let id = text(piece.get("id")).filter(|id| *id != "null").map(str::to_owned);
        let name = text(piece.get("function").and_then(|function| function.get("name"))).map(str::to_owned);

        let given = piece.get("index").and_then(Value::as_u64);
        let place = given.unwrap_or_else(|| self.place(id.as_deref(), name.is_some()));
        let mut changed = given.is_none();
        if changed {
            piece.insert("index".to_owned(), place.into());
        }
        let Some(name) = name else {
            return Ok(piece.remove("id").is_some() || changed);
        };
        if let Some(id) = &id
            && let Some(tagged) = piece.get_mut("function").and_then(|function| function.get_mut("name"))
        {
            *tagged = format!("{name}{ID_FOLLOWS}{id}").into();
            changed = true;
        }
        match self.begun.iter_mut().rfind(|call| call.place == place) {
            Some(call) if id.is_none() || call.id.is_none() || call.id == id => {
                if call.name != name {
                    return Err(ModelError::Malformed("a call of it has two names".to_owned()));
                }
                call.id = call.id.take().or(id);
            }
            // Some servers put one call after the other in the same place.
            Some(call) => *call = Begun { place, id, name },
            None => self.begun.push(Begun { place, id, name }),
        }
        Ok(changed)
    }

    /// Where a piece belongs that does not say so: one with a known id to that call, another one with a name
    /// to a call that begins, any other to the last that began.
    fn place(&self, id: Option<&str>, named: bool) -> u64 {
        let known = self.begun.iter().rfind(|call| id.is_some() && call.id.as_deref() == id);
        let last = if named { None } else { self.begun.last() };
        known.or(last).map_or_else(|| UNPLACED.saturating_add(self.begun.len() as u64), |call| call.place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_server::answered;

    #[rustfmt::skip]
    #[tokio::test]
    async fn a_piece_goes_to_the_call_it_is_meant_for() {
        for (events, told) in [
            (r#",a,go, ,,,{"n": ,,,1} ,b,go,{} tool_calls"#, r#"0=go#a 0+{"n": 0+1} 1=go#b 1+{} 0. 1. tool-calls/0"#),
            (r#"0,a,go, 0,b,,{"n":1} 1,a,go,{} stop"#, r#"0=go#a 0+{"n":1} 1=go# 1+{} 0. 1. tool-calls/0"#),
            ("0,a,go, 0,a,_on,{} tool_calls", "0=go#a malformed: a call of it has two names"),
            (r#"0,a,go,{} {"error":{"message":"sk-1"},"choices":[{}]}"#, "0=go#a 0+{} upstream: error in the stream: [key]"),
        ] {
            assert_eq!(answered(events).await, told);
        }
    }
}
