//! The store: the only module with SQL.
//!
//! [`Store::read`] begins a consistent view, [`Store::write`] a transaction. Every change of a state is a
//! method of [`Write`]: one guarded statement that names the old state, and its event row. If the statement
//! changes no row, another transaction won the race. The method returns this as a value, not as an error. The
//! statements also check visibility: every read on behalf of a user takes the
//! [`Principal`](crate::domain::Principal).

mod calls;
mod commit_hook;
mod connect;
mod decisions;
mod drafts;
mod entity;
mod error;
mod events;
mod executions;
mod fence;
mod grants;
mod inbox;
mod listing;
mod locked_call;
mod notify;
mod numbering;
mod paging;
mod parts;
mod pool;
mod process_lock;
mod purge;
mod quorum;
mod reached;
mod resumable_runs;
mod rows;
mod runs;
mod schema;
mod sessions;
mod steps;
mod sub_agents;
mod sweep;
mod sweep_work;
mod threads;
mod tickets;
mod transaction;
mod transcript;
mod transitions;
mod turn_progress;
mod turns;
mod tx;
mod union;
mod words;

pub(crate) use calls::{CancelOutcome, Which};
pub use commit_hook::{Commit, CommitFailed, CommitHook};
use decisions::NewDecision;
pub(crate) use decisions::Vote;
pub(crate) use drafts::OpenStep;
pub(crate) use error::StoreError;
pub(crate) use events::{EventFilter, EventReader, EventsRead, Range};
pub(crate) use executions::{Again, Claim, Claimed, ResolvedBy, Settled};
pub(crate) use fence::FencedThread;
pub(crate) use grants::{Granted, NewGrant};
pub(crate) use inbox::{CallScope, Listing, Visibility, VisibleCall};
pub(crate) use listing::ListedCall;
pub(crate) use locked_call::LockedCall;
use locked_call::LockedRow;
pub(crate) use notify::{Notification, Notifications};
pub(crate) use numbering::Left;
pub(crate) use paging::PageSize;
pub(crate) use process_lock::ProcessLock;
pub(crate) use purge::Erased;
pub(crate) use quorum::Counted;
pub(crate) use runs::{NewRun, Question};
pub(crate) use steps::{CommittedStep, EarlierCalls, HeldTurn, NewCall, NewStep, StepResult};
pub(crate) use sub_agents::{AgentLimits, Delegated, DelegatedCall, EndedChild};
pub(crate) use sweep::{Doubtful, DueCall, Recovered, Swept};
pub(crate) use sweep_work::Due;
pub(crate) use threads::{Extent, NewThread, Page, Thread, ThreadActivity};
pub(crate) use transaction::{Read, Renewed, Store, TimedRead, Write};
pub(crate) use transcript::{Seal, Sent, Transcript};
pub(crate) use turn_progress::{ProgressMark, StoredStep, TailedTurn};
pub(crate) use turns::{Lease, TurnEnd};
pub(crate) use words::{SealKind, source as source_text};
