//! A decision is linearizable: once any process has shown the decision of a call, no response to a later
//! request shows the call as pending or with another decision.

use futures::future::join_all;
use holdpoint_testkit::{Client, Deployment, JsonFields, Process};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const ROUNDS: usize = 8;
/// Deciders per verdict at each process.
const OF_EACH: usize = 2;

/// The verdict that a decider sends, or the state that a response shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeenVerdict {
    Pending,
    Yes {
        /// Absent where the route does not show whether the inputs were edited.
        edited: Option<bool>,
    },
    No,
}

impl SeenVerdict {
    fn is_of_a_decision(self) -> bool {
        self != Self::Pending
    }

    /// Whether both can be true of one decided call.
    fn agrees_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Yes { edited: Some(one) }, Self::Yes { edited: Some(other) }) => one == other,
            (Self::Yes { .. }, Self::Yes { .. }) | (Self::No, Self::No) => true,
            _ => false,
        }
    }

    /// The verdict of a decision in JSON.
    fn of_decision(decision: &Value) -> Self {
        match decision["decision"].as_str() {
            Some("approve") => Self::Yes { edited: Some(decision["edited"] == true) },
            Some("reject") => Self::No,
            _ => panic!("{decision}"),
        }
    }

    /// The verdict of a call in JSON.
    fn of_call(call: &Value) -> Self {
        let decision = call.get("decision").map(Self::of_decision);
        let word = decision.unwrap_or(Self::Pending);
        assert_eq!(call["validated"].is_null(), word == Self::Pending, "{call}");
        if let SeenVerdict::Yes { edited } = word {
            assert_eq!(Some(call.get("validated_inputs").is_some()), edited, "{call}");
        }
        word
    }

    /// The verdict of an annotation for pages of AI SDK 4.
    fn of_annotation(word: &Value) -> Self {
        match word.as_str() {
            Some("pending") => Self::Pending,
            Some("approved") => Self::Yes { edited: None },
            Some("rejected") => Self::No,
            _ => panic!("{word}"),
        }
    }
}

/// A state that a response showed, and the time between request and response.
#[derive(Debug, Clone)]
struct SeenState {
    requested: Instant,
    answered: Instant,
    word: SeenVerdict,
    /// The route and the process of the request.
    by: String,
}

/// Records a state that a response has just shown.
fn seen(process: usize, route: &str, requested: Instant, word: SeenVerdict) -> SeenState {
    SeenState { requested, answered: Instant::now(), word, by: format!("{route} at {process}") }
}

/// The verdicts that the deciders send.
const WAYS: [SeenVerdict; 3] =
    [SeenVerdict::Yes { edited: Some(false) }, SeenVerdict::No, SeenVerdict::Yes { edited: Some(true) }];

/// Sends the verdict, alone or in a batch. Returns the verdict that the response shows.
async fn decide(client: &Client, id: &str, way: SeenVerdict, in_batch: bool) -> SeenVerdict {
    let mut body = json!({ "toolCallId": id, "isValidated": way != SeenVerdict::No });
    if way == (SeenVerdict::Yes { edited: Some(true) }) {
        body["validatedInputs"] = json!({ "note": "edited" });
    }
    let (status, reported) = if in_batch {
        let mut answer = client.post("/qa/validate_tools", &json!({ "decisions": [body] })).await.body;
        let one = answer["results"][0].take();
        (one["status"].as_u64().unwrap(), one)
    } else {
        let answer = client.validate(&body).await;
        (answer.status.into(), answer.body)
    };
    match (status, reported["error"]["code"].as_str()) {
        (200 | 202, None) => way,
        (409, Some("already_decided")) => SeenVerdict::of_decision(&reported["error"]["details"]["decision"]),
        other => panic!("{other:?}: {reported}"),
    }
}

/// Reads the call over one of the routes that show it.
async fn read(client: &Client, thread: &str, id: &str, n: usize) -> (&'static str, SeenVerdict) {
    let messages = async |format: &str| {
        let found = client.get(&format!("/threads/{thread}/messages{format}")).await.body;
        found.list("results").last().unwrap().clone()
    };
    match n % 4 {
        0 => ("call", SeenVerdict::of_call(&client.call(id).await)),
        1 => {
            let answer = messages("").await;
            let parts = answer.list("parts").clone();
            let call = parts.iter().find(|part| part["type"] == "tool_call").unwrap();
            ("messages", SeenVerdict::of_call(&call["tool_call"]))
        }
        2 => ("v4", SeenVerdict::of_annotation(&messages("?format=v4").await["annotations"][0]["validated"])),
        _ => {
            let answer = messages("?format=ui-v6").await;
            let parts = answer.list("parts").clone();
            let call = parts.iter().find(|part| part["toolCallId"] == id).unwrap();
            let word = match call["approval"].get("approved") {
                None => SeenVerdict::Pending,
                Some(Value::Bool(true)) => SeenVerdict::Yes { edited: None },
                Some(_) => SeenVerdict::No,
            };
            ("ui-v6", word)
        }
    }
}

/// Decides one call in every way at every process concurrently, while readers poll it at every process.
async fn round(servers: &[Process; 3], thread: &str, id: &str, round: usize) -> Vec<SeenState> {
    let over = AtomicBool::new(false);
    let deciders = async {
        let all = (0..servers.len() * WAYS.len() * OF_EACH).map(|n| {
            // Chance determines the first decider; the order is rotated in each round.
            let (process, way) = (n % servers.len(), WAYS[(n / servers.len() + round) % WAYS.len()]);
            async move {
                let requested = Instant::now();
                let word = decide(&servers[process].client, id, way, n % 2 == 1).await;
                seen(process, "validate_tool", requested, word)
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
            // Every route is read once more after all deciders have finished.
            while last_look < 4 {
                last_look += usize::from(over.load(Ordering::SeqCst));
                let requested = Instant::now();
                let (route, word) = read(&servers[process].client, thread, id, all.len() + process).await;
                all.push(seen(process, route, requested, word));
            }
            all
        }
    });
    let (decided, read) = tokio::join!(deciders, join_all(readers));
    decided.into_iter().chain(read.into_iter().flatten()).collect()
}

#[tokio::test]
async fn on_postgres_three_processes_never_show_two_decisions_of_one_call() {
    let deployment = Deployment::on_postgres().await;
    let servers = [deployment.start("0s"), deployment.start("30s"), deployment.start("0s")];
    deployment.release();
    let mut pending = 0;
    for n in 0..ROUNDS {
        let client = &servers[n % 3].client;
        let thread = client.thread().await;
        let id = deployment.hold(client, &thread, &n.to_string()).await;
        let seen = round(&servers, &thread, &id, n).await;
        pending += seen.iter().filter(|seen| seen.word == SeenVerdict::Pending).count();
        let decided: Vec<_> = seen.iter().filter(|seen| seen.word.is_of_a_decision()).collect();
        let first = decided.iter().min_by_key(|seen| seen.answered).unwrap();
        for later in seen.iter().filter(|later| later.requested > first.answered) {
            assert!(later.word.agrees_with(first.word), "first {first:#?}, and later {later:#?}");
        }
        // Every response that shows a decision shows the same one, whatever its time.
        let full = decided.iter().find(|seen| seen.by.starts_with("validate_tool")).unwrap();
        for other in &decided {
            assert!(other.word.agrees_with(full.word), "{full:#?} and {other:#?}");
        }
        let stored = format!("SELECT verdict, edited FROM decisions WHERE tool_call_id = '{id}'");
        let [stored] = &deployment.rows().await.all(&stored).await[..] else { panic!("one decision") };
        let stored = json!({ "decision": stored["verdict"], "edited": stored["edited"] });
        assert_eq!(SeenVerdict::of_decision(&stored), full.word);
    }
    assert!(pending > 0, "no read came before the decision, so the test observed no race");
    let ran = deployment.ledger().into_iter().filter(|line| !line.ends_with(" done")).count();
    let approved = deployment.rows().await.count("decisions WHERE verdict = 'approve'").await;
    assert_eq!(i64::try_from(ran).unwrap(), approved);
}
