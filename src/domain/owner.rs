//! Owners of calls: external services that accepted a call, and whose outcome comes later.

use std::fmt;
use std::time::Duration;

/// The owner of a call that a service has just accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    /// How long the outcome may take.
    pub(crate) within: Duration,
    /// The task that does the work. Without one, the service reports the outcome.
    pub(crate) task: Option<RemoteTask>,
}

/// A task of an MCP server. The server reports nothing: the outcome is polled.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RemoteTask {
    /// The name of the server in the configuration.
    pub(crate) server: String,
    /// The id at the server.
    pub(crate) id: TaskId,
}

/// The id of a task at its server. For some servers the id alone is the right to read the task.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TaskId(String);

/// Maximum length of the id of a task, in bytes.
const ID_BYTES_MAX: usize = 1024;

impl TaskId {
    /// Returns an id that can be stored.
    pub(crate) fn new(id: String) -> Option<Self> {
        ((1..=ID_BYTES_MAX).contains(&id.len()) && !id.contains('\0')).then_some(Self(id))
    }

    /// Returns the id as its server knows it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RemoteTask {
    /// Leaves out the id, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTask").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_cannot_be_stored_is_none_and_no_id_is_in_the_debug_form() {
        for wrong in ["", "a\0b", &"x".repeat(1025)] {
            assert!(TaskId::new(wrong.to_owned()).is_none(), "{wrong:?}");
        }
        let task = RemoteTask { server: "s".to_owned(), id: TaskId::new("canary".to_owned()).unwrap() };
        assert!(!format!("{:?}", Owner { within: Duration::ZERO, task: Some(task) }).contains("canary"));
    }
}
