//! The user messages that a page shows before its new one.

use crate::chat::{EarlierMessage, EarlierMessages, ShownMessage};
use crate::http::body::posted::{Message, Role};
use crate::http::failure::error::ApiError;

/// Reads the text of a user message in a dialect, or says why a new message like this one is refused. The argument is the
/// path of the message.
pub(in crate::http) type ReadWords = fn(&Message, &str) -> Result<String, ApiError>;

/// Returns the user messages directly before a new one, of the messages before it. A message that the server would
/// refuse has the reason in place of its text.
pub(in crate::http) fn earlier(before: &[Message], read: ReadWords, message_bytes: usize) -> EarlierMessages {
    let newest_first = before.iter().enumerate().rev();
    EarlierMessages::of(newest_first.map(|(index, message)| match message.role.as_is() {
        Some(Role::Assistant) => ShownMessage::Answer,
        None => ShownMessage::Other,
        Some(Role::User) => {
            let field = format!("messages[{index}]");
            let text = words(message, &field, read, message_bytes).map_err(ApiError::into_text);
            let id = message.name().map(|name| name.0.clone());
            ShownMessage::User(EarlierMessage { id, field, text })
        }
    }))
}

fn words(message: &Message, field: &str, read: ReadWords, message_bytes: usize) -> Result<String, ApiError> {
    let words = read(message, field)?;
    if words.len() > message_bytes {
        return Err(ApiError::bad_request(format!("{field}: longer than {message_bytes} bytes")));
    }
    Ok(words)
}
