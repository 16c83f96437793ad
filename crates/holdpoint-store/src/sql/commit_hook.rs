//! The hook at the commits of a server, for tests of crash safety.

use crate::{Store, StoreError, Write};
use futures::future::BoxFuture;
use holdpoint_core::id::ToolCallId;
use parking_lot::Mutex;
use sea_orm::{DbErr, RuntimeErr};
use std::fmt;
use std::sync::Arc;

/// Observes the commits of a server, and may refuse them or hide their result. For tests of crash safety.
///
/// A server promises that it survives the end of its process, and the loss of its database, at every commit.
/// A hook ends the process, delays a commit or makes it fail at such a moment. While `before` runs, the
/// transaction keeps its connection and its locks. The migration of the schema and the numbering of events have
/// no hook.
///
/// ```
/// use holdpoint_store::{Commit, CommitFailed, CommitHook};
/// use futures::future::BoxFuture;
///
/// /// Fails each commit of an approval, after the database has made the commit.
/// #[derive(Debug)]
/// struct LosesApprovals;
///
/// impl CommitHook for LosesApprovals {
///     fn before<'a>(&'a self, _commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>> {
///         Box::pin(async { Ok(()) })
///     }
///
///     fn after<'a>(&'a self, commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>> {
///         Box::pin(async move { if commit.name == "tool.approved" { Err(CommitFailed) } else { Ok(()) } })
///     }
/// }
/// ```
pub trait CommitHook: fmt::Debug + Send + Sync + 'static {
    /// Runs before the commit. An error prevents the commit: the transaction is rolled back.
    fn before<'a>(&'a self, commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>>;

    /// Runs after the commit, before any code that depends on it. After an error the commit stays made, but
    /// the server receives a failure, as if the answer of the database were lost.
    fn after<'a>(&'a self, commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>>;
}

/// A commit of a server, as a [`CommitHook`] sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// The type of the first event of the transaction, such as `tool.approved`. A claim in the transaction of
    /// its approval has no name of its own, and any other claim is `tool.started`. A step with a hold has the
    /// event of the hold, `tool.requires_approval`. A transaction without events has a name of its own:
    /// `call.renewed`, `turn.renewed`, `step.opened`, `step.drafted`, `step.broken`, or `other`.
    pub name: &'static str,
    /// The call that the commit is about, if it is about one.
    pub call: Option<ToolCallId>,
}

/// The error of a commit that a [`CommitHook`] fails. The server treats it as a broken connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitFailed;

impl From<CommitFailed> for StoreError {
    fn from(CommitFailed: CommitFailed) -> Self {
        DbErr::Conn(RuntimeErr::Internal("the commit hook failed the commit".to_owned())).into()
    }
}

/// The hook of a transaction, and what the transaction commits.
#[derive(Debug)]
pub(crate) struct HookedCommit {
    hook: Option<Arc<dyn CommitHook>>,
    commit: Mutex<Option<Commit>>,
}

impl HookedCommit {
    pub(crate) fn new(hook: Option<Arc<dyn CommitHook>>) -> Self {
        Self { hook, commit: Mutex::default() }
    }

    /// Runs the hook before the commit.
    pub(crate) async fn before(&self) -> Result<(), StoreError> {
        match &self.hook {
            Some(hook) => Ok(hook.before(&self.commit()).await?),
            None => Ok(()),
        }
    }

    /// Runs the hook after the commit.
    pub(crate) async fn after(&self) -> Result<(), StoreError> {
        match &self.hook {
            Some(hook) => Ok(hook.after(&self.commit()).await?),
            None => Ok(()),
        }
    }

    fn commit(&self) -> Commit {
        self.commit.lock().unwrap_or(Commit { name: "other", call: None })
    }
}

impl Store {
    /// Adds the hook at the commits of this store.
    pub fn hooked(self, hook: Option<Arc<dyn CommitHook>>) -> Self {
        Self { hook, ..self }
    }
}

impl Write {
    /// Names the commit of this transaction for the hook. The first name counts.
    pub(crate) fn name_commit(&self, name: &'static str, call: Option<ToolCallId>) {
        self.hooked.commit.lock().get_or_insert(Commit { name, call });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewThread;
    use crate::config::Database;
    use futures::FutureExt;
    use holdpoint_core::Principal;
    use holdpoint_core::clock::SystemClock;
    use holdpoint_metrics::Metrics;

    /// Fails one side of every commit, and records the commits that it saw.
    #[derive(Debug)]
    struct FailingCommits {
        before: bool,
        seen: Mutex<Vec<(&'static str, Commit)>>,
    }

    impl FailingCommits {
        fn see(&self, side: &'static str, commit: &Commit, fails: bool) -> Result<(), CommitFailed> {
            self.seen.lock().push((side, *commit));
            if fails { Err(CommitFailed) } else { Ok(()) }
        }
    }

    impl CommitHook for FailingCommits {
        fn before<'a>(&'a self, commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>> {
            async { self.see("before", commit, self.before) }.boxed()
        }

        fn after<'a>(&'a self, commit: &'a Commit) -> BoxFuture<'a, Result<(), CommitFailed>> {
            async { self.see("after", commit, !self.before) }.boxed()
        }
    }

    /// Creates a thread with this hook. Returns whether the thread is stored.
    async fn is_stored_with(hook: &Arc<FailingCommits>) -> bool {
        let database = Database::in_memory();
        let store = Store::connect(&database, Arc::new(SystemClock), Metrics::new([], 0.0));
        let store = store.await.unwrap().hooked(Some(hook.clone()));
        store.migrate().await.unwrap();
        let owner =
            Principal { tenant_id: "acme".to_owned(), user_id: "alice".to_owned(), roles: Vec::new() };
        let write = store.write().await.unwrap();
        let new = NewThread { title: "notes".to_owned(), client_id: None, parent: None };
        let thread = write.create_thread(&owner, new).await.unwrap();
        write.name_commit("first", None);
        write.name_commit("second", None);
        let error = write.commit().await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        store.read().await.unwrap().thread(&owner, thread.id).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn on_sqlite_a_refused_commit_is_not_made_and_a_commit_with_a_lost_result_is() {
        let first = Commit { name: "first", call: None };
        let refuses = Arc::new(FailingCommits { before: true, seen: Mutex::default() });
        assert!(!is_stored_with(&refuses).await);
        assert_eq!(*refuses.seen.lock(), [("before", first)]);
        let loses = Arc::new(FailingCommits { before: false, seen: Mutex::default() });
        assert!(is_stored_with(&loses).await);
        assert_eq!(*loses.seen.lock(), [("before", first), ("after", first)]);
    }
}
