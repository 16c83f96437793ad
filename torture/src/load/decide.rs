//! The deciders: several for each call, on different replicas. They agree, disagree, change inputs, repeat
//! their decisions, disconnect in the middle of a request, and decide at the last moment.

use super::Load;
use super::held_calls::HeldCall;
use super::users::User;
use crate::clock::Micros;
use crate::http::{Request, Response};
use crate::json::JsonPointer;
use crate::random::Random;
use crate::record::{Answer, DecisionRequest, Observation, Span, Surface, Verdict};
use crate::stream::{Dialect, StreamContent};
use crate::world::PENDING_TTL;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The offset of changed inputs, far from the numbers of the model.
const EDIT: i64 = 1_000_000;
/// The number of tries of a decider without an answer.
const TRIES: u32 = 6;

/// The way in which a call is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// Several users decide soon.
    Quick,
    /// Several users decide close to the expiry.
    Late,
    /// The owner cancels the call while other users decide.
    Cancelled,
    /// The owner's page posts an approval part while other users decide.
    OnThePage,
    /// No user decides.
    Undecided,
}

/// A user with a decision for a call.
struct Decider {
    load: Arc<Load>,
    held: HeldCall,
    user: User,
    verdict: Verdict,
    random: Random,
}

pub(super) async fn decide(load: Arc<Load>, held: HeldCall) {
    let mut random = Random::of(load.shared().seed, ("call", held.inputs.at("/n").as_i64(), &held.tool));
    let scenarios = [
        (Scenario::Quick, 63),
        (Scenario::Late, 8),
        (Scenario::Cancelled, 12),
        (Scenario::OnThePage, 12),
        (Scenario::Undecided, 5),
    ];
    let scenario = random.weighted(&scenarios).unwrap_or(Scenario::Quick);
    let mut deciders = JoinSet::new();
    match scenario {
        Scenario::Undecided => return,
        Scenario::Late => {
            let Some(expires) = expires(&load, &held, &mut random).await else { return };
            let wait = expires - load.now() - 50_000;
            sleep(Duration::from_micros(u64::try_from(wait).unwrap_or_default())).await;
        }
        Scenario::Cancelled => {
            deciders.spawn(cancel(load.clone(), held.clone(), random.clone()));
        }
        Scenario::OnThePage => {
            deciders.spawn(decide_on_the_page(load.clone(), held.clone(), random.clone()));
        }
        Scenario::Quick => sleep(random.millis(0, 300)).await,
    }
    let approvers = load.users.approvers(held.owner.tenant);
    let mut users: Vec<User> = approvers.into_iter().cloned().collect();
    users.insert(0, held.owner.clone());
    let count = usize::try_from(random.between(2, 7)).unwrap_or(2);
    let first = if random.percent(78) { Verdict::Approve(None) } else { Verdict::Reject };
    for (number, user) in users.into_iter().take(count).enumerate() {
        let verdict = match number {
            0 => first.clone(),
            _ => other_verdict(&first, &held, &mut random),
        };
        let random = Random::of(load.shared().seed, ("decider", held.inputs.at("/n").as_i64(), number));
        deciders.spawn(Decider { load: load.clone(), held: held.clone(), user, verdict, random }.run());
    }
    while deciders.join_next().await.is_some() {}
}

/// Returns the verdict of a further decider.
fn other_verdict(first: &Verdict, held: &HeldCall, random: &mut Random) -> Verdict {
    let edited = |by: i64| {
        let mut inputs = held.inputs.clone();
        if let Some(n) = inputs.get_mut("n") {
            *n = (n.as_i64().unwrap_or_default() + EDIT * by).into();
        }
        Verdict::Approve(Some(inputs))
    };
    match random.between(0, 100) {
        0..55 => first.clone(),
        55..75 => edited(1),
        75..80 => edited(2),
        _ if *first == Verdict::Reject => Verdict::Approve(None),
        _ => Verdict::Reject,
    }
}

/// Returns the approximate expiry of a call.
async fn expires(load: &Load, held: &HeldCall, random: &mut Random) -> Option<Micros> {
    let replica = load.any_replica(random);
    // The expiry in the answer is text and is not parsed. The call expires a fixed time after its commit,
    // which is about the time at which the load read of it.
    load.read_call(replica, &held.call, &held.owner.token).await?;
    i64::try_from(PENDING_TTL.as_micros()).ok().map(|ttl| held.since + ttl)
}

impl Decider {
    /// Posts the decision until its outcome is known, and sometimes once more.
    async fn run(mut self) {
        let pause = self.random.millis(0, 120);
        sleep(pause).await;
        for attempt in 0..TRIES {
            let is_known = self.try_once().await;
            let repeats = attempt == 0 && self.random.percent(35);
            if (is_known && !repeats) || self.load.is_stopping() {
                return;
            }
            let pause = self.random.millis(20, 300);
            sleep(pause).await;
        }
    }

    async fn try_once(&mut self) -> bool {
        let replica = self.load.any_replica(&mut self.random);
        if self.load.batches && self.random.percent(20) {
            return self.in_a_batch(replica).await;
        }
        if self.random.percent(25)
            && let Some((path, body)) = self.run_or_session_request(replica).await
        {
            return self.post(replica, path, body, Surface::RunOrSession).await;
        }
        let mut body = decision(&self.held.call, &self.verdict);
        if self.random.percent(25) {
            let shown = self.load.read_call(replica, &self.held.call, &self.user.token).await;
            let hash = shown.as_ref().and_then(|shown| shown.get("input_hash"));
            if let (Some(hash), Some(fields)) = (hash, body.as_object_mut()) {
                fields.insert("inputHash".to_owned(), hash.clone());
            }
        }
        self.post(replica, "/qa/validate_tool".to_owned(), body, Surface::One).await
    }

    /// Returns a request to the session or run routes. The server resumes the run by itself after such a
    /// decision.
    async fn run_or_session_request(&mut self, replica: usize) -> Option<(String, Value)> {
        let HeldCall { call, thread, .. } = &self.held;
        if self.random.percent(50) {
            let decision = match self.verdict {
                Verdict::Approve(None) => "allow_once",
                Verdict::Approve(Some(_)) => return None,
                Verdict::Reject => "deny",
            };
            return Some((format!("/sessions/{thread}/approvals/{call}"), json!({ "decision": decision })));
        }
        let shown = self.load.read_call(replica, call, &self.user.token).await?;
        let run = shown.at("/run_id").as_str()?;
        let (action, body) = match &self.verdict {
            Verdict::Approve(None) => ("approve", json!({ "tool_call_id": call })),
            Verdict::Approve(Some(inputs)) => {
                ("approve", json!({ "tool_call_id": call, "validated_inputs": inputs }))
            }
            Verdict::Reject => ("reject", json!({ "tool_call_id": call })),
        };
        Some((format!("/runs/{run}/{action}"), body))
    }

    async fn post(&mut self, replica: usize, path: String, body: Value, surface: Surface) -> bool {
        let disconnects = self.random.percent(self.load.amount.disconnecting);
        let disconnect = disconnects.then(|| self.load.amount.disconnect(&mut self.random)).flatten();
        let recorded = self.record_request(&self.held.call, replica, surface);
        let request = Request::post(path, &self.user.token, Some(body)).disconnecting(disconnect);
        let response = self.load.try_send(replica, request).await;
        let answer = answer_of(response);
        let is_known = is_known(&answer);
        self.record_answer(&recorded, &self.held.call, replica, answer);
        is_known
    }

    /// Decides this call and other calls in one request, with the same verdict.
    async fn in_a_batch(&mut self, replica: usize) -> bool {
        let others = self
            .load
            .held_calls
            .latest(12)
            .into_iter()
            .filter(|other| other.owner.tenant == self.user.tenant && self.user.id != self.held.owner.id);
        let mut calls: Vec<String> = others.map(|other| other.call).take(3).collect();
        if !calls.contains(&self.held.call) {
            calls.push(self.held.call.clone());
        }
        let verdict = match &self.verdict {
            // The changed inputs belong to one call only.
            Verdict::Approve(_) => Verdict::Approve(None),
            Verdict::Reject => Verdict::Reject,
        };
        self.verdict = verdict;
        let decisions: Vec<Value> = calls.iter().map(|call| decision(call, &self.verdict)).collect();
        let recorded: Vec<RecordedRequest> =
            calls.iter().map(|call| self.record_request(call, replica, Surface::Batch)).collect();
        let body = json!({ "decisions": decisions });
        let response =
            self.load.send(replica, Request::post("/qa/validate_tools", &self.user.token, Some(body))).await;
        let complete = response
            .filter(|response| response.cut.is_none() && response.status == 200)
            .map(|response| response.json());
        let mut all_known = complete.is_some();
        for (at, (call, recorded)) in calls.iter().zip(&recorded).enumerate() {
            let item = complete.as_ref().and_then(|body| body.at("/results").as_array()?.get(at));
            let answer = match item {
                Some(item) => Answer::Received {
                    status: item
                        .at("/status")
                        .as_u64()
                        .and_then(|status| status.try_into().ok())
                        .unwrap_or_default(),
                    body: item.clone(),
                    replayed: item.at("/idempotentReplayed") == true,
                },
                None => Answer::Unknown("no answer".to_owned()),
            };
            all_known &= is_known(&answer);
            self.record_answer(recorded, call, replica, answer);
        }
        all_known
    }

    /// Records the decision before its request, because the server may have received an interrupted request.
    fn record_request(&self, call: &str, replica: usize, surface: Surface) -> RecordedRequest {
        let started = self.load.now();
        let index = self.load.book().record_decision(DecisionRequest {
            call: call.to_owned(),
            actor: self.user.actor(),
            replica,
            surface,
            verdict: self.verdict.clone(),
            span: Span { started, ended: Micros::MAX },
            answer: Answer::Unknown("under way".to_owned()),
        });
        RecordedRequest { index, started, surface }
    }

    fn record_answer(&self, recorded: &RecordedRequest, call: &str, replica: usize, answer: Answer) {
        let span = Span { started: recorded.started, ended: self.load.now() };
        if recorded.surface != Surface::RunOrSession {
            self.load.book().observations.lock().extend(observation_in(call, replica, span, &answer));
        }
        self.load.book().record_answer(recorded.index, span.ended, answer);
    }
}

/// A requested decision, by its place in the book.
struct RecordedRequest {
    index: usize,
    started: Micros,
    surface: Surface,
}

/// Returns a decision in the format of the routes.
fn decision(call: &str, verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Approve(None) => json!({ "toolCallId": call, "isValidated": true }),
        Verdict::Approve(Some(inputs)) => {
            json!({ "toolCallId": call, "isValidated": true, "validatedInputs": inputs })
        }
        Verdict::Reject => json!({ "toolCallId": call, "isValidated": false }),
    }
}

fn answer_of(response: Result<Response, String>) -> Answer {
    match response {
        Err(why) | Ok(Response { cut: Some(why), .. }) => Answer::Unknown(why),
        Ok(response) => Answer::Received {
            status: response.status,
            body: response.json(),
            replayed: response.header("idempotent-replayed").is_some_and(|value| value == "true"),
        },
    }
}

fn is_known(answer: &Answer) -> bool {
    matches!(answer, Answer::Received { status, .. } if *status < 500)
}

/// Returns the state of the call in the answer to a decision.
fn observation_in(call: &str, replica: usize, span: Span, answer: &Answer) -> Option<Observation> {
    let Answer::Received { body, .. } = answer else { return None };
    let details = body.at("/error/details");
    let state = body.at("/state").as_str().or(details.at("/state").as_str())?;
    let validated = match state {
        "pending" => None,
        "rejected" | "expired" | "invalid" => Some(false),
        // A call can be cancelled before or after an approval. An answer without error details acknowledges
        // an approval.
        "cancelled" => Some(details.is_null() || details.at("/decision/decision") == "approve"),
        _ => Some(true),
    };
    Some(Observation {
        call: call.to_owned(),
        replica,
        route: "decision",
        span,
        state: state.to_owned(),
        validated,
        edit: body.get("validatedInputs").filter(|inputs| inputs.is_object()).cloned(),
        result: body.at("/result").as_str().filter(|_| validated.is_some()).map(str::to_owned),
    })
}

async fn cancel(load: Arc<Load>, held: HeldCall, mut random: Random) {
    // The cancel request comes before all decisions, or between them.
    if random.percent(50) {
        let pause = random.millis(0, 150);
        sleep(pause).await;
    }
    let replica = load.any_replica(&mut random);
    let path = format!("/tool_calls/{}/cancel", held.call);
    let started = load.now();
    let response = load.send(replica, Request::post(path, &held.owner.token, None)).await;
    let span = Span { started, ended: load.now() };
    let shown = response
        .as_ref()
        .filter(|response| response.status == 200 && response.cut.is_none())
        .map(Response::json);
    load.book()
        .observations
        .lock()
        .extend(shown.and_then(|shown| Observation::of(&shown, replica, "cancel", span)));
    load.book().count("cancel", response.is_some_and(|response| response.status < 500));
}

/// The owner's page posts an approval part, which also resumes the message.
async fn decide_on_the_page(load: Arc<Load>, held: HeldCall, mut random: Random) {
    let approved = random.percent(70);
    let part = json!({
        "type": format!("tool-{}", held.tool), "toolCallId": held.call, "state": "approval-responded",
        "input": held.inputs, "approval": { "id": held.call, "approved": approved },
    });
    let message = json!({ "id": "page", "role": "assistant", "parts": [part] });
    let body = json!({ "id": held.thread, "messages": [message], "trigger": "submit-message" });
    let replica = load.any_replica(&mut random);
    let disconnects = random.percent(load.amount.disconnecting);
    let disconnect = disconnects.then(|| load.amount.disconnect(&mut random)).flatten();
    let path = format!("/qa/chat_streamed/{}", held.thread);
    let request =
        Request { dialect: Some(Dialect::UiV6.name()), ..Request::post(path, &held.owner.token, Some(body)) };
    let started = load.now();
    load.book().record_decision(DecisionRequest {
        call: held.call.clone(),
        actor: held.owner.actor(),
        replica,
        surface: Surface::Page,
        verdict: if approved { Verdict::Approve(None) } else { Verdict::Reject },
        span: Span { started, ended: Micros::MAX },
        answer: Answer::Unknown("a stream does not report the decision".to_owned()),
    });
    let response = load.send(replica, request.disconnecting(disconnect)).await;
    if disconnect.is_none() {
        load.book().count("page", response.as_ref().is_some_and(|response| response.status < 500));
    }
    let Some(response) = response.filter(|response| response.status == 200) else { return };
    load.book().turns.lock().push(crate::record::Turn {
        thread: held.thread,
        replica,
        dialect: Dialect::UiV6,
        attached: false,
        span: Span { started, ended: load.now() },
        status: response.status,
        content: StreamContent::of(Dialect::UiV6, &response.text),
        cut: response.cut,
    });
}
