//! Owners of calls: external services that accepted a call, and whose outcome comes later.

use crate::tool::input::Input;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The owner of a call that a service has just accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// How long the outcome may take.
    pub within: Duration,
    /// The work of an MCP server, which is polled. Without it, the service reports the outcome.
    pub work: Option<RemoteWork>,
}

/// The work of an MCP server for a call. The server reports nothing: processes poll the work, one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteWork {
    /// The name of the server in the configuration.
    pub server: String,
    /// How the call continues.
    pub next: NextAction,
}

/// How a call continues after an answer of its MCP server without a result.
#[derive(Clone, PartialEq, Eq)]
pub enum NextAction {
    /// The server does the work as this task.
    Task(TaskId),
    /// The server does nothing before it gets the call again, with answers.
    Round(InputRound),
}

/// What an MCP server needs before it continues a call: answers of people, and its own state. The call is sent again
/// with both, once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRound {
    /// The name of the tool at the server.
    pub tool: String,
    /// The number of the round in the execution, from 1.
    pub number: u32,
    /// The questions by their keys at the server. `None` is cancelled without asking.
    pub forms: BTreeMap<String, Option<InputForm>>,
    /// The state of the server, which it gets back as it is.
    pub state: Option<String>,
}

/// A question of a round, with the characters escaped that a reader cannot see.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputForm {
    /// The text for the person.
    pub message: String,
    /// The JSON Schema of the content of an answer.
    pub schema: Input,
}

/// Maximum number of rounds of an execution.
const ROUNDS_MAX: u32 = 10;
/// Maximum length of the state of a server, in bytes.
pub const STATE_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a round as JSON, in bytes.
const ROUND_BYTES_MAX: usize = 512 * 1024;

impl InputRound {
    /// Returns the round after this number of rounds, if it is within the limits.
    pub fn after(
        rounds: u32,
        tool: String,
        forms: BTreeMap<String, Option<InputForm>>,
        state: Option<String>,
    ) -> Option<Self> {
        let fits = rounds < ROUNDS_MAX && state.as_ref().is_none_or(|it| it.len() <= STATE_BYTES_MAX);
        let round = Self { tool, number: rounds.saturating_add(1), forms, state };
        let bytes = serde_json::to_vec(&round).ok()?.len();
        (fits && bytes <= ROUND_BYTES_MAX).then_some(round)
    }
}

/// The id of a task at its server. For some servers the id alone is the right to read the task.
#[derive(Clone, PartialEq, Eq)]
pub struct TaskId(String);

/// Maximum length of the id of a task, in bytes.
const ID_BYTES_MAX: usize = 1024;

impl TaskId {
    /// Returns an id that can be stored.
    pub fn new(id: String) -> Option<Self> {
        ((1..=ID_BYTES_MAX).contains(&id.len()) && !id.contains('\0')).then_some(Self(id))
    }

    /// Returns the id as its server knows it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NextAction {
    /// Leaves out the id, the state and the questions, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(_) => f.write_str("Task"),
            Self::Round(round) => write!(f, "Round {}", round.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_cannot_be_stored_is_none_and_no_id_or_state_is_in_the_debug_form() {
        for wrong in ["", "a\0b", &"x".repeat(1025)] {
            assert!(TaskId::new(wrong.to_owned()).is_none(), "{wrong:?}");
        }
        let state = Some("canary".to_owned());
        let round = InputRound::after(0, "canary".to_owned(), BTreeMap::new(), state).unwrap();
        for next in [NextAction::Task(TaskId::new("canary".to_owned()).unwrap()), NextAction::Round(round)] {
            let work = Some(RemoteWork { server: "s".to_owned(), next });
            assert!(!format!("{:?}", Owner { within: Duration::ZERO, work }).contains("canary"));
        }
    }

    #[test]
    fn a_round_beyond_the_limits_is_none() {
        let round = |rounds, state: &str| {
            InputRound::after(rounds, "t".to_owned(), BTreeMap::new(), Some(state.to_owned()))
        };
        assert_eq!(round(9, &"x".repeat(STATE_BYTES_MAX)).unwrap().number, 10);
        assert!(round(0, &"x".repeat(STATE_BYTES_MAX + 1)).is_none());
        assert!(round(10, "x").is_none());
        let form = InputForm { message: "x".repeat(ROUND_BYTES_MAX), schema: Input::new() };
        let forms = [("k".to_owned(), Some(form))].into();
        assert!(InputRound::after(0, "t".to_owned(), forms, None).is_none());
    }
}
