//! The contract of a channel to people. A channel joins by its side of the suite (`Harness`) and its name in the list
//! at the end of this file.

use crate::webhooks::{becomes, enable, shown};
use holdpoint::config::{Config, Notify};
use holdpoint_testkit::previews::{World, server as server_with_previews};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, eventually};
use serde_json::{Value, json};

/// The address of the console in messages.
const CONSOLE: &str = "https://chat.example";
const DAYS_3_MICROS: i64 = 3 * 24 * 60 * 60 * 1_000_000;

/// A channel, and the service that takes its messages, as the suite meets them.
trait Harness: Sized {
    const CHANNEL: &'static str;
    /// Whether a message with the complete card has a button that approves.
    const APPROVES: bool;

    async fn start() -> Self;

    /// Sets the sections of the channel.
    fn sections(&self, config: &mut Config);

    /// Gives an entry its address, by the name of the entry.
    fn address(&self, entry: Notify) -> Notify;

    /// The address of the entry `desk`, as operators see it.
    fn origin(&self) -> String;

    /// The messages that people have got, in order. A message that a later one changes counts twice, a repeated attempt
    /// once.
    fn got(&self) -> Vec<ArrivedMessage>;

    /// Refuses every message for now, from this moment on or no longer.
    async fn refuses(&mut self, refuses: bool);

    /// The texts of the configuration that stay inside the server.
    fn secrets(&self) -> Vec<String>;
}

/// A message, as it arrived.
#[derive(Debug)]
struct ArrivedMessage {
    /// The name of the entry, or of its address.
    to: String,
    /// What a person reads.
    text: String,
    /// Everything that was sent.
    raw: String,
    /// Whether it has a button that approves.
    approves: bool,
}

/// The one user of a server without authentication.
fn desk() -> Notify {
    Notify {
        name: "desk".to_owned(),
        tenant: "default".to_owned(),
        user: Some("local".to_owned()),
        ..Notify::default()
    }
}

fn shares() -> Notify {
    Notify { share_arguments: true, ..desk() }
}

fn with_channel<H: Harness>(harness: &H, config: &mut Config, entries: impl IntoIterator<Item = Notify>) {
    harness.sections(config);
    config.server.public_url = Some(CONSOLE.to_owned());
    config.notify = entries.into_iter().map(|entry| harness.address(entry)).collect();
}

async fn server<H: Harness>(harness: &H, entry: Notify) -> Embedded {
    Embedded::with(|config| with_channel(harness, config, [entry])).await
}

async fn got<H: Harness>(harness: &H, count: usize) -> Vec<ArrivedMessage> {
    let enough = async || Some(harness.got()).filter(|all| all.len() >= count);
    eventually(&format!("{count} messages arrive"), enough).await
}

/// Waits until every event is delivered, and returns the number of deliveries of this process.
async fn delivered<H: Harness>(app: &Embedded) -> u64 {
    crate::webhooks::numbered(&app.rows).await;
    let all = async || shown(&app.client, "desk").await["waiting_since"].is_null().then_some(());
    eventually("everything is delivered", all).await;
    let metrics = app.client.http.get(app.client.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let sample =
        format!("holdpoint_{}_attempts_total{{recipient=\"desk\",outcome=\"delivered\"}} ", H::CHANNEL);
    metrics.lines().find_map(|line| line.strip_prefix(&sample)).map_or(0, |count| count.parse().unwrap())
}

async fn a_held_call_is_one_message_with_a_link_and_its_end_is_the_next<H: Harness>() {
    let harness = H::start().await;
    let app = server(&harness, desk()).await;
    let (_, call) = app.held("pay", "1").await;
    let held = got(&harness, 1).await.remove(0);
    for words in ["Approval needed", "A call waits for a decision.", "Pay", &call] {
        assert!(held.text.contains(words), "{words}: {held:?}");
    }
    assert!(held.raw.contains(&format!("{CONSOLE}/#/link/")), "{held:?}");
    assert_eq!(app.client.reject(&call).await.status, 200);
    let end = got(&harness, 2).await.remove(1);
    assert!(end.text.contains("The call is rejected, by user:local."), "{end:?}");
    assert!(end.raw.contains(&format!("{CONSOLE}/#/call/{call}")) && !end.approves, "{end:?}");
    assert_eq!(delivered::<H>(&app).await, 2, "each of them was sent once");
}

async fn a_failed_attempt_is_repeated_and_shown_and_the_order_stays<H: Harness>() {
    let mut harness = H::start().await;
    harness.refuses(true).await;
    let app = server(&harness, desk()).await;
    let (_, first) = app.held("pay", "1").await;
    let failing = becomes(&app.client, "desk", "failing").await;
    assert_eq!((&failing["channel"], &failing["origin"]), (&json!(H::CHANNEL), &json!(harness.origin())));
    assert!(failing["next_attempt_at"].is_string() && failing["refused"].is_null(), "{failing}");
    let (_, second) = app.held("pay", "2").await;
    harness.refuses(false).await;
    enable(&app.client, "desk").await;
    let all = got(&harness, 2).await;
    assert!(all[0].text.contains(&first) && all[1].text.contains(&second), "{all:?}");
    becomes(&app.client, "desk", "delivering").await;
    assert_eq!(delivered::<H>(&app).await, 2);
    let listed = app.operate(&["webhooks", "list"]).stdout_of_success();
    let line: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(line[..2], ["desk", H::CHANNEL], "{listed}");
}

async fn three_days_of_failures_disable_a_recipient_who_keeps_the_place<H: Harness>() {
    let mut harness = H::start().await;
    harness.refuses(true).await;
    let app = server(&harness, desk()).await;
    let (_, call) = app.held("pay", "1").await;
    becomes(&app.client, "desk", "failing").await;
    let older =
        format!("UPDATE endpoints SET failing_since = failing_since - {DAYS_3_MICROS}, next_attempt_at = 1");
    assert_eq!(app.rows.change(&older).await, Ok(1));
    let disabled = becomes(&app.client, "desk", "disabled").await;
    assert_eq!(disabled["disabled_reason"], "failed_too_long", "{disabled}");
    harness.refuses(false).await;
    enable(&app.client, "desk").await;
    assert!(got(&harness, 1).await[0].text.contains(&call));
}

async fn arguments_are_in_a_message_only_if_the_entry_shares_them<H: Harness>() {
    for entry in [desk(), shares()] {
        let shares = entry.share_arguments;
        let harness = H::start().await;
        let app = server(&harness, entry).await;
        let (_, call) = app.held("pay", "canary-note").await;
        got(&harness, 1).await;
        let rejection = json!({ "toolCallId": call, "isValidated": false, "reason": "canary-reason" });
        assert_eq!(app.client.post("/qa/validate_tool", &rejection).await.status, 200);
        let all = got(&harness, 2).await;
        for (message, argument) in all.iter().zip([r#"{"note":"canary-note"}"#, "canary-reason"]) {
            assert_eq!(message.text.contains(argument), shares, "{message:?}");
            assert_eq!(message.raw.contains("canary"), shares, "{message:?}");
        }
    }
}

async fn only_a_message_with_the_complete_card_offers_an_approval<H: Harness>() {
    // A preview that is too long for a message, one that fits, and arguments that are not shared.
    let long = "p\u{430} ".repeat(2000);
    for (entry, preview, is_complete) in
        [(shares(), long.as_str(), false), (shares(), "pays", true), (desk(), "pays", false)]
    {
        let (harness, world) = (H::start().await, World::that_reports(preview));
        let app = server_with_previews(&world, |config| with_channel(&harness, config, [entry])).await;
        app.held("wipe", "1").await;
        let message = got(&harness, 1).await.remove(0);
        assert_eq!(message.approves, H::APPROVES && is_complete, "{message:?}");
        assert!(message.raw.contains(CONSOLE), "the card has all of it: {message:?}");
    }
}

async fn a_message_has_masks_in_place_of_secrets<H: Harness>() {
    let harness = H::start().await;
    let app = holdpoint_testkit::secrets::server(|config| with_channel(&harness, config, [shares()])).await;
    holdpoint_testkit::secrets::held(&app, "login").await;
    let message = got(&harness, 1).await.remove(0);
    assert!(message.text.contains(holdpoint_testkit::secrets::MASK) && !message.approves, "{message:?}");
    holdpoint_testkit::secrets::assert_hidden(&message.raw);
}

async fn a_message_goes_to_those_that_may_decide_the_call<H: Harness>() {
    let harness = H::start().await;
    let role = |name: &str, tenant: &str| Notify {
        name: name.to_owned(),
        tenant: tenant.to_owned(),
        role: Some(name.to_owned()),
        ..Notify::default()
    };
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let rules = config.tools.rules.entry("pay".to_owned()).or_default();
        rules.approve_roles = vec!["manager".to_owned(), "stranger".to_owned()];
        let entries = [role("clerk", "acme"), role("stranger", "other"), role("manager", "acme")];
        with_channel(&harness, config, entries);
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    app.held("pay", "1").await;
    let (_, call) = app.held("pay", "2").await;
    let all = got(&harness, 2).await;
    assert!(all[1].text.contains(&call), "{all:?}");
    assert!(all.iter().all(|message| message.to.to_lowercase().contains("manager")), "{all:?}");
}

async fn the_secrets_of_the_channel_are_in_no_answer_row_or_text<H: Harness>() {
    let mut harness = H::start().await;
    harness.refuses(true).await;
    let mut shown_config = String::new();
    let app = Embedded::with(|config| {
        with_channel(&harness, config, [desk()]);
        shown_config = format!("{config:?}\n{}", serde_json::to_string(config).unwrap());
    })
    .await;
    app.held("pay", "1").await;
    let failing = becomes(&app.client, "desk", "failing").await.to_string();
    let listed = app.operate(&["webhooks", "list"]).stdout_of_success();
    let rows: Vec<Value> = app.rows.all("SELECT * FROM endpoints").await;
    assert!(!harness.secrets().is_empty());
    for secret in harness.secrets() {
        for text in [&failing, &listed, &shown_config, &format!("{rows:?}")] {
            assert!(!text.contains(&secret), "{secret}: {text}");
        }
    }
}

/// Makes the tests of the channel with this side.
macro_rules! contract {
    ($side:ty) => { contract! { $side:
        a_held_call_is_one_message_with_a_link_and_its_end_is_the_next
        a_failed_attempt_is_repeated_and_shown_and_the_order_stays
        three_days_of_failures_disable_a_recipient_who_keeps_the_place
        arguments_are_in_a_message_only_if_the_entry_shares_them
        only_a_message_with_the_complete_card_offers_an_approval
        a_message_has_masks_in_place_of_secrets
        a_message_goes_to_those_that_may_decide_the_call
        the_secrets_of_the_channel_are_in_no_answer_row_or_text
    } };
    ($side:ty: $($test:ident)+) => { $(
        #[tokio::test]
        async fn $test() {
            Box::pin(super::$test::<$side>()).await;
        }
    )+ };
}

// Below the macro, which they use.
mod mail;
mod ntfy;
mod slack;
mod template;
