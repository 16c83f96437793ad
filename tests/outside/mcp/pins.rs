//! Pinned definitions: what a server changes about its tools asks until an operator accepts it.

use super::{SteeredServer, definition, no_tool, tool, with};
use holdpoint::config::{Config, McpServer};
use holdpoint_testkit::ui::{ui_submit, ui_user};
use holdpoint_testkit::{Client, Embedded, JsonFields, call, eventually, postgres, probes, token};
use serde_json::{Value, json};

/// The entry of a server whose tools `act` and `more` run without an approval.
fn free(steered: &SteeredServer) -> McpServer {
    steered.entry("s", &json!({ "tools": ["act", "more"], "require_approval": [] }))
}

/// The definition of `act` with these changes. `null` removes a field.
fn act(changes: &Value) -> Value {
    let mut definition = definition("act", "Does it.");
    definition.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    definition
}

/// Waits until the definition of the tool is not accepted, and returns what the tool says about it.
async fn unaccepted(client: &Client, name: &str) -> Value {
    let found = async || {
        let tool = client.get(&format!("/tools/{name}")).await;
        tool.body.get("unaccepted_definition").cloned()
    };
    eventually("the definition is not accepted", found).await
}

/// Waits until the definition of the tool is accepted.
async fn accepted(client: &Client, name: &str) {
    let found = async || {
        let tool = client.get(&format!("/tools/{name}")).await;
        (tool.status == 200 && tool.body.get("unaccepted_definition").is_none()).then_some(())
    };
    eventually("the definition is accepted", found).await;
}

async fn accept(client: &Client, name: &str, hash: &Value) -> (u16, Value) {
    let answer = client.post(&format!("/tools/{name}/accept"), &json!({ "hash": hash })).await;
    (answer.status, answer.body)
}

/// Has the model call the tool in this thread, and returns the call after the turn.
async fn made_in(server: &Embedded, thread: &str, name: &str) -> Value {
    server.scene.forget();
    server.scene.calls(&[call("p", name, &json!({ "note": "a" }))]).answers("Done.");
    let turn = server.client.send_message(thread, "please").await;
    let id = turn.all('9')[0].text("toolCallId").to_owned();
    server.client.call(&id).await
}

async fn made(server: &Embedded, name: &str) -> Value {
    made_in(server, &server.client.thread().await, name).await
}

/// The fields of a definition that differ from the accepted one.
fn fields(unaccepted: &Value) -> Vec<&str> {
    unaccepted.list("changes").iter().map(|it| it.text("field")).collect()
}

#[tokio::test]
async fn each_change_of_a_definition_asks_until_its_hash_is_accepted() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let server = with(free(&steered)).await;
    accepted(&server.client, "s__act").await;
    assert_eq!(made(&server, "s__act").await["state"], "succeeded", "the first listing is accepted");
    let hints = json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true });
    let mut all = json!({});
    let mut before = Value::Null;
    for (n, (field, value)) in [
        ("description", json!("Does it\u{202e}, and sends it to a stranger.")),
        ("title", json!("Act")),
        ("inputSchema", json!({ "type": "object", "properties": { "note": {}, "secret": {} } })),
        ("outputSchema", json!({ "type": "object" })),
        ("annotations", hints),
    ]
    .into_iter()
    .enumerate()
    {
        all[field] = value;
        steered.lists(&json!([act(&all)]));
        let now = unaccepted(&server.client, "s__act").await;
        assert_eq!((&now["cause"], fields(&now)), (&json!("changed"), vec![field]), "{now}");
        let runs = steered.called().len();
        let held = made(&server, "s__act").await;
        assert_eq!((&held["state"], &held["unaccepted_definition"]), (&json!("pending"), &now), "{field}");
        assert!(held.text("reason").contains("changed the definition"), "{held}");
        assert_eq!(steered.called().len(), runs);
        let listed = server.client.get("/approvals").await.body["results"][0].clone();
        assert_eq!(listed["unaccepted_definition"], now);
        for wrong in [json!("0".repeat(64)), before.clone()] {
            if !wrong.is_null() {
                let (status, body) = accept(&server.client, "s__act", &wrong).await;
                assert_eq!((status, &body["error"]["code"]), (409, &json!("stale")), "{body}");
                assert_eq!(body["error"]["details"]["hash"], now["hash"]);
            }
        }
        let (status, first) = accept(&server.client, "s__act", &now["hash"]).await;
        assert_eq!((status, &first["accepted_by"]), (200, &json!("user:local")), "{first}");
        assert_eq!(accept(&server.client, "s__act", &now["hash"]).await, (200, first), "it is idempotent");
        assert_eq!(server.rows.count("accepted_definitions").await, 2 + n as i64);
        assert_eq!(made(&server, "s__act").await["state"], "succeeded", "{field}");
        // The call that was held before is decided as every held call, and shows no definition any more.
        let held = server.client.call(held.text("tool_call_id")).await;
        assert_eq!((&held["state"], held.get("unaccepted_definition")), (&json!("pending"), None));
        server.client.reject(held.text("tool_call_id")).await.has_status(200);
        before = now["hash"].clone();
    }
    let tool = server.client.get("/tools/s__act").await.body;
    assert_eq!(
        (&tool["idempotent"], &tool["can_accept"]),
        (&json!(false), &json!(false)),
        "hints do nothing"
    );
}

#[tokio::test]
async fn the_card_in_the_stream_shows_the_difference() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let server = with(steered.entry("s", &json!({}))).await;
    accepted(&server.client, "s__act").await;
    let card = async || {
        server.scene.forget();
        server.scene.calls(&[call("p", "s__act", &json!({ "note": "a" }))]);
        let asked = ui_submit(&server.client.thread().await, &[ui_user("m", "please")]);
        let turn = server.client.ui_turn_as("ui-v6", &asked).await;
        let part = turn.raw.lines().find(|line| line.contains("data-tool-hold")).expect("there is a card");
        serde_json::from_str::<Value>(part.strip_prefix("data: ").unwrap()).unwrap()["data"].clone()
    };
    let first = card().await;
    assert_eq!((first.get("unacceptedDefinition"), &first["canRemember"]), (None, &json!(true)));
    steered.lists(&json!([act(&json!({ "description": "Does more." }))]));
    let hash = unaccepted(&server.client, "s__act").await["hash"].clone();
    let second = card().await;
    let change = json!({ "field": "description", "accepted": "Does it.", "current": "Does more." });
    let expected = json!({ "cause": "changed", "hash": hash, "changes": [change] });
    assert_eq!((&second["unacceptedDefinition"], &second["canRemember"]), (&expected, &json!(false)));
}

#[tokio::test]
async fn a_new_and_a_renamed_tool_ask_and_a_tool_that_comes_back_unchanged_does_not() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let server = with(free(&steered)).await;
    accepted(&server.client, "s__act").await;
    // The same tool under another name.
    steered.lists(&json!([act(&json!({ "name": "more" }))]));
    let new = unaccepted(&server.client, "s__more").await;
    assert_eq!((&new["cause"], fields(&new)), (&json!("new"), vec!["name", "description", "inputSchema"]));
    assert_eq!(made(&server, "s__more").await["state"], "pending");
    no_tool(&server.client, "s__act").await;
    let (status, _) = accept(&server.client, "s__act", &new["hash"]).await;
    assert_eq!(status, 404, "no server lists the tool");
    steered.lists(&json!([act(&json!({})), act(&json!({ "name": "more" }))]));
    accepted(&server.client, "s__act").await;
    assert_eq!(made(&server, "s__act").await["state"], "succeeded");
    assert_eq!(unaccepted(&server.client, "s__more").await, new);
    assert_eq!(accept(&server.client, "s__more", &new["hash"]).await.0, 200);
    assert_eq!(made(&server, "s__more").await["state"], "succeeded");
    assert_eq!(steered.called(), ["act", "more"]);
}

#[tokio::test]
async fn a_changed_definition_asks_over_every_permission_and_what_is_denied_stays_denied() {
    let steered = SteeredServer::new(&json!([act(&json!({})), definition("more", "Does more.")]));
    let server = Box::pin(Embedded::with(|config: &mut Config| {
        config.mcp = vec![steered.entry("s", &json!({}))];
        config.approval.always_allow = vec!["s__act".to_owned()];
        config.approval.always_deny = vec!["s__more".to_owned()];
    }))
    .await;
    accepted(&server.client, "s__act").await;
    assert_eq!(made(&server, "s__act").await["state"], "succeeded");
    steered.lists(&json!([act(&json!({ "title": "Act" })), definition("more", "Does much more.")]));
    unaccepted(&server.client, "s__act").await;
    unaccepted(&server.client, "s__more").await;
    assert_eq!(made(&server, "s__act").await["state"], "pending");
    assert_eq!(made(&server, "s__more").await["state"], "rejected");
    let thread = server.client.thread().await;
    let policy = server.client.get(&format!("/sessions/{thread}/policy")).await.body;
    let of = |name: &str| {
        let tools = policy.list("tools");
        let tool = tools.iter().find(|tool| tool["tool_name"] == name).unwrap();
        (tool["verdict"].clone(), tool["source"].clone())
    };
    assert_eq!(of("s__act"), (json!("ask"), json!("definition")));
    assert_eq!(of("s__more"), (json!("forbid"), json!("always_deny")));
}

#[tokio::test]
async fn a_grant_ends_with_its_definition_and_no_answer_is_remembered_before_the_next_is_accepted() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let server = with(steered.entry("s", &json!({}))).await;
    accepted(&server.client, "s__act").await;
    let thread = server.client.thread().await;
    let remember = async |call: &Value| {
        let decision =
            json!({ "toolCallId": call["tool_call_id"], "isValidated": true, "remember": "session" });
        server.client.validate(&decision).await
    };
    let first = made_in(&server, &thread, "s__act").await;
    assert_eq!(remember(&first).await.body["state"], "succeeded");
    assert_eq!(made_in(&server, &thread, "s__act").await["state"], "succeeded", "the grant counts");
    steered.lists(&json!([act(&json!({ "description": "Does more." }))]));
    let now = unaccepted(&server.client, "s__act").await;
    let second = made_in(&server, &thread, "s__act").await;
    assert_eq!(second["state"], "pending");
    let refused = remember(&second).await;
    refused.failed_with(422, "not_remembered");
    let once = server.client.approve(second.text("tool_call_id")).await;
    assert_eq!(once.body["state"], "succeeded");
    assert_eq!(accept(&server.client, "s__act", &now["hash"]).await.0, 200);
    let third = made_in(&server, &thread, "s__act").await;
    assert_eq!(third["state"], "pending", "the grant was for the other definition");
    assert_eq!(remember(&third).await.body["state"], "succeeded");
    assert_eq!(made_in(&server, &thread, "s__act").await["state"], "succeeded");
}

#[tokio::test]
async fn a_pending_call_whose_definition_moved_is_stale_until_a_decision_names_the_new_hash() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let server = with(steered.entry("s", &json!({}))).await;
    accepted(&server.client, "s__act").await;
    let held = made(&server, "s__act").await;
    let id = held.text("tool_call_id");
    steered.lists(&json!([act(&json!({ "annotations": { "readOnlyHint": true } }))]));
    let now = unaccepted(&server.client, "s__act").await;
    let decide = async |hash: &Value| {
        let decision = json!({ "toolCallId": id, "isValidated": true, "inputHash": hash });
        server.client.validate(&decision).await
    };
    assert_eq!(server.client.approve(id).await.code(), "stale");
    assert_eq!(decide(&held["input_hash"]).await.code(), "stale");
    // An acceptance of the definition decides no call.
    assert_eq!(accept(&server.client, "s__act", &now["hash"]).await.0, 200);
    assert_eq!(decide(&held["input_hash"]).await.code(), "stale");
    assert!(steered.called().is_empty());
    let current = server.client.call(id).await;
    assert_ne!(current["input_hash"], held["input_hash"]);
    assert_eq!(decide(&current["input_hash"]).await.body["state"], "succeeded");
    assert_eq!(steered.called(), ["act"]);
}

#[tokio::test]
async fn a_restart_keeps_what_is_accepted_and_what_is_not() {
    let steered = SteeredServer::new(&json!([act(&json!({})), act(&json!({ "name": "more" }))]));
    let server = with(free(&steered)).await;
    accepted(&server.client, "s__act").await;
    steered.lists(&json!([act(&json!({ "title": "Act" })), act(&json!({ "name": "more" }))]));
    let now = unaccepted(&server.client, "s__act").await;
    let tools = probes(&server.ledger);
    let server = Box::pin(server.redeploy_with(tools, |config| config.mcp = vec![free(&steered)])).await;
    assert_eq!(unaccepted(&server.client, "s__act").await, now);
    accepted(&server.client, "s__more").await;
    assert_eq!(made(&server, "s__act").await["state"], "pending");
    assert_eq!(made(&server, "s__more").await["state"], "succeeded");
    // A server that changed while no process of holdpoint ran has changed too.
    let mut server = server;
    server.end().await;
    steered
        .lists(&json!([act(&json!({ "title": "Other" })), act(&json!({ "name": "more", "title": "More" }))]));
    let tools = probes(&server.ledger);
    let server = Box::pin(server.redeploy_with(tools, |config| config.mcp = vec![free(&steered)])).await;
    assert_ne!(unaccepted(&server.client, "s__act").await["hash"], now["hash"]);
    assert_eq!(fields(&unaccepted(&server.client, "s__more").await), ["title"]);
}

#[tokio::test]
async fn rows_that_cannot_be_read_or_written_count_as_a_change() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let mut server = with(free(&steered)).await;
    accepted(&server.client, "s__act").await;
    for table in ["accepted_definitions", "listed_definitions"] {
        server.rows.change(&format!("ALTER TABLE {table} RENAME TO out_of_reach")).await.unwrap();
        let tools = probes(&server.ledger);
        server = Box::pin(server.redeploy_with(tools, |config| config.mcp = vec![free(&steered)])).await;
        let now = unaccepted(&server.client, "s__act").await;
        assert_eq!(now["cause"], "unknown", "{table}");
        let held = made(&server, "s__act").await;
        assert_eq!(held["state"], "pending", "{table}");
        assert!(held.text("reason").contains("could not be read"), "{held}");
        server.rows.change(&format!("ALTER TABLE out_of_reach RENAME TO {table}")).await.unwrap();
        accepted(&server.client, "s__act").await;
        assert_eq!(made(&server, "s__act").await["state"], "succeeded", "{table}");
    }
    assert_eq!(server.rows.count("accepted_definitions").await, 1, "nothing was accepted a second time");
}

#[tokio::test]
async fn on_postgres_the_first_listing_counts_once_and_every_process_learns_of_an_acceptance() {
    let steered = [
        SteeredServer::new(&json!([act(&json!({}))])),
        SteeredServer::new(&json!([act(&json!({ "title": "Act" }))])),
    ];
    let url = postgres().await;
    let start = |steered: &SteeredServer| {
        let (url, entry) = (url.clone(), free(steered));
        Box::pin(Embedded::with(|config: &mut Config| {
            config.database.url = url.into();
            config.mcp = vec![entry];
        }))
    };
    let (one, other) = tokio::join!(start(&steered[0]), start(&steered[1]));
    let clients = [&one.client, &other.client];
    for client in clients {
        tool(client, "s__act").await;
    }
    // The processes see different definitions, and the first listing of one of them is the accepted one.
    let first = async || {
        let mut asks = Vec::new();
        for client in clients {
            asks.push(!client.get("/tools/s__act").await.body["unaccepted_definition"].is_null());
        }
        (asks[0] != asks[1]).then_some(asks[0])
    };
    let first = usize::from(eventually("one of the definitions is accepted", first).await);
    assert_eq!(one.rows.count("accepted_definitions").await, 1);
    let [changed, same] = if first == 1 { [&one, &other] } else { [&other, &one] };
    assert_eq!(made(same, "s__act").await["state"], "succeeded");
    assert_eq!(made(changed, "s__act").await["state"], "pending");
    // Now both servers list one definition.
    for steered in &steered {
        steered.lists(&json!([act(&json!({ "description": "Does more." }))]));
    }
    let more = async |client: &Client| {
        let found = async || {
            let now = client.get("/tools/s__act").await.body["unaccepted_definition"].clone();
            now["changes"].to_string().contains("Does more.").then_some(now)
        };
        eventually("the description has changed", found).await
    };
    let hash = more(&one.client).await["hash"].clone();
    assert_eq!(more(&other.client).await["hash"], hash);
    assert_eq!(accept(&one.client, "s__act", &hash).await.0, 200);
    accepted(&other.client, "s__act").await;
    assert_eq!(made(&one, "s__act").await["state"], "succeeded");
    assert_eq!(made(&other, "s__act").await["state"], "succeeded");
}

#[tokio::test]
async fn only_an_operator_accepts_a_definition_and_only_of_a_tool_of_an_mcp_server() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let server = Box::pin(Embedded::with(|config: &mut Config| {
        token::with_tokens(config);
        config.auth.operator_roles = vec!["admin".to_owned()];
        config.mcp = vec![free(&steered)];
    }))
    .await;
    let user = server.client.as_user("acme", "ann", &["clerk"]);
    let operator = server.client.as_user("acme", "oscar", &["admin"]);
    accepted(&user, "s__act").await;
    steered.lists(&json!([act(&json!({ "title": "Act" }))]));
    let now = unaccepted(&user, "s__act").await;
    let can = async |client: &Client| client.get("/tools/s__act").await.body["can_accept"].clone();
    assert_eq!((can(&user).await, can(&operator).await), (json!(false), json!(true)));
    for name in ["s__act", "s__none"] {
        let (status, body) = accept(&user, name, &now["hash"]).await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")));
    }
    for name in ["pay", "s__none", "%00", "s__act%2F"] {
        assert_eq!(accept(&operator, name, &now["hash"]).await.0, 404, "{name}");
    }
    for wrong in [json!("x"), json!("A".repeat(64)), json!("")] {
        let (status, body) = accept(&operator, "s__act", &wrong).await;
        let message = body["error"].text("message");
        assert!(status == 400 && message.contains("hash: expected the hash"), "{status} {message}");
    }
    let (status, body) = accept(&operator, "s__act", &now["hash"]).await;
    assert_eq!((status, &body["accepted_by"]), (200, &json!("user:oscar")));
    accepted(&user, "s__act").await;
    // With roles of their own, other operators decide nothing for all tenants.
    let tools = probes(&server.ledger);
    let server = Box::pin(server.redeploy_with(tools, |config| {
        token::with_tokens(config);
        config.auth.operator_roles = vec!["admin".to_owned()];
        config.auth.accept_roles = vec!["platform".to_owned()];
        config.mcp = vec![free(&steered)];
    }))
    .await;
    let operator = server.client.as_user("acme", "oscar", &["admin"]);
    let platform = server.client.as_user("other", "pat", &["platform"]);
    accepted(&operator, "s__act").await;
    steered.lists(&json!([act(&json!({ "title": "Other" }))]));
    let now = unaccepted(&platform, "s__act").await;
    assert_eq!((can(&operator).await, can(&platform).await), (json!(false), json!(true)));
    assert_eq!(accept(&operator, "s__act", &now["hash"]).await.0, 403);
    assert_eq!(accept(&platform, "s__act", &now["hash"]).await.0, 200);
    accepted(&operator, "s__act").await;
}

#[tokio::test]
async fn an_operator_lists_and_accepts_definitions_at_the_terminal() {
    let steered = SteeredServer::new(&json!([act(&json!({})), act(&json!({ "name": "more" }))]));
    let server = with(free(&steered)).await;
    accepted(&server.client, "s__act").await;
    steered.lists(&json!([
        act(&json!({ "description": "Does\u{1b}[2J more." })),
        act(&json!({ "name": "more" }))
    ]));
    let now = unaccepted(&server.client, "s__act").await;
    let hash = now.text("hash");
    let said = server.operate(&["tools", "list"]).stdout_of_success();
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TOOL", "DEFINITION", "ACCEPTED", "BY", "ACCEPTED", "HASH"]);
    assert_eq!((&rows[1][..3], rows[1][4]), (&["s__act", "changed", "system:first_listing"][..], hash));
    assert_eq!(rows[2][..3], ["s__more", "accepted", "system:first_listing"]);
    let changes = "\n\ns__act, description:\n- Does it.\n+ Does\\u{1b}[2J more.\n";
    assert!(said.ends_with(changes), "{said}");
    let accepts = |tool: &str, hash: &str| {
        let args = ["tools", "accept", tool, "--hash", hash, "--by", "mel"];
        server.operate(&args)
    };
    let wrong = accepts("s__act", &"0".repeat(64));
    assert!(wrong.stderr.contains(hash) && wrong.stderr.contains("has another hash now"), "{}", wrong.stderr);
    assert!(accepts("s__none", hash).stderr.contains("no MCP server lists a tool s__none"));
    assert!(accepts("s__act", hash).stdout_of_success().starts_with("the definition of s__act is accepted"));
    accepted(&server.client, "s__act").await;
    assert_eq!(made(&server, "s__act").await["state"], "succeeded");
    let row = server.rows.all("SELECT accepted_by FROM accepted_definitions WHERE n = 2").await;
    assert_eq!(row, [json!({ "accepted_by": "user:mel" })]);
}

#[tokio::test]
async fn the_database_refuses_an_acceptance_of_what_is_not_listed_and_every_change_of_one() {
    let steered = SteeredServer::new(&json!([act(&json!({}))]));
    let server = with(free(&steered)).await;
    accepted(&server.client, "s__act").await;
    let insert = |n: i32, hash: &str, by: &str| {
        format!(
            "INSERT INTO accepted_definitions (tool_name, n, server, hash, definition, accepted_by, accepted_at)
             SELECT tool_name, {n}, server, {hash}, definition, '{by}', 1 FROM listed_definitions"
        )
    };
    let other = format!("'{}'", "0".repeat(64));
    let before = server.rows.all("SELECT * FROM accepted_definitions").await;
    for (sql, why) in [
        (insert(2, &other, "user:x"), "as its server lists it"),
        (insert(3, "hash", "user:x"), "the next definition"),
        (insert(1, "hash", "user:x"), "the next definition"),
        (insert(2, "hash", "system:first_listing"), "accepted_by"),
        ("UPDATE accepted_definitions SET accepted_by = 'user:y'".to_owned(), "never change"),
        ("DELETE FROM accepted_definitions".to_owned(), "never deleted"),
    ] {
        let refused = server.rows.change(&sql).await.expect_err(&sql);
        let names_check = refused.contains("violates check constraint") && why == "accepted_by";
        assert!(refused.contains(why) || names_check, "{sql}: {refused}");
    }
    assert_eq!(server.rows.all("SELECT * FROM accepted_definitions").await, before);
    assert_eq!(server.rows.change(&insert(2, "hash", "user:x")).await, Ok(1));
}
