//! The route at which Slack reports that a user pressed a button, or sent a form.
//!
//! Slack signs its requests and sends no token. It wants an answer within three seconds and repeats nothing, so the
//! decision is made first, and a notice about it follows, which only that user sees. The button that rejects opens a
//! form for the reason, and the form decides.
//!
//! # One press of a button
//!
//! 1. `http` recognizes the request by its path in place of the authentication, and has its headers checked before the
//!    body is read. [`SlackHook`] verifies the signature over the bytes, and only then reads them.
//! 2. `people` maps the Slack user to a principal, in the tenant of the endpoint that the value of the button
//!    names. `Approvals::decide` decides with the hash of that value.
//! 3. The answer follows the decision, after two seconds at the latest. A notice for the user goes to the
//!    `response_url` (`Slack::reply`), if it is an address of Slack. The message itself changes by its delivery.

use super::application::Slack;
use super::button::{Button, ButtonDecision};
use super::form::{FormReport, RejectionForm};
use super::signature::{SignatureHeaders, SignatureRefusal};
use crate::agent::Tasks;
use crate::approvals::{Approvals, DecideError, Decided, Decider, DecisionRequest, Denied, Scope};
use crate::delivery::hook::{HookAnswer, HookRefusal, InboundHook, UnreadableReport, VerifiedBody};
use crate::rate_limit::RateLimited;
use async_trait::async_trait;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::{Choice, REASON_MAX, Surface};
use holdpoint_core::json::surrogates::without_lone_halves;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tracing::Span;

pub(in crate::delivery::channels) const PATH: &str = "/slack/interactions";
/// The longest wait for a decision before the answer. Slack waits three seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest time for a form to open. Slack takes the id of a press for three seconds.
const OPEN_WITHIN: Duration = Duration::from_secs(3);
const FIELD: &str = "payload";

fn signed(headers: &HeaderMap) -> Result<SignatureHeaders<'_>, HookRefusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    SignatureHeaders::of(header).ok_or_else(|| {
        refusal("The headers x-slack-request-timestamp and x-slack-signature are not both there.")
    })
}

fn refused_signature(refused: SignatureRefusal) -> HookRefusal {
    refusal(match refused {
        SignatureRefusal::Time => {
            "The x-slack-request-timestamp is no time, or is more than 5 minutes from now."
        }
        SignatureRefusal::Signature => {
            "The x-slack-signature was made with another secret than slack.signing_secret, or over other bytes."
        }
    })
}

const fn refusal(why: &'static str) -> HookRefusal {
    HookRefusal { scheme: "Slack", expected: "Expected a request that Slack signed.", why }
}

fn seconds(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}

/// What Slack reports. Other fields are ignored.
#[derive(Debug, Deserialize)]
struct Payload {
    #[serde(rename = "type")]
    kind: String,
    user: Option<Account>,
    #[serde(default)]
    actions: Vec<PressedButton>,
    response_url: Option<String>,
    trigger_id: Option<String>,
    view: Option<FormReport>,
}

#[derive(Debug, Deserialize)]
struct Account {
    id: String,
}

#[derive(Debug, Deserialize)]
struct PressedButton {
    action_id: String,
    value: Option<String>,
}

/// What a user does in Slack.
struct UserAction {
    account: String,
    button: Button,
    /// Where notices to the user go.
    response_url: Option<String>,
    intent: Intent,
}

/// What the user wants.
enum Intent {
    Approve,
    /// Opens the form for the reason, with the id of the press.
    AskWhy(String),
    Reject(Option<String>),
}

impl UserAction {
    /// Reads a verified body. `None` if it reports something else, such as a press of a link.
    fn read(body: &[u8]) -> Result<Option<Self>, UnreadableReport> {
        let mut fields = url::form_urlencoded::parse(body).filter(|(name, _)| name == FIELD);
        let text = fields.next().filter(|_| fields.next().is_none());
        let (_, text) = text.ok_or_else(|| wrong("expected this field once, in a form"))?;
        let payload: Payload = serde_json::from_str(&without_lone_halves(&text))
            .map_err(|_| wrong("expected the JSON of an interaction of Slack"))?;
        match payload.kind.as_str() {
            "block_actions" => Self::of_press(payload),
            "view_submission" => Self::of_form(payload),
            _ => Ok(None),
        }
    }

    fn of_press(payload: Payload) -> Result<Option<Self>, UnreadableReport> {
        let decides =
            |action: PressedButton| Some((ButtonDecision::of_action_id(&action.action_id)?, action.value));
        let Some((decision, value)) = payload.actions.into_iter().find_map(decides) else { return Ok(None) };
        let account = account(payload.user)?;
        let button = value.as_deref().and_then(Button::parse);
        let button = button.ok_or_else(|| wrong("actions: expected the value of a button of this server"))?;
        let intent = match decision {
            ButtonDecision::Approve => Intent::Approve,
            ButtonDecision::Reject => {
                let id =
                    payload.trigger_id.ok_or_else(|| wrong("trigger_id: expected the id of the press"))?;
                Intent::AskWhy(id)
            }
        };
        Ok(Some(Self { account, button, response_url: payload.response_url, intent }))
    }

    fn of_form(payload: Payload) -> Result<Option<Self>, UnreadableReport> {
        let Some(view) = payload.view.filter(FormReport::rejects) else { return Ok(None) };
        let account = account(payload.user)?;
        let kept = view.kept();
        let kept =
            kept.ok_or_else(|| wrong("view: expected the private_metadata of a form of this server"))?;
        let RejectionForm { button, response_url } = kept;
        let intent = Intent::Reject(view.reason().map(str::to_owned));
        Ok(Some(Self { account, button, response_url, intent }))
    }
}

fn account(user: Option<Account>) -> Result<String, UnreadableReport> {
    Ok(user.ok_or_else(|| wrong("user: expected the user that pressed the button"))?.id)
}

fn wrong(why: &str) -> UnreadableReport {
    UnreadableReport(format!("{FIELD}: {why}"))
}

/// The hook of the Slack application.
pub(in crate::delivery::channels) struct SlackHook {
    pub(in crate::delivery::channels) slack: Arc<Slack>,
    pub(in crate::delivery::channels) approvals: Approvals,
    pub(in crate::delivery::channels) tasks: Tasks,
}

#[async_trait]
impl InboundHook for SlackHook {
    fn path(&self) -> &'static str {
        PATH
    }

    fn check_head(&self, headers: &HeaderMap, now: Timestamp) -> Result<(), HookRefusal> {
        signed(headers)?.check_time(seconds(now)).map_err(refused_signature)
    }

    fn verify(
        &self,
        headers: &HeaderMap,
        body: Vec<u8>,
        now: Timestamp,
    ) -> Result<VerifiedBody, HookRefusal> {
        self.slack.verify(signed(headers)?, &body, seconds(now)).map_err(refused_signature)?;
        Ok(VerifiedBody::new(body))
    }

    async fn handle(&self, body: VerifiedBody) -> Result<HookAnswer, UnreadableReport> {
        let Some(act) = UserAction::read(body.bytes())? else { return Ok(HookAnswer::Done) };
        if matches!(&act.intent, Intent::Reject(Some(reason)) if reason.chars().count() > REASON_MAX) {
            let fault = RejectionForm::fault(&format!("At most {REASON_MAX} characters."));
            return Ok(HookAnswer::Json(fault));
        }
        let (approvals, tasks, slack) = (self.approvals.clone(), self.tasks.clone(), self.slack.clone());
        let deciding = self.tasks.spawn(async move {
            let notice = act_on(&approvals, &slack, &act).await;
            if let Some((url, notice)) = act.response_url.zip(notice) {
                tasks.spawn(async move {
                    match slack.reply(&url, &notice).await {
                        Ok(answer) if answer.status().is_success() => {}
                        Ok(answer) => {
                            tracing::warn!(status = answer.status().as_u16(), "Slack took no notice")
                        }
                        Err(error) => tracing::warn!(?error, "a notice did not reach Slack"),
                    }
                });
            }
        });
        // The task completes a slower decision, and the message shows it.
        let _decided = timeout(ANSWER_WITHIN, deciding).await;
        Ok(HookAnswer::Done)
    }
}

/// Decides the call, or opens the form. Returns the notice for the user, unless the message will show the decision.
async fn act_on(approvals: &Approvals, slack: &Slack, act: &UserAction) -> Option<String> {
    let UserAction { account, button, response_url, intent } = act;
    let Some(principal) = slack.people().user(&button.endpoint, account) else {
        tracing::info!(account, endpoint = button.endpoint, "no entry of notify has this Slack account");
        return Some(UNMAPPED.to_owned());
    };
    Span::current().record("tenant", &*principal.tenant_id).record("user", &*principal.user_id);
    let Some(tool_call_id) = button.call() else { return Some(NOT_FOUND.to_owned()) };
    let choice = match intent {
        Intent::Approve => Choice::AS_PROPOSED,
        Intent::Reject(reason) => Choice::Reject { reason: reason.clone() },
        Intent::AskWhy(trigger_id) => {
            let form =
                RejectionForm { button: button.clone(), response_url: response_url.clone() }.form(REASON_MAX);
            let opened = slack.open(trigger_id, &form, Instant::now() + OPEN_WITHIN).await;
            return opened.err().map(|why| {
                tracing::warn!(why, "Slack did not open the form for a reason");
                NO_FORM.to_owned()
            });
        }
    };
    let request = DecisionRequest {
        tool_call_id,
        choice,
        input_hash: Some(button.input_hash.clone()),
        preview_hash: None,
        link: None,
        surface: Surface::Slack,
        remember: None,
        scope: Scope::Anything,
        server_resumes: true,
    };
    match approvals.decide(Decider::Person(principal), request).await {
        Ok(decided) => accepted(&decided),
        Err(error) => Some(refused(&error)),
    }
}

const UNMAPPED: &str = "Your Slack account is not mapped to a user of this server, so it decides nothing.";
const NO_FORM: &str = "The form for the reason did not open. Press Reject again, or open the call.";
const NOT_FOUND: &str = "There is no such call, or it is not yours to decide.";

/// Returns the notice about an accepted decision, if there is one. These texts and those of refusals contain no text of a call.
fn accepted(Decided { call, replayed, missing, .. }: &Decided) -> Option<String> {
    match (missing, replayed) {
        (0, false) => None,
        (0, true) => Some(format!("This was decided before. The call is {}.", call.state.word())),
        (1, _) => {
            Some("Your approval counts. One more person has to approve the call before it runs.".to_owned())
        }
        (more, _) => {
            Some(format!("Your approval counts. {more} more people have to approve the call before it runs."))
        }
    }
}

fn refused(error: &DecideError) -> String {
    match error {
        DecideError::Denied(Denied::TooOften(RateLimited { seconds, .. })) => {
            return format!("You decided too often. Try again in {seconds} seconds.");
        }
        DecideError::Closed(call) => {
            return format!("The call is {} already. Nothing has changed.", call.state.word());
        }
        DecideError::Denied(Denied::NotFound) => NOT_FOUND,
        DecideError::Denied(Denied::Forbidden(right)) => right.refusal(),
        DecideError::Blocked(_) => "The policy forbids the call. It stays pending; you may reject it.",
        DecideError::Unreadable => {
            "The stored inputs of the call cannot be read, so it cannot be approved. It stays pending; you may reject it."
        }
        DecideError::ToolUnavailable(_) => "The tool is not available now. The call stays pending.",
        DecideError::Stale { .. } | DecideError::StalePreview => {
            "The call has changed since this message. It stays pending; open it to see what would run."
        }
        DecideError::InvalidInputs(_) => "The inputs do not fit the tool any more. The call stays pending.",
        DecideError::NotRemembered { .. } | DecideError::Link(_) | DecideError::Denied(Denied::Store(_)) => {
            tracing::error!(%error, "a decision in Slack failed");
            "The decision could not be stored. Try again."
        }
    }
    .to_owned()
}
