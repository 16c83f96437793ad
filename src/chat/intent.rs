//! The intent of a request: its action, resolved against the stored thread.
//!
//! Messages are named by server ids or by the names that clients gave them. A client may hold messages that
//! never arrived, and may lack others. For an unknown name, the server assumes the most likely action of the
//! client.

use super::earlier::{Added, EarlierMessages};
use super::request::{Action, AdmitError, PostedMessage};
use holdpoint_core::id::MessageId;
use holdpoint_core::message::{Body, Message};
use holdpoint_store::Transcript;
use std::collections::HashSet;

/// The intent of a request for this thread.
#[derive(Debug)]
pub(super) enum Intent {
    New {
        text: String,
        client_id: Option<String>,
        earlier: Added,
    },
    Edit {
        ordinal: i64,
        text: String,
        client_id: Option<String>,
        earlier: Added,
    },
    Regenerate {
        message: MessageId,
        ordinal: i64,
    },
    /// Continues this assistant message if one is named, otherwise the last. The message may be superseded.
    Continue {
        message: Option<MessageId>,
        /// Whether the client has nothing of that message, because it posts the user message before it.
        from_the_start: bool,
    },
}

impl Intent {
    /// Continues a message that the client may already have in part.
    fn resume(message: Option<MessageId>) -> Self {
        Self::Continue { message, from_the_start: false }
    }

    fn new(text: String, client_id: Option<String>) -> Self {
        Self::New { text, client_id, earlier: Added::default() }
    }

    fn edit(ordinal: i64, text: String, client_id: Option<String>) -> Self {
        Self::Edit { ordinal, text, client_id, earlier: Added::default() }
    }

    /// Takes the list of the messages that the request shows and that can never be taken.
    pub(super) fn left_out(&mut self) -> Vec<String> {
        match self {
            Self::New { earlier, .. } | Self::Edit { earlier, .. } => std::mem::take(&mut earlier.left_out),
            Self::Regenerate { .. } | Self::Continue { .. } => Vec::new(),
        }
    }

    /// Gives a user message without a name this one.
    fn named(mut self, name: Option<String>) -> Self {
        if let Self::New { client_id: none @ None, .. } | Self::Edit { client_id: none @ None, .. } =
            &mut self
        {
            *none = name;
        }
        self
    }
}

/// Resolves a request against the stored thread. The key of the request names a user message that has no other
/// name, so that a repeated request finds that message. A new message brings those before it that are not stored.
pub(super) fn intent(
    transcript: &Transcript,
    action: Action,
    key: Option<String>,
    shown: EarlierMessages,
) -> Result<Intent, AdmitError> {
    let stored = Stored::of(transcript);
    let key = key.filter(|_| action.is_of_nameless_message());
    if let Some(key) = &key
        && let Some((question, words)) = stored.question(key)
    {
        return stored.repeated(key, question, words, action.words());
    }
    let answered = stored.answered(&action, &shown);
    let mut intent = stored.intent(action)?.named(key);
    if let Intent::New { earlier, .. } | Intent::Edit { earlier, .. } = &mut intent {
        *earlier = stored.lacking(shown, answered);
    }
    Ok(intent)
}

impl Action {
    /// Whether the action brings a user message without a name.
    fn is_of_nameless_message(&self) -> bool {
        match self {
            Self::New { client_id, .. } => client_id.is_none(),
            Self::History { messages } => messages.last().is_some_and(|last| last.id.is_none()),
            Self::Edit { .. } | Self::Regenerate { .. } | Self::Continue { .. } => false,
        }
    }

    /// Returns the text of the user message that the action brings, if it brings one.
    fn words(&self) -> Option<&str> {
        match self {
            Self::New { text, .. } | Self::Edit { text, .. } => Some(text),
            Self::History { messages } => {
                messages.last()?.user_text.as_deref().filter(|text| !text.is_empty())
            }
            Self::Regenerate { .. } | Self::Continue { .. } => None,
        }
    }
}

struct Stored<'a> {
    transcript: &'a Transcript,
    /// The user messages that are not superseded, with their texts, oldest first.
    questions: Vec<(&'a Message, &'a str)>,
}

impl<'a> Stored<'a> {
    fn intent(&self, action: Action) -> Result<Intent, AdmitError> {
        match action {
            Action::New { text, client_id } => self.new_message(text, client_id),
            Action::History { messages } => self.history(&messages),
            Action::Edit { message, text } => self.edit(message, text),
            Action::Regenerate { answer, question } => {
                self.regenerate(answer.as_deref(), question).ok_or(AdmitError::NothingToContinue)
            }
            Action::Continue { message } => Ok(Intent::resume(message.and_then(|name| self.answer(&name)))),
        }
    }

    fn of(transcript: &'a Transcript) -> Self {
        let questions = transcript.current().filter_map(|message| match &message.body {
            Body::User(text) => Some((message, text.as_str())),
            Body::Assistant(_) => None,
        });
        Self { transcript, questions: questions.collect() }
    }

    /// Returns the user message with this id or client name.
    fn question(&self, name: &str) -> Option<(&'a Message, &'a str)> {
        let id = name.parse().ok();
        let has_name =
            |message: &Message| message.client_id.as_deref() == Some(name) || Some(message.id) == id;
        self.questions.iter().find(|(message, _)| has_name(message)).copied()
    }

    /// Returns the number of stored user messages up to the last one that the client shows with an answer. A history that
    /// begins as the stored one has that many; otherwise the text of that message tells.
    fn answered(&self, action: &Action, shown: &EarlierMessages) -> usize {
        if let Action::History { messages } = action {
            let texts: Vec<&str> =
                messages.iter().filter_map(|message| message.user_text.as_deref()).collect();
            let before = texts.len().saturating_sub(shown.count_of_texts().saturating_add(1));
            let begins_alike = self.questions.len() >= before
                && texts.iter().take(before).zip(&self.questions).all(|(text, (_, stored))| text == stored);
            if begins_alike {
                return before;
            }
        }
        let known = |words: &str| self.questions.iter().rposition(|(_, stored)| *stored == words);
        shown.before().and_then(known).map_or(0, |position| position.saturating_add(1))
    }

    /// Returns the messages that a client shows before its new one, after the last one that is stored. A message with
    /// a name is stored under that name, superseded or not. One without a name is found by its text, among the user
    /// messages after the `answered` ones.
    fn lacking(&self, shown: EarlierMessages, answered: usize) -> Added {
        let later = self.questions.get(answered..).unwrap_or_default();
        let names: HashSet<&str> = self
            .transcript
            .messages
            .iter()
            .filter(|message| matches!(message.body, Body::User(_)))
            .filter_map(|message| message.client_id.as_deref())
            .collect();
        let has_id = |id: MessageId| self.transcript.messages.iter().any(|message| message.id == id);
        shown.after_stored(|message| match &message.id {
            Some(name) => names.contains(name.as_str()) || name.parse().is_ok_and(has_id),
            None => message.text.as_ref().is_ok_and(|words| later.iter().any(|(_, stored)| stored == words)),
        })
    }

    /// Returns the assistant message with this id. A superseded message keeps its id, so that a request that
    /// names it continues no other message.
    fn answer(&self, id: &str) -> Option<MessageId> {
        let id = id.parse().ok()?;
        self.transcript.questions.contains_key(&id).then_some(id)
    }

    /// Returns the user message of this answer, unless the answer is superseded.
    fn question_of(&self, id: &str) -> Option<(&'a Message, &'a str)> {
        let answer = self.answer(id)?;
        self.transcript.current().find(|message| message.id == answer)?;
        let question = self.transcript.questions.get(&answer)?;
        self.questions.iter().find(|(message, _)| message.id == *question).copied()
    }

    /// Returns the text of the user message of this answer, superseded or not.
    fn words_before(&self, answer: MessageId) -> Option<&'a str> {
        let question = self.transcript.questions.get(&answer)?;
        match &self.transcript.messages.iter().find(|message| message.id == *question)?.body {
            Body::User(text) => Some(text),
            Body::Assistant(_) => None,
        }
    }

    /// Continues the answer to this user message.
    fn resume_after(&self, question: &Message) -> Intent {
        let of_it = |message: &&Message| self.transcript.questions.get(&message.id) == Some(&question.id);
        // A message that was stored before the user message of a run has no answer of its own.
        let follows = |message: &&Message| {
            message.ordinal > question.ordinal && matches!(message.body, Body::Assistant(_))
        };
        let answer =
            self.transcript.current().rfind(of_it).or_else(|| self.transcript.current().find(follows));
        Intent::Continue { message: answer.map(|message| message.id), from_the_start: true }
    }

    /// A message with a stored name and the stored text is the same message, posted again. With another text it
    /// is another message, which the answer of the stored one must not replace.
    fn repeated(
        &self,
        name: &str,
        question: &Message,
        words: &str,
        posted: Option<&str>,
    ) -> Result<Intent, AdmitError> {
        match posted {
            Some(posted) if posted != words => Err(AdmitError::NameUsed(name.to_owned())),
            Some(_) | None => Ok(self.resume_after(question)),
        }
    }

    fn new_message(&self, text: String, client_id: Option<String>) -> Result<Intent, AdmitError> {
        if let Some(name) = &client_id
            && let Some((question, words)) = self.question(name)
        {
            return self.repeated(name, question, words, Some(&text));
        }
        Ok(Intent::new(text, client_id))
    }

    /// An edit of a message that never arrived is a new message. An edit to the stored text is a repeated
    /// post: clients that retry name the message just as clients that edit it. A client that names an answer
    /// continues it, and posts the user message of that answer.
    fn edit(&self, name: String, text: String) -> Result<Intent, AdmitError> {
        if let Some(answer) = self.answer(&name) {
            return match self.words_before(answer) {
                Some(words) if text != words => Err(AdmitError::NameUsed(name)),
                Some(_) | None => Ok(Intent::resume(Some(answer))),
            };
        }
        Ok(match self.question(&name) {
            Some((message, words)) if text == words => self.resume_after(message),
            Some((message, _)) => Intent::edit(message.ordinal, text, Some(name)),
            None => Intent::new(text, Some(name)),
        })
    }

    /// Clients also regenerate if a message never arrived, or if they changed its text. Returns `None` if the
    /// message to answer is unknown.
    fn regenerate(&self, answer: Option<&str>, posted: Option<PostedMessage>) -> Option<Intent> {
        let (text, client_id) = posted.map_or((None, None), |posted| (posted.user_text, posted.id));
        let named_question = client_id.as_deref().and_then(|name| self.question(name));
        let named = answer.and_then(|name| self.question_of(name).or_else(|| self.question(name)));
        let (question, words) = match (named.or(named_question), &text) {
            (Some(found), _) => found,
            // A client without names identifies the message by its text alone. A message with an unknown name
            // never arrived, even if the previous message has the same text.
            (None, Some(text)) => match self.questions.last() {
                Some((message, words)) if client_id.is_none() && text == words => (*message, *words),
                _ => return Some(Intent::new(text.clone(), client_id)),
            },
            (None, None) if client_id.is_none() => *self.questions.last()?,
            (None, None) => return None,
        };
        let is_named = named_question.is_some_and(|(named_question, _)| named_question.id == question.id);
        Some(match text.filter(|text| is_named && text != words) {
            Some(text) => Intent::edit(question.ordinal, text, client_id),
            None => Intent::Regenerate { message: question.id, ordinal: question.ordinal },
        })
    }

    /// A client that posts its whole history implies an edit or a regenerate: AI SDK 4 clients have no other
    /// way to ask for one. Clients also trim their history. So a history that does not begin as the stored
    /// one is a new message.
    fn history(&self, posted: &[PostedMessage]) -> Result<Intent, AdmitError> {
        let (text, client_id) = match posted.last() {
            Some(PostedMessage { user_text: Some(text), id }) if !text.is_empty() => (text, id),
            Some(PostedMessage { .. }) | None => return Ok(Intent::resume(None)),
        };
        let texts: Vec<&str> = posted.iter().filter_map(|message| message.user_text.as_deref()).collect();
        let before = texts.split_last().map_or(&[] as &[&str], |(_, before)| before);
        let Some((same_position, current)) = self.questions.get(before.len()) else {
            return self.new_message(text.clone(), client_id.clone());
        };
        if texts.len() == self.questions.len() && text == current {
            return Ok(Intent::Regenerate { message: same_position.id, ordinal: same_position.ordinal });
        }
        let begins_alike = before.iter().zip(&self.questions).all(|(text, (_, stored))| text == stored);
        // A name of another message is no edit of this one.
        let named = client_id.as_deref().and_then(|name| self.question(name));
        let is_of_another = named.is_some_and(|(message, _)| message.id != same_position.id);
        if !before.is_empty() && begins_alike && !is_of_another {
            let ordinal = same_position.ordinal;
            return Ok(Intent::edit(ordinal, text.clone(), client_id.clone()));
        }
        self.new_message(text.clone(), client_id.clone())
    }
}
