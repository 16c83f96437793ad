//! The route at which Slack reports that a user pressed a button, or sent a form.
//!
//! Slack signs its requests and sends no token. It wants an answer within three seconds and repeats nothing, so the
//! decision is made first, and a notice about it follows, which only that user sees. The button that rejects opens a
//! form for the reason, and the form decides.
//!
//! # One press of a button
//!
//! 1. [`Unverified::of`] recognizes the request in place of the authentication, and checks its headers before the body
//!    is read. [`Interactions`] verifies the signature over the bytes, and only then reads them.
//! 2. `slack::people` maps the Slack user to a principal, in the tenant of the endpoint that the value of the button
//!    names. `Approvals::decide` decides with the hash of that value.
//! 3. The answer follows the decision, after two seconds at the latest. A notice for the user goes to the
//!    `response_url` (`Slack::reply`), if it is an address of Slack. The message itself changes by its delivery.

use crate::agent::Tasks;
use crate::approvals::{Approvals, DecideError, Decided, Decider, DecisionRequest, Scope};
use crate::http::approvals::validate::REASON_MAX;
use crate::http::auth::failure::Unknown;
use crate::http::body::templates::without_api;
use crate::http::failure::error::ApiError;
use crate::rate_limit::RateLimited;
use crate::slack::{Button, Decision, Refused, Rejecting, Signed, Slack, View};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::decision::{Choice, Surface};
use holdpoint_core::surrogates::without_lone_halves;
use poem::http::Method;
use poem::{Endpoint, Request, Response, Result};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tracing::Span;

pub(in crate::http) const PATH: &str = "/slack/interactions";
/// The same, as pages reach the routes.
pub(in crate::http) const API_PATH: &str = "/api/slack/interactions";
/// The longest wait for a decision before the answer. Slack waits three seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest time for a form to open. Slack takes the id of a press for three seconds.
const OPEN_WITHIN: Duration = Duration::from_secs(3);
const FIELD: &str = "payload";

/// A request that Slack seems to have sent. The middleware puts it into the request.
#[derive(Debug, Clone)]
pub(in crate::http) struct Unverified {
    slack: Arc<Slack>,
    now: Timestamp,
}

impl Unverified {
    /// Returns the request if it is one for this route, or the refusal of its headers. `None` for every other request.
    pub(in crate::http) fn of(
        request: &Request,
        slack: Option<&Arc<Slack>>,
        now: Timestamp,
    ) -> Option<Result<Self, ApiError>> {
        let is_interaction = request.method() == Method::POST && without_api(request.uri().path()) == PATH;
        let slack = slack.filter(|_| is_interaction)?.clone();
        let unverified = Self { slack, now };
        // Before the body is read.
        let checked = signed(request)
            .and_then(|signed| signed.check_time(unverified.seconds()).map_err(unauthenticated));
        Some(checked.map(|()| unverified))
    }

    fn seconds(&self) -> i64 {
        self.now.as_micros().div_euclid(1_000_000)
    }

    /// Verifies that Slack signed this body.
    fn verify(&self, request: &Request, body: &[u8]) -> Result<(), ApiError> {
        self.slack.verify(signed(request)?, body, self.seconds()).map_err(unauthenticated)
    }
}

fn signed(request: &Request) -> Result<Signed<'_>, ApiError> {
    Signed::of(|name| request.header(name))
        .ok_or_else(|| ApiError::unauthenticated(&Unknown::SlackUnsigned, None))
}

fn unauthenticated(refused: Refused) -> ApiError {
    let why = match refused {
        Refused::Time => Unknown::SlackTime,
        Refused::Signature => Unknown::SlackSignature,
    };
    ApiError::unauthenticated(&why, None)
}

/// What Slack reports. Other fields are ignored.
#[derive(Debug, Deserialize)]
struct Payload {
    #[serde(rename = "type")]
    kind: String,
    user: Option<Account>,
    #[serde(default)]
    actions: Vec<Action>,
    response_url: Option<String>,
    trigger_id: Option<String>,
    view: Option<View>,
}

#[derive(Debug, Deserialize)]
struct Account {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Action {
    action_id: String,
    value: Option<String>,
}

/// What a user does in Slack.
struct Act {
    account: String,
    button: Button,
    /// Where notices to the user go.
    response_url: Option<String>,
    does: Does,
}

enum Does {
    Approve,
    /// Opens the form for the reason, with the id of the press.
    AskWhy(String),
    Reject(Option<String>),
}

impl Act {
    /// Reads a verified body. `None` if it reports something else, such as a press of a link.
    fn read(body: &[u8]) -> Result<Option<Self>, ApiError> {
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

    fn of_press(payload: Payload) -> Result<Option<Self>, ApiError> {
        let decides = |action: Action| Some((Decision::of_action_id(&action.action_id)?, action.value));
        let Some((decision, value)) = payload.actions.into_iter().find_map(decides) else { return Ok(None) };
        let account = account(payload.user)?;
        let button = value.as_deref().and_then(Button::parse);
        let button = button.ok_or_else(|| wrong("actions: expected the value of a button of this server"))?;
        let does = match decision {
            Decision::Approve => Does::Approve,
            Decision::Reject => {
                let id =
                    payload.trigger_id.ok_or_else(|| wrong("trigger_id: expected the id of the press"))?;
                Does::AskWhy(id)
            }
        };
        Ok(Some(Self { account, button, response_url: payload.response_url, does }))
    }

    fn of_form(payload: Payload) -> Result<Option<Self>, ApiError> {
        let Some(view) = payload.view.filter(View::rejects) else { return Ok(None) };
        let account = account(payload.user)?;
        let kept = view.kept();
        let kept =
            kept.ok_or_else(|| wrong("view: expected the private_metadata of a form of this server"))?;
        let Rejecting { button, response_url } = kept;
        let does = Does::Reject(view.reason().map(str::to_owned));
        Ok(Some(Self { account, button, response_url, does }))
    }
}

fn account(user: Option<Account>) -> Result<String, ApiError> {
    Ok(user.ok_or_else(|| wrong("user: expected the user that pressed the button"))?.id)
}

fn wrong(why: &str) -> ApiError {
    ApiError::bad_request(format!("{FIELD}: {why}"))
}

/// The endpoint of the route.
pub(in crate::http) struct Interactions {
    pub(in crate::http) approvals: Approvals,
    pub(in crate::http) tasks: Tasks,
}

impl Endpoint for Interactions {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        // The path of another request can lead here too: it is written in another way.
        let unverified = request.data::<Unverified>().cloned().ok_or_else(ApiError::not_found)?;
        let body = request.take_body().into_bytes().await?;
        unverified.verify(&request, &body)?;
        let Some(act) = Act::read(&body)? else { return Ok(Response::default()) };
        if matches!(&act.does, Does::Reject(Some(reason)) if reason.chars().count() > REASON_MAX) {
            let fault = Rejecting::fault(&format!("At most {REASON_MAX} characters."));
            return Ok(Response::builder().content_type("application/json").body(fault.to_string()));
        }
        let (approvals, tasks, slack) = (self.approvals.clone(), self.tasks.clone(), unverified.slack);
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
        Ok(Response::default())
    }
}

/// Decides the call, or opens the form. Returns the notice for the user, unless the message will show the decision.
async fn act_on(approvals: &Approvals, slack: &Slack, act: &Act) -> Option<String> {
    let Act { account, button, response_url, does } = act;
    let Some(principal) = slack.people().user(&button.endpoint, account) else {
        tracing::info!(account, endpoint = button.endpoint, "no entry of notify has this Slack account");
        return Some(UNMAPPED.to_owned());
    };
    Span::current().record("tenant", &*principal.tenant_id).record("user", &*principal.user_id);
    let Some(tool_call_id) = button.call() else { return Some(NOT_FOUND.to_owned()) };
    let choice = match does {
        Does::Approve => Choice::AS_PROPOSED,
        Does::Reject(reason) => Choice::Reject { reason: reason.clone() },
        Does::AskWhy(trigger_id) => {
            let form =
                Rejecting { button: button.clone(), response_url: response_url.clone() }.form(REASON_MAX);
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
        DecideError::TooOften(RateLimited { seconds, .. }) => {
            return format!("You decided too often. Try again in {seconds} seconds.");
        }
        DecideError::Closed(call) => {
            return format!("The call is {} already. Nothing has changed.", call.state.word());
        }
        DecideError::NotFound => NOT_FOUND,
        DecideError::Forbidden => "You may see this call, but this decision is not yours to make.",
        DecideError::Blocked(_) => "The policy forbids the call. It stays pending; you may reject it.",
        DecideError::Unreadable => {
            "The stored inputs of the call cannot be read, so it cannot be approved. It stays pending; you may reject it."
        }
        DecideError::ToolUnavailable(_) => "The tool is not available now. The call stays pending.",
        DecideError::Stale { .. } | DecideError::StalePreview => {
            "The call has changed since this message. It stays pending; open it to see what would run."
        }
        DecideError::InvalidInputs(_) => "The inputs do not fit the tool any more. The call stays pending.",
        DecideError::NotRemembered { .. } | DecideError::Link(_) | DecideError::Store(_) => {
            tracing::error!(%error, "a decision in Slack failed");
            "The decision could not be stored. Try again."
        }
    }
    .to_owned()
}
