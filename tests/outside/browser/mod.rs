//! The example page (`examples/page`) in a real browser.

mod access;
mod answers;
mod cards;
mod deciding;
mod editing;
mod reading;
mod tabs;
mod texts;
mod threads;

use holdpoint_testkit::{Embedded, Tab, call};
use serde_json::json;

/// A held call of one input, as the page shows it once it is read.
#[derive(Clone, Copy)]
struct Card {
    risk: &'static str,
    title: &'static str,
    headline: &'static str,
    description: &'static str,
    /// The name of the tool.
    name: &'static str,
    /// The name of the input, and its value as it is shown.
    input: [&'static str; 2],
}

/// A payment of 10.
const PAY_10: Card = pay(r#""10""#);

/// Below the inputs of a call that has run.
const DONE: [&str; 2] = ["Approved by you, and done.", "Result"];

const fn pay(note: &'static str) -> Card {
    Card {
        risk: "High risk",
        title: "Pay",
        headline: "Pay?",
        description: "A probe.",
        name: "pay",
        input: ["note", note],
    }
}

/// What the card offers to approve besides its call.
fn later_calls(title: &str) -> String {
    format!(
        "Also approve every later call of {title} in this conversation, with any inputs, until it is revoked. Calls that wait now keep waiting."
    )
}

impl Card {
    /// The lines of the card after what this page said.
    fn with(self, rest: &[&str]) -> Vec<String> {
        let inputs = ["Inputs", self.input[0], self.input[1]];
        own(&[&[self.risk, self.title, self.headline], &inputs[..], rest].concat())
    }

    /// The lines of the card while it waits. The time that is left is not among them.
    fn asks(self) -> Vec<String> {
        let head = [self.risk, self.title, self.headline, "The tool", self.description, "Why you are asked"];
        let reason = format!("{} runs only with a person's approval", self.name);
        let facts = [reason.as_str(), "Requested by", "you", "Expires"];
        let inputs = ["Inputs", self.input[0], self.input[1]];
        let remember = later_calls(self.title);
        let question =
            [remember.as_str(), "Add a note", "Approve", "Deny", "Edit", "Waits for you. Nothing has run."];
        own(&[&head[..], &facts, &inputs, &question].concat())
    }
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// What a user said, the cards, and what came after them.
fn lines(before: &[&str], cards: &[Vec<String>], after: &[&str]) -> Vec<String> {
    [own(before), cards.concat(), own(after)].concat()
}

/// A server whose model asks for a payment of 10 once a user posts a message.
async fn with_a_hold() -> Embedded {
    let app = Embedded::start().await;
    app.scene.calls(&[call("p-1", "pay", &json!({ "note": "10" }))]);
    app
}

/// Asserts that the page made threads and decided by exactly these requests, that none of its other requests was
/// refused, and that it reported no error. How often it reads depends on the order of events.
async fn asked_for(tab: &Tab, changes: &[&str]) {
    let requested = tab.requests().await;
    let changing = |line: &&String| line.contains("validate_tool") || line.starts_with("POST /api/threads");
    // A reload leaves requests without an answer.
    let fine = [" 200", " 201", " 204", " none"];
    let refused = |line: &&String| !fine.iter().any(|end| line.ends_with(end));
    let changed: Vec<&String> = requested.iter().filter(changing).collect();
    assert_eq!(changed, changes, "{requested:#?}");
    assert_eq!(requested.iter().filter(refused).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(tab.errors().await, Vec::<String>::new());
}

const OPENED: &str = "POST /api/threads 201";
const DECIDED: &str = "POST /api/qa/validate_tool 200";
