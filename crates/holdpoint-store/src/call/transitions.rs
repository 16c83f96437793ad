//! The legal transitions of a call, as types. No other transition compiles.
//!
//! `legal_transitions` is the list. Each line makes one implementation of `Becomes` for the types of its states. Its
//! guard becomes part of the statement; the other transitions have the guard `always`.

use crate::entity::tool_call;
use crate::thread::extents::{CountedTable, bytes_of_value, sum};
use holdpoint_core::call::{ATTEMPTS_MAX, StateKind};
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, IdenStatic, ModelTrait, QueryFilter, UpdateMany};

pub(crate) trait CallState {
    const KIND: StateKind;
}

/// Implemented for a pair of states if a call may move from `Self` to `To`.
pub(crate) trait Becomes<To: CallState>: CallState {
    /// Returns the condition besides the state.
    fn guard() -> SimpleExpr;
}

macro_rules! states {
    ($($state:ident),+ $(,)?) => { $(
        pub(crate) struct $state;

        impl CallState for $state {
            const KIND: StateKind = StateKind::$state;
        }
    )+ };
}

states! { Pending, Approved, Executing, Succeeded, Failed, Interrupted, Rejected, Expired, Cancelled }

macro_rules! legal {
    ($($from:ident => $to:ident if $guard:ident;)+) => { $(
        impl Becomes<$to> for $from {
            fn guard() -> SimpleExpr {
                $guard()
            }
        }
    )+ };
}

include!("legal_transitions.rs");

fn always() -> SimpleExpr {
    Expr::value(true)
}

/// Matches a call that was never claimed. Postgres accepts the transition in the statement that inserts the approving
/// decision, and nowhere else. SQLite, whose statements insert into one table, never accepts it.
fn with_decision() -> SimpleExpr {
    never_claimed()
}

fn never_claimed() -> SimpleExpr {
    tool_call::Column::ExecAttempt.eq(0)
}

fn claimed_before() -> SimpleExpr {
    tool_call::Column::ExecAttempt.gt(0)
}

/// Matches a first claim, or a repeated claim of an idempotent call.
fn startable() -> SimpleExpr {
    ExprTrait::or(never_claimed(), repeatable())
}

fn repeatable() -> SimpleExpr {
    tool_call::Column::Idempotent.eq(true).and(tool_call::Column::ExecAttempt.lt(ATTEMPTS_MAX))
}

/// One guarded statement that moves a call.
pub(crate) struct Move {
    pub(crate) update: UpdateMany<tool_call::Entity>,
    /// The state that the call has before.
    pub(crate) from: StateKind,
    /// The new state.
    pub(crate) to: StateKind,
    /// Whether the locked row of the call matches the guard.
    pub(crate) is_certain: bool,
    /// The counted texts that it sets, with their bytes.
    texts: Vec<SetText>,
}

struct SetText {
    column: tool_call::Column,
    bytes: i64,
}

impl Move {
    /// Builds the transition from one state to another.
    pub(crate) fn of<From: Becomes<To>, To: CallState>() -> Self {
        let expected = tool_call::Column::State.eq(From::KIND.word()).and(From::guard());
        let update = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::State, Expr::value(To::KIND.word()))
            .filter(expected);
        Self { update, from: From::KIND, to: To::KIND, is_certain: false, texts: Vec::new() }
    }

    /// Also sets this column. The value of a counted text is a literal.
    pub(crate) fn set(mut self, column: tool_call::Column, value: impl Into<SimpleExpr>) -> Self {
        let value = value.into();
        if tool_call::Entity::TEXTS.iter().any(|text| text.as_str() == column.as_str()) {
            let bytes = match &value {
                SimpleExpr::Value(value) => bytes_of_value(value),
                _ => 0,
            };
            self.texts.push(SetText { column, bytes });
        }
        Self { update: self.update.col_expr(column, value), ..self }
    }

    /// Returns the bytes that the transition adds to a call with this row. A call that has not ended has none of the
    /// texts that a transition sets.
    pub(crate) fn added_bytes(&self, ended: Option<&tool_call::Model>) -> i64 {
        let replaced = |text: &SetText| ended.map_or(0, |row| bytes_of_value(&row.get(text.column)));
        sum(self.texts.iter().map(|text| text.bytes.saturating_sub(replaced(text))))
    }

    /// Marks the transition of a locked call whose row matches the guard. So the transition can wait for the next statement.
    pub(crate) fn certain(self) -> Self {
        Self { is_certain: true, ..self }
    }

    /// Adds a condition.
    pub(crate) fn only(self, guard: SimpleExpr) -> Self {
        Self { update: self.update.filter(guard), ..self }
    }
}
