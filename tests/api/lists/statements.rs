//! The number of statements of a list: the same for any number of items.

use holdpoint::config::RememberInputs;
use holdpoint_testkit::webhooks::webhook;
use holdpoint_testkit::{Cluster, Embedded, JsonFields, Purpose, Statements};
use serde_json::json;
use std::time::Duration;

/// The number of threads, of held calls in one of them, and of grants in a session.
const ITEMS: usize = 4;
/// The number of times that each request is counted.
const TRIES: usize = 10;
const SECRETS: &[&str] = &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];

/// A server on Postgres, its thread with held calls, its session with grants, and a call that has ended.
struct Lists {
    app: Embedded,
    held: String,
    granted: String,
    call: String,
    /// Ends after the server, which is dropped first.
    _cluster: Cluster,
}

impl Lists {
    async fn new() -> Self {
        let cluster = Cluster::start();
        Statements::count_on(&cluster).await;
        let url = cluster.database().await;
        let app = Embedded::with(|config| {
            config.database.url = url.into();
            config.approval.sweep = Duration::from_secs(3600);
            config.approval.remember_inputs = RememberInputs::Equal;
            // One tool does not return.
            config.approval.wait = Duration::from_secs(1);
        })
        .await;
        Statements::begin(&app.rows).await;
        let (held, _) = app.held("pay", "0").await;
        let (granted, mut call) = (app.client.thread().await, String::new());
        for n in 1..ITEMS {
            app.held("pay", &n.to_string()).await;
            app.hold_in(&held, "pay", &format!("again {n}")).await;
        }
        for n in 0..ITEMS {
            call = app.hold_in(&granted, "pay", &format!("granted {n}")).await;
            let answer = json!({ "toolCallId": call, "isValidated": true, "remember": "session" });
            app.client.validate(&answer).await.has_status(200);
        }
        let asking = app.held("wait_for_me", "asks").await.1;
        app.client.approve(&asking).await.has_status(202);
        for n in 0..ITEMS {
            let request = format!(
                "INSERT INTO tool_requests (request_id, tool_call_id, tenant_id, user_id, held_tool, exec_id, kind, message, answer_schema,
                     state, created_at, expires_at)
                 SELECT '{}', tool_call_id, tenant_id, listed_for, name, exec_id, 'elicitation', 'x', '{{}}', 'open', 1, 1
                 FROM tool_calls WHERE tool_call_id = '{asking}'",
                uuid::Uuid::from_u128(n as u128)
            );
            assert_eq!(app.rows.change(&request).await, Ok(1));
        }
        Self { app, held, granted, call, _cluster: cluster }
    }

    /// The paths of all lists, each with several items.
    fn paths(&self) -> Vec<String> {
        let Self { held, call, granted, .. } = self;
        let messages = ["", "format=v4&", "format=ui-v5&", "format=ui-v6&"];
        let messages = messages.map(|format| format!("/threads/{held}/messages?{format}"));
        let lists = [
            "/threads?".to_owned(),
            "/sessions?".to_owned(),
            "/approvals?".to_owned(),
            "/tool_requests?".to_owned(),
            format!("/threads/{held}/approvals?"),
            format!("/sessions/{held}/approvals?"),
            format!("/sessions/{granted}/grants?"),
            format!("/tool_calls/{call}/events?"),
        ];
        lists.into_iter().chain(messages).collect()
    }

    /// The number of items on a page of this size, and the statements of its request. Other tasks may execute
    /// such statements too, so the number of each is the least of several tries.
    async fn counted(&self, path: &str, size: usize) -> (usize, Statements) {
        let (mut items, mut tries) = (0, Vec::new());
        for _ in 0..TRIES {
            Statements::reset(&self.app.rows).await;
            let page = self.app.client.get(&format!("{path}page_size={size}")).await;
            tries.push(Statements::counted(&self.app.rows).await.with(Purpose::Work));
            assert_eq!((page.status, &page.body["has_more"]), (200, &json!(true)), "{path} {size}");
            items = page.body.list("results").len();
        }
        (items, Statements::least(tries))
    }
}

#[tokio::test]
async fn on_postgres_a_list_executes_as_many_statements_for_one_item_as_for_several() {
    let lists = Lists::new().await;
    for path in lists.paths() {
        let (one, statements) = lists.counted(&path, 1).await;
        let (several, more) = lists.counted(&path, ITEMS - 1).await;
        assert_eq!((one, several), (1, ITEMS - 1), "{path}");
        // The request reads rows: a count that misses the server's statements would be too low.
        assert!(statements.total() > 0, "{path}: {statements}");
        let differ = statements.differences(&more);
        assert_eq!(statements.total(), more.total(), "{path}, for one item and for several: {differ}");
    }
}

#[tokio::test]
async fn on_postgres_the_endpoints_are_listed_with_as_many_statements_for_one_as_for_several() {
    let cluster = Cluster::start();
    Statements::count_on(&cluster).await;
    let dir = tempfile::tempdir().unwrap();
    let mut counted = Vec::new();
    for count in [1, ITEMS] {
        let names = (0..count).map(|n| format!("hook-{n}"));
        let url = cluster.database().await;
        let app = Embedded::with(|config| {
            config.database.url = url.into();
            config.approval.sweep = Duration::from_secs(3600);
            config.webhooks =
                names.map(|name| webhook(&name, "https://hooks.example", dir.path(), SECRETS)).collect();
        })
        .await;
        Statements::begin(&app.rows).await;
        let mut tries = Vec::new();
        for _ in 0..TRIES {
            Statements::reset(&app.rows).await;
            let listed = app.client.get("/webhooks").await;
            tries.push(Statements::counted(&app.rows).await.with(Purpose::Work));
            assert_eq!(listed.body.list("results").len(), count);
        }
        counted.push(Statements::least(tries));
    }
    let [one, several] = counted.try_into().unwrap();
    assert!(one.total() > 0, "{one}");
    assert_eq!(one.total(), several.total(), "for one and for several: {}", one.differences(&several));
}
