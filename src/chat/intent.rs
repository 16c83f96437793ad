//! What a request wants, seen against what is stored.

use super::ask::{AskError, PostedMessage, Wants};
use crate::domain::id::MessageId;
use crate::domain::message::{Body, Message};
use crate::store::{Thread, Write};

/// What a request wants of this thread.
pub(super) enum Intent {
    New {
        text: String,
        client_id: Option<String>,
    },
    Edit {
        ordinal: i64,
        text: String,
        client_id: Option<String>,
    },
    Regenerate {
        message: MessageId,
        ordinal: i64,
    },
    /// To go on: with this message of the assistant's, where one is named, else with the last.
    Continue {
        message: Option<MessageId>,
    },
}

/// Reads a request against what is stored.
pub(super) async fn intent(write: &Write, thread: &Thread, wants: Wants) -> Result<Intent, AskError> {
    let go_on = Intent::Continue { message: None };
    let (posted, text, client_id) = match wants {
        Wants::Continue { .. } | Wants::Edit { .. } | Wants::Regenerate { .. } => return Ok(go_on),
        Wants::New { text, client_id: None } => return Ok(Intent::New { text, client_id: None }),
        Wants::New { text, client_id } => (None, text, client_id),
        Wants::History { messages: posted } => match posted.last() {
            Some(PostedMessage { user_text: Some(text), id }) if !text.is_empty() => {
                let (text, id) = (text.clone(), id.clone());
                (Some(posted), text, id)
            }
            Some(PostedMessage { .. }) | None => return Ok(go_on),
        },
    };
    let transcript = write.transcript(thread).await?;
    let stored: Vec<(&Message, &str)> = transcript
        .standing()
        .filter_map(|message| match &message.body {
            Body::User(text) => Some((message, text.as_str())),
            Body::Assistant(_) => None,
        })
        .collect();
    if let Some(posted) = posted {
        let texts: Vec<&str> = posted.iter().filter_map(|message| message.user_text.as_deref()).collect();
        if let Some(changed) = against_stored(&texts, &stored, &client_id) {
            return Ok(changed);
        }
    }
    let names = |message: &Message, id: &str| {
        message.client_id.as_deref() == Some(id) || message.id.to_string() == id
    };
    let posted_again = |id: &String| stored.iter().any(|(message, _)| names(message, id));
    if client_id.as_ref().is_some_and(posted_again) { Ok(go_on) } else { Ok(Intent::New { text, client_id }) }
}

/// A page that posts its whole history says by it whether it edits or asks anew: pages of AI SDK 4 have no
/// other word for it. Pages also trim their history, so what does not begin as the stored one does is new.
fn against_stored(texts: &[&str], stored: &[(&Message, &str)], client_id: &Option<String>) -> Option<Intent> {
    let (last, before) = texts.split_last()?;
    let (same_place, standing) = stored.get(before.len())?;
    if texts.len() == stored.len() && last == standing {
        return Some(Intent::Regenerate { message: same_place.id, ordinal: same_place.ordinal });
    }
    let begins_alike = before.iter().zip(stored).all(|(text, (_, stored))| text == stored);
    (!before.is_empty() && begins_alike).then(|| Intent::Edit {
        ordinal: same_place.ordinal,
        text: (*last).to_owned(),
        client_id: client_id.clone(),
    })
}
