//! The form for the inputs of a call.

use super::{DECIDED, OPENED, asked_for};
use holdpoint::config::ExactNumbers;
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::{Browser, Embedded, Ledger, Tab, call};
use serde_json::{Value, json};

/// How to send a parcel.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Parcel {
    /// Name of the recipient.
    #[schemars(length(min = 3))]
    to: String,
    weight: u64,
    speed: Speed,
    insured: bool,
    letter: Option<String>,
    items: Vec<String>,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Speed {
    Slow,
    Fast,
}

struct Ship(Ledger);

impl Tool for Ship {
    const NAME: &'static str = "ship";
    const DESCRIPTION: &'static str = "Ships a parcel.";
    const HIL: bool = true;
    const HEADLINE: Option<&'static str> = Some("Ship a parcel to {to}?");
    type Input = Parcel;
    type Output = Value;

    async fn execute(&self, input: Parcel, _permit: Permit<Self>) -> Result<Value, ToolError> {
        let Parcel { to, weight, speed, insured, letter, items } = input;
        self.0.write(format!("{to} {weight} {speed:?} {insured} {letter:?} {items:?}"));
        Ok(json!({ "shipped": true }))
    }
}

const CARD: &str = "ship";

/// A server whose model asks for a parcel to Ada.
async fn with_a_parcel() -> Embedded {
    let app = Embedded::start().await;
    let mut tools = ToolRegistry::new();
    tools.register(Ship(app.ledger.clone())).unwrap();
    let ledger = app.ledger.clone();
    let mut app =
        app.redeploy_with(tools, |config| config.approval.exact_numbers = ExactNumbers::Allow).await;
    app.ledger = ledger;
    let input = json!({ "to": "Ada", "weight": 3, "speed": "slow", "insured": false, "items": ["a book"] });
    app.scene.calls(&[call("p-1", "ship", &input)]).answers("Shipped.");
    app
}

/// A tab in which the form is open.
async fn editing(browser: &Browser) -> Tab {
    let tab = browser.tab("tab").await;
    tab.sends("ship it").await;
    tab.clicks_in(CARD, "Edit").await;
    tab.becomes("document.activeElement.labels?.[0].innerText", "to").await;
    tab
}

#[tokio::test]
async fn the_form_has_a_field_for_each_input_and_keeps_the_digits_of_numbers() {
    let app = with_a_parcel().await;
    let browser = Browser::start(&app.client.base, "edits").await;
    let tab = editing(&browser).await;
    tab.becomes("document.querySelector('.call h2').innerText", "Ship a parcel to Ada?").await;
    let fields = "[...document.querySelectorAll('.field')].map(field => {
        const control = field.querySelector('input, select, textarea');
        return [control.labels[0].innerText, control.type, control.type === 'checkbox' ? control.checked : control.value,
            control.disabled];
    })";
    let expected = json!([
        ["to", "text", "Ada", false],
        ["weight", "text", "3", false],
        ["speed", "select-one", "\"slow\"", false],
        ["insured", "checkbox", false, false],
        ["items", "textarea", "[\n  \"a book\"\n]", false],
        ["letter", "textarea", "", true],
    ]);
    tab.becomes(fields, expected).await;
    assert_eq!(tab.faults().await, Vec::<String>::new());

    tab.fills_in(CARD, "weight", "12345678901234567890").await;
    tab.chooses_in(CARD, "speed", "fast").await;
    tab.fills_in(CARD, "insured", true).await;
    tab.fills_in(CARD, "items", r#"["a book", "a pen"]"#).await;
    tab.fills_in(CARD, "Include letter", true).await;
    tab.fills_in(CARD, "letter", r#""Dear Ada""#).await;
    tab.clicks_in(CARD, "Approve edited inputs").await;
    tab.becomes("shown().lines.at(-1)", "Shipped.").await;
    let ran = r#"Ada 12345678901234567890 Fast true Some("Dear Ada") ["a book", "a pen"]"#;
    assert_eq!(app.ledger.lines(), [ran]);
    let labels = "[...document.querySelectorAll('.call figcaption')].slice(0, 2).map(it => it.innerText.replace(/ on .*/, ''))";
    tab.becomes(labels, json!(["Proposed by the model", "Edited by you"])).await;
    // The headline has the proposed inputs in it.
    tab.becomes("document.querySelector('.call h2').innerText", "Ship?").await;
    asked_for(&tab, &[OPENED, DECIDED]).await;
    browser.close().await;
}

#[tokio::test]
async fn a_refused_edit_is_explained_at_its_field_and_the_call_still_waits() {
    let app = with_a_parcel().await;
    let browser = Browser::start(&app.client.base, "edits_wrongly").await;
    let tab = editing(&browser).await;
    let wrong =
        "[...document.querySelectorAll('[aria-invalid=true]')].map(control => [control.labels[0].innerText,
        document.getElementById(control.getAttribute('aria-describedby').split(' ').at(-1)).innerText])";
    tab.fills_in(CARD, "to", "Al").await;
    tab.fills_in(CARD, "weight", "heavy").await;
    tab.clicks_in(CARD, "Approve edited inputs").await;
    tab.becomes(wrong, json!([["weight", "Expected a number."]])).await;
    tab.becomes("document.activeElement.labels[0].innerText", "weight").await;
    // Enter in a field sends nothing.
    tab.presses("Enter").await;
    tab.fills_in(CARD, "weight", "4").await;
    tab.becomes(wrong, json!([])).await;

    tab.clicks_in(CARD, "Approve edited inputs").await;
    tab.becomes(wrong, json!([["to", "\"Al\" is shorter than 3 characters"]])).await;
    tab.becomes("document.activeElement.labels[0].innerText", "to").await;
    assert_eq!(app.rows.count("tool_calls WHERE state = 'pending'").await, 1);
    assert_eq!(tab.faults().await, Vec::<String>::new());
    tab.fills_in(CARD, "to", "Ala\u{202e}n").await;
    tab.becomes(
        "document.querySelector('.field [id$=hidden]').innerText",
        "With hidden characters by their numbers: Ala\\u{202e}n",
    )
    .await;
    tab.fills_in(CARD, "to", "Alan").await;
    tab.clicks_in(CARD, "Approve edited inputs").await;
    tab.becomes("shown().lines.at(-1)", "Shipped.").await;
    assert_eq!(app.ledger.lines(), [r#"Alan 4 Slow false None ["a book"]"#]);
    let decided = tab.requests().await;
    let decided: Vec<_> = decided.iter().filter(|line| line.contains("validate_tool")).collect();
    assert_eq!(decided, ["POST /api/qa/validate_tool 422", DECIDED]);
    browser.close().await;
}

#[tokio::test]
async fn leaving_the_form_changes_nothing() {
    let app = with_a_parcel().await;
    let browser = Browser::start(&app.client.base, "edits_not").await;
    let tab = editing(&browser).await;
    tab.fills_in(CARD, "to", "Bob").await;
    tab.presses("Escape").await;
    tab.becomes("document.activeElement.innerText", "Edit").await;
    tab.approves("ship", 0).await;
    tab.becomes("shown().lines.at(-1)", "Shipped.").await;
    assert_eq!(app.ledger.lines(), [r#"Ada 3 Slow false None ["a book"]"#]);
    browser.close().await;
}
