//! The store: the only crate with SQL.
//!
//! [`Store::read`] begins a consistent view, [`Store::write`] a transaction. Every change of a state is a
//! method of [`Write`]: one guarded statement that names the old state, and its event row. If the statement
//! changes no row, another transaction won the race. The method returns this as a value, not as an error. The
//! statements also check visibility: every read on behalf of a user takes the
//! [`Principal`](holdpoint_core::Principal).
//!
//! These rules hold too:
//!
//! - The schema repeats the rules of the types: CHECKs tie a state to its facts, and triggers refuse illegal
//!   transitions, changed decisions, changed texts and deletions.
//! - A read for a caller takes a `Principal`, or a `Thread` that was read for one. The `Thread` of another user's held
//!   call serves its decision only.
//! - Only an `Output` is stored, which measured its depth before anything serialised it. A text sent to the model is
//!   sealed in `sent_answers`, so the history is computed from rows and those texts.
//! - Times in rows are the database's on Postgres, the process's on SQLite.
//! - No transaction is open while a model answers, a tool runs or a handler decides.
//! - There is no trait for the store, because sea-orm abstracts the database. `locked_thread` has the order of the
//!   locks.

mod call;
mod decision;
mod endpoint;
mod entity;
mod error;
mod event;
mod run;
mod sign_in;
mod sql;
mod sweep;
mod thread;

pub use call::call_policies::CallPolicy;
pub use call::calls::{CancelOutcome, Which};
pub use call::definitions::{AcceptOutcome, ListedTool};
pub use call::earlier_calls::EarlierCalls;
pub use call::establish::{Established, Finding};
pub use call::executions::{Again, Claim, Claimant, Claimed, ResolvedBy, Settled};
pub use call::listing::ListedCall;
pub use call::locked_call::LockedCall;
use call::locked_call::LockedRow;
pub use call::owners::{PolledCall, Polls};
pub use call::tool_requests::{Asked, RequestEnd, RequestListing, VisibleRequest};
pub use call::{permit, request_sender, waited};
use decision::decisions::NewDecision;
pub use decision::decisions::Vote;
pub use decision::grants::{GRANTS_MAX, GrantFacts, Granted, NewGrant, NoGrant};
pub use decision::hold_context::{Excerpt, Words};
pub use decision::inbox::{CallScope, Listing, Visibility, VisibleCall};
pub use decision::quorum::Counted;
pub use decision::refusals::Refusal;
pub use endpoint::endpoints::{
    Attempted, Delivery, DueEvent, EndpointEvents, LeasedEndpoint, NextEvent, Then,
};
pub use endpoint::sent_messages::SentMessage;
pub use error::StoreError;
pub use event::events::{EventFilter, EventReader, EventsRead, Range};
pub use event::numbering::{Left, Touched};
pub use event::reached::ApprovedCall;
pub use run::drafts::{Draft, OpenStep};
pub use run::held_turn::HeldTurn;
pub use run::runs::{NewRun, Question};
pub use run::steps::{CommittedStep, NewCall, NewStep, OpeningStep, StepResult};
pub use run::sub_agents::{AgentLimits, Delegated, DelegatedCall, EndedChild};
pub use run::turn_progress::{ProgressMark, StoredStep, TailedTurn};
pub use run::turns::{Lease, TurnEnd};
pub use sign_in::sign_ins::{Asking, EndedSignIn, NewSignIn, RenewedTokens};
pub use sql::commit_hook::{Commit, CommitFailed, CommitHook};
pub use sql::notify::{Notification, Notifications};
pub use sql::paging::PageSize;
pub use sql::process_lock::ProcessLock;
pub use sql::transaction::{Read, Renewed, Store, TimedRead, Write};
pub use sql::words::{SealKind, event_type, event_types, source as source_text};
pub use sweep::due::{Doubtful, DueCall, Recovered, Swept};
pub use sweep::sweep_work::Due;
pub use thread::fence::FencedThread;
pub use thread::locked_thread::{Extent, LockedThread};
pub use thread::purge::Erased;
pub use thread::sessions::{ListedSession, SessionScope};
pub use thread::threads::{NewThread, Page, Thread, ThreadActivity};
pub use thread::transcript::{Seal, Sent, Transcript};
