//! What a request wants, seen against what is stored.
//!
//! Messages go by our ids and by the names that pages gave them. A page may hold messages that never arrived, and may
//! not know of others: what it names and nobody knows is taken for what the page most likely did.

use super::admit::{Action, AdmitError, PostedMessage};
use crate::domain::id::MessageId;
use crate::domain::message::{Body, Message};
use crate::store::{Thread, Transcript, Write};

/// What a request wants of this thread.
#[derive(Debug)]
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
    /// To go on: with this message of the assistant's, where one is named, else with the last. It may be one that was
    /// cut off.
    Continue {
        message: Option<MessageId>,
        /// Whether the page has nothing of that message: it posts the user message before it.
        from_the_start: bool,
    },
}

impl Intent {
    /// To go on with what the page has of the message.
    fn resume(message: Option<MessageId>) -> Self {
        Self::Continue { message, from_the_start: false }
    }
}

/// Reads a request against what is stored.
pub(super) async fn intent(write: &Write, thread: &Thread, wants: Action) -> Result<Intent, AdmitError> {
    let names_nothing = match &wants {
        Action::New { client_id: name, .. } | Action::Continue { message: name } => name.is_none(),
        Action::History { .. } | Action::Edit { .. } | Action::Regenerate { .. } => false,
    };
    let transcript = if names_nothing { Transcript::default() } else { write.transcript(thread).await? };
    let stored = Stored::of(&transcript);
    match wants {
        Action::New { text, client_id } => Ok(stored.new_message(text, client_id)),
        Action::History { messages } => Ok(stored.history(&messages)),
        Action::Edit { message, text } => Ok(stored.edit(message, text)),
        Action::Regenerate { answer, question } => {
            stored.regenerate(answer.as_deref(), question).ok_or(AdmitError::NothingToContinue)
        }
        Action::Continue { message } => Ok(Intent::resume(message.and_then(|name| stored.answer(&name)))),
    }
}

/// A thread as it stands.
struct Stored<'a> {
    transcript: &'a Transcript,
    /// Its user messages with their words, oldest first.
    questions: Vec<(&'a Message, &'a str)>,
}

impl<'a> Stored<'a> {
    fn of(transcript: &'a Transcript) -> Self {
        let questions = transcript.standing().filter_map(|message| match &message.body {
            Body::User(text) => Some((message, text.as_str())),
            Body::Assistant(_) => None,
        });
        Self { transcript, questions: questions.collect() }
    }

    /// The user message that goes by this name.
    fn question(&self, name: &str) -> Option<(&'a Message, &'a str)> {
        let goes_by =
            |message: &Message| message.client_id.as_deref() == Some(name) || message.id.to_string() == name;
        self.questions.iter().find(|(message, _)| goes_by(message)).copied()
    }

    /// The assistant's message with this id. One that was cut off keeps its own, so that nobody who names it goes on
    /// with another.
    fn answer(&self, id: &str) -> Option<MessageId> {
        let id = id.parse().ok()?;
        self.transcript.questions.contains_key(&id).then_some(id)
    }

    /// The user message that this answer, as it stands, is for.
    fn question_of(&self, id: &str) -> Option<(&'a Message, &'a str)> {
        let answer = self.answer(id)?;
        self.transcript.standing().find(|message| message.id == answer)?;
        let question = self.transcript.questions.get(&answer)?;
        self.questions.iter().find(|(message, _)| message.id == *question).copied()
    }

    /// To go on with the answer to this user message.
    fn resume_after(&self, question: &Message) -> Intent {
        let of_it = |message: &&Message| self.transcript.questions.get(&message.id) == Some(&question.id);
        let answer = self.transcript.standing().rfind(of_it);
        Intent::Continue { message: answer.map(|message| message.id), from_the_start: true }
    }

    /// One by a name that is there already is the same message, posted again.
    fn new_message(&self, text: String, client_id: Option<String>) -> Intent {
        match client_id.as_deref().and_then(|name| self.question(name)) {
            Some((question, _)) => self.resume_after(question),
            None => Intent::New { text, client_id },
        }
    }

    /// One that never arrived is a new message, and one with the words that it has is posted again: pages that try
    /// again name it as those do that edit it.
    fn edit(&self, name: String, text: String) -> Intent {
        if let Some(answer) = self.answer(&name) {
            return Intent::resume(Some(answer));
        }
        match self.question(&name) {
            Some((message, words)) if text == words => self.resume_after(message),
            Some((message, _)) => Intent::Edit { ordinal: message.ordinal, text, client_id: Some(name) },
            None => Intent::New { text, client_id: Some(name) },
        }
    }

    /// Pages ask anew as well where a message never arrived, and where they put other words into one. Nothing, where
    /// what they want an answer to cannot be told.
    fn regenerate(&self, answer: Option<&str>, posted: Option<PostedMessage>) -> Option<Intent> {
        let (text, client_id) = posted.map_or((None, None), |posted| (posted.user_text, posted.id));
        let asked = client_id.as_deref().and_then(|name| self.question(name));
        let named = answer.and_then(|name| self.question_of(name).or_else(|| self.question(name)));
        let (question, words) = match (named.or(asked), &text) {
            (Some(found), _) => found,
            // Which message it is a page without names tells by the words alone. One with a name that nobody knows
            // never arrived, also where the one before has the same words.
            (None, Some(text)) => match self.questions.last() {
                Some((message, words)) if client_id.is_none() && text == words => (*message, *words),
                _ => return Some(Intent::New { text: text.clone(), client_id }),
            },
            (None, None) if client_id.is_none() => *self.questions.last()?,
            (None, None) => return None,
        };
        let is_asked = asked.is_some_and(|(asked, _)| asked.id == question.id);
        Some(match text.filter(|text| is_asked && text != words) {
            Some(text) => Intent::Edit { ordinal: question.ordinal, text, client_id },
            None => Intent::Regenerate { message: question.id, ordinal: question.ordinal },
        })
    }

    /// A page that posts its whole history says by it whether it edits or asks anew: pages of AI SDK 4 have no other
    /// word for it. Pages also trim their history, so what does not begin as the stored one does is new.
    fn history(&self, posted: &[PostedMessage]) -> Intent {
        let (text, client_id) = match posted.last() {
            Some(PostedMessage { user_text: Some(text), id }) if !text.is_empty() => (text, id),
            Some(PostedMessage { .. }) | None => return Intent::resume(None),
        };
        let texts: Vec<&str> = posted.iter().filter_map(|message| message.user_text.as_deref()).collect();
        let before = texts.split_last().map_or(&[] as &[&str], |(_, before)| before);
        let Some((same_place, standing)) = self.questions.get(before.len()) else {
            return self.new_message(text.clone(), client_id.clone());
        };
        if texts.len() == self.questions.len() && text == standing {
            return Intent::Regenerate { message: same_place.id, ordinal: same_place.ordinal };
        }
        let begins_alike = before.iter().zip(&self.questions).all(|(text, (_, stored))| text == stored);
        if !before.is_empty() && begins_alike {
            let ordinal = same_place.ordinal;
            return Intent::Edit { ordinal, text: text.clone(), client_id: client_id.clone() };
        }
        self.new_message(text.clone(), client_id.clone())
    }
}
