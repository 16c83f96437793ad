//! Messages about a held call: their facts and their words.

use super::occasion::Occasion;
use super::shared::{MessageText, SharedArguments, TEXT_BYTES, shown};
use holdpoint_core::card::CardPart;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::link::LinkToken;
use jiff::tz::TimeZone;

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
    pub(super) shared: Option<SharedArguments>,
    /// The address of the console, if it has one.
    pub(super) console: Option<String>,
    /// The link of the recipient to the card, made for one attempt.
    pub(super) link: Option<LinkToken>,
    /// The time zone of the recipient.
    pub(super) zone: TimeZone,
}

impl Letter {
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
    pub(super) fn written(&self) -> MessageText {
        let mut written = MessageText::new(&self.sentence());
        written.line("Tool", &self.tool());
        written.line("Call", &self.call_id);
        written.line("Requested by", &self.requested_by());
        written.line("Risk", self.risk);
        for (name, fact) in [("Decide before", self.deadline()), ("Votes", self.votes())] {
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
    pub(super) fn deadline(&self) -> Option<String> {
        self.deadline.filter(|_| self.occasion.waits()).map(|deadline| local(deadline, &self.zone))
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
        zone: TimeZone::UTC,
    }
}

#[cfg(test)]
mod tests {
    use super::super::occasion::EndReason;
    use super::super::shared::{DeciderWords, sample_shared};
    use super::*;
    use holdpoint_core::card::preview::Preview;

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
        let written = letter.written();
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
        let written = letter.written();
        assert!(
            written.text.ends_with("Preview: the tool made none, because\n| no answer\n"),
            "{}",
            written.text
        );
        assert_eq!(written.parts_in(usize::MAX), [CardPart::Constants, CardPart::Preview]);
    }

    #[test]
    fn the_reason_of_the_hold_is_not_that_of_the_decision() {
        let mut letter = sample(Occasion::Ended(EndReason::Rejected));
        let mut shared = sample_shared("{}");
        shared.held_because = Some("the policy asks".to_owned());
        shared.said = Some(DeciderWords::Reason("too much".to_owned()));
        letter.shared = Some(shared);
        let text = letter.written().text;
        assert!(text.contains("\nHeld because: the policy asks\nReason: too much\n"), "{text}");
        letter.occasion = Occasion::Ended(EndReason::Approved);
        letter.edited = true;
        letter.shared.as_mut().unwrap().said = Some(DeciderWords::Note("fine".to_owned()));
        let text = letter.written().text;
        assert!(text.starts_with("The call is approved with other inputs, by user:olga."), "{text}");
        assert!(
            text.contains("\nHeld because: the policy asks\nNote: fine\n") && !text.contains("Reason:"),
            "{text}"
        );
    }
}
