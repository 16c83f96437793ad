//! Calls with integers that a page cannot show.

use super::{allow, call_of, calls, held, server};
use holdpoint::config::{Config, ExactNumbers, ToolRules};
use holdpoint_testkit::{JsonFields, WatchedServer};
use serde_json::{Value, json};

/// The result of an invalid call, as the model reads it.
async fn refused(app: &holdpoint_testkit::Embedded, tool: &str, arguments: &str) -> String {
    let thread = app.client.thread().await;
    let turn = calls(app, &thread, tool, arguments).await;
    assert_eq!(turn.pending(), Vec::<String>::new(), "{}", turn.raw);
    let call = call_of(app, &turn).await;
    assert_eq!((&call["state"], &call["held"]), (&json!("invalid"), &json!(false)), "{call}");
    assert_eq!(turn.text(), "I see.", "the turn continues");
    call.text("result").to_owned()
}

#[tokio::test]
async fn a_call_with_an_integer_that_a_page_cannot_show_is_not_held() {
    let (app, ran) = server(|_| {}).await;
    for n in ["9007199254740992", "-9007199254740992", "18446744073709551615", "-9223372036854775808"] {
        let why = refused(&app, "transfer", &format!(r#"{{"to":{{"a/b":[1,{n}]}}}}"#)).await;
        let expected = format!(
            "A person has to approve the call and cannot: /to/a~1b/1: {n} is a number that a page cannot show \
             exactly; send it as a text; the tool did not run."
        );
        assert_eq!(why, expected);
    }
    let (_, id) = held(&app, "transfer", r#"{"a":9007199254740991,"b":-9007199254740991,"c":1e300}"#).await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(ran.last(), r#"{"a":9007199254740991,"b":-9007199254740991,"c":1e+300}"#);
    // A page writes this double as 9223372036854776000, which is another number.
    let why = refused(&app, "transfer", r#"{"n":9223372036854775808.0}"#).await;
    assert!(why.contains("/n: 9.223372036854776e+18 is a number that a page cannot show exactly"), "{why}");
}

#[tokio::test]
async fn if_the_schema_takes_no_string_the_operator_must_allow_the_integer() {
    let (app, _) = server(|_| {}).await;
    let why = refused(&app, "account", r#"{"account":9007199254740993}"#).await;
    assert!(why.contains(r#"an operator has to allow it: tools.account.exact_numbers = "allow""#), "{why}");
    let why = refused(&app, "account", r#"{"lines":[1,9007199254740993]}"#).await;
    assert!(why.contains("/lines/1: 9007199254740993 is") && why.contains("an operator"), "{why}");
    let why = refused(&app, "account", r#"{"either":9007199254740993}"#).await;
    assert!(why.contains("send it as a text"), "{why}");
}

#[tokio::test]
async fn an_integer_beyond_64_bits_is_always_invalid() {
    let (app, ran) = server(allow).await;
    for n in ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"] {
        for tool in ["transfer", "note"] {
            let why = refused(&app, tool, &format!(r#"{{"account":{n}}}"#)).await;
            assert!(why.contains("an integer of more than 64 bits"), "{why}");
        }
    }
    assert_eq!(ran.count(), 0);
}

#[tokio::test]
async fn a_call_that_is_not_held_runs_with_the_exact_integer() {
    let (app, ran) = server(|_| {}).await;
    let thread = app.client.thread().await;
    let arguments = r#"{"account":9007199254740993,"max":18446744073709551615,"n":-0.0,"x":0.1}"#;
    let turn = calls(&app, &thread, "note", arguments).await;
    assert_eq!(call_of(&app, &turn).await["state"], "succeeded");
    assert_eq!(ran.last(), arguments);
}

#[tokio::test]
async fn the_value_of_a_number_is_stored_and_not_its_spelling() {
    let (app, _) = server(|_| {}).await;
    let (_, id) = held(&app, "transfer", r#" {"x": 0.1000000000000000055511151231257827, "y": 1E2 } "#).await;
    let rows = app.rows.all(&format!("SELECT arguments FROM tool_calls WHERE tool_call_id = '{id}'")).await;
    assert_eq!(rows[0]["arguments"], r#"{"x":0.1,"y":100.0}"#);
}

#[tokio::test]
async fn the_rule_of_a_tool_overrides_the_rule_of_the_server() {
    let rule = |config: &mut Config, exact| {
        let rules = ToolRules { exact_numbers: Some(exact), ..ToolRules::default() };
        config.tools.rules.insert("account".to_owned(), rules);
    };
    let arguments = r#"{"account":9007199254740993}"#;
    let (app, ran) = server(move |config| rule(config, ExactNumbers::Allow)).await;
    let (_, id) = held(&app, "account", arguments).await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(ran.last(), arguments);
    refused(&app, "transfer", arguments).await;
    let (app, _) = server(move |config| {
        allow(config);
        rule(config, ExactNumbers::Require);
    })
    .await;
    refused(&app, "account", arguments).await;
    held(&app, "transfer", arguments).await;
}

#[tokio::test]
async fn the_server_warns_at_start_of_tools_that_ask_and_take_64_bit_integers() {
    for (settings, warned) in [(&[][..], true), (&[("HOLDPOINT_APPROVAL__EXACT_NUMBERS", "allow")], false)] {
        let printed = WatchedServer::start(settings).await.finish();
        let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let warnings: Vec<Value> = lines.filter(|line| line["tool"] == "count").collect();
        assert_eq!(warnings.len(), usize::from(warned), "{printed}");
        for warning in warnings {
            assert_eq!(warning["level"], "WARN");
            assert!(warning["pointers"].to_string().contains("/properties/to"), "{warning}");
        }
    }
}
