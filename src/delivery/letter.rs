//! Messages about a held call: their facts and their words, and a mail of them.

use crate::domain::clock::Timestamp;
use crate::domain::event::EventType;
use crate::domain::link::LinkToken;
use crate::domain::text::cut;
use crate::domain::visible::visible;
use jiff::tz::TimeZone;
use lettre::Message;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, SinglePart};
use std::fmt::Write;
use std::time::{Duration, SystemTime};

/// Maximum length of the inputs in a message, in bytes.
const INPUTS_BYTES: usize = 4000;
/// Maximum length of another text of a model or a person in a message, in bytes.
const TEXT_BYTES: usize = 500;
/// Maximum length of the name of a tool in a subject, in bytes.
const TITLE_BYTES: usize = 100;

/// Why a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The call is held.
    Held,
    /// The deadline of the call is near.
    Reminded,
    /// The recipient may decide the call from now on, because no other approver did.
    Escalated,
    /// An approver let the recipient decide the call.
    Delegated,
    /// The call waits no longer.
    Ended(End),
}

/// Why a call waits no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Approved,
    Rejected,
    Expired,
    Cancelled,
}

impl Occasion {
    /// The types of events that messages are sent about.
    pub(super) const TYPES: [EventType; 8] = [
        EventType::ToolRequiresApproval,
        EventType::ToolReminded,
        EventType::ToolEscalated,
        EventType::ToolDelegated,
        EventType::ToolApproved,
        EventType::ToolRejected,
        EventType::ToolExpired,
        EventType::ToolCancelled,
    ];

    pub(super) fn of(event_type: EventType) -> Option<Self> {
        Some(match event_type {
            EventType::ToolRequiresApproval => Self::Held,
            EventType::ToolReminded => Self::Reminded,
            EventType::ToolEscalated => Self::Escalated,
            EventType::ToolDelegated => Self::Delegated,
            EventType::ToolApproved => Self::Ended(End::Approved),
            EventType::ToolRejected => Self::Ended(End::Rejected),
            EventType::ToolExpired => Self::Ended(End::Expired),
            EventType::ToolCancelled => Self::Ended(End::Cancelled),
            _ => return None,
        })
    }

    /// Whether an earlier message to the same recipient is about the call.
    fn is_later(self) -> bool {
        matches!(self, Self::Reminded | Self::Ended(_))
    }

    /// Whether the call waits for a decision.
    pub(super) fn waits(self) -> bool {
        !matches!(self, Self::Ended(_))
    }

    /// Returns the state of the call when the message is about to be sent.
    pub(super) fn state(self) -> &'static str {
        match self {
            Self::Held | Self::Reminded | Self::Escalated | Self::Delegated => "pending",
            Self::Ended(End::Approved) => "approved",
            Self::Ended(End::Rejected) => "rejected",
            Self::Ended(End::Expired) => "expired",
            Self::Ended(End::Cancelled) => "cancelled",
        }
    }

    fn sentence(self, actor: &str) -> String {
        match self {
            Self::Held => "A call waits for a decision.".to_owned(),
            Self::Reminded => "A call still waits for a decision, and its deadline is near.".to_owned(),
            Self::Escalated => "A call waits for a decision, and was escalated to your role.".to_owned(),
            Self::Delegated => format!("{actor} lets you decide a call."),
            Self::Ended(End::Approved) => format!("The call is approved, by {actor}."),
            Self::Ended(End::Rejected) => format!("The call is rejected, by {actor}."),
            Self::Ended(End::Expired) => "The call is expired: no decision arrived in time.".to_owned(),
            Self::Ended(End::Cancelled) => format!("The call is cancelled, by {actor}. It did not run."),
        }
    }
}

/// The facts of a message. Its texts are on one line each, in a form in which a reader recognizes each character.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) occasion: Occasion,
    /// The id of the event, the same for every attempt.
    pub(super) event_id: String,
    /// The id of the event of the hold, to which the messages about one call refer.
    pub(super) hold_id: Option<String>,
    /// The actor of the event.
    pub(super) actor: String,
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
    /// What the recipient may read of the arguments.
    pub(super) shared: Option<Shared>,
    /// The address of the console, if it has one.
    pub(super) console: Option<String>,
    /// The link of the recipient to the card, made for one attempt.
    pub(super) link: Option<LinkToken>,
}

/// The parts of a call that may contain arguments.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) headline: Option<String>,
    pub(super) reason: Option<String>,
    /// The proposed inputs, or after the decision those that run.
    pub(super) inputs: String,
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
        let again = if self.occasion.is_later() { "Re: " } else { "" };
        format!("{again}Approval needed: {}", self.short_title())
    }

    fn body(&self, zone: &TimeZone) -> String {
        let mut body = self.text(zone);
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
    pub(super) fn text(&self, zone: &TimeZone) -> String {
        let mut body = self.sentence();
        body.push_str("\n\n");
        let mut line = |name: &str, value: &str| {
            // Writing to a text does not fail.
            let _written = writeln!(body, "{name}: {value}");
        };
        line("Tool", &self.tool());
        line("Call", &self.call_id);
        line("Requested by", &self.requested_by());
        line("Risk", self.risk);
        if let Some(deadline) = self.deadline(zone) {
            line("Decide before", &deadline);
        }
        if let Some(shared) = &self.shared {
            for (name, text) in [("Question", shared.headline()), ("Reason", shared.reason())] {
                if let Some(text) = text {
                    line(name, &text);
                }
            }
            line("Inputs", &shared.inputs());
        }
        body
    }

    /// Returns what happened, in a sentence or two.
    pub(super) fn sentence(&self) -> String {
        self.occasion.sentence(&shown(&self.actor, TEXT_BYTES))
    }

    /// Returns the title of the message, with the title of the tool.
    pub(super) fn title_line(&self) -> String {
        let what = match self.occasion {
            Occasion::Held | Occasion::Reminded | Occasion::Escalated | Occasion::Delegated => {
                "Approval needed"
            }
            Occasion::Ended(End::Approved) => "Approved",
            Occasion::Ended(End::Rejected) => "Rejected",
            Occasion::Ended(End::Expired) => "Expired",
            Occasion::Ended(End::Cancelled) => "Cancelled",
        };
        format!("{what}: {}", self.short_title())
    }

    /// Returns the title of the tool.
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

impl Shared {
    pub(super) fn headline(&self) -> Option<String> {
        self.headline.as_deref().map(|text| shown(text, TEXT_BYTES))
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.reason.as_deref().map(|text| shown(text, TEXT_BYTES))
    }

    pub(super) fn inputs(&self) -> String {
        shown(&self.inputs, INPUTS_BYTES)
    }

    /// Whether a message shows all of the inputs.
    pub(super) fn has_whole_inputs(&self) -> bool {
        visible(&self.inputs).len() <= INPUTS_BYTES
    }
}

/// Returns a text on one line, in a form in which a reader recognizes each character.
fn shown(text: &str, bytes_max: usize) -> String {
    cut(visible(text), bytes_max)
}

/// Returns a moment in a time zone, with its offset.
fn local(at: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_microsecond(at.as_micros()) {
        Ok(moment) => moment.to_zoned(zone.clone()).strftime("%F %R (UTC%:z)").to_string(),
        Err(_) => at.to_rfc3339(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: &str = "0190-hold";

    fn letter(occasion: Occasion) -> Letter {
        Letter {
            occasion,
            event_id: HOLD.to_owned(),
            hold_id: Some(HOLD.to_owned()),
            actor: "user:olga".to_owned(),
            title: "Pay".to_owned(),
            tool_name: "pay".to_owned(),
            call_id: "1".to_owned(),
            requester: "user:alice".to_owned(),
            risk: "high",
            input_hash: "abc".to_owned(),
            deadline: Some(Timestamp::from_micros(1_769_860_800_000_000)),
            urgent_at: None,
            shared: None,
            console: Some("https://chat.example".to_owned()),
            link: None,
        }
    }

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
        let text = written(&letter(Occasion::Held), &zurich);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        for line in [
            "From: holdpoint@example.com",
            "To: Dana <dana@example.com>",
            "Date: Thu, 01 Jan 1970 00:00:01 +0000",
            "Message-ID: <0190-hold.dana@example.com>",
            "Subject: Approval needed: Pay",
            "Auto-Submitted: auto-generated",
            "Content-Type: text/plain; charset=utf-8",
        ] {
            assert!(head.lines().any(|it| it == line), "{line}: {head}");
        }
        assert!(!head.contains("References"), "{head}");
        let expected = "A call waits for a decision.\r\n\r\nTool: Pay (pay)\r\nCall: 1\r\nRequested by: user:alice\r\n\
                        Risk: high\r\nDecide before: 2026-01-31 13:00 (UTC+01:00)\r\n\r\n\
                        https://chat.example/#/call/1\r\n";
        assert_eq!(body.trim_end(), expected.trim_end());
    }

    #[test]
    fn a_later_message_refers_to_the_message_about_the_hold() {
        let mut later = letter(Occasion::Ended(End::Approved));
        later.event_id = "0191-end".to_owned();
        let text = written(&later, &TimeZone::UTC);
        for line in [
            "Message-ID: <0191-end.dana@example.com>",
            "In-Reply-To: <0190-hold.dana@example.com>",
            "References: <0190-hold.dana@example.com>",
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
        let mut hostile = letter(Occasion::Delegated);
        hostile.title = attack.to_owned();
        hostile.actor = attack.to_owned();
        hostile.requester = attack.to_owned();
        hostile.shared = Some(Shared {
            headline: Some(attack.to_owned()),
            reason: Some(attack.to_owned()),
            inputs: attack.repeat(1000),
        });
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
        assert!(text.len() < 10_000, "{}", text.len());
    }
}
