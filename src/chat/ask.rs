//! What a request wants, and the run that answers it.

use super::intent::{Intent, intent};
use super::{Chat, Started};
use crate::config::WhilePending;
use crate::domain::Principal;
use crate::domain::dialect::Dialect;
use crate::domain::id::ToolCallId;
use crate::domain::run::{Run, RunOptions, RunStatus};
use crate::pace::TooOften;
use crate::store::{Lease, NewRun, NewThread, Question, StoreError, Thread, Which, Write};
use crate::tools::ToolRegistry;

/// The title of a thread that nobody gave one.
pub(crate) const DEFAULT_TITLE: &str = "New chat";

/// A request: what it wants, and what a person says in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ask {
    /// What it wants.
    pub(crate) wants: Wants,
    /// What to ask the model with.
    pub(crate) options: RunOptions,
    /// The answers to held calls among the parts that a page posted, new ones and those of before.
    pub(crate) answers: Vec<PostedAnswer>,
}

/// What a request wants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wants {
    /// A new user message.
    New {
        /// Its words.
        text: String,
        /// The page's name for it. One that is stored already is the same message, posted again.
        client_id: Option<String>,
    },
    /// What the conversation as a page holds it tells by itself. Only the words of its user messages are read, and
    /// whether it ends with one.
    History {
        /// Its messages, oldest first.
        messages: Vec<PostedMessage>,
    },
    /// Another text in place of a user message, and all behind it anew.
    Edit {
        /// The message: its id, or the page's name for it.
        message: String,
        /// The new words.
        text: String,
    },
    /// Another answer to a user message.
    Regenerate {
        /// The answer, by its id, or the user message, by its id or the page's name for it; where the page names one.
        answer: Option<String>,
        /// The user message as the page holds it, without words where it has none.
        question: Option<PostedMessage>,
    },
    /// To go on.
    Continue {
        /// The assistant's message to go on with, where the page names one.
        message: Option<String>,
    },
}

/// An answer to a held call, as a page posts it. The call is whatever is stored under its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PostedAnswer {
    /// Which call.
    pub(crate) tool_call_id: ToolCallId,
    /// Yes or no.
    pub(crate) approved: bool,
    /// Why not.
    pub(crate) reason: Option<String>,
}

impl Ask {
    /// To go on, and nothing else.
    pub(crate) fn go_on() -> Self {
        let wants = Wants::Continue { message: None };
        Self { wants, options: RunOptions::default(), answers: Vec::new() }
    }
}

/// A message as a page posts it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PostedMessage {
    /// Its words, if a user's; of all other roles nothing is believed.
    pub(crate) user_text: Option<String>,
    /// The page's name for it.
    pub(crate) id: Option<String>,
}

/// Which thread a request speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadName {
    /// One that is there.
    Known(String),
    /// One that is made if it is not there, under the caller's own name for it.
    OrNew(String),
}

/// Why there is no turn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No such thread, for this principal.
    #[error("there is no such thread")]
    NoThread,
    /// Another turn of the thread is under way.
    #[error("a turn of this thread is under way")]
    TurnInProgress,
    /// There is nothing to go on with.
    #[error("there is nothing to continue")]
    NothingToContinue,
    /// The server is about to leave and begins nothing.
    #[error("the server is stopping")]
    Stopping,
    /// As many turns as there may be are under way.
    #[error("{max} turns of this {of} are under way")]
    TooManyTurns {
        /// Of whom.
        of: &'static str,
        /// As many as there may be.
        max: u32,
    },
    /// They had the model asked too often lately.
    #[error(transparent)]
    TooOften(#[from] TooOften),
    /// Calls wait for a person, and a new message may not pass them.
    #[error("calls of this thread await approval")]
    AwaitingApproval,
    /// No such model.
    #[error("there is no model {0:?}")]
    UnknownModel(String),
    /// No such tool.
    #[error("there is no tool {0:?}")]
    UnknownTool(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What follows the transaction.
pub(super) enum Next {
    /// Another request's turn is read along.
    Attach(Run),
    /// A turn of this request's begins.
    Begin(Box<Lease>),
    /// Its run waits for a person.
    Announce(Run),
}

impl Chat {
    /// Finds or makes the run that answers and starts its turn.
    pub(crate) async fn ask(
        &self,
        principal: &Principal,
        name: &ThreadName,
        ask: Ask,
        dialect: Dialect,
    ) -> Result<Started, AskError> {
        let Ask { wants, options, .. } = ask;
        self.check(principal, &options)?;
        if self.tasks.is_stopping() {
            return Err(AskError::Stopping);
        }
        let write = self.store.write().await?;
        let thread = self.thread(&write, principal, name, &wants).await?;
        write.lock_thread(&thread).await?;
        let intent = intent(&write, &thread, wants).await?;
        let next = self.next(&write, principal, &thread, intent, options).await?;
        self.follow(write, principal, thread, next, dialect).await
    }

    /// Commits, and begins what follows.
    pub(super) async fn follow(
        &self,
        write: Write,
        principal: &Principal,
        thread: Thread,
        next: Next,
        dialect: Dialect,
    ) -> Result<Started, AskError> {
        match next {
            Next::Attach(run) => {
                let log = self.live.find(run.id).ok_or(AskError::TurnInProgress)?;
                Ok(Started::of(&run, log))
            }
            Next::Begin(lease) => {
                let held = write.held_calls(lease.run.assistant_message_id).await?;
                // Whoever finds the run in the database finds its log too; it says nothing before the commit.
                let telling = self.telling(lease.run.id);
                write.commit().await?;
                Ok(telling.start(*lease, held))
            }
            Next::Announce(run) => {
                write.commit().await?;
                Ok(self.announce(principal.clone(), thread, run, dialect))
            }
        }
    }

    fn check(&self, principal: &Principal, options: &RunOptions) -> Result<(), AskError> {
        if let Some(id) = &options.model
            && self.model(Some(id)).is_none()
        {
            return Err(AskError::UnknownModel(id.clone()));
        }
        match options.tools.iter().flatten().find(|name| !self.tools().has_for(principal, name)) {
            Some(unknown) => Err(AskError::UnknownTool(unknown.clone())),
            None => Ok(()),
        }
    }

    fn tools(&self) -> &ToolRegistry {
        self.agent.executor.gate.registry()
    }

    /// What to ask the model with on behalf of this principal: a tool that does not run for them is not there.
    fn on_behalf_of(&self, principal: &Principal, options: RunOptions) -> RunOptions {
        options.narrowed(self.tools().only_for(principal))
    }

    async fn thread(
        &self,
        write: &Write,
        principal: &Principal,
        name: &ThreadName,
        wants: &Wants,
    ) -> Result<Thread, AskError> {
        match name {
            ThreadName::Known(name) => write.thread_named(principal, name).await?.ok_or(AskError::NoThread),
            ThreadName::OrNew(name) => match write.thread_named(principal, name).await? {
                Some(found) => Ok(found),
                None if matches!(wants, Wants::Continue { .. }) => Err(AskError::NothingToContinue),
                None => {
                    let new = NewThread {
                        title: DEFAULT_TITLE.to_owned(),
                        client_id: Some(name.clone()),
                        parent: None,
                    };
                    Ok(write.create_thread(principal, new).await?)
                }
            },
        }
    }

    async fn next(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
        intent: Intent,
        options: RunOptions,
    ) -> Result<Next, AskError> {
        if let Some(running) = write.running(thread).await?
            && !write.close_dead_turn(thread, &running).await?
        {
            return match intent {
                Intent::Continue { .. } => Ok(Next::Attach(running)),
                Intent::New { .. } | Intent::Edit { .. } | Intent::Regenerate { .. } => {
                    Err(AskError::TurnInProgress)
                }
            };
        }
        if !matches!(intent, Intent::Continue { .. }) {
            self.check_turns(write, principal, thread).await?;
        }
        let question = match intent {
            Intent::Continue { .. } => return self.go_on(write, principal, thread).await,
            Intent::New { text, client_id } => {
                self.apply_while_pending(write, principal, thread).await?;
                Question::New { text, client_id }
            }
            Intent::Edit { ordinal, text, client_id } => {
                write.supersede_from(thread, ordinal, &principal.actor()).await?;
                Question::New { text, client_id }
            }
            Intent::Regenerate { message, ordinal } => {
                write.supersede_from(thread, ordinal + 1, &principal.actor()).await?;
                Question::Stored(message)
            }
        };
        let options = self.on_behalf_of(principal, options);
        let new = NewRun { question, options, lease: self.settings.lease };
        Ok(Next::Begin(Box::new(write.begin_run(thread, new).await?)))
    }

    async fn apply_while_pending(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<(), AskError> {
        match self.settings.while_pending {
            WhilePending::Defer => Ok(()),
            WhilePending::Cancel => {
                Ok(write.cancel_calls(thread, Which::Pending, &principal.actor()).await?)
            }
            WhilePending::Reject if write.pending_count(thread).await? > 0 => Err(AskError::AwaitingApproval),
            WhilePending::Reject => Ok(()),
        }
    }

    /// Refuses where as many turns are under way as there may be, or this would be one too many in a minute. Of use in
    /// the transaction that begins one.
    async fn check_turns(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<(), AskError> {
        match self.full(write, thread).await? {
            None => Ok(self.pace.count(principal)?),
            Some((of, max)) => Err(AskError::TooManyTurns { of, max }),
        }
    }

    /// Whether one more turn may begin, which is counted then.
    pub(super) async fn has_room(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<bool, StoreError> {
        Ok(self.full(write, thread).await?.is_none() && self.pace.count(principal).is_ok())
    }

    /// Whose turns under way are as many as there may be, and how many that is.
    async fn full(&self, write: &Write, thread: &Thread) -> Result<Option<(&'static str, u32)>, StoreError> {
        let (of_user, of_tenant) = (self.caps.turns_per_user, self.caps.turns_per_tenant);
        if of_user.is_none() && of_tenant.is_none() {
            return Ok(None);
        }
        let under_way = write.turns_under_way(thread).await?;
        let caps = [("user", under_way.of_user, of_user), ("tenant", under_way.of_tenant, of_tenant)];
        Ok(caps.into_iter().find_map(|(of, count, max)| {
            let max = max.filter(|max| count >= u64::from(max.get()))?;
            Some((of, max.get()))
        }))
    }

    /// What a continuation does where no turn is under way. The principal may have fewer roles than when it began.
    pub(super) async fn go_on(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<Next, AskError> {
        let latest = write.latest_run(thread).await?.ok_or(AskError::NothingToContinue)?;
        // Before anything follows: who waits for a call may go on by the run as it is here.
        let options = self.on_behalf_of(principal, latest.options.clone());
        let latest = Run { options, ..latest };
        match latest.status {
            RunStatus::Completed | RunStatus::Cancelled => return Err(AskError::NothingToContinue),
            RunStatus::Running => return Err(AskError::TurnInProgress),
            // A turn may have broken between its hold and its end.
            RunStatus::Waiting | RunStatus::Failed => {
                let held = write.held_calls(latest.assistant_message_id).await?;
                if held.iter().any(|call| call.end().is_none()) {
                    return Ok(Next::Announce(latest));
                }
            }
        }
        self.check_turns(write, principal, thread).await?;
        let resumed = write.resume_run(thread, &latest, self.settings.lease).await?;
        resumed.map(|lease| Next::Begin(Box::new(lease))).ok_or(AskError::TurnInProgress)
    }
}
