//! What other servers made up, written so that this one takes it.

use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt::Write;

/// Longest name of a tool that every server takes.
const NAME_MAX: usize = 64;
/// Longest id of a call that servers take which are particular about its letters.
const ID_MAX: usize = 64;
/// Longest id of a call that OpenAI's chat takes, where any letter may stand in one.
const SHORT_ID_MAX: usize = 40;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// A tool's name in a history. Models make names up, and a server that refuses one would refuse the conversation
/// for ever.
pub(super) fn name(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let plain = |it: char| if it.is_ascii() && is_plain(it as u8) { it } else { '_' };
    let fitting: String = name.chars().map(plain).take(NAME_MAX).collect();
    Cow::Owned(if fitting.is_empty() { "_".to_owned() } else { fitting })
}

/// A call's id for a server that is particular about them; the same id is always written the same.
pub(super) fn id(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.len() <= ID_MAX && id.bytes().all(is_plain) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(made_id(id))
}

/// A call's id for a server that takes any letters. Ids of some servers mean something to them, so only one that is
/// too long is written otherwise.
pub(super) fn short_id(id: &str) -> Cow<'_, str> {
    if id.len() <= SHORT_ID_MAX { Cow::Borrowed(id) } else { Cow::Owned(made_id(id)) }
}

fn made_id(id: &str) -> String {
    let mut fitting = "call_".to_owned();
    for byte in Sha256::digest(id).iter().take(16) {
        // Writing to memory cannot fail.
        let _infallible = write!(fitting, "{byte:02x}");
    }
    fitting
}

/// Words that are never blank: some servers refuse a conversation with a blank message in it.
pub(super) fn spoken(words: &str) -> &str {
    if words.trim().is_empty() { "(blank)" } else { words }
}
