//! A decision is one for everybody: once any process has shown one for a call, no answer to what is asked later shows
//! that it waits, or another.

use crate::support::{Client, Place, Process};
use futures::future::join_all;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const ROUNDS: usize = 8;
/// Deciders of each way at each process.
const OF_EACH: usize = 2;

/// What somebody says about a call, or was shown of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Pending,
    Yes {
        /// Where it was shown: not every route tells.
        edited: Option<bool>,
    },
    No,
}

impl Word {
    fn is_of_a_decision(self) -> bool {
        self != Self::Pending
    }

    /// Whether both may be true of one call, once it is decided.
    fn agrees_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Yes { edited: Some(one) }, Self::Yes { edited: Some(other) }) => one == other,
            (Self::Yes { .. }, Self::Yes { .. }) | (Self::No, Self::No) => true,
            _ => false,
        }
    }

    /// As a decision in JSON says it.
    fn of_decision(decision: &Value) -> Self {
        match decision["decision"].as_str() {
            Some("approve") => Self::Yes { edited: Some(decision["edited"] == true) },
            Some("reject") => Self::No,
            _ => panic!("{decision}"),
        }
    }

    /// As a call in JSON says it.
    fn of_call(call: &Value) -> Self {
        let decision = call.get("decision").map(Self::of_decision);
        let word = decision.unwrap_or(Self::Pending);
        assert_eq!(call["validated"].is_null(), word == Self::Pending, "{call}");
        if let Word::Yes { edited } = word {
            assert_eq!(Some(call.get("validated_inputs").is_some()), edited, "{call}");
        }
        word
    }

    /// As annotations of pages of AI SDK 4 say it.
    fn of_annotation(word: &Value) -> Self {
        match word.as_str() {
            Some("pending") => Self::Pending,
            Some("approved") => Self::Yes { edited: None },
            Some("rejected") => Self::No,
            _ => panic!("{word}"),
        }
    }
}

/// Something that was shown, and in which time.
#[derive(Debug, Clone)]
struct Seen {
    asked: Instant,
    answered: Instant,
    word: Word,
    /// By which route, at which process.
    by: String,
}

/// What was shown just now.
fn seen(process: usize, route: &str, asked: Instant, word: Word) -> Seen {
    Seen { asked, answered: Instant::now(), word, by: format!("{route} at {process}") }
}

/// What deciders say.
const WAYS: [Word; 3] = [Word::Yes { edited: Some(false) }, Word::No, Word::Yes { edited: Some(true) }];

/// Says it, alone or as one of a batch, and what the answer shows.
async fn decide(client: &Client, id: &str, way: Word, in_batch: bool) -> Word {
    let mut body = json!({ "toolCallId": id, "isValidated": way != Word::No });
    if way == (Word::Yes { edited: Some(true) }) {
        body["validatedInputs"] = json!({ "note": "edited" });
    }
    let (status, told) = if in_batch {
        let mut answer = client.post("/qa/validate_tools", &json!({ "decisions": [body] })).await.body;
        let one = answer["results"][0].take();
        (one["status"].as_u64().unwrap(), one)
    } else {
        let answer = client.validate(&body).await;
        (answer.status.into(), answer.body)
    };
    match (status, told["error"]["code"].as_str()) {
        (200 | 202, None) => way,
        (409, Some("already_decided")) => Word::of_decision(&told["error"]["details"]["decision"]),
        other => panic!("{other:?}: {told}"),
    }
}

/// Asks in one of the ways that show a call.
async fn read(client: &Client, thread: &str, id: &str, n: usize) -> (&'static str, Word) {
    let messages = async |format: &str| {
        let found = client.get(&format!("/threads/{thread}/messages{format}")).await.body;
        found["results"].as_array().unwrap().last().unwrap().clone()
    };
    match n % 4 {
        0 => ("call", Word::of_call(&client.call(id).await)),
        1 => {
            let answer = messages("").await;
            let parts = answer["parts"].as_array().unwrap().clone();
            let call = parts.iter().find(|part| part["type"] == "tool_call").unwrap();
            ("messages", Word::of_call(&call["tool_call"]))
        }
        2 => ("v4", Word::of_annotation(&messages("?format=v4").await["annotations"][0]["validated"])),
        _ => {
            let answer = messages("?format=ui-v6").await;
            let parts = answer["parts"].as_array().unwrap().clone();
            let call = parts.iter().find(|part| part["toolCallId"] == id).unwrap();
            let word = match call["approval"].get("approved") {
                None => Word::Pending,
                Some(Value::Bool(true)) => Word::Yes { edited: None },
                Some(_) => Word::No,
            };
            ("ui-v6", word)
        }
    }
}

/// One call: decided in all ways at every process at once, while others look at it at every process.
async fn round(servers: &[Process; 3], thread: &str, id: &str, round: usize) -> Vec<Seen> {
    let over = AtomicBool::new(false);
    let deciders = async {
        let all = (0..servers.len() * WAYS.len() * OF_EACH).map(|n| {
            // Who of them is first is left to chance, which begins elsewhere each time.
            let (process, way) = (n % servers.len(), WAYS[(n / servers.len() + round) % WAYS.len()]);
            async move {
                let asked = Instant::now();
                let word = decide(&servers[process].client, id, way, n % 2 == 1).await;
                seen(process, "validate_tool", asked, word)
            }
        });
        let all = join_all(all).await;
        over.store(true, Ordering::SeqCst);
        all
    };
    let readers = (0..servers.len()).map(|process| {
        let over = &over;
        async move {
            let mut all = Vec::new();
            let mut last_look = 0;
            // And once more by every route when all is decided.
            while last_look < 4 {
                last_look += usize::from(over.load(Ordering::SeqCst));
                let asked = Instant::now();
                let (route, word) = read(&servers[process].client, thread, id, all.len() + process).await;
                all.push(seen(process, route, asked, word));
            }
            all
        }
    });
    let (decided, read) = tokio::join!(deciders, join_all(readers));
    decided.into_iter().chain(read.into_iter().flatten()).collect()
}

#[tokio::test]
async fn on_postgres_once_three_processes_have_shown_a_decision_none_shows_another() {
    let place = Place::on_postgres().await;
    let servers = [place.start("0s"), place.start("30s"), place.start("0s")];
    place.go();
    let mut pending = 0;
    for n in 0..ROUNDS {
        let client = &servers[n % 3].client;
        let thread = client.thread().await;
        let id = place.hold(client, &thread, &n.to_string()).await;
        let seen = round(&servers, &thread, &id, n).await;
        pending += seen.iter().filter(|seen| seen.word == Word::Pending).count();
        let decided: Vec<_> = seen.iter().filter(|seen| seen.word.is_of_a_decision()).collect();
        let first = decided.iter().min_by_key(|seen| seen.answered).unwrap();
        for later in seen.iter().filter(|later| later.asked > first.answered) {
            assert!(later.word.agrees_with(first.word), "first {first:#?}, and later {later:#?}");
        }
        // All who were shown one were shown the same, whenever that was.
        let full = decided.iter().find(|seen| seen.by.starts_with("validate_tool")).unwrap();
        for other in &decided {
            assert!(other.word.agrees_with(full.word), "{full:#?} and {other:#?}");
        }
        let stored = format!("SELECT verdict, edited FROM decisions WHERE tool_call_id = '{id}'");
        let [stored] = &place.rows().await.all(&stored).await[..] else { panic!("one decision") };
        let stored = json!({ "decision": stored["verdict"], "edited": stored["edited"] });
        assert_eq!(Word::of_decision(&stored), full.word);
    }
    assert!(pending > 0, "nobody looked before it was decided, so nothing was seen");
    let ran = place.ledger().into_iter().filter(|line| !line.ends_with(" done")).count();
    let approved = place.rows().await.count("decisions WHERE verdict = 'approve'").await;
    assert_eq!(i64::try_from(ran).unwrap(), approved);
}
