//! The model is called once after the last hold of a run, whichever client decides it and wherever pages
//! resume the run.

use holdpoint_testkit::ui::{UiTurn, ui_answer, ui_assistant, ui_submit_at, ui_user};
use holdpoint_testkit::{Embedded, JsonFields, Turn, call, postgres};
use serde_json::{Value, json};

const ROUNDS: usize = 6;
/// The text of the model after the outcomes.
const WORDS: &str = "All told.";

/// A thread with held calls, as two clients see it, each at its own server or both at the same one.
struct HeldThread<'a> {
    at: [&'a Embedded; 2],
    thread: String,
    message: String,
    calls: Vec<String>,
    requests_before: usize,
}

fn model_requests(at: [&Embedded; 2]) -> usize {
    let [one, other] = at;
    let elsewhere = if std::ptr::eq(one, other) { 0 } else { other.scene.requests().len() };
    one.scene.requests().len() + elsewhere
}

impl<'a> HeldThread<'a> {
    /// Creates this many calls of `pay` in one step. The models of both servers have the same next answer.
    async fn of(at: [&'a Embedded; 2], round: usize, calls: usize) -> Self {
        let [one, other] = at;
        let thread = one.client.thread().await;
        let notes: Vec<_> = (0..calls).map(|n| format!("{round}-{n}")).collect();
        let step: Vec<_> = notes.iter().map(|note| call(note, "pay", &json!({ "note": note }))).collect();
        one.scene.calls(&step);
        let turn = one.client.send_message(&thread, "pay").await;
        let requests_before = model_requests(at);
        one.scene.answers(WORDS);
        if !std::ptr::eq(one, other) {
            other.scene.answers(WORDS);
        }
        let message = turn.one('f').text("messageId").to_owned();
        Self { at, thread, message, calls: turn.pending(), requests_before }
    }

    /// A page of AI SDK 4 resumes the turn with a post.
    async fn posts(&self, at: usize) -> Turn {
        self.at[at].client.resume(&self.thread).await
    }

    /// A page of AI SDK 4 mounts again and attaches.
    async fn mounts(&self, at: usize) -> Turn {
        let client = &self.at[at].client;
        client.read(client.http.get(client.url(&format!("/qa/chat_streamed/{}?chatId=x", self.thread)))).await
    }

    /// A page of AI SDK 6 approves these calls in the post that resumes the turn.
    async fn posts_yes(&self, at: usize, calls: &[&String]) -> UiTurn {
        let answers: Vec<Value> = calls.iter().map(|id| ui_answer(id, "pay", true)).collect();
        let messages = [ui_user("u", "pay"), ui_assistant(&self.message, &json!(answers))];
        let body = ui_submit_at(&self.thread, &messages, &self.message);
        self.at[at].client.ui_turn_in(&self.thread, &body).await
    }

    async fn approves(&self, at: usize, id: &str) {
        let answer = self.at[at].client.approve(id).await;
        answer.has(200, "state", "succeeded");
    }

    /// Asserts that all calls are decided and that the model was called once after that.
    async fn assert_continued_once(self) {
        let Self { at, thread, message, calls, requests_before } = self;
        assert_eq!(model_requests(at), requests_before + 1, "one continuation");
        let rows = &at[0].rows;
        let steps = format!("SELECT status FROM message_steps WHERE message_id = '{message}' ORDER BY n");
        let complete = json!({ "status": "complete" });
        assert_eq!(rows.all(&steps).await, [complete.clone(), complete]);
        let runs = format!("SELECT status FROM runs WHERE thread_id = '{thread}'");
        assert_eq!(rows.all(&runs).await, [json!({ "status": "completed" })]);
        let of_run = format!("run_id = (SELECT run_id FROM runs WHERE thread_id = '{thread}')");
        assert_eq!(rows.count(&format!("events WHERE {of_run} AND type = 'run.resumed'")).await, 1);
        let reported =
            format!("sent_answers WHERE kind = 'answer' AND message_id = '{message}' AND step = 1");
        assert_eq!(rows.count(&reported).await, i64::try_from(calls.len()).unwrap());
        for id in &calls {
            assert_eq!(rows.count(&format!("decisions WHERE tool_call_id = '{id}'")).await, 1);
        }
        // Discards the unused answers of the models, so that the next round reads its own.
        for app in at {
            app.scene.forget();
        }
    }
}

/// Asserts what a page that resumed the turn read: the answer, or the states of the calls if no turn was left to
/// resume.
fn assert_words_or_late(turn: &Turn) {
    let late = turn.text().is_empty();
    assert!(turn.status == 200 && (turn.text() == WORDS || late), "{}", turn.raw);
}

async fn alone() -> Embedded {
    Embedded::start().await
}

async fn side_by_side() -> [Embedded; 2] {
    let url = postgres().await;
    let one = Embedded::with(|config| config.database.url = url.clone().into()).await;
    [one, Embedded::with(|config| config.database.url = url.into()).await]
}

async fn two_pages_post_at_once(at: [&Embedded; 2]) {
    for round in 0..ROUNDS {
        let held = HeldThread::of(at, round, 1).await;
        held.approves(round % 2, &held.calls[0]).await;
        let turns = tokio::join!(held.posts(0), held.posts(1), held.posts(0), held.posts(1));
        let turns: [Turn; 4] = turns.into();
        turns.iter().for_each(assert_words_or_late);
        assert!(turns.iter().any(|turn| turn.text() == WORDS));
        held.assert_continued_once().await;
    }
}

#[tokio::test]
async fn concurrent_posts_have_one_continuation() {
    let app = alone().await;
    two_pages_post_at_once([&app, &app]).await;
}

#[tokio::test]
async fn on_postgres_concurrent_posts_to_two_processes_have_one_continuation() {
    let [one, other] = side_by_side().await;
    two_pages_post_at_once([&one, &other]).await;
}

async fn one_posts_and_one_mounts(at: [&Embedded; 2]) {
    for round in 0..ROUNDS {
        let held = HeldThread::of(at, round, 1).await;
        held.approves(1, &held.calls[0]).await;
        let (posted, mounted) = if round % 2 == 0 {
            tokio::join!(held.posts(0), held.mounts(1))
        } else {
            let (mounted, posted) = tokio::join!(held.mounts(1), held.posts(0));
            (posted, mounted)
        };
        assert_words_or_late(&posted);
        assert_words_or_late(&mounted);
        assert!([posted, mounted].iter().any(|turn| turn.text() == WORDS));
        held.assert_continued_once().await;
    }
}

#[tokio::test]
async fn a_posting_page_and_a_mounting_page_have_one_continuation() {
    let app = alone().await;
    one_posts_and_one_mounts([&app, &app]).await;
}

#[tokio::test]
async fn on_postgres_a_posting_page_and_a_mounting_page_at_two_processes_have_one_continuation() {
    let [one, other] = side_by_side().await;
    one_posts_and_one_mounts([&one, &other]).await;
}

async fn the_last_two_holds_are_decided_at_once(at: [&Embedded; 2]) {
    for round in 0..ROUNDS {
        let held = HeldThread::of(at, round, 3).await;
        held.approves(0, &held.calls[2]).await;
        let half = held.posts(1).await;
        assert_eq!(half.pending(), held.calls[..2], "what is not decided is asked again");
        assert_eq!(model_requests(at), held.requests_before, "and no model");
        let by_hand = async {
            held.approves(0, &held.calls[0]).await;
            held.posts(0).await
        };
        let parts = [&held.calls[1], &held.calls[2]];
        let (by_hand, by_parts) = tokio::join!(by_hand, held.posts_yes(1, &parts));
        for pending in [by_hand.pending(), by_parts.pending()] {
            // Each request may have come before the approval of the other.
            assert!(pending.is_empty() || pending.len() == 1, "{pending:?}");
        }
        if by_hand.text() != WORDS && by_parts.text() != WORDS {
            assert_eq!(model_requests(at), held.requests_before);
            assert_eq!(held.posts(1).await.text(), WORDS);
        }
        held.assert_continued_once().await;
    }
}

#[tokio::test]
async fn the_last_holds_of_a_run_decided_concurrently_have_one_continuation() {
    let app = alone().await;
    the_last_two_holds_are_decided_at_once([&app, &app]).await;
}

#[tokio::test]
async fn on_postgres_the_last_holds_of_a_run_decided_at_two_processes_have_one_continuation() {
    let [one, other] = side_by_side().await;
    the_last_two_holds_are_decided_at_once([&one, &other]).await;
}

async fn the_last_hold_is_decided_twice(at: [&Embedded; 2]) {
    for round in 0..ROUNDS {
        let held = HeldThread::of(at, round, 1).await;
        let id = &held.calls[0];
        let by_hand = async {
            held.approves(0, id).await;
            held.posts(0).await
        };
        let parts = [id];
        let (by_hand, first, second) =
            tokio::join!(by_hand, held.posts_yes(1, &parts), held.posts_yes(0, &parts));
        assert_words_or_late(&by_hand);
        for turn in [first, second] {
            assert_eq!(turn.text(), WORDS, "a page that answered sees what came of it: {}", turn.raw);
        }
        held.assert_continued_once().await;
    }
    let effects = at.iter().flat_map(|app| app.ledger.lines());
    let mut effects: Vec<_> =
        if std::ptr::eq(at[0], at[1]) { at[0].ledger.lines() } else { effects.collect() };
    effects.sort();
    let expected: Vec<_> = (0..ROUNDS).map(|round| format!("pay {round}-0")).collect();
    assert_eq!(effects, expected);
}

#[tokio::test]
async fn the_last_hold_decided_from_three_places_has_one_effect_and_one_continuation() {
    let app = alone().await;
    the_last_hold_is_decided_twice([&app, &app]).await;
}

#[tokio::test]
async fn on_postgres_the_last_hold_decided_at_two_processes_has_one_effect_and_one_continuation() {
    let [one, other] = side_by_side().await;
    the_last_hold_is_decided_twice([&one, &other]).await;
}
