//! Answers to requests of tools whose calls need several approvals: the first person proposes, the others confirm.

use futures::FutureExt;
use futures::future::join_all;
use holdpoint::config::{Answers, Config, ToolRules};
use holdpoint::handlers::{
    ApprovalHandler, ApprovalRequest, BoxFuture, Deferred, HandlerAnswer, HandlerError, InputAnswer,
    InputRequest,
};
use holdpoint::tools::{self, Input, Permit, RiskLevel, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::token::{token, with_tokens};
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};
use std::time::Duration;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Payment {
    to: String,
}

fn schema() -> Input {
    let properties = json!({ "amount": { "type": "integer" }, "note": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["amount"] });
    schema.as_object().unwrap().clone()
}

/// Asks for the amount, and returns what the tool got.
async fn asked<T: ?Sized>(permit: &Permit<T>) -> Value {
    match permit.ask("Amount to pay?", schema()).await {
        tools::Answer::Accept(content) => content["amount"].clone(),
        tools::Answer::Decline => json!("decline"),
        tools::Answer::Cancel => json!("cancel"),
    }
}

macro_rules! paying {
    ($type:ident, $name:literal, hil: $hil:literal) => {
        struct $type;

        impl Tool for $type {
            const NAME: &'static str = $name;
            const DESCRIPTION: &'static str = "Asks for an amount, and pays it.";
            const HIL: bool = $hil;
            const RISK: RiskLevel = RiskLevel::High;
            type Input = Payment;
            type Output = Value;

            async fn execute(&self, input: Payment, permit: Permit<Self>) -> Result<Value, ToolError> {
                drop(input.to);
                Ok(asked(&permit).await)
            }
        }
    };
}

paying!(Transfer, "transfer", hil: true);
paying!(Top, "top_up", hil: false);

/// Both tools need this many people.
fn wanting(people: u8, change: impl FnOnce(&mut ToolRules)) -> impl FnOnce(&mut Config) {
    move |config| {
        with_tokens(config);
        config.approval.wait = Duration::ZERO;
        config.auth.operator_roles = vec!["operator".to_owned()];
        let approve_roles = vec!["chief".to_owned()];
        let mut rules = ToolRules { approve_roles, approvals: people, ..ToolRules::default() };
        change(&mut rules);
        config.tools.rules.insert("top_up".to_owned(), rules.clone());
        config.tools.rules.insert("transfer".to_owned(), rules);
    }
}

async fn served(handler: impl ApprovalHandler, change: impl FnOnce(&mut Config)) -> Embedded {
    let mut tools = ToolRegistry::new();
    tools.register(Transfer).unwrap();
    tools.register(Top).unwrap();
    // The database stays the one of the tests.
    let started = Box::pin(Embedded::start()).await;
    let mut app = Box::pin(started.redeploy_with_handler(handler, tools, change)).await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app
}

/// A server whose client is `alice` of `acme`.
async fn office(people: u8) -> Embedded {
    served(Deferred, wanting(people, |_| {})).await
}

fn chief(app: &Embedded, user: &str) -> Client {
    app.client.as_user("acme", user, &["chief"])
}

/// Has the model call `transfer`, and lets these people approve the call. Returns its id, and the open request.
async fn asking(app: &Embedded, people: &[&Client]) -> (String, Value) {
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "transfer", &json!({ "to": "bank" }))]);
    let turn = app.client.send_message(&thread, "please").await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    for person in people {
        person.approve(id).await.has_status(202);
    }
    (id.clone(), open(&app.client).await)
}

/// The open request, as this caller sees it.
async fn open(client: &Client) -> Value {
    let found = async || {
        let listed = client.get("/tool_requests").await;
        listed.body.list("results").first().cloned()
    };
    eventually("the tool asks", found).await
}

async fn answer(client: &Client, request: &Value, body: &Value) -> Answer {
    let id = request.text("request_id");
    client.post(&format!("/tool_requests/{id}/answer"), body).await
}

fn amount(amount: u64) -> Value {
    json!({ "action": "accept", "content": { "amount": amount } })
}

fn confirms(hash: &Value) -> Value {
    json!({ "action": "accept", "content_hash": hash })
}

/// Asserts that the answer counts as a proposal of these people, and returns its hash.
#[track_caller]
fn proposed(answer: &Answer, required: u64, by: &[&str], again: bool) -> Value {
    answer.has_status(202);
    assert_eq!(answer.body["state"], "open");
    assert_eq!(answer.body["required"], required);
    assert_eq!(answer.body["confirmed_by"], actors(by));
    assert_eq!(answer.header("idempotent-replayed"), again.then_some("true"));
    answer.body["content_hash"].clone()
}

fn actors(users: &[&str]) -> Value {
    users.iter().map(|user| format!("user:{user}")).collect::<Vec<_>>().into()
}

#[track_caller]
fn closed(answer: &Answer, state: &str) {
    answer.failed_with(409, "request_closed");
    assert_eq!(answer.body["error"]["details"]["state"], state);
}

async fn events(app: &Embedded, id: &str, kind: &str) -> Vec<Value> {
    let all = app.client.get(&format!("/tool_calls/{id}/events?page_size=100")).await.body;
    all.list("results").iter().filter(|event| event["type"] == kind).cloned().collect()
}

/// Asserts that no row has this text.
async fn forgotten(app: &Embedded, text: &str) {
    for table in ["events", "tool_requests", "tool_request_votes", "decisions"] {
        let rows = Value::from(app.rows.all(&format!("SELECT * FROM {table}")).await).to_string();
        assert!(!rows.contains(text), "{table}: {rows}");
    }
}

#[tokio::test]
async fn of_two_approvers_one_alone_gives_the_tool_nothing() {
    let app = office(2).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    let (id, request) = asking(&app, &[&bob, &carol]).await;
    assert_eq!((&request["required"], &request["proposals"]), (&json!(2), &json!([])));
    let all = json!({ "action": "accept", "content": { "amount": 999_999, "note": "canary" } });
    let hash = proposed(&answer(&bob, &request, &all).await, 2, &["bob"], false);
    assert_eq!(proposed(&answer(&bob, &request, &all).await, 2, &["bob"], true), hash);
    // The same person at another surface, with another token.
    let tab = app.client.as_user("acme", "bob", &["chief", "operator"]);
    proposed(&answer(&tab, &request, &confirms(&hash)).await, 2, &["bob"], true);
    assert_eq!(app.client.call(&id).await["state"], "executing");
    assert_eq!(app.rows.count("tool_request_votes").await, 1);

    for (person, own) in [(&bob, true), (&carol, false), (&app.client, false)] {
        let seen = open(person).await;
        let [proposal] = &seen.list("proposals")[..] else { panic!("{seen}") };
        let Value::Object(mut proposal) = proposal.clone() else { panic!("{seen}") };
        assert!(proposal.remove("at").is_some_and(|at| at.is_string()));
        let content = json!({ "amount": 999_999, "note": "canary" });
        let expected = json!({ "content_hash": hash, "content": content, "by": ["user:bob"], "own": own });
        assert_eq!(Value::Object(proposal), expected);
        assert_eq!((&seen["can_accept"], &seen["can_decline"]), (&json!(true), &json!(true)));
    }

    let done = answer(&carol, &request, &confirms(&hash)).await;
    done.has(200, "state", "accepted");
    assert_eq!(done.body.as_object().unwrap().len(), 2, "{:?}", done.body);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 999_999);

    // Those that agreed may repeat their answer; anybody else is late.
    for body in [&all, &confirms(&hash)] {
        for person in [&bob, &carol] {
            let again = answer(person, &request, body).await;
            assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        }
        closed(&answer(&app.client, &request, body).await, "accepted");
    }
    let [vote] = &events(&app, &id, "tool.input_proposed").await[..] else { panic!("one event") };
    assert_eq!((&vote["actor"], &vote["data"]["kind"]), (&json!("user:bob"), &json!("custom")));
    assert_eq!((&vote["data"]["confirmed_by"], &vote["data"]["missing"]), (&actors(&["bob"]), &json!(1)));
    assert_eq!(vote["data"]["request_id"], request["request_id"]);
    let [ended] = &events(&app, &id, "tool.input_ended").await[..] else { panic!("one event") };
    assert_eq!((&ended["actor"], &ended["data"]["answer"]), (&json!("user:carol"), &json!("accepted")));
    assert_eq!(ended["data"]["confirmed_by"], actors(&["bob", "carol"]));
    forgotten(&app, "canary").await;
    assert_eq!(app.rows.count("tool_request_votes WHERE content IS NULL").await, 2, "the votes stay");
    let list = carol.get("/tool_requests?state=accepted").await.body;
    assert_eq!((&list["results"][0]["proposals"], &list["results"][0]["required"]), (&json!([]), &json!(2)));
}

#[tokio::test]
async fn a_vote_counts_for_its_content_and_a_later_vote_of_the_same_person_replaces_it() {
    let app = office(3).await;
    let (bob, carol, dora) = (chief(&app, "bob"), chief(&app, "carol"), chief(&app, "dora"));
    let (id, request) = asking(&app, &[&bob, &carol, &dora]).await;
    let ten = proposed(&answer(&bob, &request, &amount(10)).await, 3, &["bob"], false);
    let nine = proposed(&answer(&carol, &request, &amount(9)).await, 3, &["carol"], false);
    assert_ne!(ten, nine);
    // The same content is the same proposal, whether it is named by its hash or not.
    proposed(&answer(&dora, &request, &amount(10)).await, 3, &["bob", "dora"], false);
    let proposals = open(&carol).await["proposals"].clone();
    let brief = |proposals: &Value| -> Vec<(Value, Value)> {
        proposals
            .as_array()
            .unwrap()
            .iter()
            .map(|it| (it["content"]["amount"].clone(), it["by"].clone()))
            .collect()
    };
    assert_eq!(brief(&proposals), [(json!(10), actors(&["bob", "dora"])), (json!(9), actors(&["carol"]))]);
    // Both change their minds, so that 10 is no proposal any more.
    proposed(&answer(&bob, &request, &confirms(&nine)).await, 3, &["carol", "bob"], false);
    proposed(&answer(&dora, &request, &amount(8)).await, 3, &["dora"], false);
    for old in [&ten, &json!("0".repeat(64)), &json!("")] {
        let stale = answer(&app.client, &request, &confirms(old)).await;
        stale.failed_with(409, "stale");
        assert!(stale.message().starts_with("content_hash: "));
    }
    assert_eq!(app.rows.count("tool_request_votes").await, 3);
    assert_eq!(app.client.call(&id).await["state"], "executing");
    // The user of the thread is one of the three.
    let done = answer(&app.client, &request, &confirms(&nine)).await;
    done.has_status(200);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 9);
    closed(&answer(&dora, &request, &amount(8)).await, "accepted");
    let votes = events(&app, &id, "tool.input_proposed").await;
    let missing: Vec<_> = votes.iter().map(|event| &event["data"]["missing"]).collect();
    assert_eq!(missing, [2, 2, 1, 1, 2]);
    let [ended] = &events(&app, &id, "tool.input_ended").await[..] else { panic!("one event") };
    assert_eq!(ended["data"]["confirmed_by"], actors(&["carol", "bob", "alice"]));
}

#[tokio::test]
async fn of_many_confirmations_at_once_one_completes_the_answer() {
    for people in [2, 3] {
        let app = office(people).await;
        let chiefs: Vec<Client> = (0..20).map(|n| chief(&app, &format!("chief{n}"))).collect();
        let approvers: Vec<&Client> = chiefs.iter().take(people.into()).collect();
        let (id, request) = asking(&app, &approvers).await;
        // All propose the same, or confirm what the first one proposed.
        let bodies = if people == 3 {
            vec![amount(5); 20]
        } else {
            vec![confirms(&answer(&app.client, &request, &amount(5)).await.body["content_hash"]); 20]
        };
        let all = chiefs.iter().zip(&bodies).map(|(person, body)| answer(person, &request, body));
        let all = join_all(all).await;
        let of = |status| all.iter().filter(|answer| answer.status == status).count();
        assert_eq!((of(200), of(202)), (1, if people == 3 { 2 } else { 0 }), "{all:?}");
        assert_eq!(all.iter().filter(|answer| answer.code() == "request_closed").count(), 20 - 1 - of(202));
        assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 5);
        assert_eq!(app.rows.count("tool_request_votes").await, i64::from(people));
        assert_eq!(events(&app, &id, "tool.input_ended").await.len(), 1);
    }
}

#[tokio::test]
async fn one_person_declines_or_cancels_whatever_is_proposed() {
    let app = office(2).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    for (action, state, person) in
        [("decline", "declined", &carol), ("cancel", "cancelled", &bob), ("decline", "declined", &app.client)]
    {
        let (id, request) = asking(&app, &[&bob, &carol]).await;
        let canary = json!({ "action": "accept", "content": { "amount": 1, "note": "canary" } });
        let hash = proposed(&answer(&bob, &request, &canary).await, 2, &["bob"], false);
        let ended = answer(person, &request, &json!({ "action": action })).await;
        assert_eq!((ended.status, &ended.body["state"]), (200, &json!(state)), "{:?}", ended.body);
        assert_eq!(app.client.becomes(&id, "succeeded").await["output"], action);
        closed(&answer(&carol, &request, &confirms(&hash)).await, state);
        let [ended] = &events(&app, &id, "tool.input_ended").await[..] else { panic!("one event") };
        assert_eq!(ended["data"]["confirmed_by"], Value::Null);
        forgotten(&app, "canary").await;
    }
}

#[tokio::test]
async fn a_request_with_one_vote_expires_and_a_later_confirmation_has_no_effect() {
    let change = |config: &mut Config| {
        wanting(2, |_| {})(config);
        config.approval.answer_timeout = Duration::from_secs(6);
    };
    let app = served(Deferred, change).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    let (id, request) = asking(&app, &[&bob, &carol]).await;
    let canary = json!({ "action": "accept", "content": { "amount": 1, "note": "canary" } });
    let hash = proposed(&answer(&bob, &request, &canary).await, 2, &["bob"], false);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], "cancel");
    closed(&answer(&carol, &request, &confirms(&hash)).await, "expired");
    closed(&answer(&bob, &request, &canary).await, "expired");
    forgotten(&app, "canary").await;
}

#[tokio::test]
async fn the_end_of_the_call_forgets_what_was_proposed() {
    let change = |config: &mut Config| {
        wanting(2, |_| {})(config);
        config.tools.cancel_grace = Duration::from_millis(100);
    };
    let app = served(Deferred, change).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    let (id, request) = asking(&app, &[&bob, &carol]).await;
    let canary = json!({ "action": "accept", "content": { "amount": 1, "note": "canary" } });
    let hash = proposed(&answer(&bob, &request, &canary).await, 2, &["bob"], false);
    app.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await;
    // The tool may return in its time, or be given up.
    let ended = async || (app.client.call(&id).await["state"] != "executing").then_some(());
    eventually("the call ends", ended).await;
    closed(&answer(&carol, &request, &confirms(&hash)).await, "withdrawn");
    forgotten(&app, "canary").await;
}

#[tokio::test]
async fn with_answers_one_the_first_person_answers() {
    let app = served(Deferred, wanting(2, |rules| rules.answers = Answers::One)).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    let (id, request) = asking(&app, &[&bob, &carol]).await;
    assert_eq!(request["required"], 1);
    answer(&bob, &request, &amount(7)).await.has_status(200);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 7);
    assert_eq!(app.rows.count("tool_request_votes").await, 0);
    let [ended] = &events(&app, &id, "tool.input_ended").await[..] else { panic!("one event") };
    assert_eq!(ended["data"]["confirmed_by"], Value::Null);
}

#[tokio::test]
async fn a_call_without_a_quorum_takes_the_answer_of_one_person() {
    let app = office(1).await;
    let (id, request) = asking(&app, &[&app.client]).await;
    assert_eq!(request["required"], 1);
    let stale = answer(&app.client, &request, &confirms(&json!("0".repeat(64)))).await;
    stale.failed_with(409, "stale");
    for wrong in [
        json!({ "action": "accept", "content": { "amount": 1 }, "content_hash": "0" }),
        json!({ "action": "decline", "content_hash": "0" }),
        json!({ "action": "cancel", "content_hash": "0" }),
        json!({ "action": "accept", "content_hash": 5 }),
        json!({ "action": "accept" }),
    ] {
        let refused = answer(&app.client, &request, &wrong).await;
        assert_eq!(refused.failure(), (400, "bad_request"), "{wrong}");
    }
    answer(&app.client, &request, &amount(3)).await.has_status(200);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 3);

    // A call that ran without an approval had no quorum, and only its user sees what it asks.
    let app = office(2).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("p", "top_up", &json!({ "to": "phone" }))]).answers("Done.");
    let answering = async {
        let request = open(&app.client).await;
        assert_eq!(request["required"], 1);
        assert_eq!(chief(&app, "bob").get("/tool_requests").await.body["results"], json!([]));
        answer(&app.client, &request, &amount(4)).await.has_status(200);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "please"), answering);
    assert_eq!(turn.text(), "Done.", "{}", turn.raw);
}

#[tokio::test]
async fn what_is_proposed_is_shown_to_those_that_may_confirm_it() {
    let app = served(Deferred, wanting(2, |rules| rules.other_person = true)).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    let operator = app.client.as_user("acme", "olga", &["operator"]);
    let (stranger, foreigner) =
        (app.client.as_user("acme", "sam", &[]), app.client.as_user("other", "bob", &["chief", "operator"]));
    let (id, request) = asking(&app, &[&bob, &carol]).await;
    for person in [&app.client, &operator] {
        let refused = answer(person, &request, &amount(1)).await;
        refused.failed_with(403, "forbidden");
    }
    let hash = proposed(&answer(&bob, &request, &amount(1)).await, 2, &["bob"], false);
    for person in [&app.client, &operator] {
        let seen = open(person).await;
        assert_eq!((&seen["required"], &seen["proposals"]), (&json!(2), &json!([])));
        assert!(!seen.to_string().contains(hash.as_str().unwrap()));
        // The user of the thread with the role of an approver does not count either.
        let refused = answer(person, &request, &confirms(&hash)).await;
        refused.failed_with(403, "forbidden");
    }
    let alice = app.client.as_user("acme", "alice", &["chief"]);
    answer(&alice, &request, &confirms(&hash)).await.has_status(403);
    for person in [&stranger, &foreigner] {
        assert_eq!(person.get("/tool_requests").await.body["results"], json!([]));
        answer(person, &request, &confirms(&hash)).await.has_status(404);
    }
    assert_eq!(app.rows.count("tool_request_votes").await, 1);
    answer(&carol, &request, &amount(1)).await.has_status(200);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 1);
}

#[tokio::test]
async fn a_proposal_fits_the_schema_and_can_be_shown() {
    let app = office(2).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    let (_, request) = asking(&app, &[&bob, &carol]).await;
    let long = json!({ "amount": 1, "note": "x".repeat(64 * 1024) });
    for content in [json!({}), json!({ "amount": "1" }), json!({ "amount": 1, "fee": 1 }), long] {
        let refused = answer(&bob, &request, &json!({ "action": "accept", "content": content })).await;
        refused.failed_with(422, "invalid_inputs");
    }
    assert_eq!(app.rows.count("tool_request_votes").await, 0);
    assert_eq!(events(&app, request.text("tool_call_id"), "tool.input_proposed").await.len(), 0);
    answer(&bob, &request, &json!({ "action": "decline" })).await.has_status(200);
}

/// A handler that approves every call, and answers each request of a tool.
struct Clerk;

impl ApprovalHandler for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn ask(&self, _: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        async { Ok(HandlerAnswer::approved()) }.boxed()
    }

    fn answer(&self, _: InputRequest) -> BoxFuture<'_, Result<InputAnswer, HandlerError>> {
        let content = json!({ "amount": 6 });
        async move { Ok(InputAnswer::Accepted { content: content.as_object().unwrap().clone() }) }.boxed()
    }
}

#[tokio::test]
async fn a_handler_proposes_as_one_of_the_people() {
    let app = served(Clerk, wanting(2, |_| {})).await;
    let bob = chief(&app, "bob");
    let (id, request) = asking(&app, &[&bob]).await;
    let proposes = async || {
        let seen = open(&bob).await;
        seen.list("proposals").first().cloned()
    };
    let proposal = eventually("the handler proposes", proposes).await;
    assert_eq!((&proposal["by"], &proposal["own"]), (&json!(["handler:clerk"]), &json!(false)));
    answer(&bob, &request, &confirms(&proposal["content_hash"])).await.has_status(200);
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 6);
}

#[tokio::test]
async fn the_database_refuses_two_proposals_of_one_person_and_any_after_the_end() {
    let app = office(2).await;
    let (bob, carol) = (chief(&app, "bob"), chief(&app, "carol"));
    let (id, request) = asking(&app, &[&bob, &carol]).await;
    let hash = proposed(&answer(&bob, &request, &amount(1)).await, 2, &["bob"], false);
    let request_id = request.text("request_id");
    let hash_of_all = "0".repeat(64);
    let insert = |actor: &str, content: &str| {
        format!(
            "INSERT INTO tool_request_votes (request_id, actor, content, content_hash, at)
             VALUES ('{request_id}', '{actor}', {content}, '{hash_of_all}', 1)"
        )
    };
    let refused = async |sql: &str, words: &str| {
        let error = app.rows.change(sql).await.unwrap_err();
        assert!(error.to_lowercase().contains(words), "{sql}: {error}");
    };
    let open = "people propose an answer while the request is open";
    refused(&insert("user:bob", "'{}'"), if app.rows.is_postgres() { "unique" } else { "one proposal" })
        .await;
    refused(&insert("user:eve", "NULL"), open).await;
    refused(&insert("system:x", "'{}'"), "check").await;
    refused("UPDATE tool_request_votes SET actor = 'user:eve'", open).await;
    refused("UPDATE tool_request_votes SET content = NULL", open).await;
    let kept = if app.rows.is_postgres() { "deleted" } else { "proposals are never deleted" };
    refused("DELETE FROM tool_request_votes", kept).await;
    answer(&carol, &request, &confirms(&hash)).await.has_status(200);
    app.client.becomes(&id, "succeeded").await;
    refused(&insert("user:eve", "'{}'"), open).await;
    for change in ["content = '{}'", "content_hash = 'x'", "at = 1", "actor = 'user:eve'"] {
        refused(&format!("UPDATE tool_request_votes SET {change}"), open).await;
    }
}

#[tokio::test]
async fn in_the_console_one_person_proposes_and_another_one_confirms_what_is_shown() {
    let app = office(2).await;
    let (id, _) = asking(&app, &[&chief(&app, "bob"), &chief(&app, "carol")]).await;
    let token = |user: &str| token("acme", user, &["chief"]);
    let facts = json!({ "bob": token("bob"), "carol": token("carol"), "dora": token("dora") });
    holdpoint_testkit::console::play("proposals", &app.client.base, facts).await;
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], 5);
}
