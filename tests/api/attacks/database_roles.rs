//! I: the database role that serves does not own the schema.

use holdpoint_testkit::mcp::{SteeredServer, definition};
use holdpoint_testkit::{Cluster, Embedded, JsonFields, Rows, Socket, call, eventually, token};
use serde_json::json;
use std::process::{Command, Output};
use std::time::Duration;

/// The grants that an operator applies.
const GRANTS: &str = include_str!("../../../migrations/grants_postgres.sql");

fn holdpoint(command: Option<&str>, database: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_holdpoint"))
        .args(command)
        .current_dir(&dir)
        .env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0")
        .env("HOLDPOINT_DATABASE__URL", database)
        .env_remove("DATABASE_URL")
        .output()
        .unwrap()
}

/// Neither serves nor migrates as the role of this URL, and reports why.
fn serves_not(url: &str, why: &str) {
    for command in [None, Some("migrate")] {
        let refused = holdpoint(command, url);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && stderr.contains(why), "{stderr}");
    }
}

/// Statements that the serving role may not execute, and the error that Postgres returns.
const REFUSED: [(&str, &str); 31] = [
    ("CREATE TABLE mine (x TEXT)", "permission denied for schema holdpoint"),
    ("ALTER TABLE tool_calls ADD COLUMN mine TEXT", "must be owner of table tool_calls"),
    ("ALTER TABLE tool_calls DISABLE TRIGGER ALL", "must be owner of table tool_calls"),
    ("ALTER TABLE tool_calls DROP CONSTRAINT tool_calls_check", "must be owner of table tool_calls"),
    ("DROP TRIGGER tool_calls_moves ON tool_calls", "must be owner of relation tool_calls"),
    ("DROP TABLE events", "must be owner of table events"),
    (
        "CREATE OR REPLACE FUNCTION holdpoint_never_deleted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        "permission denied for schema holdpoint",
    ),
    ("TRUNCATE tool_calls CASCADE", "permission denied for table tool_calls"),
    ("DELETE FROM tool_calls", "permission denied for table tool_calls"),
    ("DELETE FROM decisions", "permission denied for table decisions"),
    ("UPDATE ticket_keys SET signing_key = 'x'", "permission denied for table ticket_keys"),
    ("DELETE FROM ticket_keys", "permission denied for table ticket_keys"),
    ("UPDATE links SET user_id = 'x'", "permission denied for table links"),
    ("UPDATE sign_ins SET user_id = 'x'", "permission denied for table sign_ins"),
    ("UPDATE sign_ins SET ends_at = 9000000000000000", "permission denied for table sign_ins"),
    ("DELETE FROM grants", "permission denied for table grants"),
    ("UPDATE grants SET tool_name = 'transfer'", "permission denied for table grants"),
    ("DELETE FROM accepted_definitions", "permission denied for table accepted_definitions"),
    ("UPDATE accepted_definitions SET hash = 'x'", "permission denied for table accepted_definitions"),
    ("DELETE FROM events", "permission denied for table events"),
    ("DELETE FROM messages", "permission denied for table messages"),
    ("DELETE FROM threads", "permission denied for table threads"),
    ("UPDATE decisions SET verdict = 'approve'", "permission denied for table decisions"),
    ("UPDATE sent_answers SET text = 'x'", "permission denied for table sent_answers"),
    ("UPDATE events SET actor = 'user:x'", "permission denied for table events"),
    ("UPDATE seaql_migrations SET version = 'x'", "permission denied for table seaql_migrations"),
    ("UPDATE tool_calls SET validated = NULL WHERE validated", "a decision is final"),
    (
        "UPDATE tool_calls SET validated = NULL, state = 'pending' WHERE state = 'rejected'",
        "a decision is final",
    ),
    ("SET ROLE holdpoint_owner", "permission denied to set role \"holdpoint_owner\""),
    (
        "SET session_replication_role = replica",
        "permission denied to set parameter \"session_replication_role\"",
    ),
    ("GRANT holdpoint_owner TO holdpoint_app", "must have admin option on role \"holdpoint_owner\""),
];

#[tokio::test]
async fn i2_i5_on_postgres_one_role_makes_the_schema_and_another_serves_from_it() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    let name = url.rsplit('/').next().unwrap().to_owned();
    let admin = Rows::open(&url).await;
    for role in ["holdpoint_owner", "holdpoint_app"] {
        admin.change(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
    }
    admin.change(&format!("ALTER DATABASE {name} OWNER TO holdpoint_owner")).await.unwrap();
    let owner = url.replace("postgres@", "holdpoint_owner@");
    let app_url = url.replace("postgres@", "holdpoint_app@");

    // Without a schema, the serving role creates none, and the server reports the missing permission.
    serves_not(&app_url, &format!("permission denied for database {name}"));
    let ours = "information_schema.tables WHERE table_schema IN ('public', 'holdpoint')";
    assert_eq!(admin.count(ours).await, 0);

    let migrated = holdpoint(Some("migrate"), &owner);
    assert!(migrated.status.success(), "{migrated:?}");
    // Without the grants the role cannot see that the schema is up to date, and changes nothing.
    serves_not(&app_url, "permission denied for schema holdpoint");
    Rows::open(&owner).await.change(GRANTS).await.unwrap();
    assert!(holdpoint(Some("migrate"), &app_url).status.success(), "there is nothing to do");

    let app = Embedded::with(|config| {
        config.database.url = app_url.clone().into();
        config.approval.sweep = Duration::from_millis(50);
    })
    .await;
    everything_works(&app).await;
    the_tickets_of_a_server_with_tokens_are_used_up(&app_url).await;
    definitions_of_an_mcp_server_are_recorded_and_accepted(&app_url).await;
    a_link_is_made_used_and_deleted(&app).await;
    a_sign_in_is_made_renewed_and_deleted(&app).await;
    let before = super::everything(&app).await;
    for (sql, why) in REFUSED {
        let refused = app.rows.change(sql).await.expect_err(sql);
        assert!(refused.contains(why), "{sql}: {refused}");
    }
    assert_eq!(super::everything(&app).await, before);
    super::assert_server_works(&app).await;
}

/// Tickets are single use. A second server runs with the same database role and the same ticket key.
async fn the_tickets_of_a_server_with_tokens_are_used_up(app_url: &str) {
    let app = Embedded::with(|config| {
        token::with_tokens(config);
        config.database.url = app_url.into();
    })
    .await;
    let made = app.client.as_user("acme", "ann", &[]).post("/tickets", &json!({})).await;
    let path = format!("/ws?ticket={}", made.body.text("ticket"));
    let over = "INSERT INTO used_tickets VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', 1)";
    assert_eq!(app.rows.change(over).await, Ok(1));
    assert!(Socket::open(&app.client, &path, &[]).await.is_ok());
    assert_eq!(Socket::open(&app.client, &path, &[]).await.err(), Some(401));
    assert_eq!(app.rows.count("used_tickets").await, 1);
    assert_eq!(app.rows.count("ticket_keys").await, 1);
}

/// What the server does with the rows of links.
async fn a_link_is_made_used_and_deleted(app: &Embedded) {
    let made = format!(
        "INSERT INTO links SELECT '{}', tool_call_id, tenant_id, 'ann', 'x', 9000000000000000, NULL
         FROM tool_calls LIMIT 1",
        "0".repeat(64)
    );
    for change in [made.as_str(), "UPDATE links SET used_at = 1", "DELETE FROM links"] {
        assert_eq!(app.rows.change(change).await, Ok(1), "{change}");
    }
}

/// What the server does with the rows of sign-ins.
async fn a_sign_in_is_made_renewed_and_deleted(app: &Embedded) {
    let made = format!(
        "INSERT INTO sign_ins VALUES ('x', '{}', 'acme', 'ann', '[]', 1, 'x', '', 1, 9000000000000000, NULL, NULL)",
        "0".repeat(64)
    );
    let asked = "UPDATE sign_ins SET asked_by = 'x', rests_until = 2";
    let renewed = "UPDATE sign_ins SET tokens = 'y', roles = '[]', known_until = 3, asked_by = NULL, rests_until = NULL";
    for change in [made.as_str(), asked, renewed, "DELETE FROM sign_ins"] {
        assert_eq!(app.rows.change(change).await, Ok(1), "{change}");
    }
}

/// An MCP server changes a tool, adds one and removes it.
async fn definitions_of_an_mcp_server_are_recorded_and_accepted(app_url: &str) {
    let steered = SteeredServer::with("act");
    let app = Box::pin(Embedded::with(|config| {
        config.database.url = app_url.into();
        config.mcp = vec![steered.entry("s", &json!({}))];
    }))
    .await;
    let listed = async |what: &str| {
        let recorded =
            async || (app.rows.count(&format!("listed_definitions WHERE {what}")).await == 1).then_some(());
        eventually(what, recorded).await;
    };
    listed("tool_name = 's__act'").await;
    steered.lists(&json!([definition("act", "Does it otherwise."), definition("more", "Is new.")]));
    listed("tool_name = 's__more'").await;
    let hash =
        app.rows.all("SELECT hash FROM listed_definitions WHERE tool_name = 's__act'").await[0]["hash"]
            .clone();
    app.client.post("/tools/s__act/accept", &json!({ "hash": hash })).await.has_status(200);
    steered.lists(&json!([definition("act", "Does it otherwise.")]));
    listed("server = 's'").await;
    assert_eq!(app.rows.count("accepted_definitions").await, 2);
}

/// Exercises an edited approval and the next turn, an ungated call, a regenerated answer, a renamed thread, a
/// remembered approval and its revocation, a rejection, an expiry, a cancellation and a deleted thread.
async fn everything_works(app: &Embedded) {
    let (thread, id) = app.held("pay", "10").await;
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "9" } });
    assert_eq!(app.client.validate(&edit).await.body["state"], "succeeded");
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    app.scene.calls(&[call("l", "look", &json!({ "note": "x" }))]).answers("Seen.");
    assert_eq!(app.client.send_message(&thread, "look").await.text(), "Seen.");
    app.scene.answers("Again.");
    let again = json!({ "messages": [{ "role": "user", "content": "please pay 10" }, { "role": "user", "content": "look" }] });
    assert_eq!(app.client.turn(&thread, &again).await.text(), "Again.");
    let renamed = app.client.patch(&format!("/threads/{thread}"), &json!({ "title": "Paid" })).await;
    renamed.has_status(200);

    let (session, remembered) = app.held("mumble", "10").await;
    let yes = json!({ "toolCallId": remembered, "isValidated": true, "remember": "session" });
    assert_eq!(app.client.validate(&yes).await.body["state"], "succeeded");
    let grants = format!("/sessions/{session}/grants");
    let grant = app.client.get(&grants).await.body["results"][0].text("grant_id").to_owned();
    app.client.delete(&format!("{grants}/{grant}")).await.has_status(204);

    let (_, rejected) = app.held("pay", "11").await;
    assert_eq!(app.client.reject(&rejected).await.body["state"], "rejected");
    let (_, late) = app.held("pay", "12").await;
    let over = format!("UPDATE tool_calls SET expires_at = 1 WHERE tool_call_id = '{late}'");
    assert_eq!(app.rows.change(&over).await, Ok(1));
    app.client.becomes(&late, "expired").await;
    let (_, withdrawn) = app.held("pay", "13").await;
    app.client.post(&format!("/tool_calls/{withdrawn}/cancel"), &json!({})).await.has_status(200);
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    assert_eq!(app.ledger.lines(), ["pay 9", "look x", "mumble 10"]);
    let rest = async || (app.rows.count("runs WHERE status = 'running'").await == 0).then_some(());
    eventually("no turn runs", rest).await;
}
