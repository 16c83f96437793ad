//! What a request wants, and the run that answers it.

use super::{Chat, Started};
use crate::config::WhilePending;
use crate::domain::Principal;
use crate::domain::id::MessageId;
use crate::domain::message::{Body, Message};
use crate::domain::run::{Run, RunOptions, RunStatus};
use crate::pace::TooOften;
use crate::store::{Lease, NewRun, NewThread, Question, StoreError, Thread, Which, Write};
use crate::tools::ToolRegistry;

/// The title of a thread that nobody gave one.
pub(crate) const DEFAULT_TITLE: &str = "New chat";

/// What a request wants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ask {
    /// A new user message.
    New {
        /// Its words.
        text: String,
        /// The page's name for it. One that is stored already is the same message, posted again.
        client_id: Option<String>,
        /// What to ask the model with.
        options: RunOptions,
    },
    /// The conversation as a page holds it. Only the words of its user messages are read, and whether it ends
    /// with one.
    History {
        /// Its messages, oldest first.
        messages: Vec<PostedMessage>,
        /// What to ask the model with.
        options: RunOptions,
    },
    /// To go on.
    Continue,
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

/// What a request wants, seen against what is stored.
enum Intent {
    New { text: String, client_id: Option<String> },
    Edit { ordinal: i64, text: String, client_id: Option<String> },
    Regenerate { message: MessageId, ordinal: i64 },
    Continue,
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
    ) -> Result<Started, AskError> {
        let options = match &ask {
            Ask::New { options, .. } | Ask::History { options, .. } => options.clone(),
            Ask::Continue => RunOptions::default(),
        };
        self.check(principal, &options)?;
        if self.tasks.is_stopping() {
            return Err(AskError::Stopping);
        }
        let write = self.store.write().await?;
        let thread = self.thread(&write, principal, name, &ask).await?;
        write.lock_thread(&thread).await?;
        let intent = intent(&write, &thread, ask).await?;
        let next = self.next(&write, principal, &thread, intent, options).await?;
        self.follow(write, principal, thread, next).await
    }

    /// Commits, and begins what follows.
    pub(super) async fn follow(
        &self,
        write: Write,
        principal: &Principal,
        thread: Thread,
        next: Next,
    ) -> Result<Started, AskError> {
        match next {
            Next::Attach(run) => {
                let log = self.live.find(run.id).ok_or(AskError::TurnInProgress)?;
                Ok(Started { run_id: run.id, log })
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
                Ok(self.announce(principal.clone(), thread, run))
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
        ask: &Ask,
    ) -> Result<Thread, AskError> {
        match name {
            ThreadName::Known(name) => write.thread_named(principal, name).await?.ok_or(AskError::NoThread),
            ThreadName::OrNew(name) => match write.thread_named(principal, name).await? {
                Some(found) => Ok(found),
                None if *ask == Ask::Continue => Err(AskError::NothingToContinue),
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
                Intent::Continue => Ok(Next::Attach(running)),
                Intent::New { .. } | Intent::Edit { .. } | Intent::Regenerate { .. } => {
                    Err(AskError::TurnInProgress)
                }
            };
        }
        if !matches!(intent, Intent::Continue) {
            self.check_turns(write, principal, thread).await?;
        }
        let question = match intent {
            Intent::Continue => return self.go_on(write, principal, thread).await,
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

/// Reads a request against what is stored.
async fn intent(write: &Write, thread: &Thread, ask: Ask) -> Result<Intent, AskError> {
    let (posted, text, client_id) = match ask {
        Ask::Continue => return Ok(Intent::Continue),
        Ask::New { text, client_id: None, .. } => return Ok(Intent::New { text, client_id: None }),
        Ask::New { text, client_id, .. } => (None, text, client_id),
        Ask::History { messages: posted, .. } => match posted.last() {
            Some(PostedMessage { user_text: Some(text), id }) if !text.is_empty() => {
                let (text, id) = (text.clone(), id.clone());
                (Some(posted), text, id)
            }
            Some(PostedMessage { .. }) | None => return Ok(Intent::Continue),
        },
    };
    let transcript = write.transcript(thread).await?;
    let stored: Vec<(&Message, &str)> = transcript
        .standing()
        .filter_map(|message| match &message.body {
            Body::User(text) => Some((message, text.as_str())),
            Body::Assistant(_) => None,
        })
        .collect();
    if let Some(posted) = posted {
        let texts: Vec<&str> = posted.iter().filter_map(|message| message.user_text.as_deref()).collect();
        if let Some(changed) = against_stored(&texts, &stored, &client_id) {
            return Ok(changed);
        }
    }
    let names = |message: &Message, id: &str| {
        message.client_id.as_deref() == Some(id) || message.id.to_string() == id
    };
    let posted_again = |id: &String| stored.iter().any(|(message, _)| names(message, id));
    if client_id.as_ref().is_some_and(posted_again) {
        Ok(Intent::Continue)
    } else {
        Ok(Intent::New { text, client_id })
    }
}

/// A page that posts its whole history says by it whether it edits or asks anew: pages of AI SDK 4 have no
/// other word for it. Pages also trim their history, so what does not begin as the stored one does is new.
fn against_stored(texts: &[&str], stored: &[(&Message, &str)], client_id: &Option<String>) -> Option<Intent> {
    let (last, before) = texts.split_last()?;
    let (same_place, standing) = stored.get(before.len())?;
    if texts.len() == stored.len() && last == standing {
        return Some(Intent::Regenerate { message: same_place.id, ordinal: same_place.ordinal });
    }
    let begins_alike = before.iter().zip(stored).all(|(text, (_, stored))| text == stored);
    (!before.is_empty() && begins_alike).then(|| Intent::Edit {
        ordinal: same_place.ordinal,
        text: (*last).to_owned(),
        client_id: client_id.clone(),
    })
}
