//! Numbers followed from the model to the card, the decision and the tool, on every surface.

use super::generated::{NumberValue, drawn, echoed, is_shown_exactly};
use super::{RecordedInputs, allow, call_of, calls, edit, held, server, server_with};
use holdpoint::config::{ApprovalRule, Config, RememberInputs, RuleCondition, RuleEffect};
use holdpoint::handlers::HandlerAnswer;
use holdpoint_testkit::handlers::desk;
use holdpoint_testkit::ui::{ui_answer, ui_assistant, ui_submit_at, ui_user};
use holdpoint_testkit::{Answer, Embedded, JsonFields, Socket, eventually};
use serde_json::{Value, json};

/// The surface of a decision.
#[derive(Debug, Clone, Copy)]
enum Surface {
    Proposed,
    Echoed,
    Batch,
    Run,
    Session,
    Socket,
    Page,
}

const SURFACES: [Surface; 7] = [
    Surface::Proposed,
    Surface::Echoed,
    Surface::Batch,
    Surface::Run,
    Surface::Session,
    Surface::Socket,
    Surface::Page,
];

fn arguments(number: &str) -> String {
    format!(r#"{{"n":{number}}}"#)
}

fn done(answer: &Answer) {
    assert!(matches!(answer.status, 200 | 202), "{:?}", answer.body);
}

impl Surface {
    /// Approves the call as a page that shows this number.
    async fn approve(self, app: &Embedded, thread: &str, id: &str, shown: &Value) {
        let call = app.client.call(id).await;
        let echo = arguments(&echoed(shown));
        // After a decision on one of these surfaces the server resumes the run.
        let resumes = matches!(self, Self::Run | Self::Session | Self::Socket);
        if resumes {
            app.scene.answers("Done.");
        }
        let body = format!(
            r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{echo},"inputHash":{}}}"#,
            call["input_hash"]
        );
        match self {
            Self::Proposed => done(&app.client.approve(id).await),
            Self::Echoed => done(&app.client.post_raw("/qa/validate_tool", body).await),
            Self::Batch => {
                let answer =
                    app.client.post_raw("/qa/validate_tools", format!(r#"{{"decisions":[{body}]}}"#)).await;
                assert_eq!(answer.body["results"][0]["state"], "succeeded", "{:?}", answer.body);
            }
            Self::Run => {
                let path = format!("/runs/{}/approve", call.text("run_id"));
                let body = format!(r#"{{"tool_call_id":"{id}","validated_inputs":{echo}}}"#);
                done(&app.client.post_raw(&path, body).await);
            }
            Self::Session => {
                let path = format!("/sessions/{thread}/approvals/{id}");
                done(&app.client.post(&path, &json!({ "decision": "allow_once" })).await);
            }
            Self::Socket => {
                let mut socket = Socket::open(&app.client, "/ws", &[]).await.unwrap();
                let decide =
                    format!(r#"{{"tool_call_id":"{id}","decision":"approve","validated_inputs":{echo}}}"#);
                socket.send(&format!(r#"{{"id":1,"decide":{decide}}}"#)).await;
                let (status, body) = socket.answer(&json!(1)).await;
                assert!(matches!(status, 200 | 202), "{body}");
            }
            Self::Page => {
                let message = call.text("message_id");
                let posted = ui_assistant(message, &json!([ui_answer(id, "transfer", true)]));
                let body = ui_submit_at(thread, &[ui_user("u", "please"), posted], message);
                app.scene.answers("Done.");
                let turn = app.client.ui_turn_in(thread, &body).await;
                assert_eq!(turn.refused().0, 200, "{}", turn.raw);
            }
        }
        app.client.becomes(id, "succeeded").await;
        if resumes {
            let run = format!("/runs/{}", call.text("run_id"));
            eventually("the run is completed", async || {
                (app.client.get(&run).await.body["status"] == "completed").then_some(())
            })
            .await;
        }
    }
}

/// The number of a call, at every place where a page or a client can see it before the decision.
async fn shown(app: &Embedded, thread: &str, id: &str) -> Vec<Value> {
    let v4 = app.client.get(&format!("/threads/{thread}/messages?format=v4")).await.body;
    let ui = app.client.get(&format!("/threads/{thread}/messages?format=ui-v6")).await.body;
    let inbox = app.client.get(&format!("/threads/{thread}/approvals")).await.body;
    let mut parts = ui.list("results").iter().flat_map(|message| message.list("parts"));
    let part = parts.rfind(|part| part["toolCallId"] == id).unwrap();
    vec![
        app.client.call(id).await["input"]["n"].clone(),
        v4.list("results")
            .iter()
            .rev()
            .find_map(|message| {
                message["toolInvocations"].as_array().map(|all| all.last().unwrap()["args"]["n"].clone())
            })
            .unwrap(),
        part["input"]["n"].clone(),
        inbox["results"][0]["input"]["n"].clone(),
    ]
}

/// Follows one number. Returns whether its call was held.
async fn follow(app: &Embedded, ran: &RecordedInputs, text: &str, surface: Surface) -> bool {
    let thread = app.client.thread().await;
    let turn = calls(app, &thread, "transfer", &arguments(text)).await;
    let call = call_of(app, &turn).await;
    let meaning = NumberValue::of(text);
    if !is_shown_exactly(text) {
        assert_eq!(call["state"], "invalid", "{text}: {call}");
        return false;
    }
    let meaning = meaning.unwrap();
    let id = call.text("tool_call_id");
    assert_eq!(turn.pending(), [id], "{text}: {}", turn.raw);
    let mut all = shown(app, &thread, id).await;
    all.push(turn.all('9')[0]["args"]["n"].clone());
    for shown in &all {
        assert_eq!(NumberValue::on_a_page(shown), meaning, "{text}: {shown}");
        assert_eq!(NumberValue::of_value(shown), meaning, "{text}: {shown}");
    }
    let before = ran.count();
    surface.approve(app, &thread, id, &all[0]).await;
    let ran = ran.all();
    assert_eq!(ran.len(), before + 1, "{text} {surface:?}");
    assert_eq!(NumberValue::of_value(&ran.last().unwrap()["n"]), meaning, "{text} {surface:?}");
    let call = app.client.call(id).await;
    assert_eq!(call["decision"]["edited"], false, "{text} {surface:?}");
    assert_eq!(NumberValue::of_value(&call["output"]["n"]), meaning, "{text}");
    // The same number in another spelling is the same decision.
    let echo = format!(
        r#"{{"toolCallId":"{id}","isValidated":true,"validatedInputs":{}}}"#,
        arguments(&echoed(&all[0]))
    );
    let again = app.client.post_raw("/qa/validate_tool", echo).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{text}: {:?}", again.body);
    true
}

#[tokio::test]
async fn the_number_shown_to_a_person_is_the_number_that_runs() {
    let (app, ran) = server(|_| {}).await;
    let mut kinds = [0, 0];
    for (text, surface) in drawn(90).iter().zip(SURFACES.iter().cycle()) {
        kinds[usize::from(follow(&app, &ran, text, *surface).await)] += 1;
    }
    assert!(kinds.iter().all(|many| *many > 10), "{kinds:?}");
}

#[tokio::test]
async fn the_number_shown_to_a_handler_is_the_number_that_runs() {
    let (desk, questions) = desk();
    let (app, ran) = server_with(desk, |_| {}).await;
    for text in drawn(30).iter().filter(|text| is_shown_exactly(text)) {
        let thread = app.client.thread().await;
        let id = format!("p{}", app.scene.requests().len());
        app.scene.calls(&[(id, "transfer".to_owned(), arguments(text))]).answers("Done.");
        let approve = async {
            let question = questions.next().await;
            let shown = question.request.input["n"].clone();
            assert_eq!(Some(NumberValue::of_value(&shown)), NumberValue::of(text), "{text}");
            let inputs = json!({ "n": shown }).as_object().cloned();
            question.answer(HandlerAnswer::Approved { inputs, remember: None });
        };
        let (turn, ()) = tokio::join!(app.client.send_message(&thread, "please"), approve);
        assert_eq!(turn.text(), "Done.", "{}", turn.raw);
        assert_eq!(
            Some(NumberValue::of_value(&ran.all().last().unwrap()["n"])),
            NumberValue::of(text),
            "{text}"
        );
    }
}

/// Pairs of numbers: each with itself in another spelling, with its neighbours, and with other drawn numbers.
fn pairs() -> Vec<(String, String)> {
    let within: Vec<String> = drawn(40).into_iter().filter(|text| NumberValue::of(text).is_some()).collect();
    let mut pairs: Vec<_> = within.windows(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    for text in within {
        if let Some(NumberValue::Integer(n)) = NumberValue::of(&text) {
            pairs.push((text.clone(), format!("{n}.0")));
            for near in [n - 1, n + 1, n] {
                pairs.push((text.clone(), near.to_string()));
            }
        }
    }
    pairs.retain(|(_, other)| NumberValue::of(other).is_some());
    // Each pair takes a turn of its own, so only every third pair is used.
    pairs.into_iter().step_by(3).collect()
}

#[tokio::test]
async fn edits_duplicates_hashes_and_replays_distinguish_numbers_exactly_if_they_differ() {
    let (app, ran) = server(allow).await;
    for (n, (one, other)) in pairs().iter().enumerate() {
        let equal = NumberValue::of(one) == NumberValue::of(other);
        let (thread, id) = held(&app, "transfer", &arguments(one)).await;
        let turn = calls(&app, &thread, "transfer", &arguments(other)).await;
        let repeat = call_of(&app, &turn).await;
        assert_eq!(repeat["state"] == "cancelled", equal, "{n}: {one} {other}");
        let call = app.client.call(&id).await;
        assert_eq!(call["input_hash"] == repeat["input_hash"], equal, "{one} {other}");
        let shown = json!({ "toolCallId": id, "isValidated": true, "inputHash": repeat["input_hash"] });
        if !equal {
            assert_eq!(app.client.validate(&shown).await.code(), "stale", "{one} {other}");
        }
        let decided = app.client.validate(&edit(&id, &arguments(other))).await;
        assert_eq!(decided.body["state"], "succeeded", "{:?}", decided.body);
        let call = app.client.call(&id).await;
        assert_eq!(call["decision"]["edited"], json!(!equal), "{one} {other}");
        assert_eq!(Some(NumberValue::of_value(&ran.all().last().unwrap()["n"])), NumberValue::of(other));
        let again = app.client.validate(&edit(&id, &arguments(one))).await;
        assert_eq!(again.status == 200, equal, "{one} {other}: {:?}", again.body);
    }
}

#[tokio::test]
async fn grants_distinguish_numbers_exactly_if_they_differ() {
    let (app, _) = server(|config| {
        allow(config);
        config.approval.remember_inputs = RememberInputs::Equal;
    })
    .await;
    for (one, other) in pairs().iter().step_by(2) {
        let (thread, id) = held(&app, "transfer", &arguments(one)).await;
        let mut granted = edit(&id, &arguments(one));
        granted["remember"] = json!("session");
        assert_eq!(app.client.validate(&granted).await.body["state"], "succeeded");
        let turn = calls(&app, &thread, "transfer", &arguments(other)).await;
        let equal = NumberValue::of(one) == NumberValue::of(other);
        assert_eq!(turn.pending().is_empty(), equal, "{one} {other}");
    }
}

#[tokio::test]
async fn rules_distinguish_numbers_exactly_if_they_differ() {
    let pairs = pairs();
    let one_of = |n: usize| -> Value { serde_json::from_str(&pairs[n].0).unwrap() };
    let change = |config: &mut Config| {
        for n in 0..pairs.len() {
            let value = one_of(n);
            let tests = [
                RuleCondition { equals: Some(value.clone()), ..RuleCondition::default() },
                RuleCondition { not_in: Some(vec![value]), ..RuleCondition::default() },
            ];
            for (kind, test) in ["equals", "not-in"].into_iter().zip(tests) {
                let case = RuleCondition {
                    argument: "/case".to_owned(),
                    equals: Some(json!(format!("{kind}-{n}"))),
                    ..RuleCondition::default()
                };
                config.approval.rules.push(ApprovalRule {
                    name: format!("{kind}-{n}"),
                    effect: RuleEffect::Deny,
                    tools: vec!["note".to_owned()],
                    when: vec![case, RuleCondition { argument: "/n".to_owned(), ..test }],
                    roles: vec![],
                    unless_roles: vec![],
                    escalate_after: None,
                    escalate_to: vec![],
                    reason: None,
                });
            }
        }
    };
    let (app, _) = server(change).await;
    for (n, (one, other)) in pairs.iter().enumerate() {
        let thread = app.client.thread().await;
        let equal = NumberValue::of(one) == NumberValue::of(other);
        for (kind, forbidden) in [("equals", equal), ("not-in", !equal)] {
            let turn = calls(&app, &thread, "note", &format!(r#"{{"case":"{kind}-{n}","n":{other}}}"#)).await;
            let call = call_of(&app, &turn).await;
            assert_eq!(call["state"] == "rejected", forbidden, "{kind} {one} {other}: {call}");
        }
    }
}
