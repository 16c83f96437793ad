//! Forms that a server asks people to fill in while its tool runs.

use super::everything::{EverythingServer, over_http, stdio};
use super::{SteeredServer, hold, tool};
use futures::FutureExt;
use holdpoint::config::{Config, McpServer, ToolRules};
use holdpoint::handlers::{
    ApprovalHandler, ApprovalRequest, BoxFuture, HandlerAnswer, HandlerError, InputAnswer, InputRequest,
    RequestKind,
};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Answer, Client, Embedded, JsonFields, eventually};
use serde_json::{Value, json};
use std::time::Duration;

const PIN: &str = "canary-7";

/// A server of holdpoint with this MCP server, whose decisions do not wait for the outcome.
async fn with(entry: McpServer, change: impl FnOnce(&mut Config)) -> Embedded {
    Box::pin(Embedded::with(|config: &mut Config| {
        config.mcp = vec![entry];
        config.approval.wait = Duration::ZERO;
        change(config);
    }))
    .await
}

/// With the steered server, whose tool is there.
async fn steered(lines: &Value, change: impl FnOnce(&mut Config)) -> (SteeredServer, Embedded) {
    let steered = SteeredServer::with("act");
    let server = with(steered.entry("s", lines), change).await;
    tool(&server.client, "s__act").await;
    (steered, server)
}

/// Has the model call the tool, and approves the call. Returns its id.
async fn running(server: &Embedded, tool: &str, input: &Value) -> String {
    let id = hold(server, tool, input).await;
    let approved = server.client.approve(&id).await;
    assert!(matches!(approved.status, 200 | 202), "{:?}", approved.body);
    id
}

/// The requests of the list in this state.
async fn requests(client: &Client, state: &str) -> Vec<Value> {
    let listed = client.get(&format!("/tool_requests?state={state}")).await;
    listed.has_status(200);
    listed.body.list("results").clone()
}

/// Waits for an open request, and returns it.
async fn open(client: &Client) -> Value {
    let found = async || requests(client, "open").await.into_iter().next();
    eventually("the tool asks", found).await
}

fn id(request: &Value) -> &str {
    request.text("request_id")
}

async fn answer(client: &Client, request: &Value, body: &Value) -> Answer {
    client.post(&format!("/tool_requests/{}/answer", id(request)), body).await
}

/// The answers that the steered server got, as it wrote them.
fn answers(steered: &SteeredServer) -> String {
    std::fs::read_to_string(steered.state.path().join("answers.log")).unwrap_or_default()
}

#[tokio::test]
async fn a_form_is_a_request_and_its_content_goes_to_the_server_alone() {
    let (steered, server) = steered(&json!({}), |_| {}).await;
    let call = running(&server, "s__act", &json!({ "do": "ask" })).await;
    let request = open(&server.client).await;
    for (field, expected) in [
        ("tool_call_id", json!(call)),
        ("tool_name", json!("s__act")),
        ("mcp", json!({ "server": "s", "tool": "act" })),
        ("kind", json!("elicitation")),
        ("message", json!("Which PIN?")),
        ("state", json!("open")),
        ("can_accept", json!(true)),
        ("can_decline", json!(true)),
        ("requested_by", json!("user:local")),
    ] {
        assert_eq!(request[field], expected, "{field} of {request}");
    }
    assert_eq!(request["schema"]["required"], json!(["pin"]));
    for (wrong, status, code) in [
        (json!({ "action": "accept" }), 400, "bad_request"),
        (json!({ "action": "decline", "content": { "pin": PIN } }), 400, "bad_request"),
        (json!({ "action": "maybe" }), 400, "bad_request"),
        (json!({ "action": "accept", "content": {} }), 422, "invalid_inputs"),
        (json!({ "action": "accept", "content": { "pin": "1" } }), 422, "invalid_inputs"),
        (json!({ "action": "accept", "content": { "pin": PIN, "attempts": 9 } }), 422, "invalid_inputs"),
        (json!({ "action": "accept", "content": { "pin": PIN, "role": "root" } }), 422, "invalid_inputs"),
    ] {
        let refused = answer(&server.client, &request, &wrong).await;
        assert_eq!(refused.failure(), (status, code), "{wrong}: {:?}", refused.body);
    }
    assert_eq!(server.client.call(&call).await["state"], "executing");
    let accept = json!({ "action": "accept", "content": { "attempts": 2, "pin": PIN } });
    let done = answer(&server.client, &request, &accept).await;
    done.has(200, "state", "accepted");
    assert_eq!(done.header("idempotent-replayed"), None);
    let ended = server.client.becomes(&call, "succeeded").await;
    assert_eq!(ended["output"], "accept");
    assert!(answers(&steered).contains(PIN), "{}", answers(&steered));
    assert_eq!(
        steered.called(),
        ["act", "act"],
        "the server asks by an answer, and the call is repeated with its own"
    );

    let again = answer(&server.client, &request, &accept).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    for other in
        [json!({ "action": "decline" }), json!({ "action": "accept", "content": { "pin": "12345" } })]
    {
        let refused = answer(&server.client, &request, &other).await;
        refused.failed_with(409, "request_closed");
        assert_eq!(refused.body["error"]["details"]["state"], "accepted");
    }
    let thread = ended.text("thread_id");
    server.client.resume(thread).await;
    for table in ["events", "tool_calls", "tool_requests", "sent_answers", "message_steps", "decisions"] {
        let rows = Value::from(server.rows.all(&format!("SELECT * FROM {table}")).await).to_string();
        assert!(!rows.contains(PIN), "{table}: {rows}");
    }
    assert!(!format!("{:?}", server.scene.requests()).contains(PIN));
    let [accepted] = &requests(&server.client, "accepted").await[..] else { panic!("one request") };
    assert_eq!((&accepted["answered_by"], &accepted["can_accept"]), (&json!("user:local"), &json!(false)));
}

#[tokio::test]
async fn a_request_and_its_end_are_events_of_the_call_without_the_texts() {
    let (_steered, server) = steered(&json!({}), |_| {}).await;
    let call = running(&server, "s__act", &json!({ "do": "ask" })).await;
    let request = open(&server.client).await;
    answer(&server.client, &request, &json!({ "action": "decline" })).await.has_status(200);
    assert_eq!(server.client.becomes(&call, "succeeded").await["output"], "decline");
    let events = server.client.get(&format!("/tool_calls/{call}/events")).await.body;
    let events = events.list("results");
    let found = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    let (asked, ended) = (found("tool.input_requested"), found("tool.input_ended"));
    for event in [asked, ended] {
        assert_eq!(event["data"]["request_id"], request["request_id"]);
        assert_eq!(event["data"]["kind"], "elicitation");
    }
    assert_eq!((&asked["actor"], &ended["actor"]), (&json!("user:local"), &json!("user:local")));
    assert_eq!(ended["data"]["answer"], "declined");
    assert!(!events.iter().any(|event| event.to_string().contains("PIN")));
}

#[tokio::test]
async fn the_form_of_a_server_with_a_session_is_answered_on_both_transports() {
    let listening = EverythingServer::start();
    for lines in [stdio(), over_http(&listening.url)] {
        let entry = super::entry(&lines);
        let server = with(entry, |config| config.egress.allow = vec!["127.0.0.1".to_owned()]).await;
        const TOOL: &str = "all__trigger-elicitation-request";
        tool(&server.client, TOOL).await;
        for (action, content, said) in [
            ("accept", json!({ "name": "Ann", "integer": 7, "email": "ann@x.example" }), "- Name: Ann"),
            ("decline", Value::Null, "declined"),
            ("cancel", Value::Null, "cancelled"),
        ] {
            let call = running(&server, TOOL, &json!({})).await;
            let request = open(&server.client).await;
            assert_eq!(request["tool_call_id"], call);
            if action == "accept" {
                let wrong = json!({ "action": action, "content": { "name": "Ann", "email": "nobody" } });
                answer(&server.client, &request, &wrong).await.has_status(422);
            }
            let body = json!({ "action": action, "content": content });
            answer(&server.client, &request, &body).await.has_status(200);
            let ended = server.client.becomes(&call, "succeeded").await;
            assert!(ended.text("result").contains(said), "{action}: {ended}");
        }
    }
}

#[tokio::test]
async fn the_time_limit_of_a_call_leaves_out_the_wait_for_a_person() {
    let (_steered, server) = steered(&json!({ "timeout": "3s" }), |_| {}).await;
    let call = running(&server, "s__act", &json!({ "do": "ask" })).await;
    let request = open(&server.client).await;
    // Longer than the limit: the passing of time is what is tested.
    tokio::time::sleep(Duration::from_millis(3500)).await;
    answer(&server.client, &request, &json!({ "action": "decline" })).await.has_status(200);
    assert_eq!(server.client.becomes(&call, "succeeded").await["output"], "decline");
}

#[tokio::test]
async fn a_request_without_an_answer_expires_and_the_server_receives_that_it_is_cancelled() {
    let (_steered, server) =
        steered(&json!({}), |config| config.approval.answer_timeout = Duration::from_secs(4)).await;
    let call = running(&server, "s__act", &json!({ "do": "ask" })).await;
    let request = open(&server.client).await;
    assert_eq!(server.client.becomes(&call, "succeeded").await["output"], "cancel");
    let late = answer(&server.client, &request, &json!({ "action": "decline" })).await;
    late.failed_with(409, "request_closed");
    assert_eq!(late.body["error"]["details"]["state"], "expired");
    let events = server.rows.all("SELECT actor FROM events WHERE type = 'tool.input_ended'").await;
    assert_eq!(events, [json!({ "actor": "system:expiry" })]);
}

#[tokio::test]
async fn a_cancel_of_the_call_ends_its_request() {
    let (steered, server) = steered(&json!({}), |_| {}).await;
    let call = running(&server, "s__act", &json!({ "do": "ask" })).await;
    let request = open(&server.client).await;
    server.client.post(&format!("/tool_calls/{call}/cancel"), &json!({})).await;
    server.client.becomes(&call, "interrupted").await;
    assert_eq!(requests(&server.client, "open").await, Vec::<Value>::new());
    let late = answer(&server.client, &request, &json!({ "action": "decline" })).await;
    late.failed_with(409, "request_closed");
    assert_eq!(late.body["error"]["details"]["state"], "withdrawn");
    assert_eq!((answers(&steered).as_str(), steered.called().len()), ("", 1));
}

#[tokio::test]
async fn only_those_that_may_decide_the_call_see_its_request_and_answer_it() {
    let steered = SteeredServer::with("act");
    let mut server = with(steered.entry("s", &json!({})), |config| {
        with_tokens(config);
        let (approve_roles, other_person) = (vec!["chief".to_owned()], true);
        let rules = ToolRules { approve_roles, other_person, ..ToolRules::default() };
        config.tools.rules.insert("s__act".to_owned(), rules);
        config.auth.operator_roles = vec!["operator".to_owned()];
    })
    .await;
    let user = |name: &str, roles: &[&str]| server.client.as_user("acme", name, roles);
    let (alice, chief) = (user("alice", &[]), user("carol", &["chief"]));
    let (stranger, operator) = (user("bob", &[]), user("olga", &["operator"]));
    let foreigner = server.client.as_user("other", "carol", &["chief", "operator"]);
    server.client = alice.clone();
    tool(&alice, "s__act").await;
    let call = hold(&server, "s__act", &json!({ "do": "ask" })).await;
    chief.approve(&call).await.has_status(202);
    let request = open(&alice).await;
    let rights = async |client: &Client| {
        let seen = requests(client, "open").await;
        seen.first().map(|it| (it["can_accept"] == true, it["can_decline"] == true))
    };
    assert_eq!(rights(&alice).await, Some((false, true)), "another person has to decide");
    assert_eq!(rights(&chief).await, Some((true, true)));
    assert_eq!(rights(&operator).await, Some((false, false)));
    assert_eq!((rights(&stranger).await, rights(&foreigner).await), (None, None));
    let accept = json!({ "action": "accept", "content": { "pin": "12345" } });
    for client in [&stranger, &foreigner] {
        let refused = answer(client, &request, &accept).await;
        let unknown = client.post(&format!("/tool_requests/{call}/answer"), &accept).await;
        assert_eq!((refused.status, &refused.body), (404, &unknown.body));
    }
    for client in [&alice, &operator] {
        let refused = answer(client, &request, &accept).await;
        refused.failed_with(403, "forbidden");
    }
    answer(&chief, &request, &accept).await.has_status(200);
    let repeated = answer(&chief, &request, &accept).await;
    assert_eq!(repeated.header("idempotent-replayed"), Some("true"));
    alice.becomes(&call, "succeeded").await;
    let [accepted] = &requests(&alice, "accepted").await[..] else { panic!("one request") };
    assert_eq!(accepted["answered_by"], "user:carol");
}

/// The tool needs two people.
fn of_two(config: &mut Config, other_person: bool) {
    with_tokens(config);
    let approve_roles = vec!["chief".to_owned()];
    let rules = ToolRules { approve_roles, approvals: 2, other_person, ..ToolRules::default() };
    config.tools.rules.insert("s__act".to_owned(), rules);
}

/// A server that needs two people for the tool of the steered server, two of them, and their call, which runs and asks.
async fn asks_two(
    steered: &SteeredServer,
    change: impl FnOnce(&mut Config),
) -> (Embedded, [Client; 2], String) {
    let mut server = with(steered.entry("s", &json!({})), |config| {
        of_two(config, false);
        change(config);
    })
    .await;
    let chiefs = ["bob", "carol"].map(|name| server.client.as_user("acme", name, &["chief"]));
    server.client = server.client.as_user("acme", "alice", &[]);
    tool(&server.client, "s__act").await;
    let call = hold(&server, "s__act", &json!({ "do": "ask" })).await;
    for chief in &chiefs {
        chief.approve(&call).await.has_status(202);
    }
    (server, chiefs, call)
}

#[tokio::test]
async fn with_a_quorum_the_server_gets_what_two_people_agreed_on() {
    let steered = SteeredServer::with("act");
    let (server, [bob, carol], call) = asks_two(&steered, |_| {}).await;
    let request = open(&bob).await;
    let accept = json!({ "action": "accept", "content": { "pin": PIN } });
    let proposed = answer(&bob, &request, &accept).await;
    proposed.has(202, "state", "open");
    assert_eq!(steered.called(), ["act"], "the server has no answer");
    let other = json!({ "action": "accept", "content": { "pin": "12345" } });
    answer(&carol, &request, &other).await.has_status(202);
    assert_eq!(steered.called(), ["act"], "the server has no answer");
    let confirm = json!({ "action": "accept", "content_hash": proposed.body["content_hash"] });
    answer(&carol, &request, &confirm).await.has_status(200);
    assert_eq!(server.client.becomes(&call, "succeeded").await["output"], "accept");
    assert!(answers(&steered).contains(PIN) && !answers(&steered).contains("12345"), "{}", answers(&steered));
}

#[tokio::test]
async fn on_postgres_a_process_without_the_tool_keeps_to_its_quorum() {
    let url = holdpoint_testkit::postgres().await;
    let at = |config: &mut Config| config.database.url = url.clone().into();
    let steered = SteeredServer::with("act");
    let (runs, [bob, _], call) = asks_two(&steered, at).await;
    let request = open(&bob).await;
    let accept = json!({ "action": "accept", "content": { "pin": PIN } });
    for other_person in [true, false] {
        let gone = McpServer { command: Some("/nowhere".into()), ..steered.entry("s", &json!({})) };
        let mut other = with(gone, |config| {
            of_two(config, other_person);
            at(config);
        })
        .await;
        other.client = other.client.as_user("acme", "alice", &[]);
        let seen = open(&other.client).await;
        assert_eq!((&seen["mcp"], &seen["required"]), (&Value::Null, &json!(2)));
        // The user of the thread is one of the two, unless other people have to decide.
        let alone = answer(&other.client, &request, &accept).await;
        assert_eq!(alone.status, if other_person { 403 } else { 202 }, "{:?}", alone.body);
    }
    answer(&bob, &request, &accept).await.has_status(200);
    assert_eq!(runs.client.becomes(&call, "succeeded").await["output"], "accept");
}

#[tokio::test]
async fn of_many_answers_at_once_one_counts() {
    let (steered, server) = steered(&json!({}), |_| {}).await;
    let call = running(&server, "s__act", &json!({ "do": "ask" })).await;
    let request = open(&server.client).await;
    let bodies: Vec<_> =
        (0..20).map(|n| json!({ "action": "accept", "content": { "pin": format!("pin-{n}") } })).collect();
    let all = bodies.iter().map(|body| answer(&server.client, &request, body));
    let all = futures::future::join_all(all).await;
    assert_eq!(all.iter().filter(|answer| answer.status == 200).count(), 1);
    assert_eq!(all.iter().filter(|answer| answer.code() == "request_closed").count(), 19);
    server.client.becomes(&call, "succeeded").await;
    let winner = all.iter().position(|answer| answer.status == 200).unwrap();
    assert!(answers(&steered).contains(&format!("\"pin-{winner}\"")), "{}", answers(&steered));
}

#[tokio::test]
async fn requests_beyond_the_limits_pages_to_visit_and_questions_to_a_model_are_refused() {
    let (steered, server) = steered(&json!({}), |_| {}).await;
    let long = "x".repeat(5000);
    let call = running(&server, "s__act", &json!({ "do": "ask", "note": long })).await;
    assert_eq!(server.client.becomes(&call, "succeeded").await["output"], "cancel");
    for what in ["askUrl", "askModel"] {
        let call = running(&server, "s__act", &json!({ "do": what })).await;
        let ended =
            async || Some(server.client.call(&call).await).filter(|call| call["state"] != "executing");
        let ended = eventually("the call ends", ended).await;
        assert!(!ended["output"].to_string().contains("accept"), "{ended}");
    }
    assert_eq!(server.rows.count("tool_requests").await, 0);

    let before = steered.called().len();
    let call = running(&server, "s__act", &json!({ "do": "askMany", "note": "12" })).await;
    let ten = async || Some(requests(&server.client, "open").await).filter(|open| open.len() == 10);
    for request in eventually("ten requests are open", ten).await {
        answer(&server.client, &request, &json!({ "action": "decline" })).await.has_status(200);
    }
    let output = server.client.becomes(&call, "succeeded").await["output"].clone();
    let words: Vec<_> = output.as_str().unwrap().split(' ').collect();
    assert_eq!(words.iter().filter(|word| **word == "decline").count(), 10, "{output}");
    assert_eq!(words.iter().filter(|word| **word == "cancel").count(), 2, "{output}");
    assert_eq!(steered.called().len(), before + 2);
}

#[tokio::test]
async fn hidden_characters_of_a_message_are_shown_by_their_numbers() {
    let (_steered, server) = steered(&json!({}), |_| {}).await;
    let call = running(&server, "s__act", &json!({ "do": "ask", "note": "pay\u{202e}eva" })).await;
    let request = open(&server.client).await;
    assert_eq!(request["message"], "pay\\u{202e}eva");
    answer(&server.client, &request, &json!({ "action": "decline" })).await.has_status(200);
    server.client.becomes(&call, "succeeded").await;
}

/// A handler that approves every call, and answers each request of a tool once.
struct Clerk;

impl ApprovalHandler for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn ask(&self, _: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        async { Ok(HandlerAnswer::approved()) }.boxed()
    }

    fn answer(&self, request: InputRequest) -> BoxFuture<'_, Result<InputAnswer, HandlerError>> {
        async move {
            assert_eq!(request.kind, RequestKind::Elicitation);
            assert_eq!((request.tool_name.as_str(), request.requester.user_id()), ("s__act", "local"));
            Ok(match request.message.as_str() {
                "Which PIN?" => InputAnswer::Accepted { content: content(json!({ "pin": "12345" })) },
                "Which wrong PIN?" => InputAnswer::Accepted { content: content(json!({ "pin": 1 })) },
                "Stop?" => InputAnswer::Cancelled,
                _ => InputAnswer::Deferred,
            })
        }
        .boxed()
    }
}

fn content(content: Value) -> holdpoint::tools::Input {
    content.as_object().unwrap().clone()
}

#[tokio::test]
async fn a_handler_answers_a_request_by_its_kind_or_leaves_it_to_the_routes() {
    let steered = SteeredServer::with("act");
    let entry = steered.entry("s", &json!({}));
    let server = Box::pin(Embedded::with_handler(Clerk, |config| config.mcp = vec![entry])).await;
    tool(&server.client, "s__act").await;
    for (note, output) in [("Which PIN?", "accept"), ("Stop?", "cancel")] {
        let turn = super::turn(&server, "s__act", &json!({ "do": "ask", "note": note })).await;
        assert!(turn.raw.contains(&format!("\"{output}\"")), "{}", turn.raw);
    }
    let by = server.rows.all("SELECT answered_by FROM tool_requests").await;
    assert_eq!(by, [json!({ "answered_by": "handler:clerk" }), json!({ "answered_by": "handler:clerk" })]);
    for note in ["Which wrong PIN?", "Who are you?"] {
        let input = json!({ "do": "ask", "note": note });
        let turn = super::turn(&server, "s__act", &input);
        let answering = async {
            let request = open(&server.client).await;
            assert_eq!(request["message"], note);
            answer(&server.client, &request, &json!({ "action": "decline" })).await.has_status(200);
        };
        let (turn, ()) = tokio::join!(turn, answering);
        assert!(turn.raw.contains("\"decline\""), "{}", turn.raw);
    }
}

#[tokio::test]
async fn a_killed_process_leaves_the_outcome_unknown_and_its_request_withdrawn() {
    let steered = SteeredServer::with("delete_file");
    let place = steered.deployment().await;
    let mut server = place.start();
    tool(&server.client, "s__delete_file").await;
    let turn = server.client.send_message(&server.client.thread().await, "delete a").await;
    let [call] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    // The approver has the tool ask.
    let ask = json!({ "toolCallId": call, "isValidated": true, "validatedInputs": { "do": "ask" } });
    server.client.validate(&ask).await.has_status(202);
    let request = open(&server.client).await;
    server.kill();
    let server = place.start();
    server.client.becomes(call, "interrupted").await;
    let late = answer(&server.client, &request, &json!({ "action": "decline" })).await;
    late.failed_with(409, "request_closed");
    assert_eq!(late.body["error"]["details"]["state"], "withdrawn");
    assert_eq!((answers(&steered).as_str(), steered.called().len()), ("", 1));
}

#[tokio::test]
async fn on_postgres_any_process_takes_the_answer() {
    let url = holdpoint_testkit::postgres().await;
    let (_steered, runs) = steered(&json!({}), |config| config.database.url = url.clone().into()).await;
    let other = Embedded::with(|config| config.database.url = url.clone().into()).await;
    let call = running(&runs, "s__act", &json!({ "do": "ask" })).await;
    let request = open(&other.client).await;
    // The other process does not know the tool, so only the user of the thread may decide.
    assert_eq!((&request["tool_call_id"], &request["mcp"]), (&json!(call), &Value::Null));
    let accept = json!({ "action": "accept", "content": { "pin": "12345" } });
    answer(&other.client, &request, &accept).await.has_status(200);
    assert_eq!(runs.client.becomes(&call, "succeeded").await["output"], "accept");
}

#[tokio::test]
async fn a_form_is_answered_in_the_console() {
    let (steered, server) = steered(&json!({}), |_| {}).await;
    let call = running(&server, "s__act", &json!({ "do": "ask" })).await;
    open(&server.client).await;
    let next = hold(&server, "s__act", &json!({ "do": "ask", "note": "Which other PIN?" })).await;
    let facts = json!({ "pin": PIN, "next": next });
    holdpoint_testkit::console::play("tool-requests", &server.client.base, facts).await;
    assert_eq!(server.client.becomes(&call, "succeeded").await["output"], "accept");
    assert_eq!(server.client.becomes(&next, "succeeded").await["output"], "decline");
    assert!(answers(&steered).contains(PIN));
}
