//! What the lists of the API read on Postgres: a number of pages that depends on the page of the list, not on the rows
//! that the database has beside. Postgres counts the pages of the statements that the server executes.

use holdpoint::config::{Config, ToolRules};
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Cluster, Embedded, JsonFields, Purpose, Rows, Statements, eventually};
use std::time::Duration;

/// The pending calls of other users, each in a thread of its own.
const PENDING: u32 = 100_000;
/// The rows of other kinds that no list shows.
const HIDDEN: u32 = 5_000;
/// The calls of the tool with more than a page, and the own calls of the user with as many.
const FOUND: u32 = 60;
/// A reader that sees calls by an escalation alone.
const ROLE: &str = "a role of old escalations";
/// The most pages that one statement of a list may read, and the most of all statements of a list without an item.
const PAGES_MAX: i64 = 200;
/// The most pages in which a row is found by its id.
const PAGES_OF_ROW: i64 = 5;
/// The pages more that one statement may read for each item of another list than the inbox, and of escalated calls.
const PAGES_OF_ITEM: i64 = 10;
/// The executions after which a session keeps the plans of its statements, over all of its connections.
const WARM: usize = 12;
/// The events that passes of the numbering have numbered before the measured ones.
const EVENTS: u64 = 10_000;

struct Office {
    app: Embedded,
    thread: String,
    call: String,
    run: String,
    /// Ends after the server, which is dropped first.
    _cluster: Cluster,
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Makes rows without guards and foreign keys, which would take minutes.
async fn fill(rows: &Rows, sql: &str) {
    let sql = format!("BEGIN; SET LOCAL session_replication_role = replica; {sql}; COMMIT");
    rows.change(&sql).await.unwrap();
}

/// A text that sorts like the id of this number.
fn id(kind: u32) -> String {
    format!("'0190{kind:04x}-0000-7000-8000-' || lpad(to_hex(n), 12, '0')")
}

/// Held calls like `call`, with numbers up to `most`, one in each thread.
fn calls(call: &str, most: u32, kind: u32, [user, name, state]: [&str; 3]) -> String {
    let id = id(kind);
    let decided = match state {
        "pending" => "NULL, NULL, NULL, NULL, NULL",
        _ => "FALSE, 'user:carol', 1, 1, 'No.'",
    };
    format!(
        "INSERT INTO threads (thread_id, tenant_id, user_id, session_id, title, created_at, updated_at)
         SELECT {id}, 'acme', {user}, {id}, 'x', 1, 1 FROM generate_series(1, {most}) AS n;
         INSERT INTO tool_calls (tool_call_id, thread_id, tenant_id, message_id, step, ordinal, run_id, provider_call_id,
             wire_call_id, name, arguments, schema_hash, held, listed_for, idempotent, risk_level, state, expires_at,
             exec_attempt, created_at, validated, decided_by, decided_at, finished_at, result)
         SELECT {id}, {id}, 'acme', {id}, 0, 0, {id}, '', {id}, '{name}', arguments, schema_hash, TRUE, {user}, idempotent,
             risk_level, '{state}', expires_at, 0, created_at, {decided}
         FROM tool_calls, generate_series(1, {most}) AS n WHERE tool_call_id = '{call}'"
    )
}

impl Office {
    /// A `chief` approves `pay` and `refuse`, a `clerk` approves `look`, an `admin` operates the server. The user of the
    /// client is `alice`.
    async fn open() -> Self {
        let cluster = Cluster::start();
        Statements::count_on(&cluster).await;
        let url = cluster.database().await;
        let mut app = Embedded::with(|config: &mut Config| {
            with_tokens(config);
            config.database.url = url.into();
            // One session for the lists: that which has planned their statements with few rows.
            config.database.max_connections = 2;
            config.approval.sweep = Duration::from_secs(3600);
            config.auth.operator_roles = names(&["admin"]);
            let by = |role: &str| ToolRules { approve_roles: names(&[role]), ..ToolRules::default() };
            config.tools.rules.insert("refuse".to_owned(), by("chief"));
            config.tools.rules.insert("pay".to_owned(), by("chief"));
            config.tools.rules.insert("mumble".to_owned(), by("clerk"));
            config.limits.requests_per_minute = Some(0);
        })
        .await;
        app.client = app.client.as_user("acme", "alice", &[]);
        // The sessions plan their statements with few rows first.
        let (thread, call) = app.held("pay", "0").await;
        let run = app.client.run_of(&call).await;
        Statements::begin(&app.rows).await;
        Self { app, thread, call, run, _cluster: cluster }
    }

    fn user(&self, name: &str, roles: &[&str]) -> Client {
        self.app.client.as_user("acme", name, roles)
    }

    async fn fill(&self) {
        let (rows, call) = (&self.app.rows, &self.call);
        // Of the newest calls none is visible to anybody but an operator.
        fill(rows, &calls(call, FOUND, 1, ["'bob'", "refuse", "pending"])).await;
        fill(rows, &calls(call, FOUND, 2, ["'busy'", "other", "pending"])).await;
        fill(rows, &calls(call, PENDING, 3, ["'user ' || n % 2000", "other", "pending"])).await;
        // Escalated long ago to the boss, and delegated long ago to dave.
        fill(rows, &calls(call, HIDDEN, 4, ["'bob'", "other", "rejected"])).await;
        let id = id(4);
        let numbers = format!("generate_series(1, {HIDDEN}) AS n");
        let escalations = format!(
            "INSERT INTO escalations (tool_call_id, tenant_id, role, state) SELECT {id}, 'acme', 'boss', 'rejected' FROM {numbers}"
        );
        fill(rows, &escalations).await;
        let delegations = format!(
            "INSERT INTO delegations (delegation_id, tool_call_id, tenant_id, delegator, delegate, roles, reason, created_at, until)
             SELECT {id}, {id}, 'acme', 'carol', 'dave', '[]', 'x', 1, 2 FROM {numbers}"
        );
        fill(rows, &delegations).await;
        // Deleted threads of alice, and requests of a tool that she does not approve.
        let newest = format!("'0fff' || {}", self::id(5));
        let deleted = format!(
            "INSERT INTO threads (thread_id, tenant_id, user_id, session_id, title, created_at, updated_at, deleted_at)
             SELECT {newest}, 'acme', 'alice', {newest}, 'x', 1, 1, 1 FROM {numbers}"
        );
        fill(rows, &deleted).await;
        let requests = format!(
            "INSERT INTO tool_requests (request_id, tool_call_id, tenant_id, user_id, held_tool, exec_id, kind, message,
                 answer_schema, state, created_at, expires_at)
             SELECT {id}, {of_others}, 'acme', 'bob', 'other', 'x', 'custom', 'x', '{{}}', 'open', 1, 1 FROM {numbers}",
            of_others = self::id(3)
        );
        fill(rows, &requests).await;
    }

    /// The pages of each statement of this list, in its last execution.
    async fn pages(&self, client: &Client, path: &str) -> (usize, Statements) {
        for _ in 0..WARM {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
        Statements::reset(&self.app.rows).await;
        let page = client.get(path).await;
        let read = Statements::counted(&self.app.rows).await.with(Purpose::Work);
        (page.body.list("results").len(), read)
    }

    /// Asserts that no list reads more than its page.
    async fn assert_bounded(&self, when: &str) {
        let Self { thread, call, run, .. } = self;
        let of_nobody =
            ["/approvals", "/approvals?state=rejected", "/tool_requests", "/threads", "/sessions"];
        let (mut over, mut table) = (String::new(), String::new());
        let mut look = async |who: &str, client: &Client, path: &str, expected: Option<usize>| {
            let (items, read) = self.pages(client, path).await;
            let pages = read.pages();
            let total: i64 = pages.iter().map(|(pages, _)| pages).sum();
            let most = pages.first().map_or(0, |(pages, _)| *pages);
            table += &format!("{when}: {who} {path}: {items} items, {total} pages, at most {most}\n");
            assert!(!pages.is_empty() && total > 0, "the statements are counted");
            if let Some(expected) = expected {
                assert_eq!(items, expected, "{who} {path}");
            }
            let of_items = i64::try_from(items).unwrap();
            let is_inbox = path.starts_with("/approvals") && who != ROLE;
            let is_over = |(pages, text): &&(i64, &str)| {
                let limit = match is_inbox {
                    // The statement that finds the calls. The others read found rows by their ids.
                    true if text.starts_with("SELECT \"id\"") => PAGES_MAX,
                    true => PAGES_MAX.max(PAGES_OF_ROW * of_items),
                    false => PAGES_MAX + PAGES_OF_ITEM * of_items,
                };
                *pages > limit
            };
            for (pages, text) in pages.iter().filter(is_over) {
                over += &format!("{when}: {who} {path}: {pages} pages: {text}\n");
            }
            if items == 0 && total > PAGES_MAX {
                over += &format!("{when}: {who} {path}: {total} pages for no item: {pages:?}\n");
            }
        };
        for path in of_nobody {
            look("a user with nothing", &self.user("nobody", &["guest"]), path, Some(0)).await;
            look("an approver with nothing", &self.user("nobody", &["clerk"]), path, Some(0)).await;
            let escalated = if path == "/approvals?state=rejected" { 50 } else { 0 };
            look(ROLE, &self.user("nobody", &["boss"]), path, Some(escalated)).await;
            look("a delegate of old", &self.user("dave", &[]), path, Some(0)).await;
        }
        let (admin, chief, busy) =
            (self.user("oscar", &["admin"]), self.user("carol", &["chief"]), self.user("busy", &[]));
        look("an operator", &admin, "/approvals?tool_name=none", Some(0)).await;
        for path in ["/approvals?tool_name=refuse", "/approvals?tool_name=other", "/approvals", "/sessions"] {
            look("an operator", &admin, path, Some(50)).await;
        }
        look("an operator", &admin, "/approvals?state=succeeded", Some(0)).await;
        look("an approver", &chief, "/approvals", Some(50)).await;
        look("an approver", &chief, "/approvals?tool_name=pay", Some(1)).await;
        look("a user", &busy, "/approvals", Some(50)).await;
        look("a user", &busy, "/threads", Some(50)).await;
        look("a user", &busy, "/sessions", Some(50)).await;
        let own = [
            "/threads".to_owned(),
            "/sessions".to_owned(),
            "/approvals".to_owned(),
            format!("/threads/{thread}/messages"),
            format!("/threads/{thread}/approvals"),
            format!("/sessions/{thread}/approvals"),
            format!("/sessions/{thread}/grants"),
            format!("/tool_calls/{call}/events"),
            format!("/runs/{run}/events"),
        ];
        for path in &own {
            look("the user of a call", &self.app.client, path, None).await;
        }
        for path in &own[4..6] {
            look("an approver", &chief, path, Some(1)).await;
            look("an operator", &admin, path, Some(1)).await;
        }
        println!("{table}");
        assert!(over.is_empty(), "{over}");
    }
}

#[tokio::test]
async fn on_postgres_no_list_reads_more_for_the_rows_that_it_does_not_show() {
    let office = Office::open().await;
    for path in ["/approvals", "/threads", "/sessions", "/tool_requests"] {
        office.pages(&office.app.client, path).await;
        office.pages(&office.user("nobody", &["clerk"]), path).await;
    }
    office.fill().await;
    office.assert_bounded("without statistics").await;
    office.app.rows.change("ANALYZE").await.unwrap();
    office.assert_bounded("with statistics").await;
}

#[tokio::test]
async fn on_postgres_a_pass_on_a_young_database_reads_no_event_that_has_its_number() {
    let cluster = Cluster::start();
    let postgres = Rows::open(&cluster.url("postgres")).await;
    // A young database has no statistics, and its dead rows are still there.
    postgres.change("ALTER SYSTEM SET autovacuum = off").await.unwrap();
    postgres.close().await;
    Statements::count_on(&cluster).await;
    let url = cluster.database().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    Statements::begin(&app.rows).await;
    let numbered = async || (app.rows.count("events WHERE seq IS NULL").await == 0).then_some(());
    let turn = async |words: &str| {
        app.scene.answers("Hello.");
        app.client.send_message(&app.client.thread().await, words).await;
        eventually("the events have numbers", numbered).await;
    };
    turn("first").await;
    let events = |kind: &str, count: u64| {
        format!(
            "INSERT INTO events (event_id, type, at, actor, tenant_id, user_id, session_id, thread_id, run_id, data)
             SELECT '{kind} ' || n, type, at, actor, tenant_id, user_id, session_id, thread_id, run_id, data
             FROM events, generate_series(1, {count}) AS n WHERE seq = 1"
        )
    };
    // Statistics of a moment in which most events have no number. The sessions plan their statements by them, and keep
    // the plans.
    app.rows.change(&format!("BEGIN; {}; ANALYZE events; COMMIT", events("few", 50))).await.unwrap();
    for n in 0..4 * WARM {
        turn(&n.to_string()).await;
    }
    assert_eq!(app.rows.change(&events("many", EVENTS)).await, Ok(EVENTS));
    eventually("the events have numbers", numbered).await;
    turn("once").await;
    Statements::reset(&app.rows).await;
    for n in 0..WARM {
        turn(&n.to_string()).await;
    }
    let passes = Statements::counted(&app.rows).await.with(Purpose::Numbering);
    let (pages, text) = passes.pages().remove(0);
    println!("{pages} pages: {text}");
    assert!(pages > 0 && pages <= PAGES_MAX, "{pages} pages: {text}");
}
