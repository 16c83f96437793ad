//! The sentences that the model understands, see [`FORMS`](super::FORMS).
//!
//! The model understands a sentence as a whole or not at all. It makes a call only if every word has a place
//! in the sentence. It takes names and contents literally.

use super::{DELETE, LIST, READ, WRITE};
use serde_json::{Value, json};

pub(super) enum SentenceMeaning {
    /// A question about the outcomes of the calls so far.
    WhatHappened,
    /// A request for these calls.
    Calls(Vec<SentenceForm>),
}

/// A sentence that asks for a call.
pub(super) struct SentenceForm {
    pub(super) tool: String,
    pub(super) input: Value,
    /// The intent of the user, in the form that follows "I will".
    pub(super) intent: String,
}

/// A word of a sentence. A quotation with its marks counts as one word.
struct Word<'a> {
    at: usize,
    text: &'a str,
}

impl SentenceMeaning {
    /// Returns `None` if a part of the sentence is not understood.
    pub(super) fn of(sentence: &str) -> Option<Self> {
        let sentence = sentence.trim();
        let sentence = sentence.strip_suffix(['.', '!', '?']).unwrap_or(sentence);
        let words = Word::all(sentence);
        if matches!(lower(polite(&words)).as_str(), "what happened" | "did it work") {
            return Some(Self::WhatHappened);
        }
        SentenceForm::all(sentence, &words).map(Self::Calls)
    }
}

impl SentenceForm {
    /// Returns the calls of a sentence that consists only of calls.
    fn all(sentence: &str, words: &[Word<'_>]) -> Option<Vec<Self>> {
        let pieces = words.split(|word| word.is("and"));
        let forms: Option<_> = pieces.map(|piece| Self::parse(sentence, piece)).collect();
        // "write salt and pepper to x" is one form, although its pieces are not.
        forms.or_else(|| Some(vec![Self::parse(sentence, words)?]))
    }

    fn parse(sentence: &str, words: &[Word<'_>]) -> Option<Self> {
        let words = polite(words);
        if let "list files" | "list the files" | "what files are there" = lower(words).as_str() {
            return Some(Self {
                tool: LIST.to_owned(),
                input: json!({}),
                intent: "list the files".to_owned(),
            });
        }
        let (path, words) = words.split_last()?;
        let path = path.name()?;
        let (tool, verb) = match lower(words).as_str() {
            "read" | "show" | "read the file" | "show the file" => (READ, "read"),
            "delete" | "remove" | "delete the file" | "remove the file" => (DELETE, "delete"),
            _ => return Self::write(sentence, words, path),
        };
        Some(Self { tool: tool.to_owned(), input: json!({ "path": path }), intent: format!("{verb} {path}") })
    }

    fn write(sentence: &str, words: &[Word<'_>], path: &str) -> Option<Self> {
        let [write, text @ .., to] = words else { return None };
        let (first, last) = (text.first()?, text.last()?);
        if !write.is("write") || !to.is("to") {
            return None;
        }
        let text = sentence.get(first.at..last.at.saturating_add(last.text.len()))?;
        let text = first.quoted().filter(|_| first.at == last.at).unwrap_or(text);
        let input = json!({ "path": path, "content": text });
        Some(Self { tool: WRITE.to_owned(), input, intent: format!("write {path}") })
    }
}

impl<'a> Word<'a> {
    fn all(sentence: &'a str) -> Vec<Self> {
        let mut words = Vec::new();
        let mut rest = sentence.trim_start();
        // A mark without an end is searched for only once, because a later search would fail as well.
        let mut endless = Vec::new();
        while !rest.is_empty() {
            let mark = quotation_mark(rest).filter(|mark| !endless.contains(mark));
            let quotation = mark.and_then(|mark| quotation(rest, mark));
            endless.extend(mark.filter(|_| quotation.is_none()));
            let end = quotation.or_else(|| rest.find(char::is_whitespace)).unwrap_or(rest.len());
            let (text, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let at = sentence.len().saturating_sub(rest.len());
            words.push(Self { at, text });
            rest = after.trim_start();
        }
        words
    }

    fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// Returns the text between the marks, if the word is a quotation.
    fn quoted(&self) -> Option<&'a str> {
        let mark = quotation_mark(self.text)?;
        self.text.strip_prefix(mark)?.strip_suffix(mark)
    }

    /// Returns the name that the word is. A name without quotes is one word, so "delete everything I have"
    /// has no name.
    fn name(&self) -> Option<&'a str> {
        let name = if quotation_mark(self.text).is_some() { self.quoted()? } else { self.text };
        (!name.is_empty()).then_some(name)
    }
}

fn quotation_mark(text: &str) -> Option<char> {
    text.chars().next().filter(|mark| matches!(mark, '\'' | '"' | '`'))
}

/// Returns the length of the quotation at the start of the text. A quotation ends only at the end of a word,
/// so an apostrophe is not a quotation mark.
fn quotation(text: &str, mark: char) -> Option<usize> {
    let ends = text.match_indices(mark).skip(1);
    let mut ends = ends.map(|(at, mark)| at.saturating_add(mark.len()));
    let ends_a_word = |after: &str| after.is_empty() || after.starts_with(char::is_whitespace);
    ends.find(|&end| text.get(end..).is_some_and(ends_a_word))
}

fn polite<'a, 'b>(words: &'b [Word<'a>]) -> &'b [Word<'a>] {
    match words {
        [first, rest @ ..] if first.is("please") || first.is("please,") => rest,
        words => words,
    }
}

fn lower(words: &[Word<'_>]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.text.to_ascii_lowercase()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::FORMS;
    use super::super::tests::{ALL, events_of, text_of, user};
    use crate::ModelEvent;

    const UNDERSTOOD: &str = r#"
        list files -> list_files {}
        Please,  LIST the	files ! -> list_files {}
        What files are there? -> list_files {}
        read notes.txt. -> read_file {"path":"notes.txt"}
        please show the file `a b.txt`? -> read_file {"path":"a b.txt"}
        read ../secret.txt -> read_file {"path":"../secret.txt"}
        delete Old.TXT -> delete_file {"path":"Old.TXT"}
        remove the file 'old and new.txt'. -> delete_file {"path":"old and new.txt"}
        write hello to a.txt -> write_file {"path":"a.txt","content":"hello"}
        Write  from me  to you To "a to b" -> write_file {"path":"a to b","content":"from me  to you"}
        write 'one. and two to go' to a -> write_file {"path":"a","content":"one. and two to go"}
        write "" to a -> write_file {"path":"a","content":""}
        write to to to -> write_file {"path":"to","content":"to"}
        write salt and pepper to a -> write_file {"path":"a","content":"salt and pepper"}
        write it's fine to don't.txt -> write_file {"path":"don't.txt","content":"it's fine"}
        write 'a' or 'b' to c -> write_file {"path":"c","content":"'a' or 'b'"}
        list files and delete old.txt -> list_files {} & delete_file {"path":"old.txt"}
        write a to b AND please read b -> write_file {"path":"b","content":"a"} & read_file {"path":"b"}
    "#;

    const NOT_UNDERSTOOD: &str = "|.|please|hello|list|read|read ''|read 'a|delete the file|write hello|write to a\
        |delete everything I have|and|list files and|list files and what happened";

    #[test]
    fn sentences_are_understood() {
        for line in UNDERSTOOD.trim().lines() {
            let (sentence, expected) = line.split_once(" -> ").unwrap();
            let piece = |event: &ModelEvent| match event {
                ModelEvent::CallStarted { tool_name, .. } => format!(" & {tool_name} "),
                ModelEvent::CallArguments { delta, .. } => delta.clone(),
                _ => String::new(),
            };
            let calls: String = events_of(&[user(sentence)], &ALL).iter().map(piece).collect();
            assert_eq!(calls.trim_start_matches(" & "), expected, "{sentence}");
        }
        for sentence in NOT_UNDERSTOOD.split('|') {
            assert_eq!(text_of(&events_of(&[user(sentence)], &ALL)), FORMS, "{sentence}");
        }
    }
}
