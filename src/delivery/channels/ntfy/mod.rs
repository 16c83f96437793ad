//! Messages to a topic of ntfy, by its JSON interface (<https://docs.ntfy.sh/publish/#publish-as-json>).
//!
//! All readers of a topic have the same message, and ntfy does not say which of them pressed a button. So a message
//! decides nothing: it leads to the card, where its reader is known.

use super::NotifyEntry;
use crate::config::ConfigError;
use crate::delivery::channel::{Attempt, Channel, FailedAttempt};
use crate::delivery::letter::Letter;
use crate::delivery::occasion::{Occasion, RunOutcome};
use crate::delivery::response::outcome;
use async_trait::async_trait;
use holdpoint_core::endpoint::ChannelKind;
use holdpoint_core::text::cut;
use holdpoint_egress::{Post, Reach};
use holdpoint_store::AttemptOutcome;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use std::time::Duration;

/// The longest time of an attempt.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum length of the text of a message, in bytes. ntfy makes a file of a longer one than 4096 bytes, and takes no
/// JSON of more than 8192.
const TEXT_BYTES: usize = 3500;
/// Maximum length of the name of a topic.
const TOPIC_CHARS: usize = 64;

/// A topic of a server.
pub(super) struct NtfyChannel {
    /// The address of the server.
    post: Post,
    headers: HeaderMap,
    topic: String,
}

impl NtfyChannel {
    /// Prepares the requests of the entry, and sends nothing.
    pub(super) fn new(reach: &Reach, entry: &NotifyEntry<'_>, url: &str) -> Result<Self, ConfigError> {
        let Some((server, topic)) = server_and_topic(url) else {
            let why = "expected the address of a topic, as https://ntfy.sh/holds";
            return Err(entry.wrong("ntfy", why));
        };
        let post = Post::new(server.as_str(), reach).map_err(|why| entry.wrong("ntfy", why))?;
        let mut headers = entry.entry.sent_headers(&entry.key)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self { post, headers, topic })
    }

    fn body(&self, letter: &Letter) -> Value {
        let mut body = json!({
            "topic": self.topic,
            // A later message about the call takes the place of the earlier one on the phone.
            "sequence_id": letter.call_id,
            "title": letter.title_line(),
            "message": cut(letter.written().text.trim_end().to_owned(), TEXT_BYTES),
            "priority": priority(letter),
            "tags": [letter.occasion.state()],
        });
        if let (Some(url), Some(body)) = (letter.url(), body.as_object_mut()) {
            let open = json!({ "action": "view", "label": "Open the call", "url": url });
            body.insert("actions".to_owned(), json!([open]));
            body.insert("click".to_owned(), json!(url));
        }
        body
    }
}

/// Returns the priority, from 2 (no sound) to 5 (the loudest).
fn priority(letter: &Letter) -> u8 {
    match letter.occasion {
        Occasion::Reminded => 5,
        Occasion::Ran(RunOutcome::Failed | RunOutcome::Interrupted) => 4,
        occasion if occasion.waits() && letter.risk == "high" => 4,
        occasion if occasion.waits() => 3,
        _ => 2,
    }
}

/// Returns the address of the server, and the name of the topic, which is the last part of the path.
fn server_and_topic(url: &str) -> Option<(Url, String)> {
    let mut url = Url::parse(url).ok().filter(|url| url.query().is_none() && url.fragment().is_none())?;
    let topic = url.path_segments()?.next_back()?.to_owned();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !(1..=TOPIC_CHARS).contains(&topic.len()) || !topic.chars().all(is_word) {
        return None;
    }
    url.path_segments_mut().ok()?.pop().push("");
    Some((url, topic))
}

#[async_trait]
impl Channel<Letter> for NtfyChannel {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Ntfy
    }

    /// The address without its topic, which is like a password on a server without access control.
    fn address(&self) -> String {
        self.post.origin()
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    async fn send(&self, attempt: Attempt<'_, Letter>) -> Result<AttemptOutcome, FailedAttempt> {
        let body = self.body(attempt.message).to_string().into_bytes();
        outcome(self.post.send(self.headers.clone(), body, attempt.until).await)
            .map(|()| AttemptOutcome::Accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::letter::sample;
    use crate::delivery::occasion::EndReason;
    use crate::delivery::shared::sample_shared;

    #[test]
    fn a_topic_is_the_last_part_of_an_address() {
        for (url, server, topic) in [
            ("https://ntfy.sh/holds", "https://ntfy.sh/", "holds"),
            ("https://push.example/ntfy/a-b_1", "https://push.example/ntfy/", "a-b_1"),
        ] {
            let (found, name) = server_and_topic(url).unwrap();
            assert_eq!((found.as_str(), name.as_str()), (server, topic));
        }
        for url in
            ["https://ntfy.sh", "https://ntfy.sh/", "https://ntfy.sh/a%20b", "https://ntfy.sh/a?auth=x"]
        {
            assert!(server_and_topic(url).is_none(), "{url}");
        }
    }

    #[test]
    fn the_longest_message_is_within_the_limits_of_ntfy() {
        let channel = NtfyChannel {
            post: Post::to_operator(Url::parse("https://ntfy.sh/").unwrap()).unwrap(),
            headers: HeaderMap::new(),
            topic: "t".repeat(TOPIC_CHARS),
        };
        let inputs = json!({ "a": "\"\\\n".repeat(5000) }).to_string();
        let title = "\"".repeat(500);
        let letter = Letter { title, shared: Some(sample_shared(&inputs)), ..sample(Occasion::Held) };
        let body = channel.body(&letter);
        assert!(body["message"].as_str().unwrap().len() <= 4096, "{body}");
        assert!(body.to_string().len() <= 8192, "{}", body.to_string().len());
    }

    #[test]
    fn a_reminder_is_loud_and_a_decision_is_quiet() {
        let of = |occasion, risk| priority(&Letter { risk, ..sample(occasion) });
        assert_eq!(of(Occasion::Reminded, "low"), 5);
        assert_eq!((of(Occasion::Held, "high"), of(Occasion::Held, "low")), (4, 3));
        assert_eq!(of(Occasion::Ended(EndReason::Approved), "high"), 2);
        assert_eq!(of(Occasion::Ran(RunOutcome::Interrupted), "low"), 4);
    }
}
