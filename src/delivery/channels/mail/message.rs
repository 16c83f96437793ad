//! A mail of a message.

use crate::delivery::letter::Letter;
use holdpoint_core::clock::Timestamp;
use lettre::Message;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, SinglePart};
use std::fmt::Write;
use std::time::{Duration, SystemTime};

/// The sender and the recipient of a message.
#[derive(Debug)]
pub(super) struct Envelope<'a> {
    pub(super) from: &'a Mailbox,
    pub(super) to: &'a Mailbox,
    /// The name of the endpoint. The messages about one event to two recipients have different ids.
    pub(super) endpoint: &'a str,
    pub(super) now: Timestamp,
}

impl Envelope<'_> {
    /// Returns the message. `None` if it cannot be written, which no text of a call causes.
    pub(super) fn message(&self, letter: &Letter) -> Option<Message> {
        let Envelope { from, to, endpoint, now } = self;
        let id = |event: &str| format!("<{event}.{endpoint}@{}>", from.email.domain());
        let micros = u64::try_from(now.as_micros()).unwrap_or_default();
        let mut message = Message::builder()
            .from((*from).clone())
            .to((*to).clone())
            .date(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
            .message_id(Some(id(&letter.event_id)))
            .subject(subject(letter))
            // No absence note answers such a message (RFC 3834).
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ));
        if let Some(hold) = letter.hold_id.as_deref().filter(|hold| *hold != letter.event_id) {
            message = message.in_reply_to(id(hold)).references(id(hold));
        }
        message.singlepart(SinglePart::plain(body(letter))).ok()
    }
}

fn subject(letter: &Letter) -> String {
    format!("{}: {}", letter.occasion.subject(), letter.short_title())
}

fn body(letter: &Letter) -> String {
    let mut body = letter.written().text;
    if let Some(url) = letter.url() {
        // Writing to a text does not fail.
        let _written = writeln!(body, "\n{url}");
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::letter::sample;
    use crate::delivery::occasion::{EndReason, Occasion};
    use crate::delivery::shared::{DeciderWords, sample_shared};
    use holdpoint_core::card::preview::Preview;
    use holdpoint_core::text::placeholders::Piece;
    use holdpoint_core::tool::headline::FilledHeadline;
    use jiff::tz::TimeZone;

    fn written(letter: &Letter) -> String {
        let (from, to) =
            ("holdpoint@example.com".parse().unwrap(), "Dana <dana@example.com>".parse().unwrap());
        let envelope =
            Envelope { from: &from, to: &to, endpoint: "dana", now: Timestamp::from_micros(1_000_000) };
        String::from_utf8(envelope.message(letter).unwrap().formatted()).unwrap()
    }

    #[test]
    fn a_message_says_what_waits_until_when_and_where() {
        let zone = TimeZone::get("Europe/Zurich").unwrap();
        let text = written(&Letter { zone, ..sample(Occasion::Held) });
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
        let mut later = sample(Occasion::Ended(EndReason::Approved));
        later.event_id = "0191-end".to_owned();
        let text = written(&later);
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
        shared.said = Some(DeciderWords::Note(attack.to_owned()));
        shared.failure = Some(attack.to_owned());
        shared.constants = Some(inputs);
        let value = Piece::Value(attack.to_owned());
        shared.headline = Some(FilledHeadline::new([value].into_iter()));
        shared.preview = Some(Preview::text(attack));
        hostile.shared = Some(shared);
        let text = written(&hostile);
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let names: Vec<&str> = head
            .lines()
            .filter(|line| !line.starts_with([' ', '\t']))
            .filter_map(|line| line.split_once(':').map(|(name, _)| name))
            .collect();
        assert!(!names.contains(&"Bcc"), "{head}");
        let body = body(&hostile);
        assert!(!body.lines().any(|line| line.starts_with("Bcc")), "{body}");
        assert!(!body.contains(['\u{202e}', '\u{2028}']), "{body}");
        assert!(text.len() < 20_000, "{}", text.len());
    }
}
