//! Messages in Slack: one for each call and recipient, which later messages about the call change.

mod application;
mod blocks;
mod button;
#[cfg(test)]
mod complete_card;
mod form;
mod hook;
mod people;
mod signature;

use super::NotifyEntry;
use crate::config::ConfigError;
use crate::delivery::channel::{Attempt, Channel, FailedAttempt};
use crate::delivery::letter::Letter;
use crate::delivery::response;
pub(super) use application::Slack;
use application::{Method, TIMEOUT};
use async_trait::async_trait;
use blocks::blocks;
use holdpoint_core::endpoint::{ChannelKind, Failure, FailureAction};
use holdpoint_egress::read;
use holdpoint_store::{AttemptOutcome, SentMessage};
pub(super) use hook::{PATH, SlackHook};
use reqwest::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum length of an answer, which repeats the message, in bytes.
const ANSWER_BYTES: usize = 256 * 1024;
/// Maximum length of the name of an error, in bytes.
const ERROR_BYTES: usize = 64;
/// The status of a request that Slack answers with 200 and an error.
const REFUSED: u16 = 400;
/// The status of a request that Slack answers with 200 and the error that there are too many.
const TOO_MANY: u16 = 429;

/// The errors that are about one message or its recipient. Slack would refuse the message again. Every other error is
/// about the application or about Slack, so the message is kept.
const FINAL: [&str; 24] = [
    "as_user_not_supported",
    "cannot_reply_to_message",
    "cant_update_message",
    "channel_not_found",
    "channel_type_not_supported",
    "edit_window_closed",
    "external_channel_migrating",
    "invalid_blocks",
    "invalid_blocks_format",
    "is_archived",
    "is_inactive",
    "message_not_found",
    "messages_tab_disabled",
    "msg_blocks_too_long",
    "msg_too_long",
    "no_text",
    "not_in_channel",
    "restricted_action",
    "restricted_action_non_threadable_channel",
    "restricted_action_read_only_channel",
    "restricted_action_thread_locked",
    "slack_connect_canvas_sharing_blocked",
    "user_disabled",
    "user_not_found",
];

/// A user or a channel of Slack.
pub(super) struct SlackChannel {
    slack: Arc<Slack>,
    /// The id of the user or the channel.
    to: String,
}

/// An answer of the Web API with the status 200.
#[derive(Deserialize)]
struct PostAnswer {
    ok: bool,
    error: Option<String>,
    channel: Option<String>,
    ts: Option<String>,
}

impl SlackChannel {
    pub(super) fn new(
        slack: Option<Arc<Slack>>,
        entry: &NotifyEntry<'_>,
        to: &str,
    ) -> Result<Self, ConfigError> {
        let no_slack = || entry.wrong("slack", "expected a section [slack], with the Slack application");
        Ok(Self { slack: slack.ok_or_else(no_slack)?, to: to.to_owned() })
    }

    fn request(&self, endpoint: &str, letter: &Letter, earlier: Option<&SentMessage>) -> (Method, Value) {
        // The text of notifications. Slack would read it as mrkdwn.
        let (text, blocks) = (escaped(&letter.title_line()), blocks(letter, endpoint));
        match earlier {
            None => {
                let body = json!({
                    "channel": self.to, "text": text, "blocks": blocks, "mrkdwn": false, "parse": "none",
                    "link_names": false, "unfurl_links": false, "unfurl_media": false,
                });
                (Method::PostMessage, body)
            }
            Some(SentMessage { place, id }) => {
                let body = json!({
                    "channel": place, "ts": id, "text": text, "blocks": blocks, "parse": "none",
                    "link_names": false,
                });
                (Method::Update, body)
            }
        }
    }
}

#[async_trait]
impl Channel<Letter> for SlackChannel {
    fn kind(&self) -> ChannelKind {
        ChannelKind::Slack
    }

    fn address(&self) -> String {
        format!("slack:{}", self.to)
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn changes_messages(&self) -> bool {
        true
    }

    /// Posts a message, or changes the earlier one.
    async fn send(&self, attempt: Attempt<'_, Letter>) -> Result<AttemptOutcome, FailedAttempt> {
        let Attempt { endpoint, message: letter, call, earlier, until, .. } = attempt;
        if earlier.is_none() && letter.occasion.only_changes() {
            return Ok(AttemptOutcome::Unneeded);
        }
        let (method, body) = self.request(endpoint, letter, earlier);
        let response = match self.slack.call(method, &body, until).await {
            Ok(response) => response,
            Err(unanswered) => return Err(response::failed(unanswered)),
        };
        response::of_response(&response).map_err(kept)?;
        let wait = response::retry_after(response.headers());
        match read_answer(response, until).await? {
            PostAnswer { ok: true, channel: Some(channel), ts: Some(ts), .. } => {
                let posted = call.filter(|_| earlier.is_none()).zip(SentMessage::new(channel, ts));
                Ok(posted.map_or(AttemptOutcome::Accepted, |(call, message)| {
                    AttemptOutcome::Posted(call, message)
                }))
            }
            PostAnswer { ok: true, .. } => Ok(AttemptOutcome::Accepted),
            PostAnswer { ok: false, error, .. } => {
                let error = error_name(error);
                if FINAL.contains(&error.as_str()) {
                    tracing::warn!(endpoint, error, "Slack refused a message");
                    return Ok(AttemptOutcome::Refused(REFUSED));
                }
                let is_busy = matches!(error.as_str(), "ratelimited" | "rate_limited");
                let status = if is_busy { TOO_MANY } else { REFUSED };
                let action = FailureAction::Retry(wait.filter(|_| is_busy));
                let why = format!("Slack answered {error}");
                Err(FailedAttempt { failure: Failure::Status(status), action, why })
            }
        }
    }
}

/// Slack is never gone for good.
fn kept(failed: FailedAttempt) -> FailedAttempt {
    let action = match failed.action {
        FailureAction::Disable => FailureAction::Retry(None),
        retry @ FailureAction::Retry(_) => retry,
    };
    FailedAttempt { action, ..failed }
}

async fn read_answer(response: Response, until: Instant) -> Result<PostAnswer, FailedAttempt> {
    let unread = |why: &str| {
        FailedAttempt::again(Failure::NoAnswer, format!("the answer of Slack cannot be read: {why}"))
    };
    let read = timeout_at(until, read(response, ANSWER_BYTES)).await;
    let bytes = read.map_err(|_elapsed| unread("it did not end in time"))?.map_err(|why| unread(&why))?;
    serde_json::from_slice(&bytes).map_err(|_| unread("it is not the JSON of the Web API"))
}

/// Returns the name of an error, for the log. Slack's errors are words.
fn error_name(error: Option<String>) -> String {
    let is_word = |text: &String| {
        (1..=ERROR_BYTES).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    error.filter(is_word).unwrap_or_else(|| "an error without a name".to_owned())
}

/// Returns a text as mrkdwn without links and mentions.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
