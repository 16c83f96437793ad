//! The outcomes of calls in words for the user.
//!
//! A report claims only the facts in the answer. It reports success only for an output that the tool returns
//! on success, and repeats an unknown answer literally.

use super::calls::{PastCall, edited};
use super::{DELETE, LIST, READ, WRITE};
use holdpoint_core::text::model_texts;
use holdpoint_core::tool::input::Input;
use serde::Deserialize as _;
use serde_json::Value;

/// Returns the outcomes of all calls of the conversation.
pub(super) fn all(calls: &[PastCall<'_>]) -> String {
    if calls.is_empty() {
        return "No tool was called in this conversation so far.".to_owned();
    }
    let lines = calls.iter().zip(1..).map(|(call, n): (_, usize)| format!("{n}. {}", call.report()));
    lines.collect::<Vec<_>>().join("\n")
}

impl PastCall<'_> {
    /// Returns the outcome of the call in words. An unknown answer is repeated literally.
    pub(super) fn report(&self) -> String {
        let Some(answer) = self.answer else {
            return format!("Nothing is known yet of {}.", label(self.tool, self.input));
        };
        let edit = edited(answer);
        let (input, rest) = edit.as_ref().map_or((self.input, answer), |(input, rest)| (Some(input), rest));
        let edit = answer.strip_suffix(rest).unwrap_or_default();
        let begin = if self.input.is_some() { "" } else { "Of an earlier call, which I do not see here: " };
        format!("{begin}{edit}{}", outcome(self.tool, &label(self.tool, input), rest))
    }
}

fn outcome(tool: &str, label: &str, text: &str) -> String {
    if let Some(reason) = text.strip_prefix(model_texts::REJECTED) {
        return match reason.trim_start().strip_prefix(model_texts::REASON) {
            Some(reason) => format!("You rejected {label}: {}.", reason.trim_end_matches('.')),
            None => format!("You rejected {label}. It did not run."),
        };
    }
    if let Some(why) = text.strip_prefix(model_texts::CANCELLED)
        && let Some(why) = why.trim_start().strip_prefix(model_texts::REASON)
    {
        return format!("{label} was cancelled: {}. It did not run.", why.trim_end_matches('.'));
    }
    if let Some(reason) = text.strip_prefix(model_texts::FAILED) {
        return format!("{label} failed: {}.", reason.trim().trim_end_matches('.'));
    }
    if let Some(said) = text.strip_prefix(model_texts::INTERRUPTED) {
        return format!("{label} may have run: its outcome is unknown.{said}");
    }
    let how = match text {
        model_texts::AWAITING => " waits for a person's approval. It has not run.",
        model_texts::DUPLICATE => " waits for a person's approval already, so it was not asked about again.",
        model_texts::IN_PROGRESS => " is approved and under way. Its outcome is not known yet.",
        model_texts::EXPIRED => " was not approved in time. It did not run.",
        model_texts::CANCELLED => " was cancelled. It did not run.",
        _ => return success(tool, text).unwrap_or_else(|| format!("{label}: {text}")),
    };
    format!("{label}{how}")
}

/// Returns the complete output of a demo tool in words. Returns `None` for any other text.
fn success(tool: &str, output: &str) -> Option<String> {
    let output: Input = serde_json::from_str(output).ok()?;
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

fn label(tool: &str, input: Option<&Input>) -> String {
    match input.and_then(|input| input.get("path")).and_then(Value::as_str) {
        Some(path) => format!("{tool} ({path})"),
        None => tool.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ALL, events_of, step, text_of, tool_result, user};
    use super::*;
    use holdpoint_core::call::{Outcome, rejection, withdrawal};
    use holdpoint_core::tool::secrets::{Edit, SecretPaths};
    use serde_json::json;

    // The last answers are not outputs of a successful tool, so the report does not claim success.
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
    fn answers_are_reported_in_sentences() {
        let input = |path: &str| Input::from_iter([("path".to_owned(), json!(path))]);
        let proposed = input("old.txt");
        let report_on = |tool: &str, answer: &str| {
            let call = step(&[("1", tool, json!(proposed))]);
            text_of(&events_of(&[user("go"), call, tool_result("1", tool, answer)], &ALL))
        };
        for line in ANSWERS.lines().map(str::trim_start).filter(|line| !line.is_empty()) {
            let [tool, answer, words] = *line.split(" -> ").collect::<Vec<_>>() else { panic!("{line}") };
            assert_eq!(report_on(tool, answer), words.replace("\\n", "\n"), "{line}");
        }
        let failed = Outcome::Failed("no such file".to_owned());
        let ends: [(&str, &str); _] = [
            (model_texts::AWAITING, "D waits for a person's approval. It has not run."),
            (
                model_texts::DUPLICATE,
                "D waits for a person's approval already, so it was not asked about again.",
            ),
            (model_texts::IN_PROGRESS, "D is approved and under way. Its outcome is not known yet."),
            (model_texts::EXPIRED, "D was not approved in time. It did not run."),
            (model_texts::CANCELLED, "D was cancelled. It did not run."),
            (&withdrawal(Some("timeout")), "D was cancelled: timeout. It did not run."),
            (model_texts::INTERRUPTED, "D may have run: its outcome is unknown."),
            (&failed.words(None, 1000), "D failed: no such file."),
            (&rejection(None), "You rejected D. It did not run."),
            (&rejection(Some("not today")), "You rejected D: not today."),
        ];
        for (answer, expected) in ends {
            assert_eq!(report_on(DELETE, answer), expected.replace('D', "delete_file (old.txt)"));
        }
        // An input that reads like the text around it.
        let shown = |input: Input| SecretPaths::default().shown(&input);
        let edit = Edit { from: shown(proposed.clone()), to: shown(input("} to { before approving. c")) };
        let done =
            Outcome::Succeeded(holdpoint_core::output::Output::new(json!({"deleted": "c"}), usize::MAX));
        for (outcome, end) in [(done, "Done: c is deleted."), (failed, "c) failed: no such file.")] {
            let report = report_on(DELETE, &outcome.words(Some(&edit), 1000));
            assert!(report.starts_with(model_texts::EDITED) && report.ends_with(end), "{report}");
        }
    }
}
