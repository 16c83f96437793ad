//! Messages about a held call: their facts and their words, and a mail of them.

use super::occasion::Occasion;
use super::shared::{Shared, TEXT_BYTES, Written, shown};
use holdpoint_core::card::CardPart;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::link::LinkToken;
use jiff::tz::TimeZone;
use lettre::Message;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, SinglePart};
use std::fmt::Write;
use std::time::{Duration, SystemTime};

/// Maximum length of the name of a tool in a subject, in bytes.
const TITLE_BYTES: usize = 100;

/// The facts of a message. Its texts are on one line each, in a form in which a reader recognizes each character.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) occasion: Occasion,
    /// The id of the event, the same for every attempt.
    pub(super) event_id: String,
    /// The id of the event of the hold, to which the messages about one call refer.
    pub(super) hold_id: Option<String>,
    /// The actor of the event, or of the decision if the event is the outcome of the call.
    pub(super) actor: String,
    /// Whether the decision changed the inputs.
    pub(super) edited: bool,
    pub(super) title: String,
    pub(super) tool_name: String,
    pub(super) call_id: String,
    /// The user on whose behalf the tool would run, as an actor.
    pub(super) requester: String,
    pub(super) risk: &'static str,
    /// The hash of what the message is about: the inputs as an approver is shown them.
    pub(super) input_hash: String,
    pub(super) deadline: Option<Timestamp>,
    /// When the message is sent at the latest, also in quiet hours. `None` if it has time until their end.
    pub(super) urgent_at: Option<Timestamp>,
    /// The parts of a complete card of the call.
    pub(super) card_parts: Vec<CardPart>,
    /// Whether an approval by the recipient would count now.
    pub(super) may_approve: bool,
    /// Why it would not, in a sentence.
    pub(super) obstacle: Option<String>,
    /// The number of people that have to approve the call.
    pub(super) required: usize,
    /// The people that have approved it.
    pub(super) approved_by: Vec<String>,
    /// What the recipient may read of the arguments.
    pub(super) shared: Option<Shared>,
    /// The address of the console, if it has one.
    pub(super) console: Option<String>,
    /// The link of the recipient to the card, made for one attempt.
    pub(super) link: Option<LinkToken>,
}

/// The sender and the recipient of a message.
#[derive(Debug)]
pub(super) struct Envelope<'a> {
    pub(super) from: &'a Mailbox,
    pub(super) to: &'a Mailbox,
    /// The name of the endpoint. The messages about one event to two recipients have different ids.
    pub(super) endpoint: &'a str,
    pub(super) now: Timestamp,
}

impl Letter {
    /// Returns the message. `None` if it cannot be written, which no text of a call causes.
    pub(super) fn message(&self, envelope: &Envelope<'_>, zone: &TimeZone) -> Option<Message> {
        let Envelope { from, to, endpoint, now } = envelope;
        let id = |event: &str| format!("<{event}.{endpoint}@{}>", from.email.domain());
        let micros = u64::try_from(now.as_micros()).unwrap_or_default();
        let mut message = Message::builder()
            .from((*from).clone())
            .to((*to).clone())
            .date(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
            .message_id(Some(id(&self.event_id)))
            .subject(self.subject())
            // No absence note answers such a message (RFC 3834).
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ));
        if let Some(hold) = self.hold_id.as_deref().filter(|hold| *hold != self.event_id) {
            message = message.in_reply_to(id(hold)).references(id(hold));
        }
        message.singlepart(SinglePart::plain(self.body(zone))).ok()
    }

    fn subject(&self) -> String {
        format!("{}: {}", self.occasion.subject(), self.short_title())
    }

    fn body(&self, zone: &TimeZone) -> String {
        let mut body = self.written(zone).text;
        if let Some(url) = self.url() {
            // Writing to a text does not fail.
            let _written = writeln!(body, "\n{url}");
        }
        body
    }

    /// Returns the address of the call in the console, if there is one: the link of the recipient, or else that of the
    /// card. What is after `#` reaches no server and no log before the console sends it.
    pub(super) fn url(&self) -> Option<String> {
        let console = self.console.as_ref()?;
        Some(match &self.link {
            Some(token) => format!("{console}/#/link/{}", token.expose()),
            None => format!("{console}/#/call/{}", self.call_id),
        })
    }

    /// Returns what the message says, without the address of the call.
    pub(super) fn written(&self, zone: &TimeZone) -> Written {
        let mut written = Written::new(&self.sentence());
        written.line("Tool", &self.tool());
        written.line("Call", &self.call_id);
        written.line("Requested by", &self.requested_by());
        written.line("Risk", self.risk);
        for (name, fact) in [("Decide before", self.deadline(zone)), ("Votes", self.votes())] {
            fact.iter().for_each(|fact| written.line(name, fact));
        }
        if self.occasion.waits() && self.card_parts.contains(&CardPart::Definition) {
            let unaccepted = "no operator has accepted what the MCP server says about the tool; this message does not show it";
            written.line("Definition", unaccepted);
        }
        if let Some(shared) = &self.shared {
            shared.write(&mut written);
        }
        written
    }

    /// Returns what happened, in a sentence or two.
    pub(super) fn sentence(&self) -> String {
        let (approved, required) = (self.approved_by.len(), self.required);
        if self.occasion == Occasion::Voted && !self.edited {
            return format!(
                "{approved} of {required} approved, by {}. More people have to.",
                self.approvers()
            );
        }
        self.occasion.sentence(&shown(&self.actor, TEXT_BYTES), self.edited)
    }

    fn approvers(&self) -> String {
        let by: Vec<String> = self.approved_by.iter().map(|by| shown(by, TITLE_BYTES)).collect();
        if by.is_empty() { "nobody yet".to_owned() } else { by.join(", ") }
    }

    /// Returns how many people have to approve the call and who has, if one is not enough.
    pub(super) fn votes(&self) -> Option<String> {
        let needs = || format!("needs {} people; approved by {}", self.required, self.approvers());
        (self.required > 1).then(needs)
    }

    /// Returns the title of the message, with the title of the tool.
    pub(super) fn title_line(&self) -> String {
        format!("{}: {}", self.occasion.title(), self.short_title())
    }

    pub(super) fn short_title(&self) -> String {
        shown(&self.title, TITLE_BYTES)
    }

    /// Returns the title and the name of the tool.
    pub(super) fn tool(&self) -> String {
        format!("{} ({})", self.short_title(), shown(&self.tool_name, TITLE_BYTES))
    }

    pub(super) fn requested_by(&self) -> String {
        shown(&self.requester, TEXT_BYTES)
    }

    /// Returns the deadline of a call that waits.
    pub(super) fn deadline(&self, zone: &TimeZone) -> Option<String> {
        self.deadline.filter(|_| self.occasion.waits()).map(|deadline| local(deadline, zone))
    }
}

/// Returns a moment in a time zone, with its offset.
fn local(at: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_microsecond(at.as_micros()) {
        Ok(moment) => moment.to_zoned(zone.clone()).strftime("%F %R (UTC%:z)").to_string(),
        Err(_) => at.to_rfc3339(),
    }
}

/// A call that waits, with its complete inputs and no arguments in its messages.
#[cfg(test)]
pub(super) fn sample(occasion: Occasion) -> Letter {
    Letter {
        occasion,
        event_id: "0189-hold".to_owned(),
        hold_id: Some("0189-hold".to_owned()),
        actor: "user:olga".to_owned(),
        edited: false,
        title: "Pay".to_owned(),
        tool_name: "pay".to_owned(),
        call_id: "0190".to_owned(),
        requester: "user:alice".to_owned(),
        risk: "high",
        input_hash: "abc".to_owned(),
        deadline: Some(Timestamp::from_micros(1_769_860_800_000_000)),
        urgent_at: None,
        card_parts: vec![CardPart::Inputs],
        may_approve: true,
        obstacle: None,
        required: 1,
        approved_by: Vec::new(),
        shared: None,
        console: Some("https://chat.example".to_owned()),
        link: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::occasion::End;
    use super::super::shared::{Said, sample_shared};
    use super::*;
    use holdpoint_core::headline::FilledHeadline;
    use holdpoint_core::placeholders::Piece;
    use holdpoint_core::preview::Preview;

    fn written(letter: &Letter, zone: &TimeZone) -> String {
        let (from, to) =
            ("holdpoint@example.com".parse().unwrap(), "Dana <dana@example.com>".parse().unwrap());
        let envelope =
            Envelope { from: &from, to: &to, endpoint: "dana", now: Timestamp::from_micros(1_000_000) };
        String::from_utf8(letter.message(&envelope, zone).unwrap().formatted()).unwrap()
    }

    #[test]
    fn a_message_says_what_waits_until_when_and_where() {
        let zurich = TimeZone::get("Europe/Zurich").unwrap();
        let text = written(&sample(Occasion::Held), &zurich);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        for line in [
            "From: holdpoint@example.com",
            "To: Dana <dana@example.com>",
            "Date: Thu, 01 Jan 1970 00:00:01 +0000",
            "Message-ID: <0189-hold.dana@example.com>",
            "Subject: Approval needed: Pay",
            "Auto-Submitted: auto-generated",
            "Content-Type: text/plain; charset=utf-8",
        ] {
            assert!(head.lines().any(|it| it == line), "{line}: {head}");
        }
        assert!(!head.contains("References"), "{head}");
        let expected = "A call waits for a decision.\r\n\r\nTool: Pay (pay)\r\nCall: 0190\r\nRequested by: user:alice\r\n\
                        Risk: high\r\nDecide before: 2026-01-31 13:00 (UTC+01:00)\r\n\r\n\
                        https://chat.example/#/call/0190\r\n";
        assert_eq!(body.trim_end(), expected.trim_end());
    }

    #[test]
    fn a_later_message_refers_to_the_message_about_the_hold() {
        let mut later = sample(Occasion::Ended(End::Approved));
        later.event_id = "0191-end".to_owned();
        let text = written(&later, &TimeZone::UTC);
        for line in [
            "Message-ID: <0191-end.dana@example.com>",
            "In-Reply-To: <0189-hold.dana@example.com>",
            "References: <0189-hold.dana@example.com>",
            "Subject: Re: Approval needed: Pay",
            "The call is approved, by user:olga.",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        assert!(!text.contains("Decide before"), "{text}");
    }

    #[test]
    fn no_text_of_a_call_adds_a_header_or_a_line() {
        let attack = "x\r\nBcc: eve@example.com\r\n\r\nhello\u{202e}\u{2028}";
        let mut hostile = sample(Occasion::Delegated);
        hostile.title = attack.to_owned();
        hostile.actor = attack.to_owned();
        hostile.requester = attack.to_owned();
        let inputs = serde_json::json!({ "a": attack.repeat(1000) }).to_string();
        let mut shared = sample_shared(&inputs);
        shared.held_because = Some(attack.to_owned());
        shared.said = Some(Said::Note(attack.to_owned()));
        shared.failure = Some(attack.to_owned());
        shared.constants = Some(inputs);
        let value = Piece::Value(attack.to_owned());
        shared.headline = Some(FilledHeadline::new([value].into_iter()));
        shared.preview = Some(Preview::text(attack));
        hostile.shared = Some(shared);
        let text = written(&hostile, &TimeZone::UTC);
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let names: Vec<&str> = head
            .lines()
            .filter(|line| !line.starts_with([' ', '\t']))
            .filter_map(|line| line.split_once(':').map(|(name, _)| name))
            .collect();
        assert!(!names.contains(&"Bcc"), "{head}");
        let body = hostile.body(&TimeZone::UTC);
        assert!(!body.lines().any(|line| line.starts_with("Bcc")), "{body}");
        assert!(!body.contains(['\u{202e}', '\u{2028}']), "{body}");
        assert!(text.len() < 20_000, "{}", text.len());
    }

    #[test]
    fn a_message_shows_the_whole_card_and_each_line_of_a_preview_has_a_mark() {
        let mut letter = sample(Occasion::Held);
        letter.required = 2;
        letter.approved_by = vec!["user:bob".to_owned()];
        letter.card_parts = CardPart::ALL.to_vec();
        let mut shared = sample_shared(r#"{"to":"שלום"}"#);
        shared.held_because = Some("the policy asks".to_owned());
        shared.constants = Some(r#"{"shop":"berlin"}"#.to_owned());
        shared.preview = Some(Preview::text("4 812 rows\nRisk: low"));
        letter.shared = Some(shared);
        let written = letter.written(&TimeZone::UTC);
        let expected = "Votes: needs 2 people; approved by user:bob\n\
            Definition: no operator has accepted what the MCP server says about the tool; this message does not show it\n\
            Question: Pay “<!channel>”?\n\
            Held because: the policy asks\n\
            Inputs: {\"to\":\"\u{2068}שלום\u{2069}\"}\n\
            Inputs that the operator sets: {\"shop\":\"berlin\"}\n\
            Preview:\n| 4 812 rows\n| Risk: low\n";
        assert!(written.text.ends_with(expected), "{}", written.text);
        assert_eq!(written.parts_in(usize::MAX), [CardPart::Inputs, CardPart::Constants, CardPart::Preview]);
        let shared = letter.shared.as_mut().unwrap();
        shared.preview = Some(Preview::failed("no answer"));
        shared.inputs = format!("{{\"a\":\"{}\"}}", "x".repeat(5000));
        let written = letter.written(&TimeZone::UTC);
        assert!(
            written.text.ends_with("Preview: the tool made none, because\n| no answer\n"),
            "{}",
            written.text
        );
        assert_eq!(written.parts_in(usize::MAX), [CardPart::Constants, CardPart::Preview]);
    }

    #[test]
    fn the_reason_of_the_hold_is_not_that_of_the_decision() {
        let mut letter = sample(Occasion::Ended(End::Rejected));
        let mut shared = sample_shared("{}");
        shared.held_because = Some("the policy asks".to_owned());
        shared.said = Some(Said::Reason("too much".to_owned()));
        letter.shared = Some(shared);
        let text = letter.written(&TimeZone::UTC).text;
        assert!(text.contains("\nHeld because: the policy asks\nReason: too much\n"), "{text}");
        letter.occasion = Occasion::Ended(End::Approved);
        letter.edited = true;
        letter.shared.as_mut().unwrap().said = Some(Said::Note("fine".to_owned()));
        let text = letter.written(&TimeZone::UTC).text;
        assert!(text.starts_with("The call is approved with other inputs, by user:olga."), "{text}");
        assert!(
            text.contains("\nHeld because: the policy asks\nNote: fine\n") && !text.contains("Reason:"),
            "{text}"
        );
    }
}
