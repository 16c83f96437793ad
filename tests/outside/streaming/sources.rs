//! Sources and files in the answers of a model.

use super::{ReceivedStream, asks, chunks, reloaded};
use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{Embedded, JsonFields, call};
use serde_json::{Value, json};

fn source(url: &str, title: &str) -> ModelEvent {
    ModelEvent::Source { url: url.to_owned(), title: Some(title.to_owned()) }
}

fn words(text: &str) -> ModelEvent {
    ModelEvent::Text(text.to_owned())
}

fn thought(text: &str) -> ModelEvent {
    ModelEvent::Reasoning(text.to_owned())
}

fn file(media_type: &str, data: &[u8]) -> ModelEvent {
    ModelEvent::File { media_type: media_type.to_owned(), data: data.to_vec() }
}

/// Adds a step to the scene in which the model emits these events and stops.
fn script_events(app: &Embedded, events: impl IntoIterator<Item = ModelEvent>) {
    let end = ModelEvent::Finished { reason: FinishReason::Stop, usage: None, provider_state: None };
    app.scene.then(events.into_iter().chain([end]).map(Ok).collect());
}

/// The stored parts of the last message, without the first one.
async fn kept(app: &Embedded, thread: &str) -> Vec<Value> {
    let message = app.client.messages(thread).await.pop().unwrap();
    message.list("parts")[1..].to_vec()
}

#[tokio::test]
async fn sources_and_files_are_streamed_in_every_dialect() {
    let app = Embedded::start().await;
    let events = || [words("See "), source("https://example.com/", "Example"), file("image/png", b"\x89PNG")];
    for dialect in ["ui-v5", "ui-v6"] {
        script_events(&app, events());
        let thread = app.client.thread().await;
        let reported = chunks(&ReceivedStream::of(asks(&app.client, &thread, dialect)).await.all().await);
        let behind: Vec<_> =
            reported.iter().skip_while(|chunk| chunk["type"] != "text-end").skip(1).collect();
        let url = "https://example.com/";
        assert_eq!(
            behind[..2],
            [
                &json!({ "type": "source-url", "sourceId": url, "url": url, "title": "Example" }),
                &json!({ "type": "file", "url": "data:image/png;base64,iVBORw==", "mediaType": "image/png" }),
            ],
            "{dialect}: {reported:?}"
        );
    }
    script_events(&app, events());
    let thread = app.client.thread().await;
    let raw = app.client.send_message(&thread, "hi").await.raw;
    let reported = "0:\"See \"\n\
                h:{\"sourceType\":\"url\",\"id\":\"https://example.com/\",\"url\":\"https://example.com/\",\"title\":\"Example\"}\n\
                k:{\"data\":\"iVBORw==\",\"mimeType\":\"image/png\"}\ne:";
    assert!(raw.contains(reported), "{raw}");
    let page = reloaded(&app, &thread, "v4").await.pop().unwrap();
    let url = "https://example.com/";
    let parts = json!([
        { "type": "step-start" },
        { "type": "text", "text": "See " },
        { "type": "source", "source": { "sourceType": "url", "id": url, "url": url, "title": "Example" } },
        { "type": "file", "mimeType": "image/png", "data": "iVBORw==" },
    ]);
    assert_eq!((&page["parts"], &page["content"]), (&parts, &json!("See ")));
}

#[tokio::test]
async fn a_source_does_not_split_the_text_around_it() {
    let app = Embedded::start().await;
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| format!("https://{name}.example/"));
    let events = || {
        [
            source(&a, "A"),
            thought("Hm, "),
            source(&b, "B"),
            thought("so."),
            words("The sky "),
            source(&c, "C"),
            words("is "),
            source(&d, "D"),
            words("blue."),
        ]
    };
    script_events(&app, events());
    let thread = app.client.thread().await;
    let turn = app.client.send_message(&thread, "hi").await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("fhgh0hhed", "The sky is blue."));
    let parts = json!([
        { "type": "source", "url": a, "title": "A" },
        { "type": "reasoning", "text": "Hm, so." },
        { "type": "source", "url": b, "title": "B" },
        { "type": "text", "text": "The sky is blue." },
        { "type": "source", "url": c, "title": "C" },
        { "type": "source", "url": d, "title": "D" },
    ]);
    assert_eq!(json!(kept(&app, &thread).await), parts);

    script_events(&app, events());
    let thread = app.client.thread().await;
    let reported = chunks(&ReceivedStream::of(asks(&app.client, &thread, "ui-v6")).await.all().await);
    let kinds: Vec<_> = reported.iter().map(|chunk| chunk.text("type")).collect();
    let thoughts = ["reasoning-start", "reasoning-delta", "reasoning-delta", "reasoning-end"];
    let text = ["text-start", "text-delta", "text-delta", "text-delta", "text-end"];
    let folded = |kinds: &[&str]| {
        let mut kinds: Vec<_> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        kinds.dedup_by(|next, last| next == last && next.ends_with("-delta"));
        kinds
    };
    let expected = [
        &["start", "start-step", "source-url"][..],
        &thoughts,
        &["source-url"],
        &text,
        &["source-url", "source-url", "finish-step", "finish"],
    ];
    assert_eq!(folded(&kinds), folded(&expected.concat()));
}

#[tokio::test]
async fn sources_precede_later_calls_and_are_streamed_even_if_the_answer_breaks_off() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let (id, tool, arguments) = call("a", "pay", &json!({ "note": "1" }));
    app.scene.then(
        [
            words("I "),
            source("https://a.example/", "A"),
            ModelEvent::CallStarted { index: 0, provider_call_id: id, tool_name: tool },
            ModelEvent::CallArguments { index: 0, delta: arguments },
            ModelEvent::CallFinished { index: 0 },
            ModelEvent::Finished { reason: FinishReason::ToolCalls, usage: None, provider_state: None },
        ]
        .map(Ok)
        .into(),
    );
    let turn = app.client.send_message(&thread, "pay").await;
    assert_eq!(turn.codes(), "f0hbc98ed", "{}", turn.raw);
    let types: Vec<_> = kept(&app, &thread).await.iter().map(|part| part["type"].clone()).collect();
    assert_eq!(types, ["text", "source", "tool_call"]);
    app.client.approve(&turn.pending()[0]).await;

    app.scene.then(vec![Ok(words("Half ")), Ok(source("https://b.example/", "B")), Err("gone".to_owned())]);
    let broken = app.client.resume(&thread).await;
    assert_eq!(broken.codes(), "a8ef0h3", "{}", broken.raw);
    let last = kept(&app, &thread).await.pop().unwrap();
    assert_eq!(last, json!({ "type": "source", "url": "https://b.example/", "title": "B" }));
    app.scene.answers("Whole.");
    assert_eq!(app.client.resume(&thread).await.codes(), "a8ef0ed", "no source of the step that broke off");
}

#[tokio::test]
async fn a_source_without_a_valid_http_url_is_dropped() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let long = |bytes: usize| format!("https://example.com/{}", "a".repeat(bytes - 20));
    let odd = [
        "javascript:alert(1)",
        "JAVASCRIPT:alert(1)",
        " java\nscript:alert(1)",
        "javascript://example.com/%0aalert(1)",
        "data:text/html,<script>alert(1)</script>",
        "vbscript:x",
        "file:///etc/passwd",
        "blob:https://example.com/x",
        "view-source:https://example.com/",
        "ftp://example.com/",
        "//example.com/",
        "/threads",
        "example.com",
        "https://",
        "https:///",
        "",
        "https://exa mple.com/",
        &long(2049),
    ];
    let good = [
        ("HTTP://EXAMPLE.com", "http://example.com/"),
        (" https://example.com/\"><script>\u{2028}\0", "https://example.com/%22%3E%3Cscript%3E%E2%80%A8"),
        (&long(2048), &long(2048)),
    ];
    let named = odd.into_iter().chain(good.map(|(url, _)| url)).map(|url| source(url, "T"));
    script_events(&app, named.collect::<Vec<_>>());
    let turn = app.client.send_message(&thread, "hi").await;
    let reported: Vec<_> = turn.all('h').iter().map(|source| source.text("url")).collect();
    assert_eq!(reported, good.map(|(_, url)| url));
    let kept: Vec<_> = kept(&app, &thread).await.iter().map(|part| part["url"].clone()).collect();
    assert_eq!(kept, good.map(|(_, url)| url));
}

#[tokio::test]
async fn a_title_is_streamed_as_it_is_stored_and_an_empty_one_is_omitted() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let long = "é".repeat(1000);
    let titles = ["  A\0B ", "", " \n ", &long];
    let numbered = titles.iter().enumerate();
    script_events(
        &app,
        numbered.map(|(n, title)| source(&format!("https://{n}.example/"), title)).collect::<Vec<_>>(),
    );
    let turn = app.client.send_message(&thread, "hi").await;
    let reported: Vec<_> = turn.all('h').iter().map(|source| source.get("title").cloned()).collect();
    assert_eq!(reported[..3], [Some(json!("A\u{fffd}B")), None, None]);
    let cut = reported[3].as_ref().unwrap().as_str().unwrap();
    assert!(cut.starts_with("éé") && cut.len() <= 512, "{} bytes", cut.len());
    let kept: Vec<_> = kept(&app, &thread).await.iter().map(|part| part.get("title").cloned()).collect();
    assert_eq!(kept, reported);
}

#[tokio::test]
async fn the_sources_of_a_step_are_limited_and_its_text_continues() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let many = (0..1000).map(|n| source(&format!("https://{n}.example/"), "T"));
    script_events(&app, many.chain([words("Hello.")]).collect::<Vec<_>>());
    let turn = app.client.send_message(&thread, "hi").await;
    assert_eq!((turn.all('h').len(), turn.text().as_str()), (256, "Hello."));
    assert_eq!(kept(&app, &thread).await.len(), 257);
}

#[tokio::test]
async fn files_without_a_valid_media_type_or_content_are_dropped() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let odd = ["", "png", "/", "image/", "/png", "image/png/x", "image/p ng", "image/\"png", "im\0age/png"];
    let odd = odd.map(|kind| file(kind, b"x")).into_iter().chain([file("image/png", b"")]);
    let good = ["Image/PNG", "audio/L16; rate=24000", "application/vnd.x+json"].map(|kind| file(kind, b"x"));
    script_events(&app, odd.chain(good).collect::<Vec<_>>());
    let turn = app.client.send_message(&thread, "hi").await;
    let reported: Vec<_> = turn.all('k').iter().map(|file| file.text("mimeType")).collect();
    assert_eq!(reported, ["image/png", "audio/l16", "application/vnd.x+json"]);
    assert_eq!(kept(&app, &thread).await[1]["url"], "data:audio/l16;base64,eA==");
}

#[tokio::test]
async fn the_files_and_the_text_of_a_step_share_one_size_limit() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let mebibyte = vec![7; 1 << 20];
    script_events(&app, [words("Here: "), file("image/png", &mebibyte), file("image/png", &mebibyte)]);
    let whole = app.client.send_message(&thread, "hi").await;
    assert_eq!(whole.codes(), "f0kked");
    assert_eq!(kept(&app, &thread).await[2].text("url").len(), 22 + 1_398_104);
    script_events(&app, std::iter::repeat_n(file("image/png", &mebibyte), 4));
    let broken = app.client.send_message(&thread, "again").await;
    assert_eq!(broken.codes(), "fk3".replace('k', "kk"), "{}", broken.all('3')[0]);
    broken.failed_with("upstream_malformed");
}

#[tokio::test]
async fn later_requests_to_the_model_contain_neither_sources_nor_files() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    script_events(
        &app,
        [words("See "), source("https://example.com/", "Example"), file("image/png", b"x"), words("it.")],
    );
    app.client.send_message(&thread, "hi").await;
    script_events(&app, [file("image/png", b"x")]);
    app.client.send_message(&thread, "draw").await;
    app.scene.answers("Well.");
    app.client.send_message(&thread, "and?").await;
    let reported = format!("{:?}", app.scene.requests().pop().unwrap().messages);
    assert!(
        reported.contains("See it.") && !reported.contains("example") && !reported.contains("base64"),
        "{reported}"
    );
}
