//! JSON pointers (RFC 6901) into the inputs of a call.

use serde_json::{Map, Value};

/// Returns the value at a pointer.
pub fn find<'a>(input: &'a Map<String, Value>, pointer: &str) -> Option<&'a Value> {
    let path = pointer.strip_prefix('/')?;
    let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let found = input.get(&first.replace("~1", "/").replace("~0", "~"))?;
    match rest {
        Some(rest) => found.pointer(&format!("/{rest}")),
        None => Some(found),
    }
}

/// Returns the value at a pointer, to be replaced.
pub fn find_mut<'a>(input: &'a mut Map<String, Value>, pointer: &str) -> Option<&'a mut Value> {
    let path = pointer.strip_prefix('/')?;
    let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let found = input.get_mut(&first.replace("~1", "/").replace("~0", "~"))?;
    match rest {
        Some(rest) => found.pointer_mut(&format!("/{rest}")),
        None => Some(found),
    }
}

/// Returns the pointer to a key of the object at `parent`.
pub fn join(parent: &str, key: &str) -> String {
    format!("{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
}
