//! After its streams have ended, a page holds the same message as after a reload. The turns are generated:
//! any steps of a model, any calls and any decisions.

use holdpoint::llm::{FinishReason, ModelEvent, Usage};
use holdpoint_testkit::dialects::{PageApprovals, TestedDialect, ui_dialects};
use holdpoint_testkit::ui::{UiTurn, ui_answer, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{Embedded, JsonFields, call};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

type Step = Vec<Result<ModelEvent, String>>;

/// Starts a turn whose model requests a payment, fails after the payment, and then completes.
async fn held_call() -> (Embedded, String, UiTurn) {
    let app = Embedded::start().await;
    app.scene.calls(&[call("a", "pay", &json!({ "note": "10" }))]);
    app.scene.then(vec![Ok(ModelEvent::Text("Wel".to_owned())), Err("gone".to_owned())]);
    app.scene.answers("Done.");
    let turn = app.client.ui_turn(&ui_submit("chat-1", &[ui_user("u1", "pay")])).await;
    let id = turn.pending()[0].clone();
    (app, id, turn)
}

/// The types of the chunks that a page receives when it resumes its message with these parts.
async fn resumed(app: &Embedded, turn: &UiTurn, parts: &Value) -> Vec<String> {
    let message = turn.message_id();
    let messages = [ui_user("u1", "pay"), ui_assistant(message, parts)];
    let resumed = app.client.ui_turn(&ui_submit_at("chat-1", &messages, message)).await;
    resumed.kinds().into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn edited_inputs_are_sent_once_if_the_turn_fails_after_they_were_sent() {
    let (app, id, turn) = held_call().await;
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "7" } });
    app.client.validate(&edit).await.has_status(200);
    let shown = "tool-input-available".to_owned();
    let broken = resumed(&app, &turn, &json!([])).await;
    assert_eq!((broken.contains(&shown), broken.last().unwrap().as_str()), (true, "error"), "{broken:?}");
    let kinds = resumed(&app, &turn, &json!([])).await;
    assert!(!kinds.contains(&shown) && kinds.contains(&"tool-output-available".to_owned()), "{kinds:?}");
}

#[tokio::test]
async fn a_call_that_a_page_approves_too_late_stays_in_error_when_the_page_resumes_again() {
    let (app, id, turn) = held_call().await;
    let withdrawn = app.client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await;
    withdrawn.has_status(200);
    for state in ["approval-responded", "output-error"] {
        let approval = json!({ "id": id, "approved": true });
        let part = json!({ "type": "tool-pay", "toolCallId": id, "state": state, "approval": approval });
        let kinds = resumed(&app, &turn, &json!([part])).await;
        let has = |kind: &str| kinds.iter().any(|it| it == kind);
        assert!(has("tool-output-error") && !has("tool-output-denied"), "{state}: {kinds:?}");
    }
}

#[derive(Debug, Clone)]
struct ModelStep {
    pieces: Vec<Piece>,
    usage: Option<u64>,
    /// Whether the step fails before its end.
    breaks: bool,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Thought(String),
    Source(u8),
    File(Vec<u8>),
    /// A call: its tool, its note, and whether its arguments end only after every other piece of the step.
    Call(&'static str, String, bool),
}

/// What happens to a pending call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CallFate {
    /// The page itself decides, where the dialect allows that.
    Page(bool),
    /// Another client decides: it rejects with a reason, or approves with other inputs.
    Other(bool),
    Withdrawn,
    Open,
}

fn scenes() -> impl Strategy<Value = (Vec<ModelStep>, Vec<CallFate>)> {
    let word = || prop::sample::select(&["a", "\n", "é\u{2028}", "\"\\", "\0", "data: x\n\n", " ", "{}"][..]);
    let words = || vec(word(), 1..4).prop_map(|words| words.concat());
    let tool = prop::sample::select(&["look", "pay", "pay", "refuse", "mumble", "break", "nothing"][..]);
    let piece = prop_oneof![
        3 => words().prop_map(Piece::Text),
        2 => words().prop_map(Piece::Thought),
        1 => any::<u8>().prop_map(Piece::Source),
        1 => vec(any::<u8>(), 1..20).prop_map(Piece::File),
        4 => (tool, "[a-z]{0,3}", any::<bool>()).prop_map(|(tool, note, late)| Piece::Call(tool, note, late)),
    ];
    let step = (vec(piece, 0..6), option::of(0..100_u64), prop::bool::weighted(0.2))
        .prop_map(|(pieces, usage, breaks)| ModelStep { pieces, usage, breaks });
    let fate = prop_oneof![
        3 => any::<bool>().prop_map(CallFate::Page),
        3 => any::<bool>().prop_map(CallFate::Other),
        1 => Just(CallFate::Withdrawn),
        1 => Just(CallFate::Open),
    ];
    (vec(step, 1..5), vec(fate, 8))
}

fn step(model_steps: &ModelStep) -> Step {
    let (mut step, mut late, mut calls) = (Step::new(), Step::new(), 0);
    for piece in &model_steps.pieces {
        step.push(Ok(match piece {
            Piece::Text(words) => ModelEvent::Text(words.clone()),
            Piece::Thought(words) => ModelEvent::Reasoning(words.clone()),
            Piece::Source(n) => ModelEvent::Source { url: format!("https://a.example/{n}"), title: None },
            Piece::File(data) => ModelEvent::File { media_type: "image/png".to_owned(), data: data.clone() },
            Piece::Call(tool, note, is_late) => {
                let index = calls;
                calls += 1;
                let (provider_call_id, tool_name) = (format!("p{index}"), (*tool).to_owned());
                step.push(Ok(ModelEvent::CallStarted { index, provider_call_id, tool_name }));
                let arguments = json!({ "note": note }).to_string();
                let (half, rest) = arguments.split_at(5);
                let delta = half.to_owned();
                let rest = [
                    Ok(ModelEvent::CallArguments { index, delta: rest.to_owned() }),
                    Ok(ModelEvent::CallFinished { index }),
                ];
                step.push(Ok(ModelEvent::CallArguments { index, delta }));
                if *is_late {
                    late.extend(rest);
                } else {
                    step.extend(rest);
                }
                continue;
            }
        }));
    }
    if model_steps.breaks {
        step.push(Err("gone".to_owned()));
        return step;
    }
    step.extend(late);
    let usage = model_steps.usage.map(|input_tokens| Usage { input_tokens, output_tokens: 1 });
    let reason = if calls > 0 { FinishReason::ToolCalls } else { FinishReason::Stop };
    step.push(Ok(ModelEvent::Finished { reason, usage, provider_state: None }));
    step
}

/// The turns of one message as a page of this dialect reads them, and the message after a reload.
struct PlayedTurns {
    turns: Vec<Value>,
    reloaded: Value,
    /// The calls that the page itself has not decided.
    others: Vec<String>,
}

async fn play(dialect: &TestedDialect, model_steps: &[ModelStep], fates: &[CallFate]) -> PlayedTurns {
    let app = Embedded::start().await;
    for model_steps in model_steps {
        app.scene.then(step(model_steps));
    }
    let mut turns = Vec::new();
    let mut fates = fates.iter().copied().cycle();
    let mut others = Vec::new();
    let mut fated = HashMap::new();
    let hex = |raw: &str| raw.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut turn = app.client.ui_turn_as(&dialect.name, &ui_submit("chat-1", &[ui_user("u1", "go")])).await;
    let message = turn.message_id().to_owned();
    let mut answers = Vec::new();
    // The loop ends when a call stays open or the model has no steps left.
    for _ in 0..2 * model_steps.len() {
        turns.push(json!({ "bytes": hex(&turn.raw), "answers": answers, "loadedAnew": false }));
        let pending = turn.pending();
        let ended = pending.is_empty() && turn.error().is_none();
        if ended
            || app.scene.requests().len() > model_steps.len()
            || pending.iter().any(|id| fated.contains_key(id))
        {
            break;
        }
        answers = Vec::new();
        let mut parts = Vec::new();
        for id in pending {
            let fate = match fates.next().unwrap() {
                CallFate::Page(yes) if dialect.approvals == PageApprovals::Unknown => CallFate::Other(yes),
                fate => fate,
            };
            fated.insert(id.clone(), fate);
            match fate {
                CallFate::Page(approved) => {
                    parts.push(ui_answer(&id, "pay", approved));
                    answers.push(json!({ "id": id, "approved": approved }));
                    continue;
                }
                CallFate::Other(true) => {
                    let edit =
                        json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "x" } });
                    app.client.validate(&edit).await.has_status(200);
                }
                CallFate::Other(false) => {
                    let no = json!({ "toolCallId": id, "isValidated": false, "reason": "no" });
                    app.client.validate(&no).await.has_status(200);
                }
                CallFate::Withdrawn => {
                    let cancel = format!("/tool_calls/{id}/cancel");
                    app.client.post(&cancel, &Value::Null).await.has_status(200);
                }
                CallFate::Open => {}
            }
            others.push(id);
        }
        let messages = [ui_user("u1", "go"), ui_assistant(&message, &json!(parts))];
        turn = app.client.ui_turn_as(&dialect.name, &ui_submit_at("chat-1", &messages, &message)).await;
        assert_eq!(turn.status, 200, "{}", turn.raw);
    }
    let thread = app.client.get("/threads").await.body["results"][0].text("thread_id").to_owned();
    let page = app.client.get(&format!("/threads/{thread}/messages?format={}", dialect.format)).await;
    let reloaded = page.body["results"]
        .get(1)
        .cloned()
        .unwrap_or(json!({ "id": message, "role": "assistant", "parts": [] }));
    PlayedTurns { turns, reloaded, others }
}

/// A message without the fields that may differ: ids of reasoning parts, calls with incomplete inputs, the
/// start of an empty step, the mark of a late answer, and the approvals that another client gave.
fn comparable(message: &Value, others: &[String]) -> Value {
    let mut message = message.clone();
    let parts = message["parts"].as_array_mut().unwrap();
    parts.retain(|part| part["state"] != "input-streaming");
    let begins = |part: &Value| part["type"] == "step-start";
    let kept: Vec<usize> = (0..parts.len())
        .filter(|n| !begins(&parts[*n]) || parts.get(n + 1).is_some_and(|next| !begins(next)))
        .collect();
    *parts = kept.into_iter().map(|n| parts[n].clone()).collect();
    for part in parts {
        let fields = part.as_object_mut().unwrap();
        if fields["type"] == "reasoning" {
            fields.remove("id");
        }
        if fields["type"] == "data-tool-decision" {
            // Only the page knows that its answer was late.
            fields["data"].as_object_mut().unwrap().remove("late");
        }
        if let Some(approval) = fields.get_mut("approval")
            && others.iter().any(|id| approval["id"] == *id)
        {
            *approval = json!({ "id": approval["id"] });
        }
    }
    message
}

/// What pages of these SDK releases hold after reading these turns, and how each turn ended for them.
fn read(dialect: &TestedDialect, played: &[PlayedTurns]) -> Vec<Value> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
    // The fuzz target of the dialects has the first releases too.
    let clients = dialect.readers.iter().filter(|reader| !reader.ends_with("-first"));
    let mut node = Command::new("node");
    node.current_dir(dir).arg("driver/read.mjs").args(clients).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.spawn().expect("node is installed");
    let mut input = node.stdin.take().unwrap();
    let lines: Vec<_> =
        played.iter().map(|it| json!({ "turns": it.turns, "pieces": [7, 300, 1] }).to_string()).collect();
    let written = thread::spawn(move || lines.iter().try_for_each(|line| writeln!(input, "{line}")));
    let output = node.wait_with_output().unwrap();
    written.join().unwrap().unwrap();
    output.stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn a_page_holds_the_same_message_after_any_turns_as_after_a_reload() {
    for dialect in ui_dialects() {
        // Deterministic: random seeds are left to the fuzz targets.
        let mut runner = TestRunner::deterministic();
        let (mut cases, mut played) = (Vec::new(), Vec::new());
        for _ in 0..24 {
            let (model_steps, fates) = scenes().new_tree(&mut runner).unwrap().current();
            played.push(play(dialect, &model_steps, &fates).await);
            cases.push((model_steps, fates));
        }
        for ((case, played), reads) in cases.iter().zip(&played).zip(read(dialect, &played)) {
            for read in reads.as_array().unwrap() {
                let carries_others = dialect.approvals == PageApprovals::RequestsAndDecisions;
                let others = if carries_others { &[][..] } else { &played.others };
                let held = comparable(&read["message"], others);
                let reloaded = comparable(&played.reloaded, others);
                assert_eq!(held, reloaded, "left: held by {}; right: reloaded; {case:#?}", read["client"]);
                for end in read.list("ends") {
                    let error = end["error"].as_str();
                    let expected = error.is_none_or(|error| error.starts_with("upstream_error: "));
                    assert!(expected, "{end} {case:#?}");
                }
            }
        }
    }
}
