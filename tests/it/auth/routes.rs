//! Every route, as the document has them: without a token, and with the token of a stranger. A route that is written
//! is tested with the document that names it.

use super::assert_unknown;
use crate::support::token::with_tokens;
use crate::support::{Client, Embedded, Rows, token};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What ids a request speaks of.
#[derive(Debug, Clone)]
struct Things {
    thread: String,
    run: String,
    tool_call: String,
}

impl Things {
    /// Of the same shape, and of nobody.
    fn made_up(&self) -> Self {
        let other = |id: &str| format!("{}0123456789ab", &id[..id.len() - 12]);
        Self { thread: other(&self.thread), run: other(&self.run), tool_call: other(&self.tool_call) }
    }

    /// What stands in the path in the place of this parameter.
    fn parameter(&self, name: &str) -> &str {
        match name {
            "thread_id" | "session_id" => &self.thread,
            "run_id" => &self.run,
            "tool_call_id" => &self.tool_call,
            // Nothing is granted: that would run something. `remember` has a grant of somebody's.
            "grant_id" => &self.tool_call,
            // Read only where no thread is named before it.
            "chat_id" => &self.thread,
            // Tools are the operator's, and the same for everybody.
            "name" => "pay",
            _ => panic!("say which id of somebody's belongs in the place of {{{name}}}"),
        }
    }

    /// A body that this operation does something with, for who may.
    fn body(&self, operation: &str) -> Value {
        match operation {
            "chat" => json!({ "content": "hi" }),
            "chatById" => json!({ "id": self.thread, "content": "hi" }),
            "validateTool" => json!({ "toolCallId": self.tool_call, "isValidated": true }),
            "validateTools" => {
                json!({ "decisions": [{ "toolCallId": self.tool_call, "isValidated": true }] })
            }
            "createThread" => json!({ "parent_id": self.thread, "title": "mine" }),
            "updateThread" => json!({ "title": "mine" }),
            "approveRun" | "rejectRun" => json!({ "tool_call_id": self.tool_call }),
            "decideInSession" => json!({ "decision": "allow_once" }),
            "setSessionPolicy" => json!({ "mode": "auto-deny" }),
            _ => panic!("say with which body {operation} does something"),
        }
    }

    /// A value of this parameter of the query, if the request is another without it.
    fn query(&self, name: &str) -> Option<&str> {
        match name {
            "chatId" | "thread_id" | "session_id" => Some(&self.thread),
            // A place in a list, its length and its form: `scope` has them.
            "cursor" | "page_size" | "format" | "after" => None,
            // Tried where tickets are.
            "ticket" => None,
            // Which of the caller's own.
            "state" | "tool_name" => None,
            _ => panic!("say what the parameter {name} has to do with whose rows are meant"),
        }
    }
}

/// What a stranger gets for what is not theirs. Of those that are missing here: 404, as for what is not there.
fn answer_to_a_stranger(operation: &str) -> u16 {
    match operation {
        // A page asks before its first message, and reads nothing.
        "attachById" => 200,
        "attachStreamById" => 204,
        // Of what is theirs, in a thread of somebody else: nothing.
        "streamEvents" => 200,
        // Their own, or everybody's.
        "listThreads" | "listApprovals" | "listTools" | "getTool" | "listModels" => 200,
        // Of each call: it is not there.
        "validateTools" => 200,
        // A name that a thread of their own gets.
        "chatById" => 200,
        // A ticket of their own.
        "createTicket" => 201,
        // The id is in the body, and belongs to what they ask for.
        "createThread" => 400,
        _ => 404,
    }
}

/// One operation of the document.
#[derive(Debug)]
struct Operation {
    id: String,
    method: Method,
    path: String,
    parameters: Vec<String>,
    has_body: bool,
}

async fn operations(app: &Embedded) -> Vec<Operation> {
    let document = app.client.get("/openapi.json").await.body;
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let of_query = parameters.iter().filter(|parameter| parameter["in"] == "query");
            all.push(Operation {
                id: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                parameters: of_query
                    .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                    .collect(),
                has_body: operation.get("requestBody").is_some(),
            });
        }
    }
    assert!(all.len() >= 18, "{all:#?}");
    all
}

impl Operation {
    fn path_for(&self, things: &Things) -> String {
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

    fn request(&self, client: &Client, prefix: &str, things: &Things) -> RequestBuilder {
        let url = client.url(&format!("{prefix}{}", self.path_for(things)));
        let request = client.http.request(self.method.clone(), url);
        if self.has_body { request.json(&things.body(&self.id)) } else { request }
    }

    /// What the server answers, whole, but for what is another for each request.
    async fn answer(
        &self,
        client: &Client,
        prefix: &str,
        things: &Things,
    ) -> (u16, BTreeMap<String, String>, String) {
        let response = self.request(client, prefix, things).send().await.unwrap();
        let status = response.status().as_u16();
        let mut headers = BTreeMap::new();
        for (name, value) in response.headers() {
            if !matches!(name.as_str(), "x-request-id" | "date") {
                let value = value.to_str().unwrap();
                // What a stranger makes themselves has ids of its own.
                headers.insert(
                    name.to_string(),
                    if status == 200 { without_ids(value) } else { value.to_owned() },
                );
            }
        }
        let body = match self.id.as_str() {
            // What happens has no end.
            "streamEvents" if status == 200 => String::new(),
            // A ticket is another for each.
            "createTicket" if status == 201 => String::new(),
            _ => response.text().await.unwrap(),
        };
        (status, headers, if status == 200 { without_ids(&body) } else { body })
    }
}

/// The text with one word in the place of every id.
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

/// A server with a thread of ann's, in which a call waits for her.
async fn server() -> (Embedded, Things) {
    let mut app = Embedded::with(with_tokens).await;
    let nobody = app.client.clone();
    app.client = nobody.as_user("acme", "ann", &["approver"]);
    let (thread, tool_call) = app.held("pay", "1").await;
    let run = app.client.call(&tool_call).await["run_id"].as_str().unwrap().to_owned();
    app.client = nobody;
    (app, Things { thread, run, tool_call })
}

/// Every row of the database.
async fn everything(rows: &Rows) -> BTreeMap<String, BTreeSet<String>> {
    let tables = match rows.is_postgres() {
        true => "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public'",
        false => "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    };
    let mut all = BTreeMap::new();
    for table in rows.all(tables).await {
        let name = table["name"].as_str().unwrap().to_owned();
        let found = rows.all(&format!("SELECT * FROM {name}")).await;
        all.insert(name, found.iter().map(Value::to_string).collect());
    }
    assert!(all.len() >= 8, "{:?}", all.keys());
    all
}

#[tokio::test]
async fn d1_without_a_token_no_route_does_anything() {
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
    for operation in operations(&app).await {
        for prefix in ["", "/api"] {
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
    assert_eq!(app.client.send(request.header("authorization", format!("bEaReR  {good}"))).await.status, 200);
}

#[tokio::test]
async fn e14_without_a_token_only_whole_paths_are_open() {
    let (app, things) = server().await;
    let no_redirects =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let get = |path: &str| app.client.send(no_redirects.get(app.client.url(path)));
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs", "/docs/"] {
        assert_eq!(get(path).await.status, 200, "{path}");
    }
    assert_eq!(get("/").await.status, 307);
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
    // What is behind the documentation's name is the documentation, or nothing.
    for target in ["/docs/../threads", "/docs/%2e%2e/threads", "/docs/threads", "/docs//threads"] {
        let status = raw_status(address, "GET", target).await;
        assert!([401, 404].contains(&status), "{target}: {status}");
    }
}

/// The status of an answer to a request whose target no library has put in order.
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
async fn c1_c2_what_is_a_strangers_is_not_there_on_any_route() {
    let (app, theirs) = server().await;
    let made_up = theirs.made_up();
    let operations = operations(&app).await;
    let (makes, only_looks): (Vec<_>, Vec<_>) =
        operations.iter().partition(|operation| operation.id == "chatById");
    assert_eq!(makes.len(), 1);
    let before = everything(&app.rows).await;
    let asked = app.scene.requests().len();
    // Who has not made anything themselves, for each prefix.
    let strangers = |n: usize| {
        [
            app.client.as_user(&format!("other{n}"), "ann", &["approver"]),
            app.client.as_user("acme", &format!("bob{n}"), &["approver"]),
        ]
    };
    let assert_not_there = async |operation: &Operation| {
        for (n, prefix) in ["", "/api"].into_iter().enumerate() {
            for stranger in strangers(n) {
                let what = format!("{prefix} {operation:?}");
                let foreign = operation.answer(&stranger, prefix, &theirs).await;
                assert_eq!(foreign.0, answer_to_a_stranger(&operation.id), "{what}: {foreign:?}");
                let nobodys = operation.answer(&stranger, prefix, &made_up).await;
                assert_eq!(foreign, nobodys, "{what}");
            }
        }
    };
    for operation in only_looks {
        assert_not_there(operation).await;
    }
    assert_eq!(everything(&app.rows).await, before, "nothing was changed");
    assert_eq!(app.scene.requests().len(), asked, "nobody was asked");
    for operation in makes {
        assert_not_there(operation).await;
    }
    let after = everything(&app.rows).await;
    for (table, rows) in &before {
        assert!(rows.is_subset(&after[table]), "{table}: what was there is as it was");
    }
    let of_hers = ["messages", "runs", "tool_calls", "events"];
    for table in of_hers {
        let of_hers = format!("{table} WHERE thread_id = '{}'", theirs.thread);
        assert_eq!(usize::try_from(app.rows.count(&of_hers).await).unwrap(), before[table].len(), "{table}");
    }
    assert_eq!(app.ledger.lines(), Vec::<String>::new(), "nothing ran");

    // To her it is there: the ids are the ones that the others asked with.
    let ann = app.client.as_user("acme", "ann", &["approver"]);
    for operation in operations.iter().filter(|operation| operation.method == Method::GET) {
        // No turn is under way.
        let status = if operation.id.starts_with("attachStream") { 204 } else { 200 };
        assert_eq!(operation.answer(&ann, "", &theirs).await.0, status, "{operation:?}");
    }
    assert_eq!(ann.approve(&theirs.tool_call).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 1"]);
}

#[tokio::test]
async fn c1_a_stranger_who_decides_learns_nothing_of_how_a_call_stands() {
    let (app, theirs) = server().await;
    let (ann, bob) = (app.client.as_user("acme", "ann", &[]), app.client.as_user("acme", "bob", &[]));
    let decide = json!({ "toolCallId": theirs.tool_call, "isValidated": true });
    let pending = bob.validate(&decide).await;
    assert_eq!(ann.approve(&theirs.tool_call).await.status, 200);
    let succeeded = bob.validate(&decide).await;
    let rejecting = bob.reject(&theirs.tool_call).await;
    for answer in [&pending, &succeeded, &rejecting] {
        assert_eq!((answer.status, &answer.body), (404, &pending.body));
    }
    // Nor by what would be wrong with it for its owner.
    for wrong in [
        json!({ "toolCallId": theirs.tool_call, "isValidated": true, "inputHash": "0".repeat(64) }),
        json!({ "toolCallId": theirs.tool_call, "isValidated": true, "validatedInputs": { "note": 7 } }),
    ] {
        let answer = bob.validate(&wrong).await;
        assert_eq!((answer.status, &answer.body), (404, &pending.body));
    }
}
