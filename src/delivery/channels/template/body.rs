//! Templates: texts of the configuration that the facts of a message fill.
//!
//! A template in JSON is read before it is filled, so the text of a call fills a text and nothing else.

use crate::config::channels::template::TemplateFormat;
use crate::delivery::letter::Letter;
use crate::delivery::shared::SharedArguments;
use holdpoint_core::json::strict_json;
use holdpoint_core::text::placeholders::{self, Piece};
use serde_json::{Map, Value};

/// The deepest nesting of a template in JSON.
const DEPTH_MAX: usize = 64;

#[derive(Debug)]
pub(super) enum Template {
    Json(Node),
    Text(Text),
}

type Text = Vec<Piece<Placeholder>>;

/// A value of a template in JSON.
#[derive(Debug)]
pub(super) enum Node {
    Fixed(Value),
    Text(Text),
    Items(Vec<Node>),
    Fields(Vec<(String, Node)>),
}

/// A fact of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placeholder {
    Title,
    Text,
    Sentence,
    State,
    Tool,
    RequestedBy,
    Risk,
    Deadline,
    CallId,
    Link,
    Headline,
    Reason,
    Outcome,
    Inputs,
    Constants,
    Preview,
    Votes,
}

/// What the messages of an entry may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct TemplateAccess {
    /// Whether the messages have the address of the call.
    pub(super) link: bool,
    /// Whether the messages may have what contains arguments.
    pub(super) arguments: bool,
}

impl Placeholder {
    const ALL: [(&'static str, Self); 17] = [
        ("title", Self::Title),
        ("text", Self::Text),
        ("sentence", Self::Sentence),
        ("state", Self::State),
        ("tool", Self::Tool),
        ("requested_by", Self::RequestedBy),
        ("risk", Self::Risk),
        ("deadline", Self::Deadline),
        ("call_id", Self::CallId),
        ("link", Self::Link),
        ("headline", Self::Headline),
        ("reason", Self::Reason),
        ("outcome", Self::Outcome),
        ("inputs", Self::Inputs),
        ("constants", Self::Constants),
        ("preview", Self::Preview),
        ("votes", Self::Votes),
    ];

    /// Returns the placeholder of this name, or the reason why the messages have none.
    fn named(name: &str, access: TemplateAccess) -> Result<Self, String> {
        let Some((_, found)) = Self::ALL.into_iter().find(|(known, _)| *known == name) else {
            let known: Vec<String> = Self::ALL.iter().map(|(known, _)| format!("{{{known}}}")).collect();
            return Err(format!("expected one of {}", known.join(", ")));
        };
        match found {
            Self::Link if !access.link => {
                Err("expected server.public_url and the console, which have the address of a call".to_owned())
            }
            Self::Headline
            | Self::Reason
            | Self::Outcome
            | Self::Inputs
            | Self::Constants
            | Self::Preview
                if !access.arguments =>
            {
                Err("expected share_arguments = true".to_owned())
            }
            found => Ok(found),
        }
    }

    /// Returns the value, or an empty text if the call has none.
    fn value(self, letter: &Letter) -> String {
        let shared = letter.shared.as_ref();
        match self {
            Self::Title => letter.title_line(),
            Self::Text => letter.written().text.trim_end().to_owned(),
            Self::Sentence => letter.sentence(),
            Self::State => letter.occasion.state().to_owned(),
            Self::Tool => letter.tool(),
            Self::RequestedBy => letter.requested_by(),
            Self::Risk => letter.risk.to_owned(),
            Self::Deadline => letter.deadline().unwrap_or_default(),
            Self::CallId => letter.call_id.clone(),
            Self::Link => letter.url().unwrap_or_default(),
            Self::Headline => shared.and_then(SharedArguments::headline).unwrap_or_default(),
            Self::Reason => shared.and_then(|it| reason(letter, it)).unwrap_or_default(),
            Self::Outcome => shared.and_then(SharedArguments::failure).unwrap_or_default(),
            Self::Inputs => shared.map(SharedArguments::inputs).unwrap_or_default(),
            Self::Constants => shared.and_then(SharedArguments::constants).unwrap_or_default(),
            Self::Preview => shared.and_then(SharedArguments::preview).unwrap_or_default(),
            Self::Votes => letter.votes().unwrap_or_default(),
        }
    }
}

impl Template {
    /// Reads a template. The error is the reason why it cannot be used.
    pub(super) fn parse(
        template: &str,
        format: TemplateFormat,
        access: TemplateAccess,
    ) -> Result<Self, String> {
        if template.trim().is_empty() {
            return Err("expected a text with placeholders".to_owned());
        }
        match format {
            TemplateFormat::Text => text(template, access).map(Self::Text),
            TemplateFormat::Json => {
                let value = strict_json::parse(template, DEPTH_MAX)
                    .map_err(|error| format!("expected JSON, with placeholders in its texts: {error}"))?;
                Node::parse(value, access).map(Self::Json)
            }
        }
    }

    /// Returns the body of the message.
    pub(super) fn filled(&self, letter: &Letter) -> String {
        match self {
            Self::Json(node) => node.filled(letter).to_string(),
            Self::Text(pieces) => fill(pieces, letter),
        }
    }
}

impl Node {
    fn parse(value: Value, access: TemplateAccess) -> Result<Self, String> {
        Ok(match value {
            Value::String(template) => Self::Text(text(&template, access)?),
            Value::Array(items) => Self::Items(
                items.into_iter().map(|item| Self::parse(item, access)).collect::<Result<_, _>>()?,
            ),
            Value::Object(fields) => {
                let mut read = Vec::new();
                for (name, value) in fields {
                    if name.contains(['{', '}']) {
                        return Err(format!("field {name:?}: expected a name without placeholders"));
                    }
                    read.push((name, Self::parse(value, access)?));
                }
                Self::Fields(read)
            }
            fixed @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Self::Fixed(fixed),
        })
    }

    fn filled(&self, letter: &Letter) -> Value {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(pieces) => Value::String(fill(pieces, letter)),
            Self::Items(items) => items.iter().map(|item| item.filled(letter)).collect(),
            Self::Fields(fields) => {
                let filled = fields.iter().map(|(name, node)| (name.clone(), node.filled(letter)));
                Value::Object(filled.collect::<Map<_, _>>())
            }
        }
    }
}

/// Returns why the call is held, or after the decision what the decider said about it.
fn reason(letter: &Letter, shared: &SharedArguments) -> Option<String> {
    if letter.occasion.waits() { shared.held_because() } else { shared.reason().or_else(|| shared.note()) }
}

fn text(template: &str, access: TemplateAccess) -> Result<Text, String> {
    placeholders::parse(template, |name| Placeholder::named(name, access))
}

fn fill(pieces: &Text, letter: &Letter) -> String {
    placeholders::filled(pieces, |filled, placeholder| filled.push_str(&placeholder.value(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::letter::sample;
    use crate::delivery::occasion::{EndReason, Occasion};
    use crate::delivery::shared::DeciderWords;
    use holdpoint_core::card::preview::Preview;
    use holdpoint_core::tool::headline::FilledHeadline;
    use serde_json::json;

    const ALL: TemplateAccess = TemplateAccess { link: true, arguments: true };
    const ATTACK: &str = "x\", \"topic\": \"planted\"}\r\n{inputs}\u{202e}\u{2028}\u{1b}[31m\\";

    fn letter() -> Letter {
        let inputs = json!({ "a": ATTACK.repeat(1000) }).to_string();
        let value = Piece::Value(ATTACK.to_owned());
        let shared = SharedArguments {
            headline: Some(FilledHeadline::new([value].into_iter())),
            held_because: Some(ATTACK.to_owned()),
            said: Some(DeciderWords::Reason(ATTACK.to_owned())),
            failure: Some(ATTACK.to_owned()),
            constants: Some(inputs.clone()),
            preview: Some(Preview::text(ATTACK)),
            inputs,
        };
        Letter {
            actor: ATTACK.to_owned(),
            title: ATTACK.to_owned(),
            requester: ATTACK.to_owned(),
            required: 2,
            approved_by: vec![ATTACK.to_owned()],
            shared: Some(shared),
            ..sample(Occasion::Held)
        }
    }

    fn every_placeholder() -> String {
        Placeholder::ALL.iter().map(|(name, _)| format!("{{{name}}}|")).collect()
    }

    #[test]
    fn no_text_of_a_call_leaves_its_text_in_json() {
        let body = json!({ "topic": "holds", "n": 5, "all": [every_placeholder()], "nested": { "a": "{{{tool}}}" } });
        let template = Template::parse(&body.to_string(), TemplateFormat::Json, ALL).unwrap();
        let filled = template.filled(&letter());
        let read: Value = serde_json::from_str(&filled).unwrap();
        let names: Vec<&String> = read.as_object().unwrap().keys().collect();
        assert_eq!(names.len(), 4, "{filled}");
        assert_eq!((&read["topic"], &read["n"]), (&json!("holds"), &json!(5)));
        let nested = read["nested"]["a"].as_str().unwrap();
        assert!(nested.starts_with("{x\", \"topic\"") && nested.ends_with("(pay)}"), "{nested}");
        assert!(nested.contains("{inputs}"), "a value is not filled again: {nested}");
        for hidden in ['\u{202e}', '\u{2028}', '\u{1b}', '\r'] {
            assert!(!read["all"][0].as_str().unwrap().contains(hidden), "{filled}");
        }
    }

    #[test]
    fn no_text_of_a_call_adds_a_line_to_a_plain_text() {
        // The text of the message has lines of its own, each of which begins in its words.
        let names = Placeholder::ALL.iter().filter(|(name, _)| *name != "text");
        let lines: Vec<String> = names.map(|(name, _)| format!("{{{name}}}")).collect();
        let template = Template::parse(&lines.join("\n"), TemplateFormat::Text, ALL).unwrap();
        let filled = template.filled(&letter());
        assert_eq!(filled.split('\n').count(), lines.len(), "{filled}");
        assert!(!filled.contains(['\r', '\u{202e}', '\u{2028}', '\u{1b}']), "{filled}");
        assert!(filled.len() < 20_000);
    }

    #[test]
    fn a_template_that_cannot_be_filled_is_refused_with_its_reason() {
        let none = TemplateAccess { link: false, arguments: false };
        for (template, format, access, why) in [
            (" ", TemplateFormat::Text, ALL, "expected a text"),
            (
                "{headlines}",
                TemplateFormat::Text,
                ALL,
                "placeholder {headlines}: expected one of {title}, {text}",
            ),
            ("{title", TemplateFormat::Text, ALL, "expected a closing brace"),
            ("{link}", TemplateFormat::Text, none, "placeholder {link}: expected server.public_url"),
            ("{inputs}", TemplateFormat::Text, none, "placeholder {inputs}: expected share_arguments"),
            ("{\"a\": {title}}", TemplateFormat::Json, ALL, "expected JSON"),
            ("{\"a\": \"{title}\"", TemplateFormat::Json, ALL, "expected JSON"),
            ("{\"a\": [{\"b\": \"{titel}\"}]}", TemplateFormat::Json, ALL, "placeholder {titel}"),
            ("{\"a\": 1, \"a\": 2}", TemplateFormat::Json, ALL, "expected JSON"),
            ("{\"{title}\": 1}", TemplateFormat::Json, ALL, "field \"{title}\""),
        ] {
            let refused = Template::parse(template, format, access).unwrap_err();
            assert!(refused.contains(why), "{template}: {refused}");
        }
    }

    #[test]
    fn a_reason_is_that_of_the_hold_and_then_that_of_the_decision() {
        let template = Template::parse("{reason}|{outcome}|{votes}", TemplateFormat::Text, ALL).unwrap();
        let mut letter = letter();
        let shared = letter.shared.as_mut().unwrap();
        shared.held_because = Some("the policy asks".to_owned());
        shared.said = Some(DeciderWords::Reason("too much".to_owned()));
        shared.failure = None;
        letter.approved_by = Vec::new();
        let votes = "needs 2 people; approved by nobody yet";
        assert_eq!(template.filled(&letter), format!("the policy asks||{votes}"));
        letter.occasion = Occasion::Ended(EndReason::Rejected);
        assert_eq!(template.filled(&letter), format!("too much||{votes}"));
        letter.shared.as_mut().unwrap().said = None;
        assert_eq!(template.filled(&letter), format!("||{votes}"));
    }
}
