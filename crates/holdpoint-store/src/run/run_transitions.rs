//! The legal transitions of a run, as types. No other transition compiles, and each state carries the facts that the
//! database requires of it.
//!
//! Each state is a struct with the facts that its row needs, such as the holder of the lease or the error. The triggers
//! `runs_moves` have the same list, and a test compares the two.

use crate::entity::run;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::RunId;
use holdpoint_core::run::{RunStatus, TurnError};
use sea_orm::sea_query::{Expr, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, UpdateMany};
use std::marker::PhantomData;

pub(crate) trait RunState {
    const STATUS: RunStatus;

    /// Returns what the row has in this state.
    fn facts(self) -> StateColumns;
}

/// Implemented for a pair of states if a run may move from `Self` to `To`.
pub(crate) trait Becomes<To: RunState>: RunState {}

/// A turn holds the lease of the run.
pub(crate) struct Running {
    pub(crate) holder: String,
    pub(crate) lease_until: Timestamp,
}

/// The run has held or delegated calls.
pub(crate) struct Waiting;

/// The run ended at this time.
pub(crate) struct Completed(pub(crate) Timestamp);

/// A turn of the run failed at this time.
pub(crate) struct Failed(pub(crate) Timestamp, pub(crate) TurnError);

/// The run was cancelled at this time.
pub(crate) struct Cancelled(pub(crate) Timestamp);

/// The columns that depend on the state. A state has none but its own.
#[derive(Default)]
pub(crate) struct StateColumns {
    lease: Option<(String, Timestamp)>,
    error: Option<TurnError>,
    finished_at: Option<Timestamp>,
    is_cancelled: bool,
}

impl RunState for Running {
    const STATUS: RunStatus = RunStatus::Running;

    fn facts(self) -> StateColumns {
        StateColumns { lease: Some((self.holder, self.lease_until)), ..StateColumns::default() }
    }
}

impl RunState for Waiting {
    const STATUS: RunStatus = RunStatus::Waiting;

    fn facts(self) -> StateColumns {
        StateColumns::default()
    }
}

impl RunState for Completed {
    const STATUS: RunStatus = RunStatus::Completed;

    fn facts(self) -> StateColumns {
        StateColumns { finished_at: Some(self.0), ..StateColumns::default() }
    }
}

impl RunState for Failed {
    const STATUS: RunStatus = RunStatus::Failed;

    fn facts(self) -> StateColumns {
        StateColumns { finished_at: Some(self.0), error: Some(self.1), ..StateColumns::default() }
    }
}

impl RunState for Cancelled {
    const STATUS: RunStatus = RunStatus::Cancelled;

    fn facts(self) -> StateColumns {
        StateColumns { finished_at: Some(self.0), is_cancelled: true, ..StateColumns::default() }
    }
}

macro_rules! legal_runs {
    ($($from:ident => $to:ident;)+) => { $(
        impl Becomes<$to> for $from {}
    )+ };
}

include!("legal_run_transitions.rs");

/// One guarded statement that moves a run.
pub(crate) struct RunMove<To> {
    update: UpdateMany<run::Entity>,
    from: Vec<RunStatus>,
    to: PhantomData<To>,
}

impl<To: RunState> RunMove<To> {
    /// Builds the move of a run to this state. Without [`from`](Self::from) it moves nothing.
    pub(crate) fn of(run: RunId, to: To) -> Self {
        let StateColumns { lease, error, finished_at, is_cancelled } = to.facts();
        let (owner, lease_until) = lease.unzip();
        let (code, message) = error.map(|error| (error.code.word(), error.message)).unzip();
        let update = run::Entity::update_many()
            .col_expr(run::Column::Status, Expr::value(To::STATUS.word()))
            .col_expr(run::Column::Owner, Expr::value(owner))
            .col_expr(run::Column::LeaseUntil, Expr::value(lease_until.map(Timestamp::as_micros)))
            // A request to cancel is about the turn that ends or has ended.
            .col_expr(run::Column::CancelRequestedAt, Expr::value(None::<i64>))
            .col_expr(run::Column::ErrorCode, Expr::value(code))
            .col_expr(run::Column::ErrorMessage, Expr::value(message))
            .col_expr(run::Column::FinishedAt, Expr::value(finished_at.map(Timestamp::as_micros)))
            .filter(run::Column::RunId.eq(run.to_string()));
        let update = match is_cancelled {
            // The answer of a run that waits is whole.
            true => update.col_expr(run::Column::CutShort, run::Column::Status.ne(RunStatus::Waiting.word())),
            false => update,
        };
        Self { update, from: Vec::new(), to: PhantomData }
    }

    /// Also moves the run from this state.
    pub(crate) fn from<From: Becomes<To>>(mut self) -> Self {
        self.from.push(From::STATUS);
        self
    }

    /// Also sets this column.
    pub(crate) fn set(self, column: run::Column, value: impl Into<SimpleExpr>) -> Self {
        Self { update: self.update.col_expr(column, value.into()), ..self }
    }

    /// Adds a condition.
    pub(crate) fn only(self, guard: SimpleExpr) -> Self {
        Self { update: self.update.filter(guard), ..self }
    }

    pub(crate) fn statement(self) -> UpdateMany<run::Entity> {
        self.update.filter(run::Column::Status.is_in(self.from.iter().map(|it| it.word())))
    }
}
