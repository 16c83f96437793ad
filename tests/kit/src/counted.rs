//! The counts of threads, which a server keeps, and what they have to be: the sums over the rows.

use super::Rows;

/// The number of messages of a thread.
const MESSAGES: &str = "(SELECT count(*) FROM messages WHERE messages.thread_id = threads.thread_id)";

/// The bytes of the texts of a thread. A step counts after its end.
const BYTES: &str = include_str!("thread_bytes.sql");

impl Rows {
    /// Asserts that the counts of each thread are the sums over its rows. Returns the bytes of the largest thread.
    pub async fn assert_counted(&self) -> u64 {
        let all = format!(
            "SELECT thread_id, messages, bytes, {MESSAGES} AS true_messages, {BYTES} AS true_bytes FROM threads"
        );
        let wrong = format!("({all}) counted WHERE messages <> true_messages OR bytes <> true_bytes");
        let shown = format!(
            "SELECT thread_id, messages, bytes, CAST(true_messages AS TEXT) AS true_messages,
            CAST(true_bytes AS TEXT) AS true_bytes FROM {wrong}"
        );
        assert_eq!(self.count(&wrong).await, 0, "{:#?}", self.all(&shown).await);
        let threads = self.all("SELECT bytes FROM threads").await;
        threads.iter().map(|thread| thread["bytes"].as_u64().unwrap()).max().unwrap_or_default()
    }

    /// Counts the rows of each thread again, after a test has inserted some.
    pub async fn count_again(&self) {
        self.change(&format!("UPDATE threads SET messages = {MESSAGES}, bytes = {BYTES}")).await.unwrap();
    }
}
