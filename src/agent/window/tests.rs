use super::*;
use holdpoint_models::ModelCall;
use proptest::prelude::*;
use serde_json::Map;

/// A turn of a test: the length of its result, and whether the model reads the outcome in a later turn.
#[derive(Debug, Clone)]
struct Planned {
    result: usize,
    read_in: usize,
    tokens: Option<u64>,
    /// The window that the turn was sent with.
    window: Window,
}

/// The messages of these turns: a question, a call with its answer, and words. The last turn has only its question.
fn conversation(turns: &[Planned]) -> (Vec<ModelMessage>, Outline) {
    let (mut messages, mut outline) = (Vec::new(), Outline::default());
    for (at, planned) in turns.iter().enumerate() {
        let start = messages.len();
        messages.push(ModelMessage::User(format!("question {at}")));
        outline.begin(start, messages.len(), [planned.window; 2]);
        if at == turns.len() - 1 {
            break;
        }
        let call = ModelCall { id: format!("call {at}"), tool_name: "look".to_owned(), input: Map::new() };
        let text = "r".repeat(planned.result);
        outline.is_read_in(planned.read_in);
        messages.push(ModelMessage::Assistant {
            text: String::new(),
            calls: vec![call],
            speaker: Speaker::Another,
        });
        messages.push(ModelMessage::Tool {
            call_id: format!("call {at}"),
            tool_name: "look".to_owned(),
            text,
        });
        if let Some(tokens) = planned.tokens {
            outline.counted(messages.len(), tokens);
        }
        let speaker = Speaker::Another;
        messages.push(ModelMessage::Assistant { text: format!("answer {at}"), calls: Vec::new(), speaker });
    }
    (messages, outline)
}

fn fitted(turns: &[Planned], limit: u64) -> Vec<ModelMessage> {
    fit(turns, limit, 0).0
}

fn fit(turns: &[Planned], limit: u64, overhead: u64) -> (Vec<ModelMessage>, Window) {
    let (mut messages, mut outline) = conversation(turns);
    let window = outline.fit(&mut messages, limit, overhead);
    (messages, window)
}

fn plain(result: usize) -> Planned {
    Planned { result, read_in: 0, tokens: None, window: Window::default() }
}

fn has(messages: &[ModelMessage], words: &str) -> bool {
    messages.iter().any(|message| format!("{message:?}").contains(words))
}

/// The result of the call of a turn.
fn result(messages: &[ModelMessage], turn: usize) -> Option<&str> {
    messages.iter().find_map(|message| match message {
        ModelMessage::Tool { call_id, text, .. } if *call_id == format!("call {turn}") => Some(text.as_str()),
        _ => None,
    })
}

fn is_short(text: &str) -> bool {
    text.ends_with(model_texts::SHORTENED)
}

#[test]
fn results_are_shortened_before_turns_are_left_out() {
    let turns = [vec![plain(9000); 3], vec![plain(10)]].concat();
    let whole = conversation(&turns).0;
    assert_eq!(fitted(&turns, u64::MAX), whole);
    // 27,000 bytes are 9,000 tokens. The results alone are enough.
    let shortened = fitted(&turns, 4000);
    assert!(has(&shortened, "question 0") && has(&shortened, model_texts::SHORTENED), "{shortened:#?}");
    assert!(!has(&shortened, model_texts::LEFT_OUT));
    let turns = [vec![plain(900); 30], vec![plain(10)]].concat();
    let left_out = fitted(&turns, 4000);
    assert_eq!(left_out[0], ModelMessage::User(model_texts::LEFT_OUT.to_owned()));
    assert!(
        !has(&left_out, "question 0\"") && has(&left_out, "question 29") && has(&left_out, "question 30")
    );
    assert!(left_out.len() > 4 * 5, "a quarter of the limit is the head-room: {}", left_out.len());
}

#[test]
fn a_turn_with_an_unread_outcome_is_never_left_out() {
    let mut turns = [vec![plain(900); 30], vec![plain(10)]].concat();
    turns[2].read_in = usize::MAX;
    turns[3].read_in = 31;
    turns[4].read_in = 30;
    let left_out = fitted(&turns, 4000);
    let asked = |turn: usize| has(&left_out, &format!("question {turn}\""));
    assert_eq!([1, 2, 3, 4, 5].map(asked), [false, true, true, false, false]);
    let (mut messages, mut outline) = conversation(&turns);
    assert!(outline.shrink(&mut messages, 0).is_some());
    let asked = |turn: usize| has(&messages, &format!("question {turn}\""));
    assert_eq!([1, 2, 3, 4, 5].map(asked), [false, true, true, false, false]);
}

#[test]
fn what_the_server_counted_is_the_measure() {
    let few = Planned { tokens: Some(100), ..plain(900) };
    let turns = [vec![few; 30], vec![plain(10)]].concat();
    assert_eq!(fitted(&turns, 4000), conversation(&turns).0, "the server counts few tokens");
    let many = Planned { tokens: Some(9000), ..plain(900) };
    let turns = [vec![many; 3], vec![plain(10)]].concat();
    assert!(fitted(&turns, 4000).len() < conversation(&turns).0.len(), "the server counts many tokens");
}

#[test]
fn the_count_of_a_request_that_was_sent_again_shorter_changes_no_window() {
    let right = Planned { tokens: Some(9000), ..plain(900) };
    let again = Planned { tokens: Some(100), ..plain(900) };
    let turns = [vec![right; 3], vec![again, plain(10)]].concat();
    assert!(fitted(&turns, 4000).len() < conversation(&turns).0.len());
}

#[test]
fn a_window_that_is_refused_keeps_its_sentence() {
    let turns = [vec![plain(900); 30], vec![plain(10)]].concat();
    let (mut messages, mut outline) = conversation(&turns);
    outline.fit(&mut messages, 4000, 0);
    let before = messages.len();
    assert!(outline.shrink(&mut messages, 0).is_some());
    assert_eq!(messages[0], ModelMessage::User(model_texts::LEFT_OUT.to_owned()));
    assert!(
        matches!(&messages[1], ModelMessage::User(text) if text.starts_with("question ")),
        "{messages:#?}"
    );
    assert!(messages.len() < before && has(&messages, "question 30"));
    assert_eq!(messages.iter().filter(|it| format!("{it:?}").contains(model_texts::LEFT_OUT)).count(), 1);
}

#[test]
fn a_refused_request_becomes_half_as_long_or_stays() {
    let (mut messages, mut outline) = conversation(&[plain(90_000), plain(10)]);
    assert!(outline.shrink(&mut messages, 0).is_some());
    assert!(has(&messages, "question 0") && has(&messages, model_texts::SHORTENED));
    let (mut messages, mut outline) = conversation(&[plain(10)]);
    let before = messages.clone();
    assert!(outline.shrink(&mut messages, 0).is_none(), "one question cannot be shortened");
    assert_eq!(messages, before);
}

#[test]
fn what_a_refusal_left_out_stays_out_without_the_memory_of_the_process() {
    let mut turns = [vec![plain(900); 30], vec![plain(10)]].concat();
    let (mut messages, mut outline) = conversation(&turns);
    outline.fit(&mut messages, u64::MAX, 0);
    let narrowed = outline.shrink(&mut messages, 0).unwrap();
    assert!(narrowed.left_out > 0 && narrowed.refused.is_some(), "{narrowed:?}");
    turns[30].window = narrowed;
    turns.push(plain(10));
    let (later, window) = fit(&turns, u64::MAX, 0);
    assert!(window.left_out >= narrowed.left_out && window.shortened >= narrowed.shortened, "{window:?}");
    let first =
        |messages: &[ModelMessage]| messages.iter().position(|it| matches!(it, ModelMessage::Tool { .. }));
    assert!(first(&later).is_some() && later.len() <= messages.len() + 4, "{}", later.len());
    // The limit of this conversation is that of its refusal.
    turns[31] = plain(40_000);
    turns.extend([plain(10), plain(10)]);
    let (wide, window) = fit(&turns, u64::MAX, 0);
    assert!(window.left_out > narrowed.left_out && is_short(result(&wide, 31).unwrap()), "{window:?}");
}

#[test]
fn a_window_stays_with_another_limit_and_with_other_tools() {
    let mut turns = [vec![plain(900); 30], vec![plain(10)]].concat();
    let (narrow, window) = fit(&turns, 4000, 6000);
    assert!(window.left_out > 0);
    turns[30].window = window;
    turns.push(plain(10));
    for (limit, overhead) in [(4000, 6000), (4000, 0), (8000, 6000), (u64::MAX, 0)] {
        let (messages, later) = fit(&turns, limit, overhead);
        assert_eq!(later, window, "{limit} and {overhead}");
        assert_eq!(messages[..narrow.len()], narrow, "{limit} and {overhead}");
    }
}

#[test]
fn a_limit_is_learned_by_model_and_only_falls() {
    let limits = Limits::new(Some(10_000));
    assert_eq!((limits.known("a"), Limits::new(None).known("a")), (Some(10_000), None));
    limits.learn("a", 8000);
    limits.learn("a", 9000);
    assert_eq!((limits.of("a"), limits.of("b")), (5333, 10_000));
    assert!(limits.of("a") - limits.of("a") / 4 <= 8000 / 2, "a window after the refusal is no larger");
    limits.learn("a", 1);
    assert_eq!(limits.of("a"), LEARNED_MIN);
}

fn turns() -> impl Strategy<Value = Vec<Planned>> {
    let later = prop_oneof![8 => Just(0_usize), 1 => 1..12_usize, 1 => Just(usize::MAX)];
    let turn = (0..4000_usize, later, prop::option::of(500..3000_u64));
    let turn = turn.prop_map(|(result, later, tokens)| Planned { read_in: later, tokens, ..plain(result) });
    prop::collection::vec(turn, 2..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// From one turn to the next a request begins with the request before it, or the window has moved forward: it has
    /// no turn that was left out before, and no result whole that was shortened before. Whatever the limit and the tools
    /// of each turn are.
    #[test]
    fn the_window_only_moves_forward(mut turns in turns(), limits in prop::collection::vec((1100..6000_u64, 0..3000_u64), 30)) {
        for (at, turn) in turns.iter_mut().enumerate() {
            turn.read_in = if turn.read_in == 0 || turn.read_in == usize::MAX { turn.read_in } else { at + 1 + turn.read_in };
        }
        let mut before: Vec<ModelMessage> = Vec::new();
        for count in 2..=turns.len() {
            // In this turn the model has not yet read what it reads later.
            let known = turns[..count].iter().map(|turn| Planned {
                read_in: if turn.read_in > count { usize::MAX } else { turn.read_in }, ..turn.clone()
            });
            let (limit, overhead) = limits[count - 1];
            let (now, window) = fit(&known.collect::<Vec<_>>(), limit, overhead);
            turns[count - 1].window = window;
            let calls = now.iter().filter(|it| matches!(it, ModelMessage::Assistant { calls, .. } if !calls.is_empty()));
            let results = now.iter().filter(|it| matches!(it, ModelMessage::Tool { .. }));
            prop_assert_eq!(calls.count(), results.count());
            let last = format!("question {}\"", count - 2);
            prop_assert!(has(&now, &last), "the turn before stays");
            // No turn comes back, and a moved window leaves out or shortens.
            for turn in 0..count.saturating_sub(2) {
                let asked = format!("question {turn}\"");
                prop_assert!(has(&before, &asked) || !has(&now, &asked), "turn {turn} came back");
                let is_whole = |messages: &[ModelMessage]| result(messages, turn).is_none_or(|text| !is_short(text));
                prop_assert!(is_whole(&before) || result(&now, turn).is_none_or(is_short), "turn {turn} is whole again");
            }
            for (turn, planned) in turns[..count - 1].iter().enumerate() {
                let unread = planned.read_in >= count;
                prop_assert!(!unread || has(&now, &format!("question {turn}\"")), "turn {turn} is unread");
            }
            before = now;
        }
    }
}
