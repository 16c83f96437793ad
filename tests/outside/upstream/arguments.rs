//! Arguments that no tool may receive, or that are ambiguous.

use super::{Stage, on_each_wire};
use holdpoint::config::{Config, ExactNumbers};
use holdpoint_testkit::{JsonFields, ScriptedAnswer, Weigh, Wire, probes};
use serde_json::{Value, json};

/// `{"note":[[…]]}`, nested to this number of arrays and objects.
fn deep(levels: usize) -> String {
    format!(r#"{{"note":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
}

/// A label, the arguments as written, and a part of the error.
fn refused() -> Vec<(&'static str, String, &'static str)> {
    let row = |what, arguments: &str, why| (what, arguments.to_owned(), why);
    vec![
        row("broken off", r#"{"note":"1""#, "EOF"),
        row("no JSON", "note=1", "expected"),
        row("two objects", r#"{"note":"1"}{"note":"2"}"#, "trailing"),
        row("a brace too many", r#"{"note":"1"}}"#, "trailing"),
        row("a line end in a text", "{\"note\":\"a\nb\"}", "control character"),
        row("a NUL in a text", "{\"note\":\"a\0b\"}", "control character"),
        row("a NUL behind all", "{\"note\":\"1\"}\0", "trailing"),
        row("a NUL, escaped", r#"{"note":"a\u0000b"}"#, "U+0000"),
        row("a NUL in a key", r#"{"note":"1","a\u0000":"b"}"#, "U+0000"),
        row("half a pair of surrogates", r#"{"note":"\ud800"}"#, "escape"),
        row("a pair the wrong way round", r#"{"note":"\udc00\ud800"}"#, "escape"),
        row("a key twice", r#"{"note":"1","note":"2"}"#, "appears twice"),
        row("a key twice, further in", r#"{"note":"1","more":{"a":1,"a":2}}"#, "appears twice"),
        row("a key twice, once escaped", r#"{"note":"1","n\u006fte":"2"}"#, "appears twice"),
        ("too deep", deep(33), "nested too deeply"),
        ("far too deep", deep(130), "nested too deeply"),
        row("too large a number", r#"{"note":1e400}"#, "number out of range"),
        row("a list", r#"["1"]"#, "JSON object"),
        row("a text", r#""1""#, "JSON object"),
        row("a null", "null", ""),
        row("nothing of it", "{}", "note"),
        row("another type", r#"{"note":7}"#, "/note"),
        row("too short", r#"{"note":""}"#, "/note"),
        row("a field more", r#"{"note":"1","and":"2"}"#, "and"),
        ("as deep as may be", deep(32), "/note"),
    ]
}

async fn invalid_arguments_are_refused_and_the_model_reads_why(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    for (what, arguments, why) in refused() {
        let pieces = arguments.split_inclusive(':').collect::<Vec<_>>();
        stage.upstream.answers(&ScriptedAnswer::call_on(wire, "a", "pay", &pieces)).words("I see.");
        let turn = stage.run_turn_in(&thread).await;
        assert_eq!(turn.all('8'), [] as [&Value; 0], "{what}: {}", turn.raw);
        if turn.all('3').is_empty() {
            assert_eq!(turn.text(), "I see.", "{what}: {}", turn.raw);
            assert_eq!(turn.one('9')["args"], json!({}), "{what}");
            let error = turn.one('a')["result"].text("error");
            assert!(error.contains(why), "{what}: {error}");
            assert!(error.to_lowercase().contains("the tool did not run"), "{what}: {error}");
            let call = stage.calls_of(&thread).await.pop().unwrap();
            assert_eq!((&call["state"], &call["validated"]), (&json!("invalid"), &json!(false)), "{what}");
            assert_eq!(call["result"], error, "{what}: the person reads what the model reads");
            assert_eq!(wire.tool_results(&stage.upstream.last()).last().unwrap(), error, "{what}");
        } else {
            // On a wire where the arguments are a part of the event, broken arguments may break the event.
            assert!(!wire.facts().writes_arguments, "{what}: {}", turn.raw);
            stage.failed(&thread, &turn, "upstream_malformed", "").await;
            assert_eq!(stage.app.client.resume(&thread).await.text(), "I see.", "{what}");
        }
    }
    stage.next_turn_works(&thread).await;
    stage.nothing_ran();
}
on_each_wire!(invalid_arguments_are_refused_and_the_model_reads_why);

async fn an_empty_object_before_the_arguments_says_nothing(wire: Wire) {
    if !wire.facts().writes_arguments {
        return;
    }
    let stage = Stage::on(wire).await;
    let meant = json!({ "note": "7" });
    for pieces in
        [&["{}", r#"{"note":"7"}"#][..], &[r#"{}{"note":"7"}"#], &["{", "} ", "{\"note\"", ":\"7\"}"]]
    {
        let (thread, turn, id) = stage.held(&ScriptedAnswer::call_on(wire, "a", "pay", pieces)).await;
        assert_eq!(stage.app.client.call(&id).await["input"], meant, "{wire:?}: {pieces:?}");
        // The page reads the arguments as they are meant, while they are written too.
        let streamed: String = turn.all('c').iter().map(|part| part.text("argsTextDelta")).collect();
        assert_eq!(streamed, r#"{"note":"7"}"#, "{wire:?}: {pieces:?}: {}", turn.raw);
        assert_eq!(stage.app.client.approve(&id).await.body["state"], "succeeded");
        stage.next_turn_works(&thread).await;
    }
    // Only one is meant, and only whole.
    let thread = stage.app.client.thread().await;
    for (n, arguments) in
        [r#"{}{"note":"7"}{"note":"8"}"#, r#"{"note":"7"}{}"#, r#"{}["7"]"#].into_iter().enumerate()
    {
        let answer = ScriptedAnswer::call_on(wire, &format!("b{n}"), "pay", &[arguments]);
        stage.upstream.answers(&answer).words("I see.");
        stage.run_turn_in(&thread).await;
        assert_eq!(stage.calls_of(&thread).await.pop().unwrap()["state"], "invalid", "{wire:?}: {arguments}");
    }
}
on_each_wire!(an_empty_object_before_the_arguments_says_nothing);

async fn arguments_of_many_megabytes_are_truncated_and_refused(wire: Wire) {
    const LIMIT: usize = 256 << 10;
    let stage = Stage::on(wire).await;
    let long = json!({ "note": "x".repeat(5 << 20) }).to_string();
    let pieces: Vec<&str> = long.as_bytes().chunks(64 << 10).map(|it| str::from_utf8(it).unwrap()).collect();
    stage.upstream.answers(&ScriptedAnswer::call_on(wire, "a", "pay", &pieces)).words("I see.");
    let (thread, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "I see.");
    stage.is(&turn, "completed").await;
    assert!(turn.raw.len() < 2 * LIMIT, "{}", turn.raw.len());
    let sent = wire.tool_results(&stage.upstream.last());
    assert!(sent[0].contains("longer than 262144 bytes"), "{sent:?}");
    assert_eq!(wire.calls(&stage.upstream.last()), [("pay".to_owned(), json!({}))]);
    let short = format!("tool_calls WHERE length(arguments) <= {}", LIMIT + 1);
    assert_eq!(stage.app.rows.count(&short).await, 1);
    stage.next_turn_works(&thread).await;
    stage.nothing_ran();
}
on_each_wire!(arguments_of_many_megabytes_are_truncated_and_refused);

async fn a_number_is_the_same_on_the_card_in_the_tool_and_for_the_model(wire: Wire) {
    let Stage { upstream, app, .. } = Stage::on(wire).await;
    let mut tools = probes(&app.ledger);
    tools.register(Weigh(app.ledger.clone())).unwrap();
    let model = upstream.model(&json!({}));
    let change = |config: &mut Config| {
        config.model = model;
        config.approval.exact_numbers = ExactNumbers::Allow;
    };
    let app = app.redeploy_with(tools, change).await;
    let stage = Stage { wire, upstream, app };
    let numbers = ["9007199254740993", "-9223372036854775808", "18446744073709551615", "1e2", "1.0", "-0.0"];
    for number in numbers {
        let arguments = format!(r#"{{"amount":{number}}}"#);
        let (thread, turn, id) =
            stage.held(&ScriptedAnswer::call_on(wire, "a", "weigh", &[&arguments])).await;
        let shown = turn.one('9')["args"].to_string();
        assert_eq!(stage.app.client.call(&id).await["input"].to_string(), shown);
        assert_eq!(stage.app.client.approve(&id).await.body["state"], "succeeded", "{number}");
        let ran = stage.app.ledger.lines().pop().unwrap();
        assert_eq!(shown, format!(r#"{{"amount":{}}}"#, ran.strip_prefix("weigh ").unwrap()));
        stage.upstream.words("Weighed.");
        assert_eq!(stage.app.client.resume(&thread).await.text(), "Weighed.");
        let [(_, sent)] = &wire.calls(&stage.upstream.last())[..] else { panic!("{number}") };
        assert_eq!(sent.to_string(), shown);
        if number.parse::<i128>().is_ok_and(|it| it == i128::from(it as u64) || it == i128::from(it as i64)) {
            assert_eq!(shown, arguments, "what is a whole number of 64 bits stays as it is");
        }
    }
}
on_each_wire!(a_number_is_the_same_on_the_card_in_the_tool_and_for_the_model);
