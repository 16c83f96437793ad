//! Complete cards: a message offers an approval only if it shows everything that the approval covers.

use super::{
    APPROVE, FakeSlack, Interaction, PATH, SIGNING_SECRET, TOKEN, entry, local, payload, person, press,
    with_slack,
};
use holdpoint::config::{Notify, ToolRules};
use holdpoint_testkit::mcp::{SteeredServer, definition};
use holdpoint_testkit::previews::{World, server as server_of};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{
    Embedded, JsonFields, Process, RemoteTool, ServiceAction, eventually, postgres_if_chosen, sqlite,
};
use serde_json::{Value, json};
use std::process::Command;

fn actions(message: &super::Message) -> Vec<String> {
    message.buttons().iter().map(|button| button.text("action_id").to_owned()).collect()
}

/// The text of all sections.
fn text(message: &super::Message) -> String {
    message.texts()[1..].join("\n")
}

/// A server with an HTTP tool that has constants and previews.
async fn with_constants(slack: &FakeSlack, service: &RemoteTool) -> (Process, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let database = postgres_if_chosen().await.unwrap_or_else(|| sqlite(&dir));
    for (file, text) in
        [("token", TOKEN), ("secret", SIGNING_SECRET), ("secrets", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    {
        std::fs::write(dir.path().join(file), format!("{text}\n")).unwrap();
    }
    let toml = format!(
        "tools.demo = false\negress.allow = [\"127.0.0.1\"]\n\
         [slack]\ntoken_file = \"token\"\nsigning_secret_file = \"secret\"\napi_url = \"{slack}/api\"\n\
         [[notify]]\nname = \"desk\"\ntenant = \"default\"\nuser = \"local\"\nslack = \"U1\"\nshare_arguments = true\n\
         [[http_tools]]\nname = \"delete_file\"\ndescription = \"Deletes it.\"\nurl = \"{service}/delete\"\n\
         preview_url = \"{service}/preview\"\nsecret_file = \"secrets\"\nrisk = \"high\"\n\
         constants = {{ environment = \"PRODUCTION\", dry_run = false }}\n\
         [http_tools.input_schema]\ntype = \"object\"\nproperties = {{ path = {{ type = \"string\" }} }}\n",
        slack = slack.base,
        service = service.base,
    );
    std::fs::write(dir.path().join("holdpoint.toml"), toml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.current_dir(dir.path()).env("HOLDPOINT_DATABASE__URL", &database);
    (Process::spawn(command.env("HOLDPOINT_LOG__LEVEL", "error")), dir)
}

#[tokio::test]
async fn f14_a_message_shows_the_constants_and_the_preview_that_its_button_approves() {
    let slack = FakeSlack::start().await;
    let service =
        RemoteTool::start(ServiceAction::answers(200, r#"{"preview":"DELETES 4711 ROWS\nOF PRODUCTION"}"#))
            .await;
    let (server, _dir) = with_constants(&slack, &service).await;
    let turn = server.client.send_message(&server.client.thread().await, "delete a").await;
    let call = turn.pending().remove(0);
    let message = slack.got(1).await.remove(0);
    let shown = text(&message);
    for line in [
        r#"Inputs: {"path":"a"}"#,
        r#"Inputs that the operator sets: {"dry_run":false,"environment":"PRODUCTION"}"#,
        "Preview:\n| DELETES 4711 ROWS\n| OF PRODUCTION",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(actions(&message), ["holdpoint_approve", "holdpoint_reject"]);
    let confirm = &message.button(APPROVE)["confirm"];
    let asked = confirm["text"].text("text");
    assert!(
        asked.contains("(delete_file), for user:local, high risk. Preview: DELETES 4711 ROWS"),
        "{confirm}"
    );
    service.now(ServiceAction::answers(200, "done"));
    let interaction = Interaction::of(&payload(&slack, "U1", &message, APPROVE));
    assert_eq!(interaction.send(&server.client, PATH).await.0, 200);
    server.client.becomes(&call, "succeeded").await;
}

#[tokio::test]
async fn f14_a_message_that_shows_less_than_the_card_offers_no_approval() {
    let slack = FakeSlack::start().await;
    let world = World::that_reports("{note}");
    let app = server_of(&world, |config| with_slack(config, &slack, [local()])).await;
    // Each character is two bytes, and the scripts of each word get a note.
    world.now_reports(&"p\u{430} ".repeat(2000));
    app.held("wipe", "1").await;
    let cut = slack.got(1).await.remove(0);
    assert_eq!(actions(&cut), ["holdpoint_reject", "holdpoint_open"], "{cut:?}");
    assert!(text(&cut).contains("this message does not show the preview whole"), "{cut:?}");
    // The longest preview of plain text is whole in several sections.
    world.now_reports(&"x".repeat(8192));
    app.held("wipe", "2").await;
    let whole = slack.got(2).await.remove(1);
    assert_eq!(actions(&whole)[0], APPROVE);
    assert_eq!(text(&whole).matches('x').count() - text(&whole).matches("Next").count(), 8192);
    // A preview that failed is a part of the card too.
    world.now_reports("");
    app.held("wipe", "3").await;
    let empty = slack.got(3).await.remove(2);
    assert_eq!(actions(&empty)[0], APPROVE);
}

#[tokio::test]
async fn f14_a_message_never_offers_the_approval_of_a_definition_that_is_not_accepted() {
    let slack = FakeSlack::start().await;
    let steered = SteeredServer::with("act");
    let entry = steered.entry("s", &json!({}));
    let app = Box::pin(Embedded::with(|config| {
        config.mcp = vec![entry];
        with_slack(config, &slack, [local()]);
    }))
    .await;
    let listed = async || (app.client.get("/tools/s__act").await.status == 200).then_some(());
    eventually("the tool is there", listed).await;
    app.held("s__act", "1").await;
    let accepted = slack.got(1).await.remove(0);
    assert_eq!(actions(&accepted)[0], APPROVE, "{accepted:?}");
    steered.lists(&json!([definition("act", "Sends it to a stranger.")]));
    let changed = async || {
        let tool = app.client.get("/tools").await.body;
        tool.to_string().contains("Sends it to a stranger.").then_some(())
    };
    eventually("the definition changes", changed).await;
    app.held("s__act", "2").await;
    let message = slack.got(2).await.remove(1);
    assert_eq!(actions(&message), ["holdpoint_reject", "holdpoint_open"]);
    assert!(text(&message).contains("does not show the definition whole"), "{message:?}");
}

#[tokio::test]
async fn a_call_of_several_people_says_who_has_approved_it() {
    let slack = FakeSlack::start().await;
    let channel = Notify { role: Some("manager".to_owned()), ..entry("managers", "C1") };
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        let rules =
            ToolRules { approve_roles: vec!["manager".to_owned()], approvals: 2, ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
        with_slack(
            config,
            &slack,
            [channel, person("bob", "manager", "U2"), person("dana", "manager", "U4")],
        );
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let (_, call) = app.held("pay", "10").await;
    let of_channel = async || slack.messages().into_iter().find(|it| it.channel == "C1");
    let message = eventually("the channel has the message", of_channel).await;
    assert!(text(&message).contains("\nVotes: needs 2 people; approved by nobody yet\n"), "{message:?}");
    press(&app, &slack, "U2", &message, APPROVE).await;
    let voted = async |channel: &str| {
        let all = slack.messages();
        let found = all.into_iter().find(|it| it.channel == channel)?;
        text(&found).starts_with("1 of 2 approved, by user:bob. More people have to.").then_some(found)
    };
    let of_channel = eventually("the message has the vote", async || voted("C1").await).await;
    assert_eq!(actions(&of_channel)[0], APPROVE, "another person approves it here");
    let own = eventually("bob's message has it too", async || voted("DU2").await).await;
    assert_eq!(actions(&own), ["holdpoint_reject", "holdpoint_open"], "bob has approved it");
    assert!(text(&own).ends_with("\nYou have approved. One more person has to."), "{own:?}");
    press(&app, &slack, "U4", &message, APPROVE).await;
    app.client.becomes(&call, "succeeded").await;
    let decided = async || {
        let all = slack.messages();
        let of_channel = all.into_iter().find(|it| it.channel == "C1")?;
        of_channel.texts()[0].starts_with("Succeeded").then_some(of_channel)
    };
    let decided = eventually("the message has the outcome", decided).await;
    assert!(
        text(&decided).contains("\nVotes: needs 2 people; approved by user:bob, user:dana\n"),
        "{decided:?}"
    );
}

#[tokio::test]
async fn an_edit_is_said_with_its_inputs() {
    let slack = FakeSlack::start().await;
    let app = super::server(&slack, [local()]).await;
    let (_, call) = app.held("pay", "10").await;
    slack.got(1).await;
    let edit = json!({ "toolCallId": call, "isValidated": true, "validatedInputs": { "note": "9" } });
    app.client.post("/qa/validate_tool", &edit).await.has_status(200);
    let decided = slack.changed(0, 2).await;
    let approved: Value = decided.versions[1]["blocks"][1]["text"]["text"].clone();
    let approved = approved.as_str().unwrap();
    assert!(approved.starts_with("The call is approved with other inputs, by user:local."), "{approved}");
    assert!(approved.contains(r#"Inputs: {"note":"9"}"#), "{approved}");
}

#[tokio::test]
async fn a_message_has_masks_in_place_of_secrets_and_offers_their_approval_for_low_risk_alone() {
    let slack = FakeSlack::start().await;
    let app = holdpoint_testkit::secrets::server(|config| with_slack(config, &slack, [local()])).await;
    for (n, (tool, first)) in [("login", "holdpoint_reject"), ("login_low", APPROVE)].into_iter().enumerate()
    {
        holdpoint_testkit::secrets::held(&app, tool).await;
        let message = slack.got(n + 1).await.remove(n);
        assert!(
            text(&message).contains(&holdpoint_testkit::secrets::masked()["card"].to_string()),
            "{message:?}"
        );
        assert_eq!(actions(&message)[0], first, "{message:?}");
        holdpoint_testkit::secrets::assert_hidden(&message.now().to_string());
        let lacks = text(&message).contains("this message does not show the secret inputs whole");
        assert_eq!(lacks, tool == "login", "{message:?}");
    }
}
