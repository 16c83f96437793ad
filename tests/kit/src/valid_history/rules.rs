//! The rules of strict servers for the order of a conversation, as a table. A server of this kind refuses each later
//! request of a thread as well, so one broken rule ends the thread.

use super::super::wires::Wire;
use super::{Conversation, Entry, Speaker};

/// A rule, and the wires on which it has a meaning.
pub(crate) struct Rule {
    pub refusal: &'static str,
    /// The servers that have the rule.
    pub of: &'static str,
    /// Whether servers of this wire have the rule.
    pub on: fn(Wire) -> bool,
    pub breaks: fn(&Conversation) -> bool,
}

/// The rules. `check` has those that every server has, such as a last message that is not the model's.
pub(crate) const RULES: [Rule; 5] = [
    Rule {
        refusal: "the user speaks directly after an answer to a call",
        of: "Mistral (code 3230), and its templates at vLLM, NIM and llama.cpp",
        on: |_| true,
        breaks: |it| any_pair(it, |one, next| matches!(one, Entry::Answers(_)) && is_by(next, Speaker::User)),
    },
    Rule {
        refusal: "the user speaks twice in a row",
        of: "the templates of Mistral, Gemma and Llama at vLLM and llama.cpp; Claude at older gateways",
        on: |_| true,
        breaks: |it| any_pair(it, |one, next| is_by(one, Speaker::User) && is_by(next, Speaker::User)),
    },
    Rule {
        refusal: "the model speaks twice in a row",
        of: "the same templates",
        on: |_| true,
        breaks: |it| any_pair(it, |one, next| is_by(one, Speaker::Model) && is_of_model(next)),
    },
    Rule {
        refusal: "there are instructions twice",
        of: "the templates of Qwen, Mistral and Gemma",
        on: |_| true,
        breaks: |it| it.entries.iter().filter(|entry| is_by(entry, Speaker::System)).count() > 1,
    },
    Rule {
        refusal: "there are calls and no tools",
        of: "Anthropic, and every gateway to Bedrock",
        on: |wire| wire.facts().forbids_calls.is_some(),
        breaks: |it| {
            it.tools.is_empty() && it.entries.iter().any(|entry| matches!(entry, Entry::Calls { .. }))
        },
    },
];

/// The refusal by a strict server of this wire, if there is one.
pub(crate) fn refusal(wire: Wire, conversation: &Conversation) -> Option<String> {
    let broken = RULES.iter().find(|rule| (rule.on)(wire) && (rule.breaks)(conversation))?;
    Some(format!("{} ({})", broken.refusal, broken.of))
}

/// Whether every server takes this id of a call: Mistral takes nine letters and digits only (code 3280).
pub fn is_id_for_all(id: &str) -> bool {
    id.len() == 9 && id.chars().all(|it| it.is_ascii_alphanumeric())
}

fn any_pair(conversation: &Conversation, is_broken: fn(&Entry, &Entry) -> bool) -> bool {
    conversation.entries.windows(2).any(|pair| is_broken(&pair[0], &pair[1]))
}

fn is_by(entry: &Entry, who: Speaker) -> bool {
    matches!(entry, Entry::Words { by, .. } if *by == who)
}

fn is_of_model(entry: &Entry) -> bool {
    is_by(entry, Speaker::Model) || matches!(entry, Entry::Calls { .. })
}
