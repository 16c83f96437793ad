//! The parts of a call that may contain arguments, as messages show them.

use holdpoint_core::card::CardPart;
use holdpoint_core::card::preview::Preview;
use holdpoint_core::text::cut;
use holdpoint_core::text::placeholders::Piece;
use holdpoint_core::text::visible::{isolated, quoted, visible, visible_json, visible_lines};
use holdpoint_core::tool::headline::FilledHeadline;
use std::fmt::Write;

/// Maximum length of the inputs in a message, in bytes, and of those that the operator sets.
const INPUTS_BYTES: usize = 4000;
/// Maximum length of a preview in a message, in bytes. A stored preview is shorter, but notes make it longer.
const PREVIEW_BYTES: usize = 12_000;
/// Maximum length of another text of a model or a person in a message, in bytes.
pub(super) const TEXT_BYTES: usize = 500;
/// The mark before each line of a preview. No line of a tool looks like one of a message.
const LINE: &str = "| ";

/// The parts of a call that may contain arguments.
#[derive(Debug)]
pub(super) struct SharedArguments {
    pub(super) headline: Option<FilledHeadline>,
    /// Why the call is held.
    pub(super) held_because: Option<String>,
    /// What the decider says about the decision.
    pub(super) said: Option<DeciderWords>,
    /// What the model reads about the outcome, if the tool failed.
    pub(super) failure: Option<String>,
    /// The proposed inputs, or after the decision those that run, as JSON.
    pub(super) inputs: String,
    /// The inputs that the operator sets, as JSON.
    pub(super) constants: Option<String>,
    pub(super) preview: Option<Preview>,
}

/// What a decider says about a decision.
#[derive(Debug)]
pub(super) enum DeciderWords {
    Reason(String),
    Note(String),
}

/// The text of a message.
#[derive(Debug)]
pub(super) struct MessageText {
    pub(super) text: String,
    /// The parts of the card that are whole in the text, each with the length of the text up to its end, in bytes.
    parts: Vec<(CardPart, usize)>,
}

impl MessageText {
    /// A text that begins with this sentence.
    pub(super) fn new(sentence: &str) -> Self {
        Self { text: format!("{sentence}\n\n"), parts: Vec::new() }
    }

    /// Appends a fact in a line of its own.
    pub(super) fn line(&mut self, name: &str, value: &str) {
        // Writing to a text does not fail.
        let _written = writeln!(self.text, "{name}: {value}");
    }

    /// Returns the parts of the card that are whole in the beginning of the text.
    pub(super) fn parts_in(&self, bytes: usize) -> Vec<CardPart> {
        self.parts.iter().filter(|(_, end)| *end <= bytes).map(|(part, _)| *part).collect()
    }

    /// Notes that the part is whole in the text so far.
    fn has(&mut self, part: CardPart) {
        self.parts.push((part, self.text.trim_end().len()));
    }
}

impl SharedArguments {
    /// Appends the facts that an approver reads.
    pub(super) fn write(&self, written: &mut MessageText) {
        let facts = [
            ("Question", self.headline()),
            ("Held because", self.held_because()),
            ("Reason", self.reason()),
            ("Note", self.note()),
            ("Outcome", self.failure()),
        ];
        for (name, text) in facts {
            text.iter().for_each(|text| written.line(name, text));
        }
        written.line("Inputs", &self.inputs());
        if is_whole(&self.inputs) {
            written.has(CardPart::Inputs);
        }
        if let Some(constants) = &self.constants {
            written.line("Inputs that the operator sets", &shown_json(constants));
            if is_whole(constants) {
                written.has(CardPart::Constants);
            }
        }
        if let Some(preview) = &self.preview {
            write_preview(written, preview);
        }
    }

    /// Returns the question to the approver. The values of the model are between quotation marks.
    pub(super) fn headline(&self) -> Option<String> {
        let piece = |piece: &Piece<String>| match piece {
            Piece::Text(text) => visible(text),
            Piece::Value(value) => quoted(value, true),
        };
        self.headline.as_ref().map(|headline| cut(headline.pieces().iter().map(piece).collect(), TEXT_BYTES))
    }

    pub(super) fn held_because(&self) -> Option<String> {
        self.held_because.as_deref().map(|text| shown(text, TEXT_BYTES))
    }

    pub(super) fn reason(&self) -> Option<String> {
        match &self.said {
            Some(DeciderWords::Reason(text)) => Some(shown(text, TEXT_BYTES)),
            Some(DeciderWords::Note(_)) | None => None,
        }
    }

    pub(super) fn note(&self) -> Option<String> {
        match &self.said {
            Some(DeciderWords::Note(text)) => Some(shown(text, TEXT_BYTES)),
            Some(DeciderWords::Reason(_)) | None => None,
        }
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.as_deref().map(|text| shown(text, TEXT_BYTES))
    }

    pub(super) fn inputs(&self) -> String {
        shown_json(&self.inputs)
    }

    pub(super) fn constants(&self) -> Option<String> {
        self.constants.as_deref().map(shown_json)
    }

    /// Returns the preview, or why there is none, in one line.
    pub(super) fn preview(&self) -> Option<String> {
        self.preview.as_ref().map(|preview| match preview {
            Preview::Text(text) => shown(text, PREVIEW_BYTES),
            Preview::Failed(why) => format!("none: {}", shown(why, PREVIEW_BYTES)),
        })
    }
}

/// Appends the preview with its lines.
fn write_preview(written: &mut MessageText, preview: &Preview) {
    let (title, text) = match preview {
        Preview::Text(text) => ("Preview:\n", text),
        Preview::Failed(why) => ("Preview: the tool made none, because\n", why),
    };
    written.text.push_str(title);
    let shown = visible_lines(text);
    let is_whole = shown.len() <= PREVIEW_BYTES;
    // An empty preview has a line too.
    for line in cut(shown, PREVIEW_BYTES).split('\n') {
        let _written = writeln!(written.text, "{LINE}{}", isolated(line.to_owned()));
    }
    if is_whole {
        written.has(CardPart::Preview);
    }
}

/// Returns a text on one line, in a form in which a reader recognizes each character.
pub(super) fn shown(text: &str, bytes_max: usize) -> String {
    isolated(cut(visible(text), bytes_max))
}

fn shown_json(json: &str) -> String {
    cut(visible_json(json, true), INPUTS_BYTES)
}

/// Whether a message shows all of the inputs.
fn is_whole(json: &str) -> bool {
    visible_json(json, true).len() <= INPUTS_BYTES
}

#[cfg(test)]
pub(super) fn sample_shared(inputs: &str) -> SharedArguments {
    let pieces =
        [Piece::Text("Pay ".to_owned()), Piece::Value("<!channel>".to_owned()), Piece::Text("?".to_owned())];
    SharedArguments {
        headline: Some(FilledHeadline::new(pieces.into_iter())),
        held_because: None,
        said: None,
        failure: None,
        inputs: inputs.to_owned(),
        constants: None,
        preview: None,
    }
}
