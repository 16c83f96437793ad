//! Messages that were refused and stay on the page: a later post brings them, and the model reads what its user
//! reads.

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::ui::{ui_assistant, ui_user};
use holdpoint_testkit::{Embedded, Turn};
use serde_json::{Value, json};

/// How a page keeps its messages, and posts them.
#[derive(Debug, Clone, Copy)]
enum PageForm {
    Parts,
    Content,
    /// As AI SDK 4 posts them by default.
    Nameless,
}

const FORMS: [PageForm; 3] = [PageForm::Parts, PageForm::Content, PageForm::Nameless];

impl PageForm {
    fn user(self, id: &str, words: &str) -> Value {
        match self {
            Self::Parts => ui_user(id, words),
            Self::Content => json!({ "id": id, "role": "user", "content": words }),
            Self::Nameless => json!({ "role": "user", "content": words }),
        }
    }

    fn answer(self, words: &str) -> Value {
        match self {
            Self::Parts => ui_assistant("msg-x", &json!([{ "type": "text", "text": words }])),
            Self::Content | Self::Nameless => json!({ "role": "assistant", "content": words }),
        }
    }
}

struct Talk {
    app: Embedded,
    thread: String,
}

impl Talk {
    async fn begun() -> Self {
        let app = Embedded::start().await;
        Self::with(app).await
    }

    async fn with(app: Embedded) -> Self {
        let thread = app.client.thread().await;
        Self { app, thread }
    }

    /// Posts these messages. The stream is read as text, whatever its dialect.
    async fn posts(&self, messages: &[Value]) -> (u16, String, Option<String>) {
        let path = self.app.client.url(&format!("/qa/chat_streamed/{}", self.thread));
        let body = json!({ "messages": messages });
        let answer = self.app.client.http.post(path).json(&body).send().await.unwrap();
        let left_out = answer.headers().get("x-left-out").map(|named| named.to_str().unwrap().to_owned());
        (answer.status().as_u16(), answer.text().await.unwrap(), left_out)
    }

    /// Posts these messages, and asserts that the model answers.
    async fn is_answered(&self, messages: &[Value], answer: &str) {
        self.app.scene.answers(answer);
        let (status, text, left_out) = self.posts(messages).await;
        assert!(status == 200 && text.contains(answer), "{status} {text}");
        assert_eq!(left_out, None);
    }

    /// The texts that the last request to the model had.
    fn last_request(&self) -> Vec<String> {
        let requests = self.app.scene.requests();
        let sent = requests.last().unwrap().messages.iter().map(|message| match message {
            ModelMessage::User(text) | ModelMessage::Assistant { text, .. } => text.clone(),
            ModelMessage::Tool { text, .. } => panic!("{text}"),
        });
        sent.collect()
    }

    async fn stored(&self) -> Vec<String> {
        self.app.client.questions(&self.thread).await
    }
}

#[tokio::test]
async fn a_message_that_was_refused_during_a_turn_is_read_with_the_next_one() {
    for form in FORMS {
        println!("{form:?}");
        let talk = Talk::begun().await;
        let gate = talk.app.scene.gate();
        talk.app.scene.answers("A1");
        let mut page = vec![form.user("u1", "go")];
        let first = talk.app.client.begin(&talk.thread, &json!({ "messages": page })).await;
        page.push(form.user("u2", "also: the budget is 300"));
        let (status, text, _) = talk.posts(&page).await;
        assert!(status == 409 && text.contains("turn_in_progress"), "{text}");
        gate.add_permits(100);
        assert!(first.text().await.unwrap().contains("A1"));

        page.insert(1, form.answer("A1"));
        page.push(form.user("u3", "so what now?"));
        talk.is_answered(&page, "A2").await;
        let read = ["go", "A1", "also: the budget is 300", "so what now?"];
        assert_eq!(talk.last_request(), read);
        assert_eq!(talk.stored().await, ["go", "also: the budget is 300", "so what now?"]);
        let extent = talk.app.rows.count("messages").await;
        assert_eq!(extent, 5);

        // They are stored, and are not stored again.
        page.push(form.answer("A2"));
        page.push(form.user("u4", "thanks"));
        talk.is_answered(&page, "A3").await;
        assert_eq!(talk.last_request()[2..], ["also: the budget is 300", "so what now?", "A2", "thanks"]);
        assert_eq!(talk.stored().await.len(), 4);
    }
}

#[tokio::test]
async fn a_message_whose_answer_failed_is_not_stored_again_with_the_next_one() {
    for form in FORMS {
        println!("{form:?}");
        let talk = Talk::begun().await;
        talk.is_answered(&[form.user("u1", "go")], "A1").await;
        let mut page = vec![form.user("u1", "go"), form.answer("A1"), form.user("u2", "go")];
        // The scene is over, so that the turn fails and the page has no answer.
        assert_eq!(talk.posts(&page).await.0, 200);
        page.push(form.user("u3", "once more"));
        talk.is_answered(&page, "A3").await;
        assert_eq!(talk.stored().await, ["go", "go", "once more"]);
        // One that was refused after it is not known by the words of an older one.
        page.push(form.answer("A3"));
        page.push(form.user("u4", "go"));
        page.push(form.user("u5", "go on"));
        talk.is_answered(&page, "A4").await;
        assert_eq!(talk.stored().await, ["go", "go", "once more", "go", "go on"]);
    }
}

#[tokio::test]
async fn a_message_that_can_never_be_taken_is_left_out_and_named() {
    let app = Embedded::with(|config| config.limits.message_bytes = 40).await;
    let mut talk = Talk::with(app).await;
    for form in FORMS {
        talk.thread = talk.app.client.thread().await;
        let with_file = match form {
            PageForm::Parts => {
                json!({ "id": "f", "role": "user", "parts": [{ "type": "text", "text": "look" },
                { "type": "file", "mediaType": "image/pñg", "url": "data:," }] })
            }
            PageForm::Content | PageForm::Nameless => json!({ "role": "user", "content": "look",
                "experimental_attachments": [{ "contentType": "image/pñg", "url": "data:," }] }),
        };
        let page = [
            form.answer("Hello."),
            form.user("u1", &"x".repeat(41)),
            form.user("u2", "taken"),
            with_file,
            form.user("u3", "a\0b"),
            form.user("u4", "hi"),
        ];
        talk.app.scene.answers("ok");
        let (status, text, left_out) = talk.posts(&page).await;
        assert_eq!(status, 200, "{text}");
        let (file, nul) = match form {
            PageForm::Parts => ("parts[1]", "parts[0].text"),
            PageForm::Content | PageForm::Nameless => ("experimental_attachments[0]", "content"),
        };
        let named = format!(
            "messages[1]: longer than 40 bytes; messages[3].{file} (file image/p?g): models are given text only; \
             messages[4].{nul}: the character U+0000 is not allowed"
        );
        assert_eq!(left_out, Some(named), "{form:?}");
        assert_eq!(talk.stored().await, ["taken", "hi"], "{form:?}");
        assert_eq!(talk.last_request(), ["taken", "hi"]);
    }
}

#[tokio::test]
async fn at_most_twenty_refused_messages_are_taken_and_each_counts_as_a_turn() {
    let app = Embedded::with(|config| config.limits.turns_per_minute = Some(25)).await;
    let talk = Talk::with(app).await;
    let user = |n: usize| ui_user(&format!("u{n}"), &format!("message {n}"));
    let page: Vec<Value> = (0..25).map(user).collect();
    talk.app.scene.answers("ok");
    let (status, _, left_out) = talk.posts(&page).await;
    let named = "messages[3] and those before it (more than 20 messages)";
    assert_eq!((status, left_out.as_deref()), (200, Some(named)));
    let stored = talk.stored().await;
    assert_eq!((stored.len(), stored[0].as_str(), stored[20].as_str()), (21, "message 4", "message 24"));
    // Twenty-one of twenty-five are used up.
    let more = |range: std::ops::Range<usize>| range.map(user).collect::<Vec<_>>();
    let (status, text, _) = talk.posts(&more(30..35)).await;
    assert!(status == 429 && text.contains("rate_limited"), "{status} {text}");
    assert_eq!(talk.stored().await.len(), 21, "none of them is stored");
    talk.app.scene.answers("ok");
    assert_eq!(talk.posts(&more(30..34)).await.0, 200);
    assert_eq!(talk.stored().await.len(), 25);
}

#[tokio::test]
async fn more_refused_messages_than_turns_in_a_minute_are_taken_at_once_and_use_up_the_minute() {
    let app = Embedded::with(|config| config.limits.turns_per_minute = Some(2)).await;
    let talk = Talk::with(app).await;
    let page: Vec<Value> = (0..5).map(|n| ui_user(&format!("u{n}"), "hi")).collect();
    talk.app.scene.answers("ok");
    assert_eq!(talk.posts(&page).await.0, 200);
    assert_eq!(talk.stored().await.len(), 5);
    assert_eq!(talk.posts(&[ui_user("u9", "hi")]).await.0, 429);
}

#[tokio::test]
async fn an_edit_and_a_regenerate_bring_refused_messages_and_a_repeat_of_one_reads_its_answer() {
    let talk = Talk::begun().await;
    let app = &talk.app;
    app.scene.answers("A1").answers("A2").answers("A3");
    let turn = async |body: Value| -> Turn {
        let request = app.client.http.post(app.client.url(&format!("/qa/chat_streamed/{}", talk.thread)));
        app.client.read(request.header("x-stream-protocol", "data-v1").json(&body)).await
    };
    let refused = [ui_user("u1", "one"), ui_user("u2", "two"), ui_user("u3", "three")];
    // A page regenerates after a refusal.
    let regenerated = turn(json!({ "trigger": "regenerate-message", "messages": refused[..2] })).await;
    assert_eq!(regenerated.text(), "A1");
    assert_eq!(talk.stored().await, ["one", "two"]);
    // A message that was refused before one that is stored is too late.
    let late = [ui_user("u0", "late"), refused[1].clone(), refused[2].clone()];
    assert_eq!(turn(json!({ "trigger": "submit-message", "messages": late })).await.text(), "A2");
    assert_eq!(talk.stored().await, ["one", "two", "three"]);
    // An edit.
    let answered = ui_assistant("msg-x", &json!([{ "type": "text", "text": "A1" }]));
    let edited =
        [refused[0].clone(), refused[1].clone(), answered, ui_user("u4", "four"), ui_user("u3", "drei")];
    let body = json!({ "trigger": "submit-message", "messageId": "u3", "messages": edited });
    assert_eq!(turn(body).await.text(), "A3");
    assert_eq!(talk.stored().await, ["one", "two", "four", "drei"]);
    // The first of two messages with one answer.
    let again = turn(json!({ "message": ui_user("u4", "four") })).await;
    assert_eq!((again.status, again.text().as_str()), (200, "A3"), "{}", again.raw);
    assert_eq!(app.scene.requests().len(), 3);
}
