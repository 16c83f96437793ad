//! Pages of lists: a page ends early where its items are long, and no item is missed.

use holdpoint::config::Config;
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::{Embedded, JsonFields, Probe, call};
use serde_json::{Value, json};

const PAGE_BYTES: usize = 2600;

async fn short() -> Embedded {
    Embedded::with(|config| config.limits.page_bytes = PAGE_BYTES).await
}

/// All pages of a list.
async fn pages(app: &Embedded, path: &str) -> Vec<Vec<Value>> {
    let with = if path.contains('?') { '&' } else { '?' };
    let (mut pages, mut cursor): (Vec<Vec<Value>>, Option<String>) = (Vec::new(), None);
    loop {
        let page = match &cursor {
            None => app.client.get(path).await,
            Some(cursor) => app.client.get(&format!("{path}{with}cursor={cursor}")).await,
        };
        assert_eq!(page.status, 200, "{path}: {:?}", page.body);
        let results = page.body.list("results").clone();
        let bytes: usize = results.iter().map(|item| item.to_string().len()).sum();
        assert!(results.len() == 1 || bytes <= PAGE_BYTES, "{path}: {bytes} bytes");
        pages.push(results);
        assert_eq!(page.body["has_more"] == json!(true), page.body.get("next_cursor").is_some());
        match page.body.get("next_cursor") {
            Some(next) => cursor = Some(next.as_str().unwrap().to_owned()),
            None => return pages,
        }
        assert!(pages.len() < 200, "{path} has no end");
    }
}

/// The values of a field of the items on all pages. Asserts that there are several pages, one of them with
/// several items.
fn all_of(pages: &[Vec<Value>], field: &str) -> Vec<Value> {
    assert!(pages.len() > 1, "{pages:?}");
    assert!(pages.iter().any(|page| page.len() > 1), "{pages:?}");
    assert!(pages.iter().all(|page| !page.is_empty()), "{pages:?}");
    pages.iter().flatten().map(|item| item[field].clone()).collect()
}

#[tokio::test]
async fn a_page_of_messages_ends_at_the_byte_limit() {
    let app = short().await;
    let thread = app.client.thread().await;
    let words: Vec<String> = (0..8).map(|n| format!("{n} {}", "x".repeat(300))).collect();
    for words in &words {
        app.scene.answers("ok");
        app.client.send_message(&thread, words).await;
    }
    // An item that is longer than a page by itself.
    let long = "y".repeat(3000);
    app.scene.answers(&long);
    app.client.send_message(&thread, "long").await;

    for (format, id) in
        [("", "message_id"), ("?format=v4", "id"), ("?format=ui-v5", "id"), ("?format=ui-v6", "id")]
    {
        let pages = pages(&app, &format!("/threads/{thread}/messages{format}")).await;
        assert_eq!(pages[0].len(), 1, "{format}: the newest message is a page of its own");
        assert!(pages[0][0].to_string().contains(&long), "{format}");
        let ids = all_of(&pages, id);
        assert_eq!(ids.len(), 18, "{format}");
        // The newest page comes first; the items of each page are oldest first.
        let oldest_first: Vec<Value> = pages.into_iter().rev().flatten().collect();
        let texts = oldest_first.iter().map(Value::to_string).filter(|message| message.contains("xxx"));
        for (words, message) in words.iter().zip(texts) {
            assert!(message.contains(words), "{format}: {message}");
        }
    }
}

/// How often `repeat` repeats its input.
const TIMES: usize = 30;

/// A tool whose outputs are longer than its inputs.
struct Repeat;

impl Tool for Repeat {
    const NAME: &'static str = "repeat";
    const DESCRIPTION: &'static str = "A probe.";
    const HIL: bool = false;
    type Input = Probe;
    type Output = Value;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<Value, ToolError> {
        Ok(json!({ "seen": input.note.repeat(TIMES) }))
    }
}

#[tokio::test]
async fn a_message_that_is_longer_than_a_page_has_its_outputs_cut_and_nothing_else() {
    const PAGE: usize = 13_000;
    let change = |config: &mut Config| config.limits.page_bytes = PAGE;
    let mut tools = ToolRegistry::new();
    tools.register(Repeat).unwrap();
    let app = Embedded::start().await.redeploy_with(tools, change).await;
    let thread = app.client.thread().await;
    let notes: Vec<String> = ["\u{20ac}", "\u{e9}"].map(|letter| letter.repeat(100)).to_vec();
    let calls: Vec<_> = notes.iter().map(|note| call("", "repeat", &json!({ "note": note }))).collect();
    let short = call("", "repeat", &json!({ "note": "short" }));
    app.scene.calls(&[&calls[..], &[short]].concat()).answers("ok");
    app.client.send_message(&thread, "repeat").await;
    for format in ["", "&format=v4", "&format=ui-v5", "&format=ui-v6"] {
        let page = app.client.get(&format!("/threads/{thread}/messages?page_size=1{format}")).await;
        let message = &page.body["results"][0];
        let text = message.to_string();
        assert!(text.len() <= PAGE, "{format}: {} bytes", text.len());
        let seen = |note: &str| text.contains(&format!(r#""seen":"{}""#, note.repeat(TIMES)));
        assert!(seen("short"), "{format}: a short output is whole: {text}");
        for note in &notes {
            assert!(text.contains(&format!(r#""note":"{note}""#)), "{format}: the inputs are whole: {text}");
        }
        assert!(!seen(&notes[0]), "{format}: the longest output is cut");
    }
    let page = app.client.get(&format!("/threads/{thread}/messages?page_size=1")).await;
    let parts = page.body["results"][0].list("parts").clone();
    let calls: Vec<&Value> = parts.iter().filter_map(|part| part.get("tool_call")).collect();
    assert_eq!(calls.len(), 3, "{parts:?}");
    for (shown, note) in calls.iter().zip(&notes) {
        let id = shown.text("tool_call_id");
        let mark = format!("[…cut; GET /tool_calls/{id} returns the whole]");
        let output = shown.text("output");
        assert!(output.ends_with(&mark), "{output}");
        assert!(output.len() > 500, "an output is no shorter than it has to be: {output}");
        let whole = app.client.call(id).await;
        assert_eq!(whole["output"], json!({ "seen": note.repeat(TIMES) }));
    }
}

#[tokio::test]
async fn a_page_of_held_calls_ends_at_the_byte_limit() {
    let app = short().await;
    let thread = app.client.thread().await;
    let calls: Vec<_> = (0..7).map(|n| call("", "pay", &json!({ "note": format!("{n}") }))).collect();
    app.scene.calls(&calls);
    let held = app.client.send_message(&thread, "pay").await.pending();
    assert_eq!(held.len(), 7);
    let newest_first: Vec<Value> = held.iter().rev().map(|id| json!(id)).collect();
    for path in [
        "/approvals".to_owned(),
        format!("/threads/{thread}/approvals"),
        format!("/sessions/{thread}/approvals"),
    ] {
        assert_eq!(all_of(&pages(&app, &path).await, "tool_call_id"), newest_first, "{path}");
    }
}

#[tokio::test]
async fn pages_of_events_threads_and_grants_end_at_the_byte_limit() {
    let app = short().await;
    let thread = app.client.thread().await;
    let calls: Vec<_> = (0..4).map(|n| call("", "look", &json!({ "note": format!("{n}") }))).collect();
    app.scene.calls(&calls).answers("ok");
    app.client.send_message(&thread, "look").await;
    let messages = app.client.get(&format!("/threads/{thread}/messages?page_size=1")).await.body;
    let run = messages["results"][0].text("run_id");
    let events = pages(&app, &format!("/runs/{run}/events")).await;
    let seqs: Vec<i64> = all_of(&events, "seq").iter().map(|seq| seq.as_i64().unwrap()).collect();
    assert!(seqs.is_sorted() && seqs.len() == 14, "{seqs:?}");

    for n in 0..12 {
        app.client.post("/threads", &json!({ "title": format!("{n} {}", "t".repeat(150)) })).await;
    }
    let titles = all_of(&pages(&app, "/threads").await, "title");
    assert_eq!(titles.len(), 13);
    for (n, title) in (0..12).rev().zip(&titles) {
        assert!(title.as_str().unwrap().starts_with(&format!("{n} ")), "{title}");
    }
}

#[tokio::test]
async fn rows_beyond_the_byte_limit_of_a_page_are_not_read() {
    // Arguments and results count toward the length of a message, although `format` may omit them.
    let app = short().await;
    let thread = app.client.thread().await;
    for n in 0..4 {
        let calls: Vec<_> = (0..5).map(|_| call("", "look", &json!({ "note": "z".repeat(100) }))).collect();
        app.scene.calls(&calls).answers(&format!("{n}"));
        app.client.send_message(&thread, "look").await;
    }
    let pages = pages(&app, &format!("/threads/{thread}/messages")).await;
    assert_eq!(pages.iter().map(Vec::len).sum::<usize>(), 8);
    assert!(pages.len() >= 4, "{}", pages.len());
}
