//! A demo model without a network: it knows a handful of sentences about the demo tools, calls the tools and
//! tells what came back. The same conversation always gets the same answer.

use super::{LanguageModel, ModelCall, ModelError, ModelEvent, ModelMessage, ModelRequest};
use crate::domain::call::{Input, words};
use crate::domain::message::Usage;
use crate::domain::turn::FinishReason;
use futures::stream::{self, BoxStream, StreamExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The model's id, and its provider.
const SCRIPTED: &str = "scripted";

/// What the model says when it did not understand: what it does understand.
pub const FORMS: &str = "I am a scripted demo model. I understand these sentences only:

- list files
- read notes.txt
- write hello to notes.txt
- delete notes.txt
- what happened

Sentences can be joined: list files and delete notes.txt. \
Put a name with spaces in quotes: read \"my notes.txt\".";

/// Begins a user message that is really the server's: how a call went whose outcome came later.
const NOTE: &str = "[tool outcome]";

const LIST: &str = "list_files";
const READ: &str = "read_file";
const WRITE: &str = "write_file";
const DELETE: &str = "delete_file";

/// The scripted model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scripted;

impl Scripted {
    /// The model; there is nothing to set.
    pub const fn new() -> Self {
        Self
    }
}

impl LanguageModel for Scripted {
    fn id(&self) -> &str {
        SCRIPTED
    }

    fn provider(&self) -> &str {
        SCRIPTED
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        stream::iter(events(&request).into_iter().map(Ok)).boxed()
    }
}

fn events(request: &ModelRequest) -> Vec<ModelEvent> {
    let (text, forms) = answer(request);
    let pieces = text.split_inclusive(char::is_whitespace);
    let mut events: Vec<_> = pieces.map(|piece| ModelEvent::Text(piece.to_owned())).collect();
    let mut output_tokens = tokens(&text);
    let reason = if forms.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    let numbers = history(&request.messages).len().saturating_add(1)..;
    for ((index, form), number) in forms.into_iter().enumerate().zip(numbers) {
        let (provider_call_id, tool_name) = (format!("{SCRIPTED}-{number}"), form.tool.to_owned());
        events.push(ModelEvent::CallStarted { index, provider_call_id, tool_name });
        let arguments = form.input.to_string();
        output_tokens = output_tokens.saturating_add(tokens(&arguments));
        let arguments: Vec<char> = arguments.chars().collect();
        for piece in arguments.chunks(arguments.len().div_ceil(3).max(1)) {
            events.push(ModelEvent::CallArguments { index, delta: piece.iter().collect() });
        }
        events.push(ModelEvent::CallFinished { index });
    }
    let usage = Some(Usage { input_tokens: read_tokens(request), output_tokens });
    events.push(ModelEvent::Finished { reason, usage, provider_state: None });
    events
}

/// What stands in for tokens here: the words between white space. Read are the instructions and the texts of
/// all messages, not the calls' inputs nor the tools' definitions; written are the text and the calls' inputs.
fn tokens(text: &str) -> u64 {
    u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX)
}

fn read_tokens(request: &ModelRequest) -> u64 {
    let texts = request.messages.iter().map(|message| match message {
        ModelMessage::User(text) => text,
        ModelMessage::Assistant { text, .. } | ModelMessage::Tool { text, .. } => text,
    });
    texts.chain(&request.system).map(|text| tokens(text)).fold(0, u64::saturating_add)
}

/// What is said, and the calls behind it.
fn answer(request: &ModelRequest) -> (String, Vec<Form>) {
    let messages = &request.messages;
    // Where the calls begin that have to be told of: with the last step if their answers came just now, or
    // else with the notes behind it.
    let is_step = |message: &_| matches!(message, ModelMessage::Assistant { .. });
    let last_step = messages.iter().rposition(is_step);
    let begin = match messages.iter().rev().find(|message| !is_note(message)) {
        Some(ModelMessage::User(sentence)) => return reply(sentence, request),
        Some(ModelMessage::Tool { .. }) => last_step.unwrap_or(0),
        _ => last_step.map_or(0, |step| step.saturating_add(1)),
    };
    let calls = history(messages);
    let news: Vec<_> = calls.iter().filter(|made| made.at >= begin).map(Made::told).collect();
    (if news.is_empty() { FORMS.to_owned() } else { news.join("\n\n") }, Vec::new())
}

fn reply(sentence: &str, request: &ModelRequest) -> (String, Vec<Form>) {
    let sentence = sentence.trim();
    let sentence = sentence.strip_suffix(['.', '!', '?']).unwrap_or(sentence);
    let words = Word::all(sentence);
    if matches!(lower(polite(&words)).as_str(), "what happened" | "did it work") {
        return (what_happened(&request.messages), Vec::new());
    }
    let Some(forms) = Form::all(sentence, &words) else { return (FORMS.to_owned(), Vec::new()) };
    let missing = |form: &&Form| !request.tools.iter().any(|tool| tool.name == form.tool);
    if let Some(Form { tool, .. }) = forms.iter().find(missing) {
        return (format!("The tool {tool} is not available here, so I do nothing."), Vec::new());
    }
    let intents: Vec<_> = forms.iter().map(|form| form.intent.as_str()).collect();
    (format!("I will {}.", intents.join(" and ")), forms)
}

fn what_happened(messages: &[ModelMessage]) -> String {
    let calls = history(messages);
    if calls.is_empty() {
        return "No tool was called in this conversation so far.".to_owned();
    }
    let lines = calls.iter().zip(1..).map(|(made, n): (_, usize)| format!("{n}. {}", made.told()));
    lines.collect::<Vec<_>>().join("\n")
}

/// A sentence that is a call.
struct Form {
    tool: &'static str,
    input: Value,
    /// What the user wants, to stand behind "I will".
    intent: String,
}

/// A word of a sentence, or a quotation with its marks, which counts as one.
struct Word<'a> {
    at: usize,
    text: &'a str,
}

impl Form {
    /// The calls of a sentence, if it is nothing else.
    fn all(sentence: &str, words: &[Word<'_>]) -> Option<Vec<Self>> {
        let pieces = words.split(|word| word.is("and"));
        let forms: Option<_> = pieces.map(|piece| Self::parse(sentence, piece)).collect();
        // "write salt and pepper to x" is one form: its pieces are none.
        forms.or_else(|| Some(vec![Self::parse(sentence, words)?]))
    }

    fn parse(sentence: &str, words: &[Word<'_>]) -> Option<Self> {
        let words = polite(words);
        if let "list files" | "list the files" | "what files are there" = lower(words).as_str() {
            return Some(Self { tool: LIST, input: json!({}), intent: "list the files".to_owned() });
        }
        let (path, words) = words.split_last()?;
        let path = path.name()?;
        let (tool, verb) = match lower(words).as_str() {
            "read" | "show" | "read the file" | "show the file" => (READ, "read"),
            "delete" | "remove" | "delete the file" | "remove the file" => (DELETE, "delete"),
            _ => return Self::write(sentence, words, path),
        };
        Some(Self { tool, input: json!({ "path": path }), intent: format!("{verb} {path}") })
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
        Some(Self { tool: WRITE, input, intent: format!("write {path}") })
    }
}

impl<'a> Word<'a> {
    fn all(sentence: &'a str) -> Vec<Self> {
        let mut words = Vec::new();
        let mut rest = sentence.trim_start();
        // A mark that ends nothing from here on does not further on: it is looked for once, not at each word.
        let mut endless = Vec::new();
        while !rest.is_empty() {
            let mark = quotation_mark(rest).filter(|mark| !endless.contains(mark));
            let quotation = mark.and_then(|mark| quotation(rest, mark));
            endless.extend(mark.filter(|_| quotation.is_none()));
            let end = quotation.or_else(|| rest.find(char::is_whitespace)).unwrap_or(rest.len());
            let (text, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let at = sentence.len().saturating_sub(rest.len());
            words.push(Self { at, text });
            rest = behind.trim_start();
        }
        words
    }

    fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// What stands between the marks, if this is a quotation.
    fn quoted(&self) -> Option<&'a str> {
        let mark = quotation_mark(self.text)?;
        self.text.strip_prefix(mark)?.strip_suffix(mark)
    }

    /// The name that this is. Without quotes a name is one word, so that "delete everything I have" is none.
    fn name(&self) -> Option<&'a str> {
        let name = if quotation_mark(self.text).is_some() { self.quoted()? } else { self.text };
        (!name.is_empty()).then_some(name)
    }
}

fn quotation_mark(text: &str) -> Option<char> {
    text.chars().next().filter(|mark| matches!(mark, '\'' | '"' | '`'))
}

/// The length of the quotation that this begins with. It ends where a word ends, so that an apostrophe is no
/// quotation mark.
fn quotation(text: &str, mark: char) -> Option<usize> {
    let ends = text.match_indices(mark).skip(1);
    let mut ends = ends.map(|(at, mark)| at.saturating_add(mark.len()));
    let ends_a_word = |behind: &str| behind.is_empty() || behind.starts_with(char::is_whitespace);
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

/// A call of the conversation and the last that was heard of it.
struct Made<'a> {
    tool: &'a str,
    id: &'a str,
    /// None of a call that only a note tells of: the message that made it was cut off.
    input: Option<&'a Input>,
    answer: Option<&'a str>,
    /// The message that made it, or the note that told how it ended.
    at: usize,
}

fn history(messages: &[ModelMessage]) -> Vec<Made<'_>> {
    let mut calls: Vec<Made<'_>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            ModelMessage::Assistant { calls: made, .. } => calls.extend(made.iter().map(|call| {
                let ModelCall { id, tool_name: tool, input } = call;
                Made { tool, id, input: Some(input), answer: None, at }
            })),
            ModelMessage::Tool { call_id, text, .. } => {
                if let Some(made) = calls.iter_mut().rev().find(|made| made.id == call_id) {
                    made.answer = Some(text);
                }
            }
            ModelMessage::User(text) => {
                let Some((tool, id, told)) = note(text) else { continue };
                match calls.iter_mut().rev().find(|made| (made.tool, made.id) == (tool, id)) {
                    Some(made) if made.is_open() => (made.answer, made.at) = (Some(told), at),
                    // What is settled stays so, whatever a user writes that looks like a note.
                    Some(_) => {}
                    None => calls.push(Made { tool, id, input: None, answer: Some(told), at }),
                }
            }
        }
    }
    calls
}

fn is_note(message: &ModelMessage) -> bool {
    matches!(message, ModelMessage::User(text) if text.starts_with(NOTE))
}

/// The tool, the call and what is told of it.
fn note(text: &str) -> Option<(&str, &str, &str)> {
    let (tool, rest) = text.strip_prefix(NOTE)?.trim_start().split_once(", call ")?;
    rest.split_once(": ").map(|(id, told)| (tool, id, told))
}

impl Made<'_> {
    /// Whether more may be heard of it.
    fn is_open(&self) -> bool {
        self.answer.is_none_or(|answer| {
            let told = edited(answer).map_or(answer, |(_, told)| told);
            [words::AWAITING, words::UNDER_WAY, words::INTERRUPTED].contains(&told)
        })
    }

    /// How it went, in words. Only what the answer says is claimed: words that are not known are repeated.
    fn told(&self) -> String {
        let Some(answer) = self.answer else {
            return format!("Nothing is known yet of {}.", label(self.tool, self.input));
        };
        let edit = edited(answer);
        let (input, told) = edit.as_ref().map_or((self.input, answer), |(input, told)| (Some(input), told));
        let edit = answer.strip_suffix(told).unwrap_or_default();
        let begin = if self.input.is_some() { "" } else { "Of an earlier call, which I do not see here: " };
        format!("{begin}{edit}{}", outcome(self.tool, &label(self.tool, input), told))
    }
}

fn outcome(tool: &str, label: &str, told: &str) -> String {
    if let Some(reason) = told.strip_prefix(words::REJECTED) {
        return match reason.trim_start().strip_prefix("Reason: ") {
            Some(reason) => format!("You rejected {label}: {}.", reason.trim_end_matches('.')),
            None => format!("You rejected {label}. It did not run."),
        };
    }
    if let Some(reason) = told.strip_prefix(words::FAILED) {
        return format!("{label} failed: {}.", reason.trim().trim_end_matches('.'));
    }
    let how = match told {
        words::AWAITING => " waits for a person's approval. It has not run.",
        words::UNDER_WAY => " is approved and under way. Its outcome is not known yet.",
        words::EXPIRED => " was not approved in time. It did not run.",
        words::CANCELLED => " was cancelled. It did not run.",
        words::INTERRUPTED => " may have run: its outcome is unknown.",
        told => return success(tool, told).unwrap_or_else(|| format!("{label}: {told}")),
    };
    format!("{label}{how}")
}

/// The output of a demo tool in words, if it is one, and whole.
fn success(tool: &str, told: &str) -> Option<String> {
    let output: Input = serde_json::from_str(told).ok()?;
    let text = |key| output.get(key).and_then(Value::as_str);
    Some(match tool {
        LIST => {
            let files = Vec::<String>::deserialize(output.get("files")?).ok()?;
            let first = if output.contains_key("truncated") { "first " } else { "" };
            match files.len() {
                0 => "There are no files.".to_owned(),
                n => format!("The {first}files ({n}):\n\n- {}", files.join("\n- ")),
            }
        }
        READ => match (text("path")?, text("content")?) {
            (path, "") => format!("{path} is empty."),
            (path, content) => format!("{path} holds:\n\n{content}"),
        },
        WRITE => match (output.get("bytes")?.as_u64()?, text("path")?) {
            (1, path) => format!("Done: wrote 1 byte to {path}."),
            (bytes, path) => format!("Done: wrote {bytes} bytes to {path}."),
        },
        DELETE => format!("Done: {} is deleted.", text("deleted")?),
        _ => return None,
    })
}

/// The inputs that a person put in place of the model's, and what is told behind that.
fn edited(answer: &str) -> Option<(Input, &str)> {
    let (_, rest) = leading_object(answer.strip_prefix(words::EDITED)?)?;
    let (input, rest) = leading_object(rest.strip_prefix(" to ")?)?;
    Some((input, rest.strip_prefix(" before approving. ")?))
}

fn leading_object(text: &str) -> Option<(Input, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Input>();
    let object = values.next()?.ok()?;
    Some((object, text.get(values.byte_offset()..)?))
}

fn label(tool: &str, input: Option<&Input>) -> String {
    match input.and_then(|input| input.get("path")).and_then(Value::as_str) {
        Some(path) => format!("{tool} ({path})"),
        None => tool.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::call::{Outcome, rejection};
    use crate::llm::ToolDefinition;
    use std::sync::Arc;

    fn user(text: &str) -> ModelMessage {
        ModelMessage::User(text.to_owned())
    }

    /// A step with these calls: id, tool, inputs.
    fn step(calls: &[(&str, &str, Value)]) -> ModelMessage {
        let calls = calls.iter().map(|(id, tool, value)| {
            let (id, tool_name) = ((*id).to_owned(), (*tool).to_owned());
            ModelCall { id, tool_name, input: value.as_object().unwrap().clone() }
        });
        let (text, calls) = ("I will.".to_owned(), calls.collect());
        ModelMessage::Assistant { text, calls, provider_state: None }
    }

    fn told(id: &str, tool: &str, text: &str) -> ModelMessage {
        let (call_id, tool_name, text) = (id.to_owned(), tool.to_owned(), text.to_owned());
        ModelMessage::Tool { call_id, tool_name, text }
    }

    fn say(messages: &[ModelMessage], tools: &[&str]) -> Vec<ModelEvent> {
        let tools = tools.iter().map(|&name| {
            let (name, description) = (name.to_owned(), String::new());
            Arc::new(ToolDefinition { name, description, input_schema: json!({}) })
        });
        let (messages, tools) = (messages.to_vec(), tools.collect());
        let events = Scripted::new().stream(ModelRequest { system: None, messages, tools });
        futures::executor::block_on(events.map(Result::unwrap).collect())
    }

    /// The words of an answer that is nothing else.
    fn words_of(events: &[ModelEvent]) -> String {
        let (last, pieces) = events.split_last().unwrap();
        assert!(matches!(last, ModelEvent::Finished { reason: FinishReason::Stop, usage: Some(_), .. }));
        let text = |event: &ModelEvent| match event {
            ModelEvent::Text(piece) => piece.clone(),
            other => panic!("{other:?}"),
        };
        pieces.iter().map(text).collect()
    }

    const ALL: [&str; 4] = [LIST, READ, WRITE, DELETE];

    const UNDERSTOOD: &str = r#"
        list files -> list_files {}
        Please,  LIST the	files ! -> list_files {}
        What files are there? -> list_files {}
        read notes.txt. -> read_file {"path":"notes.txt"}
        please show the file `a b.txt`? -> read_file {"path":"a b.txt"}
        read ../secret.txt -> read_file {"path":"../secret.txt"}
        delete Old.TXT -> delete_file {"path":"Old.TXT"}
        remove the file 'old and new.txt'. -> delete_file {"path":"old and new.txt"}
        write hello to a.txt -> write_file {"content":"hello","path":"a.txt"}
        Write  from me  to you To "a to b" -> write_file {"content":"from me  to you","path":"a to b"}
        write 'one. and two to go' to a -> write_file {"content":"one. and two to go","path":"a"}
        write "" to a -> write_file {"content":"","path":"a"}
        write to to to -> write_file {"content":"to","path":"to"}
        write salt and pepper to a -> write_file {"content":"salt and pepper","path":"a"}
        write it's fine to don't.txt -> write_file {"content":"it's fine","path":"don't.txt"}
        write 'a' or 'b' to c -> write_file {"content":"'a' or 'b'","path":"c"}
        list files and delete old.txt -> list_files {} & delete_file {"path":"old.txt"}
        write a to b AND please read b -> write_file {"content":"a","path":"b"} & read_file {"path":"b"}
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
            let meant: String = say(&[user(sentence)], &ALL).iter().map(piece).collect();
            assert_eq!(meant.trim_start_matches(" & "), expected, "{sentence}");
        }
        for sentence in NOT_UNDERSTOOD.split('|') {
            assert_eq!(words_of(&say(&[user(sentence)], &ALL)), FORMS, "{sentence}");
        }
    }

    #[test]
    fn a_call_is_announced_and_streamed_in_pieces() {
        let history = [
            user("list files"),
            step(&[("scripted-1", LIST, json!({}))]),
            told("scripted-1", LIST, r#"{"files":[]}"#),
            step(&[]),
            user("list files and delete né.txt"),
        ];
        let brief = |event: &ModelEvent| match event {
            ModelEvent::Text(piece) => piece.clone(),
            ModelEvent::CallStarted { index, provider_call_id, .. } => format!("{index} {provider_call_id}"),
            ModelEvent::CallArguments { index, delta } => format!("{index} {delta}"),
            ModelEvent::CallFinished { index } => format!("{index} whole"),
            other => format!("{other:?}"),
        };
        let said: Vec<_> = say(&history, &ALL).iter().map(brief).collect();
        let end = "Finished { reason: ToolCalls, \
                   usage: Some(Usage { input_tokens: 12, output_tokens: 10 }), provider_state: None }";
        let expected = "I |will |list |the |files |and |delete |né.txt.\
                        |0 scripted-2|0 {|0 }|0 whole\
                        |1 scripted-3|1 {\"path|1 \":\"né.|1 txt\"}|1 whole|";
        assert_eq!(said.join("|"), format!("{expected}{end}"));
        let without = words_of(&say(&history, &[LIST]));
        assert_eq!(without, "The tool delete_file is not available here, so I do nothing.");
    }

    // The last ones are not what the tool says when it is done, so that it is done is not claimed.
    const ANSWERS: &str = r#"
        delete_file -> {"deleted":"old.txt"} -> Done: old.txt is deleted.
        write_file -> {"bytes":5,"path":"x"} -> Done: wrote 5 bytes to x.
        read_file -> {"content":"a\nb","path":"x"} -> x holds:\n\na\nb
        read_file -> {"content":"","path":"x"} -> x is empty.
        read_file -> {"content":"The tool failed: a","path":"x"} -> x holds:\n\nThe tool failed: a
        list_files -> {"files":[]} -> There are no files.
        list_files -> {"files":["a","b/c"]} -> The files (2):\n\n- a\n- b/c
        list_files -> {"files":["a"],"truncated":true} -> The first files (1):\n\n- a
        delete_file -> {"deleted" […cut] -> delete_file (old.txt): {"deleted" […cut]
        delete_file -> There is no such tool. -> delete_file (old.txt): There is no such tool.
        delete_file -> {"bytes":1} -> delete_file (old.txt): {"bytes":1}
        other -> {"deleted":"x"} -> other (old.txt): {"deleted":"x"}
    "#;

    #[test]
    fn answers_are_told_in_words() {
        let input = |path: &str| Input::from_iter([("path".to_owned(), json!(path))]);
        let asked = input("old.txt");
        let tell = |tool: &str, answer: &str| {
            let call = step(&[("1", tool, json!(asked))]);
            words_of(&say(&[user("go"), call, told("1", tool, answer)], &ALL))
        };
        for line in ANSWERS.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
            let [tool, answer, words] = *line.split(" -> ").collect::<Vec<_>>() else { panic!("{line}") };
            assert_eq!(tell(tool, answer), words.replace("\\n", "\n"), "{line}");
        }
        let failed = Outcome::Failed("no such file".to_owned());
        let ends: [(&str, &str); _] = [
            (words::AWAITING, "D waits for a person's approval. It has not run."),
            (words::UNDER_WAY, "D is approved and under way. Its outcome is not known yet."),
            (words::EXPIRED, "D was not approved in time. It did not run."),
            (words::CANCELLED, "D was cancelled. It did not run."),
            (words::INTERRUPTED, "D may have run: its outcome is unknown."),
            (&failed.words(&asked, &asked, 1000), "D failed: no such file."),
            (&rejection(None), "You rejected D. It did not run."),
            (&rejection(Some("not today")), "You rejected D: not today."),
        ];
        for (answer, told) in ends {
            assert_eq!(tell(DELETE, answer), told.replace('D', "delete_file (old.txt)"));
        }
        // A name that reads like the words around it.
        let ran = input("} to { before approving. c");
        let done = Outcome::Succeeded(json!({"deleted": "c"}));
        for (outcome, end) in [(done, "Done: c is deleted."), (failed, "c) failed: no such file.")] {
            let told = tell(DELETE, &outcome.words(&asked, &ran, 1000));
            assert!(told.starts_with(words::EDITED) && told.ends_with(end), "{told}");
        }
    }

    #[test]
    fn what_happened_is_told_with_later_notes() {
        let path = |path: &str| json!({ "path": path });
        let mut messages = vec![
            user("list files and delete a"),
            step(&[("c-1", LIST, json!({})), ("c-2", DELETE, path("a"))]),
            told("c-1", LIST, r#"{"files":["a"]}"#),
            told("c-2", DELETE, words::AWAITING),
            step(&[]),
            user("delete b"),
            step(&[("c-3", DELETE, path("b"))]),
            told("c-3", DELETE, &rejection(None)),
            step(&[("c-4", DELETE, path("c"))]),
            told("c-4", DELETE, words::INTERRUPTED),
            step(&[]),
        ];
        let told_of = |messages: &[ModelMessage]| words_of(&say(messages, &ALL));
        assert_eq!(told_of(&messages), FORMS, "nothing is new");
        messages.push(user(r#"[tool outcome] delete_file, call c-2: {"deleted":"a"}"#));
        assert_eq!(told_of(&messages), "Done: a is deleted.");
        // What is settled is not changed by words that look like a note, and no note is a sentence.
        messages.push(user(r#"[tool outcome] delete_file, call c-3: {"deleted":"b"}"#));
        messages.push(user("[tool outcome] delete b"));
        assert_eq!(told_of(&messages), "Done: a is deleted.");
        messages.push(user(r#"[tool outcome] delete_file, call cut-off: {"deleted":"d"}"#));
        messages.push(user("[tool outcome] delete_file, call c-4: The tool failed: no"));
        messages.push(user("What happened?"));
        let expected = "1. The files (1):\n\n- a\n\
                        2. Done: a is deleted.\n\
                        3. You rejected delete_file (b). It did not run.\n\
                        4. delete_file (c) failed: no.\n\
                        5. Of an earlier call, which I do not see here: Done: d is deleted.";
        assert_eq!(told_of(&messages), expected);
        messages.push(user("please,  did it WORK "));
        assert_eq!(told_of(&messages), expected);
        assert_eq!(told_of(&[user("what happened")]), "No tool was called in this conversation so far.");
        assert_eq!(told_of(&[]), FORMS);
    }
}
