//! `GET /approvals?q=`: the search on the server.

use super::office;
use holdpoint_testkit::{Client, Embedded, JsonFields};
use reqwest::Url;
use serde_json::{Value, json};

/// The notes of the pending calls that this search finds, newest first.
async fn found(client: &Client, query: &[(&str, &str)]) -> Vec<String> {
    let url = Url::parse_with_params(&client.url("/approvals"), query).unwrap();
    let request = client.http.get(url);
    let answer = client.send(request).await;
    answer.has_status(200);
    let note = |call: &Value| call["input"].text("note").to_owned();
    answer.body.list("results").iter().map(note).collect()
}

async fn hold(app: &Embedded, title: &str, tool: &str, note: &str) -> String {
    let thread = app.client.post("/threads", &json!({ "title": title })).await.body;
    app.hold_in(thread.text("thread_id"), tool, note).await
}

#[tokio::test]
async fn a_search_finds_calls_by_tool_requester_title_and_id_in_any_case() {
    let app = office().await;
    let rent = hold(&app, "Rent of May", "pay", "rent").await;
    hold(&app, "Holidays", "refuse", "trip").await;
    hold(&app, "MÜLLER and Ørsted", "mumble", "names").await;
    let search = async |q: &str| found(&app.client, &[("q", q)]).await;
    for (q, notes) in [
        ("rent of", &["rent"][..]),
        ("RENT", &["rent"]),
        (" may ", &["rent"]),
        ("pay", &["rent"]),
        ("refus", &["trip"]),
        ("alice", &["names", "trip", "rent"]),
        ("MÜLLER", &["names"]),
        ("Ørsted", &["names"]),
        (&rent, &["rent"]),
        (&rent[24..].to_uppercase(), &["rent"]),
        ("of Rent", &[]),
        ("trip", &[]),
        ("", &["names", "trip", "rent"]),
        ("  ", &["names", "trip", "rent"]),
    ] {
        assert_eq!(search(q).await, notes, "{q}");
    }
    assert_eq!(found(&app.client, &[("q", "alice"), ("tool_name", "pay")]).await, ["rent"]);
    assert_eq!(found(&app.client, &[("q", "alice"), ("state", "succeeded")]).await, Vec::<String>::new());
    let other_user = app.client.as_user("acme", "mallory", &[]);
    assert_eq!(found(&other_user, &[("q", "rent")]).await, Vec::<String>::new(), "only visible calls");
}

#[tokio::test]
async fn no_character_of_a_search_is_a_wildcard() {
    let app = office().await;
    hold(&app, "100% sure", "pay", "percent").await;
    hold(&app, "a_b", "pay", "line").await;
    hold(&app, r"c\d", "pay", "slash").await;
    hold(&app, "axb cd", "pay", "plain").await;
    for (q, notes) in [
        ("%", &["percent"][..]),
        ("0% s", &["percent"]),
        ("a_b", &["line"]),
        (r"\", &["slash"]),
        (r"c\d", &["slash"]),
        ("'", &[]),
        ("*", &[]),
        ("?", &[]),
    ] {
        assert_eq!(found(&app.client, &[("q", q)]).await, notes, "{q}");
    }
}

#[tokio::test]
async fn a_search_has_pages_and_a_longest_text() {
    let app = office().await;
    for n in 0..5 {
        hold(&app, if n % 2 == 0 { "Even" } else { "Odd" }, "pay", &n.to_string()).await;
    }
    let mut notes = Vec::new();
    let mut cursor = None;
    loop {
        let mut path = "/approvals?q=even&page_size=2".to_owned();
        if let Some(cursor) = &cursor {
            path += &format!("&cursor={cursor}");
        }
        let page = app.client.get(&path).await.body;
        let of_page = page.list("results");
        notes.extend(of_page.iter().map(|call| call["input"].text("note").to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(notes, ["4", "2", "0"]);
    let longest = "x".repeat(200);
    assert_eq!(found(&app.client, &[("q", &longest)]).await, Vec::<String>::new());
    let answer = app.client.get(&format!("/approvals?q={longest}x")).await;
    assert_eq!((answer.status, answer.message()), (400, "q: expected at most 200 characters"));
}
