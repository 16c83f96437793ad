//! The newest rows of a list that several indexes hold together.
//!
//! Each branch of such a list selects from one index, in its order, at most as many rows as the page has. So a list reads
//! a number of rows that depends on its page and its branches, whatever other rows the tables have.

use crate::{Read, StoreError};
use sea_orm::sea_query::{Expr, ExprTrait, Order, Query, SelectStatement, SimpleExpr, UnionType};
use sea_orm::{ColumnTrait, ConnectionTrait};
use std::cmp::Reverse;

/// Maximum number of branches of one statement. SQLite allows 500.
const BRANCHES_MAX: usize = 100;
/// The columns of a branch: the id of a row, by which a list is ordered, and its bytes.
pub(crate) const ID: &str = "id";
pub(crate) const BYTES: &str = "bytes";
const BRANCH: &str = "branch";

/// An id, and the bytes of its row.
pub(crate) type IdAndBytes = (String, i64);

/// The rows of a list that one index holds.
pub(crate) struct Branch<C> {
    /// The first column of the index.
    pub(crate) column: C,
    /// Its value in these rows.
    pub(crate) value: SimpleExpr,
}

/// Limits a statement to the rows of a branch, before an id if one is given, and orders them by both, the
/// last row first.
///
/// Only an index with the column and the id after it has this order. If the statement asked for an equal value, each
/// index of the ids would do: Postgres reads the primary key from its end when its statistics say that the value is
/// frequent, and finds none among the newest rows.
pub(crate) fn in_order<C: ColumnTrait>(
    select: &mut SelectStatement,
    Branch { column, value }: Branch<C>,
    id: C,
    before: Option<String>,
) {
    let last = match before {
        Some(before) => {
            let last = Expr::tuple([value.clone(), Expr::value(before)]);
            Expr::tuple([column.into_expr(), id.into_expr()]).lt(last)
        }
        None => column.into_expr().lte(value.clone()),
    };
    select
        .and_where(column.into_expr().gte(value))
        .and_where(last)
        .order_by_expr(column.into_expr(), Order::Desc)
        .order_by_expr(id.into_expr(), Order::Desc);
}

/// Selects the newest rows of these branches. A row may be in several of them.
fn merged(branches: &[SelectStatement], most: u64) -> Option<SelectStatement> {
    let bounded = |branch: &SelectStatement| {
        Query::select().columns([ID, BYTES]).from_subquery(branch.clone(), BRANCH).to_owned()
    };
    let mut each = branches.iter().map(bounded);
    let mut all = each.next()?;
    for more in each {
        all.union(UnionType::Distinct, more);
    }
    Some(all.order_by(ID, Order::Desc).limit(most).to_owned())
}

impl Read {
    /// Returns the newest ids of these branches, at most `most`, with the bytes of their rows.
    pub(crate) async fn newest(
        &self,
        branches: &[SelectStatement],
        most: u64,
    ) -> Result<Vec<IdAndBytes>, StoreError> {
        let mut found = Vec::new();
        for some in branches.chunks(BRANCHES_MAX) {
            let Some(merged) = merged(some, most) else { continue };
            let statement = self.tx.get_database_backend().build(&merged);
            for row in self.tx.query_all_raw(statement).await? {
                found.push((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
            }
        }
        found.sort_unstable_by(|one: &IdAndBytes, other| Reverse(&one.0).cmp(&Reverse(&other.0)));
        found.dedup();
        found.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(found)
    }
}
