//! Every route of the OpenAPI document, without a token, with another user's token, and with those of the callers in the
//! route table. A new route is covered as soon as the document lists it.

use super::assert_unknown;
use holdpoint::config::ToolRules;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields, Rows, token};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The ids that a request refers to.
#[derive(Debug, Clone)]
struct RequestIds {
    thread: String,
    run: String,
    tool_call: String,
}

impl RequestIds {
    /// Ids of the same form that identify nothing.
    fn made_up(&self) -> Self {
        let other = |id: &str| format!("{}0123456789ab", &id[..id.len() - 12]);
        Self { thread: other(&self.thread), run: other(&self.run), tool_call: other(&self.tool_call) }
    }

    /// The value for this path parameter.
    fn parameter(&self, name: &str) -> &str {
        match name {
            "thread_id" | "session_id" => &self.thread,
            "run_id" => &self.run,
            "tool_call_id" => &self.tool_call,
            // The id of no grant, because a real grant would need an executed call. `remember` tests foreign
            // grants.
            "grant_id" => &self.tool_call,
            // The id of no request, which would need a tool that runs. `mcp::elicitation` tests foreign requests.
            "request_id" => &self.tool_call,
            // The id of no sign-in. `sign_in::kept` tests those of other people.
            "sign_in_id" => &self.tool_call,
            // Read only on a route without a thread id in its path.
            "chat_id" => &self.thread,
            // Tools belong to the operator and are the same for all callers.
            "name" => "pay",
            _ => panic!("add a value for the path parameter {{{name}}}"),
        }
    }

    /// A body with which an authorized caller's request has an effect.
    fn body(&self, operation: &str) -> Value {
        match operation {
            "chat" => json!({ "content": "hi" }),
            "chatById" => json!({ "id": self.thread, "content": "hi" }),
            "validateTool" => json!({ "toolCallId": self.tool_call, "isValidated": true }),
            "validateTools" => {
                json!({ "decisions": [{ "toolCallId": self.tool_call, "isValidated": true }] })
            }
            "runTurn" => json!({ "content": "hi" }),
            "createThread" => json!({ "parent_id": self.thread, "title": "mine" }),
            "updateThread" => json!({ "title": "mine" }),
            "approveRun" | "rejectRun" => json!({ "tool_call_id": self.tool_call }),
            "decideInSession" => json!({ "decision": "allow_once" }),
            "previewToolCall" => json!({ "validated_inputs": { "note": "2" } }),
            "resolveToolCall" => json!({ "outcome": "failed", "error": "It did not run." }),
            "delegateApproval" => {
                json!({ "to": "bob", "until": "2030-01-01T12:00:00Z", "reason": "Out of office." })
            }
            // No message was sent. `templates::links` tests the links of other people.
            "openLink" => json!({ "link": "0".repeat(64) }),
            "extendToolCall" => json!({ "expires_in": 172_800 }),
            "claimToolCall" => json!({ "tools": ["pay"] }),
            "renewToolCall" => json!({ "permit": "none" }),
            "settleToolCall" => json!({ "permit": "none", "outcome": "unknown" }),
            "reportResult" => json!({ "result": 1 }),
            "acceptDefinition" => json!({ "hash": "0".repeat(64) }),
            "answerToolRequest" => json!({ "action": "decline" }),
            "setSessionPolicy" => json!({ "mode": "auto-deny" }),
            _ => panic!("add a body with which {operation} has an effect"),
        }
    }

    /// The value of this query parameter if it selects rows, else `None`.
    fn query(&self, name: &str) -> Option<&str> {
        match name {
            "chatId" | "thread_id" | "session_id" => Some(&self.thread),
            // Position, length and format of a list: tested in `scope`.
            "cursor" | "page_size" | "format" | "after" => None,
            // Tested with the tickets.
            "ticket" => None,
            // The parts of a `callback_url`: tested with the callbacks.
            "execution_id" | "mac" => None,
            // A filter on the caller's own rows.
            "state" | "tool_name" | "client_id" | "q" => None,
            _ => panic!("add a value for the query parameter {name}, if it selects rows"),
        }
    }
}

/// The status that another user gets for foreign ids: 404, as for unknown ids, where the route table names a relation to
/// them.
fn answer_to_another_user(operation: &Operation) -> u16 {
    match (operation.id.as_str(), &operation.callers[..]) {
        // A page attaches before its first message and reads nothing.
        ("attachStreamById", _) => 204,
        // The result of each call is "not found".
        ("validateTools", _) => 200,
        // The id is in the body, as a field of the new thread.
        ("createThread", _) => 400,
        // The call is looked up before the role of the caller.
        ("resolveToolCall", _) => 404,
        // The other user's own rows, or rows that all callers share.
        (_, ["every user"]) => operation.success,
        // The other user has no such role.
        (_, [of_role]) if ROLES.contains(of_role) => 403,
        // A report is authorized by its URL and its signature, never by a token.
        (_, ["service of the tool"]) => 401,
        _ => 404,
    }
}

/// The callers that are known by a role of the server alone.
const ROLES: [&str; 4] =
    ["worker", "worker with the permit", "operator or the one user", "accepter of definitions"];

/// One operation of the document.
#[derive(Debug)]
struct Operation {
    id: String,
    method: Method,
    path: String,
    parameters: Vec<String>,
    has_body: bool,
    /// The first status of success in the document.
    success: u16,
    /// Who may call it, by the route table.
    callers: Vec<&'static str>,
}

/// The callers of each route in the route table of `docs/http.md`, by its method and path. `cargo xtask docs` holds the
/// table equal to the code.
fn route_table() -> BTreeMap<&'static str, Vec<&'static str>> {
    let page = include_str!("../../../docs/http.md");
    let (_, table) = page.split_once("<!-- begin routes").unwrap();
    let (table, _) = table.split_once("<!-- end routes").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    rows.map(|(route, rest)| (route, rest.split(" | ").next().unwrap().split(", ").collect())).collect()
}

fn operations() -> Vec<Operation> {
    let document = include_str!("../../../openapi/holdpoint-full.json");
    let document: Value = serde_json::from_str(document).unwrap();
    let (mut table, mut all) = (route_table(), Vec::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let of_query = parameters.iter().filter(|parameter| parameter["in"] == "query");
            let method = method.to_uppercase();
            let statuses = operation["responses"].as_object().unwrap().keys();
            let route = format!("{method} {path}");
            all.push(Operation {
                id: operation.text("operationId").to_owned(),
                method: method.parse().unwrap(),
                path: path.clone(),
                parameters: of_query.map(|parameter| parameter.text("name").to_owned()).collect(),
                has_body: operation.get("requestBody").is_some(),
                success: statuses.map(|status| status.parse().unwrap()).min().unwrap(),
                callers: table.remove(route.as_str()).expect(&route),
            });
        }
    }
    assert_eq!(table, BTreeMap::new(), "the route table has no other routes");
    assert!(all.len() >= 18, "{all:#?}");
    all
}

impl Operation {
    fn path_for(&self, things: &RequestIds) -> String {
        let mut path = String::new();
        for piece in self.path.split_inclusive('}') {
            match piece.split_once('{') {
                Some((before, name)) => {
                    path += &format!("{before}{}", things.parameter(name.trim_end_matches('}')))
                }
                None => path += piece,
            }
        }
        let query = self.parameters.iter().filter_map(|name| Some(format!("{name}={}", things.query(name)?)));
        let query = query.collect::<Vec<_>>().join("&");
        if query.is_empty() { path } else { format!("{path}?{query}") }
    }

    fn request(&self, client: &Client, prefix: &str, things: &RequestIds) -> RequestBuilder {
        let url = client.url(&format!("{prefix}{}", self.path_for(things)));
        let request = client.http.request(self.method.clone(), url);
        if self.has_body { request.json(&things.body(&self.id)) } else { request }
    }

    /// The whole response, without the values that differ between requests.
    async fn answer(
        &self,
        client: &Client,
        prefix: &str,
        things: &RequestIds,
    ) -> (u16, BTreeMap<String, String>, String) {
        let response = self.request(client, prefix, things).send().await.unwrap();
        let status = response.status().as_u16();
        let mut headers = BTreeMap::new();
        for (name, value) in response.headers() {
            if !matches!(name.as_str(), "x-request-id" | "date") {
                let value = value.to_str().unwrap();
                // Objects that another user creates have new ids.
                headers.insert(
                    name.to_string(),
                    if status == 200 { without_ids(value) } else { value.to_owned() },
                );
            }
        }
        let body = match self.id.as_str() {
            // An event stream does not end.
            _ if status == 200 && (self.path == "/events" || self.path.ends_with("/events/stream")) => {
                String::new()
            }
            // Each ticket is different.
            "createTicket" if status == 201 => String::new(),
            _ => response.text().await.unwrap(),
        };
        (status, headers, if status == 200 { without_ids(&body) } else { body })
    }
}

/// The text with every id replaced by the same word.
fn without_ids(text: &str) -> String {
    let is_id = |at: usize| text.get(at..at + 36).filter(|id| uuid::Uuid::try_parse(id).is_ok());
    let (mut out, mut at) = (String::new(), 0);
    while let Some(next) = text[at..].chars().next() {
        if is_id(at).is_some() {
            out += "id";
            at += 36;
        } else {
            out.push(next);
            at += next.len_utf8();
        }
    }
    out
}

/// A server with a thread of ann, in which a call is pending.
async fn server() -> (Embedded, RequestIds) {
    let mut app = Embedded::with(with_tokens).await;
    let anonymous = app.client.clone();
    app.client = anonymous.as_user("acme", "ann", &["approver"]);
    let things = request_ids_of(&app).await;
    app.client = anonymous;
    (app, things)
}

/// Every row of the database.
async fn everything(rows: &Rows) -> BTreeMap<String, BTreeSet<String>> {
    let tables = match rows.is_postgres() {
        true => "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'holdpoint'",
        false => "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    };
    let mut all = BTreeMap::new();
    for table in rows.all(tables).await {
        let name = table.text("name").to_owned();
        let found = rows.all(&format!("SELECT * FROM {name}")).await;
        all.insert(name, found.iter().map(Value::to_string).collect());
    }
    assert!(all.len() >= 8, "{:?}", all.keys());
    all
}

#[tokio::test]
async fn d1_every_route_refuses_a_request_without_a_token() {
    let (app, things) = server().await;
    let before = everything(&app.rows).await;
    let good = token::token("acme", "ann", &["approver"]);
    let good = good.as_str();
    let headers = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    };
    let bearer = format!("Bearer {good}");
    let wrong = [
        headers(&[]),
        headers(&[""]),
        headers(&["Bearer"]),
        headers(&["Bearer "]),
        headers(&[good]),
        headers(&[&format!("Basic {good}")]),
        headers(&[&format!("Token {good}")]),
        headers(&[&format!("Bearer{good}")]),
        headers(&[&format!("{bearer} x")]),
        headers(&[&format!("{bearer},{bearer}")]),
        headers(&[&bearer, &bearer]),
        headers(&[&bearer, "Basic YTpi"]),
    ];
    for operation in operations() {
        for prefix in ["", "/api"] {
            if operation.id == "reportResult" {
                let request = operation.request(&app.client, prefix, &things).headers(headers(&[&bearer]));
                let answer = app.client.send(request).await;
                assert_eq!(answer.failure(), (401, "unauthenticated"), "{prefix} {operation:?}");
                continue;
            }
            for wrong in &wrong {
                let request = operation.request(&app.client, prefix, &things).headers(wrong.clone());
                assert_unknown(&app.client.send(request).await, &format!("{prefix} {operation:?} {wrong:?}"));
            }
            let mut request = operation.request(&app.client, prefix, &things).build().unwrap();
            let mut query = request.url_mut().query_pairs_mut();
            query.extend_pairs([("access_token", good), ("token", good), ("authorization", &bearer)]);
            drop(query);
            let request = RequestBuilder::from_parts(app.client.http.clone(), request);
            assert_unknown(&app.client.send(request).await, &format!("{prefix} {operation:?} in the query"));
        }
    }
    assert_eq!(everything(&app.rows).await, before);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let request = app.client.http.get(app.client.url("/threads"));
    app.client.send(request.header("authorization", format!("bEaReR  {good}"))).await.has_status(200);
}

#[tokio::test]
async fn e14_only_the_exact_public_paths_need_no_token() {
    let (app, things) = server().await;
    let no_redirects =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let get = |path: &str| app.client.send(no_redirects.get(app.client.url(path)));
    for path in ["/", "/healthz", "/readyz", "/openapi.json", "/docs", "/docs/"] {
        assert_eq!(get(path).await.status, 200, "{path}");
    }
    let address = app.client.base.strip_prefix("http://").unwrap();
    let thread = &things.thread;
    for target in [
        "//".to_owned(),
        "/nowhere".to_owned(),
        "/healthz/".to_owned(),
        "/healthz/../threads".to_owned(),
        "/healthz/threads".to_owned(),
        "/healthz%2f..%2fthreads".to_owned(),
        "/healthz;/threads".to_owned(),
        "/HEALTHZ".to_owned(),
        "//healthz".to_owned(),
        "/api/healthz".to_owned(),
        "/api/docs".to_owned(),
        "/docsx".to_owned(),
        "/metricsx".to_owned(),
        "/openapi.json/x".to_owned(),
        "//threads".to_owned(),
        "/./threads".to_owned(),
        "/%74hreads".to_owned(),
        "/threads/".to_owned(),
        "/threads?/healthz".to_owned(),
        "/threads#/healthz".to_owned(),
        format!("/threads/{thread}?x=/docs/"),
        format!("/api//threads/{thread}"),
        format!("http://{address}/threads"),
        "http://localhost/threads".to_owned(),
    ] {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "BREW"] {
            assert_eq!(raw_status(address, method, &target).await, 401, "{method} {target}");
        }
    }
    // Paths below `/docs` lead to the documentation or to nothing.
    for target in ["/docs/../threads", "/docs/%2e%2e/threads", "/docs/threads", "/docs//threads"] {
        let status = raw_status(address, "GET", target).await;
        assert!([401, 404].contains(&status), "{target}: {status}");
    }
}

/// The status of a response to a request whose target no library has normalized.
async fn raw_status(address: &str, method: &str, target: &str) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap()
}

#[tokio::test]
async fn c1_c2_every_route_hides_the_objects_of_another_user() {
    let (app, theirs) = server().await;
    let made_up = theirs.made_up();
    let operations = operations();
    let (makes, only_looks): (Vec<_>, Vec<_>) =
        operations.iter().partition(|operation| operation.id == "chatById");
    assert_eq!(makes.len(), 1);
    let before = everything(&app.rows).await;
    let requested = app.scene.requests().len();
    // Other users without rows, new ones for each prefix.
    let other_users = |n: usize| {
        [
            app.client.as_user(&format!("other{n}"), "ann", &["approver"]),
            app.client.as_user("acme", &format!("bob{n}"), &["approver"]),
        ]
    };
    let assert_not_there = async |operation: &Operation| {
        for (n, prefix) in ["", "/api"].into_iter().enumerate() {
            for other_user in other_users(n) {
                let what = format!("{prefix} {operation:?}");
                let foreign = operation.answer(&other_user, prefix, &theirs).await;
                assert_eq!(foreign.0, answer_to_another_user(operation), "{what}: {foreign:?}");
                let unknown = operation.answer(&other_user, prefix, &made_up).await;
                assert_eq!(foreign, unknown, "{what}");
            }
        }
    };
    for operation in only_looks {
        assert_not_there(operation).await;
    }
    assert_eq!(everything(&app.rows).await, before, "nothing was changed");
    assert_eq!(app.scene.requests().len(), requested, "the model was not asked");
    for operation in makes {
        assert_not_there(operation).await;
    }
    let after = everything(&app.rows).await;
    for (table, rows) in &before {
        assert!(rows.is_subset(&after[table]), "{table}: existing rows are unchanged");
    }
    let of_hers = ["messages", "runs", "tool_calls", "events"];
    for table in of_hers {
        let of_hers = format!("{table} WHERE thread_id = '{}'", theirs.thread);
        assert_eq!(usize::try_from(app.rows.count(&of_hers).await).unwrap(), before[table].len(), "{table}");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new(), "nothing ran");

    // The owner finds the objects under the same ids.
    let ann = app.client.as_user("acme", "ann", &["approver"]);
    for operation in operations.iter().filter(|operation| operation.method == Method::GET) {
        // No turn is running.
        let status = match operation.id.as_str() {
            id if id.starts_with("attachStream") => 204,
            // The owner is no operator.
            "listWebhooks" => 403,
            _ => 200,
        };
        assert_eq!(operation.answer(&ann, "", &theirs).await.0, status, "{operation:?}");
    }
    assert_eq!(ann.approve(&theirs.tool_call).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 1"]);
}

/// The operations about things that the server of the next test does not have: another grant, request, tool and webhook.
const WITHOUT_THINGS: [&str; 4] = ["revokeGrant", "answerToolRequest", "acceptDefinition", "enableWebhook"];

#[tokio::test]
async fn every_route_serves_the_callers_of_its_row_and_no_others() {
    let names = |role: &str| vec![role.to_owned()];
    let mut app = Embedded::with(|config| {
        with_tokens(config);
        (config.auth.operator_roles, config.auth.worker_roles) = (names("admin"), names("remote"));
        let rules = ToolRules { approve_roles: names("chief"), ..ToolRules::default() };
        config.tools.rules.insert("pay".to_owned(), rules);
        config.limits.turns_per_minute = Some(1000);
    })
    .await;
    app.client = app.client.as_user("acme", "ann", &[]);
    let person = |user: &str, role: &str| app.client.as_user("acme", user, &[role]);
    let of_operator = ["operator", "operator or the one user", "accepter of definitions"];
    let people = [
        (["owner"].as_slice(), app.client.clone()),
        (&["approver"], person("carol", "chief")),
        (&of_operator, person("oscar", "admin")),
        (&["worker"], person("wanda", "remote")),
        (&[], person("bob", "none")),
    ];
    let is_caller = |operation: &Operation, relations: &[&str]| {
        operation.callers.iter().any(|it| *it == "every user" || relations.contains(it))
    };
    // A caller that is served changes things of its own, unless the operation is about the caller alone.
    let changes = |operation: &Operation, relations: &[&str]| {
        operation.method != Method::GET
            && is_caller(operation, relations)
            && (operation.callers != ["every user"] || relations.contains(&"owner"))
    };
    let mut operations = operations();
    // Another user gets a thread of their own under the id that the body names, and attaches to that later.
    operations.sort_by_key(|operation| operation.id == "chatById");
    let pairs = operations.iter().flat_map(|operation| people.iter().map(move |(of, _)| (operation, of)));
    // All of them before the first request: the turns that requests start would take the answers of the model.
    let (kept, mut changed) = (request_ids_of(&app).await, Vec::new());
    for _ in 0..pairs.filter(|(operation, of)| changes(operation, of)).count() {
        changed.push(request_ids_of(&app).await);
    }
    for operation in &operations {
        for (relations, client) in &people {
            let things = if changes(operation, relations) { changed.pop().unwrap() } else { kept.clone() };
            let answer = operation.request(client, "", &things).send().await.unwrap();
            let mut status = answer.status().as_u16();
            if operation.id == "validateTools" {
                let results: Value = answer.json().await.unwrap();
                status = u16::try_from(results["results"][0]["status"].as_u64().unwrap()).unwrap();
            }
            let what = format!("{} {}, {relations:?}: {status}", operation.method, operation.path);
            match (is_caller(operation, relations), WITHOUT_THINGS.contains(&operation.id.as_str())) {
                (true, true) => assert_ne!(status, 403, "{what}"),
                (true, false) => assert!(![401, 403, 404].contains(&status), "{what}"),
                (false, _) => assert!([401, 403, 404].contains(&status), "{what}"),
            }
        }
    }
}

/// A new thread of the client, in which a call waits.
async fn request_ids_of(app: &Embedded) -> RequestIds {
    let (thread, tool_call) = app.held("pay", "1").await;
    let run = app.client.call(&tool_call).await["run_id"].as_str().unwrap().to_owned();
    RequestIds { thread, run, tool_call }
}

#[tokio::test]
async fn c1_a_decision_by_another_user_reveals_nothing_about_the_call() {
    let (app, theirs) = server().await;
    let (ann, bob) = (app.client.as_user("acme", "ann", &[]), app.client.as_user("acme", "bob", &[]));
    let decide = json!({ "toolCallId": theirs.tool_call, "isValidated": true });
    let pending = bob.validate(&decide).await;
    ann.approve(&theirs.tool_call).await.has_status(200);
    let succeeded = bob.validate(&decide).await;
    let rejecting = bob.reject(&theirs.tool_call).await;
    for answer in [&pending, &succeeded, &rejecting] {
        assert_eq!((answer.status, &answer.body), (404, &pending.body));
    }
    // Requests that would be invalid for the owner reveal nothing either.
    for wrong in [
        json!({ "toolCallId": theirs.tool_call, "isValidated": true, "inputHash": "0".repeat(64) }),
        json!({ "toolCallId": theirs.tool_call, "isValidated": true, "validatedInputs": { "note": 7 } }),
    ] {
        let answer = bob.validate(&wrong).await;
        assert_eq!((answer.status, &answer.body), (404, &pending.body));
    }
}
