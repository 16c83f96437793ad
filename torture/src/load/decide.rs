//! The deciders: several for each call, on different replicas. They agree, disagree, change inputs, repeat
//! their decisions, disconnect in the middle of a request, and decide at the last moment.

use super::Load;
use super::board::Known;
use super::people::Person;
use super::talk::leave;
use crate::chance::Chance;
use crate::clock::Micros;
use crate::http::{Ask, Reply};
use crate::json::At;
use crate::record::{Answer, Deciding, Sight, Span, Surface, Verdict};
use crate::told::{Dialect, Told};
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
enum Fate {
    /// Several people decide soon.
    Quick,
    /// Several people decide close to the expiry.
    Late,
    /// The owner cancels the call while other people decide.
    Withdrawn,
    /// The owner's page posts an approval part while other people decide.
    OnThePage,
    /// No person decides.
    Nobody,
}

/// A person with a decision for a call.
struct Decider {
    load: Arc<Load>,
    known: Known,
    person: Person,
    verdict: Verdict,
    chance: Chance,
}

pub(super) async fn decide(load: Arc<Load>, known: Known) {
    let mut chance = Chance::of(load.shared().seed, ("call", known.inputs.at("/n").as_i64(), &known.tool));
    let fates =
        [(Fate::Quick, 63), (Fate::Late, 8), (Fate::Withdrawn, 12), (Fate::OnThePage, 12), (Fate::Nobody, 5)];
    let fate = chance.weighted(&fates).unwrap_or(Fate::Quick);
    let mut deciders = JoinSet::new();
    match fate {
        Fate::Nobody => return,
        Fate::Late => {
            let Some(expires) = expires(&load, &known, &mut chance).await else { return };
            let wait = expires - load.now() - 50_000;
            sleep(Duration::from_micros(u64::try_from(wait).unwrap_or_default())).await;
        }
        Fate::Withdrawn => {
            deciders.spawn(withdraw(load.clone(), known.clone(), chance.clone()));
        }
        Fate::OnThePage => {
            deciders.spawn(answer_on_the_page(load.clone(), known.clone(), chance.clone()));
        }
        Fate::Quick => sleep(chance.millis(0, 300)).await,
    }
    let approvers = load.people.approvers(known.owner.tenant);
    let mut people: Vec<Person> = approvers.into_iter().cloned().collect();
    people.insert(0, known.owner.clone());
    let count = usize::try_from(chance.between(2, 7)).unwrap_or(2);
    let first = if chance.percent(78) { Verdict::Approve(None) } else { Verdict::Reject };
    for (number, person) in people.into_iter().take(count).enumerate() {
        let verdict = match number {
            0 => first.clone(),
            _ => other(&first, &known, &mut chance),
        };
        let chance = Chance::of(load.shared().seed, ("decider", known.inputs.at("/n").as_i64(), number));
        deciders.spawn(Decider { load: load.clone(), known: known.clone(), person, verdict, chance }.say());
    }
    while deciders.join_next().await.is_some() {}
}

/// Returns the verdict of a further decider.
fn other(first: &Verdict, known: &Known, chance: &mut Chance) -> Verdict {
    let edited = |by: i64| {
        let mut inputs = known.inputs.clone();
        if let Some(n) = inputs.get_mut("n") {
            *n = (n.as_i64().unwrap_or_default() + EDIT * by).into();
        }
        Verdict::Approve(Some(inputs))
    };
    match chance.between(0, 100) {
        0..55 => first.clone(),
        55..75 => edited(1),
        75..80 => edited(2),
        _ if *first == Verdict::Reject => Verdict::Approve(None),
        _ => Verdict::Reject,
    }
}

/// Returns the approximate expiry of a call.
async fn expires(load: &Load, known: &Known, chance: &mut Chance) -> Option<Micros> {
    let replica = load.any_replica(chance);
    // The expiry in the answer is text and is not parsed. The call expires a fixed time after its commit,
    // which is about the time at which the load read of it.
    load.look_at(replica, &known.call, &known.owner.token).await?;
    i64::try_from(PENDING_TTL.as_micros()).ok().map(|ttl| known.since + ttl)
}

impl Decider {
    /// Posts the decision until its outcome is known, and sometimes once more.
    async fn say(mut self) {
        let pause = self.chance.millis(0, 120);
        sleep(pause).await;
        for again in 0..TRIES {
            let known = self.try_once().await;
            let repeats = again == 0 && self.chance.percent(35);
            if (known && !repeats) || self.load.is_stopping() {
                return;
            }
            let pause = self.chance.millis(20, 300);
            sleep(pause).await;
        }
    }

    async fn try_once(&mut self) -> bool {
        let replica = self.load.any_replica(&mut self.chance);
        if self.load.batches && self.chance.percent(20) {
            return self.in_a_batch(replica).await;
        }
        if self.chance.percent(25)
            && let Some((path, body)) = self.elsewhere(replica).await
        {
            return self.posts(replica, path, body, Surface::Elsewhere).await;
        }
        let mut body = decision(&self.known.call, &self.verdict);
        if self.chance.percent(25) {
            let shown = self.load.look_at(replica, &self.known.call, &self.person.token).await;
            let hash = shown.as_ref().and_then(|shown| shown.get("input_hash"));
            if let (Some(hash), Some(fields)) = (hash, body.as_object_mut()) {
                fields.insert("inputHash".to_owned(), hash.clone());
            }
        }
        self.posts(replica, "/qa/validate_tool".to_owned(), body, Surface::One).await
    }

    /// Returns a request to the session or run routes. The server resumes the run by itself after such a
    /// decision.
    async fn elsewhere(&mut self, replica: usize) -> Option<(String, Value)> {
        let Known { call, thread, .. } = &self.known;
        if self.chance.percent(50) {
            let decision = match self.verdict {
                Verdict::Approve(None) => "allow_once",
                Verdict::Approve(Some(_)) => return None,
                Verdict::Reject => "deny",
            };
            return Some((format!("/sessions/{thread}/approvals/{call}"), json!({ "decision": decision })));
        }
        let shown = self.load.look_at(replica, call, &self.person.token).await?;
        let run = shown.at("/run_id").as_str()?;
        let (word, body) = match &self.verdict {
            Verdict::Approve(None) => ("approve", json!({ "tool_call_id": call })),
            Verdict::Approve(Some(inputs)) => {
                ("approve", json!({ "tool_call_id": call, "validated_inputs": inputs }))
            }
            Verdict::Reject => ("reject", json!({ "tool_call_id": call })),
        };
        Some((format!("/runs/{run}/{word}"), body))
    }

    async fn posts(&mut self, replica: usize, path: String, body: Value, surface: Surface) -> bool {
        let leaves = self.chance.percent(self.load.amount.leaving);
        let leave = leaves.then(|| leave(&self.load.amount, &mut self.chance)).flatten();
        let asked = self.asks(&self.known.call, replica, surface);
        let ask = Ask::post(path, &self.person.token, Some(body)).leaving(leave);
        let reply = self.load.try_to_ask(replica, ask).await;
        let answer = answer_of(reply);
        let is_known = is_known(&answer);
        self.is_answered(&asked, &self.known.call, replica, answer);
        is_known
    }

    /// Decides this call and other calls in one request, with the same verdict.
    async fn in_a_batch(&mut self, replica: usize) -> bool {
        let others = self.load.board.latest(12).into_iter().filter(|other| {
            other.owner.tenant == self.person.tenant && self.person.user != self.known.owner.user
        });
        let mut calls: Vec<String> = others.map(|other| other.call).take(3).collect();
        if !calls.contains(&self.known.call) {
            calls.push(self.known.call.clone());
        }
        let verdict = match &self.verdict {
            // The changed inputs belong to one call only.
            Verdict::Approve(_) => Verdict::Approve(None),
            Verdict::Reject => Verdict::Reject,
        };
        self.verdict = verdict;
        let decisions: Vec<Value> = calls.iter().map(|call| decision(call, &self.verdict)).collect();
        let asked: Vec<Asked> = calls.iter().map(|call| self.asks(call, replica, Surface::Batch)).collect();
        let body = json!({ "decisions": decisions });
        let reply =
            self.load.ask(replica, Ask::post("/qa/validate_tools", &self.person.token, Some(body))).await;
        let whole =
            reply.filter(|reply| reply.cut.is_none() && reply.status == 200).map(|reply| reply.json());
        let mut all_known = whole.is_some();
        for (at, (call, asked)) in calls.iter().zip(&asked).enumerate() {
            let item = whole.as_ref().and_then(|body| body.at("/results").as_array()?.get(at));
            let answer = match item {
                Some(item) => Answer::Said {
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
            self.is_answered(asked, call, replica, answer);
        }
        all_known
    }

    /// Records the decision before its request, because the server may have received an interrupted request.
    fn asks(&self, call: &str, replica: usize, surface: Surface) -> Asked {
        let begun = self.load.now();
        let place = self.load.book().decides(Deciding {
            call: call.to_owned(),
            actor: self.person.actor(),
            replica,
            surface,
            verdict: self.verdict.clone(),
            span: Span { begun, ended: Micros::MAX },
            answer: Answer::Unknown("under way".to_owned()),
        });
        Asked { place, begun, surface }
    }

    fn is_answered(&self, asked: &Asked, call: &str, replica: usize, answer: Answer) {
        let span = Span { begun: asked.begun, ended: self.load.now() };
        if asked.surface != Surface::Elsewhere {
            self.load.book().sights.lock().extend(seen(call, replica, span, &answer));
        }
        self.load.book().answered(asked.place, span.ended, answer);
    }
}

/// A requested decision, by its place in the book.
struct Asked {
    place: usize,
    begun: Micros,
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

fn answer_of(reply: Result<Reply, String>) -> Answer {
    match reply {
        Err(why) | Ok(Reply { cut: Some(why), .. }) => Answer::Unknown(why),
        Ok(reply) => Answer::Said {
            status: reply.status,
            body: reply.json(),
            replayed: reply.header("idempotent-replayed").is_some_and(|value| value == "true"),
        },
    }
}

fn is_known(answer: &Answer) -> bool {
    matches!(answer, Answer::Said { status, .. } if *status < 500)
}

/// Returns the state of the call in the answer to a decision.
fn seen(call: &str, replica: usize, span: Span, answer: &Answer) -> Option<Sight> {
    let Answer::Said { body, .. } = answer else { return None };
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
    Some(Sight {
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

async fn withdraw(load: Arc<Load>, known: Known, mut chance: Chance) {
    // The cancel request comes before all decisions, or between them.
    if chance.percent(50) {
        let pause = chance.millis(0, 150);
        sleep(pause).await;
    }
    let replica = load.any_replica(&mut chance);
    let path = format!("/tool_calls/{}/cancel", known.call);
    let begun = load.now();
    let reply = load.ask(replica, Ask::post(path, &known.owner.token, None)).await;
    let span = Span { begun, ended: load.now() };
    let shown = reply.as_ref().filter(|reply| reply.status == 200 && reply.cut.is_none()).map(Reply::json);
    load.book().sights.lock().extend(shown.and_then(|shown| Sight::of(&shown, replica, "cancel", span)));
    load.book().count("withdraw", reply.is_some_and(|reply| reply.status < 500));
}

/// The owner's page posts an approval part, which also resumes the message.
async fn answer_on_the_page(load: Arc<Load>, known: Known, mut chance: Chance) {
    let approved = chance.percent(70);
    let part = json!({
        "type": format!("tool-{}", known.tool), "toolCallId": known.call, "state": "approval-responded",
        "input": known.inputs, "approval": { "id": known.call, "approved": approved },
    });
    let message = json!({ "id": "page", "role": "assistant", "parts": [part] });
    let body = json!({ "id": known.thread, "messages": [message], "trigger": "submit-message" });
    let replica = load.any_replica(&mut chance);
    let leaves = chance.percent(load.amount.leaving);
    let leave = leaves.then(|| leave(&load.amount, &mut chance)).flatten();
    let path = format!("/qa/chat_streamed/{}", known.thread);
    let ask = Ask { dialect: Some(Dialect::UiV6.name()), ..Ask::post(path, &known.owner.token, Some(body)) };
    let begun = load.now();
    load.book().decides(Deciding {
        call: known.call.clone(),
        actor: known.owner.actor(),
        replica,
        surface: Surface::Page,
        verdict: if approved { Verdict::Approve(None) } else { Verdict::Reject },
        span: Span { begun, ended: Micros::MAX },
        answer: Answer::Unknown("a stream does not report the decision".to_owned()),
    });
    let reply = load.ask(replica, ask.leaving(leave)).await;
    if leave.is_none() {
        load.book().count("page", reply.as_ref().is_some_and(|reply| reply.status < 500));
    }
    let Some(reply) = reply.filter(|reply| reply.status == 200) else { return };
    load.book().turns.lock().push(crate::record::Turn {
        thread: known.thread,
        replica,
        dialect: Dialect::UiV6,
        attached: false,
        span: Span { begun, ended: load.now() },
        status: reply.status,
        told: Told::of(Dialect::UiV6, &reply.text),
        cut: reply.cut,
    });
}
