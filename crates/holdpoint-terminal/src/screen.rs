//! Text for a terminal: headings, facts and blocks. Everything that comes from a server passes through here,
//! and leaves without a character that controls a terminal or hides text.

use super::json_text;
use anstyle::{AnsiColor, Style};
use holdpoint_core::json::hex::hex;
use holdpoint_core::text::visible::{visible, visible_lines};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use unicode_width::UnicodeWidthChar;

/// The most characters of one line of a server, and the most lines of one block, unless everything is shown.
const LINE_CHARS_MAX: usize = 2000;
const BLOCK_LINES_MAX: usize = 200;
/// The narrowest column in which lines are wrapped.
const WIDTH_MIN: usize = 20;
/// The mark before each row of a block. No row of a block looks like a line of this program.
const MARK: &str = "  | ";

/// What a person chose about the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenOptions {
    pub(crate) colours: bool,
    /// Whether nothing is cut.
    pub(crate) full: bool,
}

/// How a text is written to an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenForm {
    colours: bool,
    /// The columns of the terminal; `None` if the output is no terminal.
    columns: Option<usize>,
    /// Whether nothing is cut.
    full: bool,
}

impl ScreenForm {
    pub(crate) fn of(output: &(impl IsTerminal + AsFd), options: ScreenOptions) -> Self {
        let ScreenOptions { colours, full } = options;
        let is_terminal = output.is_terminal();
        let size = rustix::termios::tcgetwinsize(output).ok().filter(|_| is_terminal);
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        Self { colours: colours && is_terminal, columns, full }
    }

    #[cfg(test)]
    pub(crate) const fn without_terminal(full: bool) -> Self {
        Self { colours: false, columns: None, full }
    }
}

/// A text that is built line by line.
#[derive(Debug)]
pub(crate) struct Screen {
    form: ScreenForm,
    text: String,
    is_cut: bool,
}

impl Screen {
    pub(crate) fn new(form: ScreenForm) -> Self {
        Self { form, text: String::new(), is_cut: false }
    }

    /// Returns the text, and whether a part of it is cut.
    pub(crate) fn finish(self) -> (String, bool) {
        (self.text, self.is_cut)
    }

    /// A title of this program.
    pub(crate) fn heading(&mut self, title: &str) {
        let title = self.styled(title, Style::new().bold());
        self.text += &format!("\n{title}\n");
    }

    /// The first line: the tool, its risk and the state of the call.
    pub(crate) fn title(&mut self, tool: &str, risk: Option<&str>, state: &str) {
        let risk = risk.map(|risk| format!("{} risk  ", visible(risk))).unwrap_or_default();
        let state = visible(state);
        self.line(&format!("{}  {risk}{state}", visible(tool)), &state);
    }

    /// A line with facts of the server, which are visible already. The word for a state has a colour as well.
    pub(crate) fn line(&mut self, line: &str, state: &str) {
        let line = shortened(line, LINE_CHARS_MAX);
        let style = Style::new().bold().fg_color(Some(colour(state).into()));
        for (n, row) in self.rows(&line, MARK.len()).iter().enumerate() {
            self.text += &match n {
                0 if !state.is_empty() => {
                    format!("{}\n", row.replacen(state, &self.styled(state, style), 1))
                }
                0 => format!("{row}\n"),
                _ => format!("{MARK}{row}\n"),
            };
        }
    }

    /// A sentence of this program.
    pub(crate) fn sentence(&mut self, sentence: &str) {
        self.text += &format!("{sentence}\n");
    }

    /// A fact with a short text of the server.
    pub(crate) fn fact(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.visible_fact(name, &visible(value));
        }
    }

    /// A fact with a text that is visible already.
    pub(crate) fn visible_fact(&mut self, name: &str, value: &str) {
        let (shown, note) = self.cut_lines(&[value.to_owned()], value);
        let shown = shown.concat();
        let first = format!("  {name:<15}");
        let indent = " ".repeat(first.len());
        for (n, row) in self.rows(&shown, indent.len()).iter().enumerate() {
            self.text += &format!("{}{row}\n", if n == 0 { &first } else { &indent });
        }
        self.note(note);
    }

    /// JSON of the server, as stored. Returns whether it is shown whole.
    pub(crate) fn json(&mut self, raw: &RawValue) -> bool {
        let lines: Vec<String> = json_text::indented(raw).lines().map(str::to_owned).collect();
        self.block(&lines, &json_text::line(raw))
    }

    /// A text of the server. Returns whether it is shown whole.
    pub(crate) fn text(&mut self, text: &str) -> bool {
        // The width of a tab depends on the terminal.
        let shown = visible_lines(text).replace('\t', "\\t");
        let lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        self.block(&lines, text)
    }

    /// Lines that are visible already. `whole` is the text whose hash identifies the block. Returns whether it is shown
    /// whole.
    fn block(&mut self, lines: &[String], whole: &str) -> bool {
        let (shown, note) = self.cut_lines(lines, whole);
        let is_whole = note.is_none();
        for line in &shown {
            for row in self.rows(line, MARK.len()) {
                self.text += &format!("{MARK}{row}\n");
            }
        }
        self.note(note);
        is_whole
    }

    fn note(&mut self, note: Option<String>) {
        if let Some(note) = note {
            self.is_cut = true;
            self.text += &format!("  {}\n", self.styled(&note, Style::new().bold()));
        }
    }

    /// Returns the lines that are shown, and a note about what is cut.
    fn cut_lines(&self, lines: &[String], whole: &str) -> (Vec<String>, Option<String>) {
        let chars = |lines: &[String]| lines.iter().map(|line| line.chars().count()).sum::<usize>();
        if self.form.full {
            return (lines.to_vec(), None);
        }
        let shown: Vec<String> = lines
            .iter()
            .take(BLOCK_LINES_MAX)
            .map(|line| line.chars().take(LINE_CHARS_MAX).collect())
            .collect();
        let left = chars(lines).saturating_sub(chars(&shown));
        let note = (left > 0 || shown.len() < lines.len()).then(|| {
            let hash = hex(&Sha256::digest(whole));
            format!("(cut: {left} more characters; SHA-256 of the whole: {hash}; --full shows it)")
        });
        (shown, note)
    }

    /// Returns the rows of a line at this terminal, with room for what precedes each of them.
    fn rows(&self, line: &str, indent: usize) -> Vec<String> {
        let Some(columns) = self.form.columns else { return vec![line.to_owned()] };
        let width = columns.saturating_sub(indent).max(WIDTH_MIN);
        let (mut rows, mut used) = (vec![String::new()], 0);
        for c in line.chars() {
            let columns = c.width().unwrap_or_default();
            if used + columns > width {
                rows.push(String::new());
                used = 0;
            }
            used += columns;
            if let Some(row) = rows.last_mut() {
                row.push(c);
            }
        }
        rows
    }

    fn styled(&self, text: &str, style: Style) -> String {
        if self.form.colours { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

fn colour(state: &str) -> AnsiColor {
    match state {
        "pending" | "interrupted" => AnsiColor::Yellow,
        "succeeded" | "approved" => AnsiColor::Green,
        "failed" | "rejected" | "expired" | "cancelled" | "invalid" => AnsiColor::Red,
        _ => AnsiColor::Cyan,
    }
}

/// Returns at most this many characters, with a mark if there are more.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns the lines of a table with these cells, which are visible already.
pub fn table(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for line in lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            let widest =
                lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
            padded += &format!("{cell:<0$}  ", widest.unwrap_or_default());
        }
        text += &format!("{}\n", padded.trim_end());
    }
    text
}
