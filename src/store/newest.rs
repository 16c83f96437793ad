//! The newest rows of a list that several indexes hold together.
//!
//! Each branch of such a list selects from one index, in its order, at most as many rows as the page has. So a list reads
//! a number of rows that depends on its page and its branches, whatever other rows the tables have.

use super::{Read, StoreError};
use sea_orm::ConnectionTrait;
use sea_orm::sea_query::{Order, Query, SelectStatement, UnionType};
use std::cmp::Reverse;

/// Maximum number of branches of one statement. SQLite allows 500.
const BRANCHES_MAX: usize = 100;
/// The columns of a branch: the id of a row, by which a list is ordered, and its bytes.
pub(super) const ID: &str = "id";
pub(super) const BYTES: &str = "bytes";
const BRANCH: &str = "branch";

/// An id, and the bytes of its row.
pub(super) type Sized = (String, i64);

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
    pub(super) async fn newest(
        &self,
        branches: &[SelectStatement],
        most: u64,
    ) -> Result<Vec<Sized>, StoreError> {
        let mut found = Vec::new();
        for some in branches.chunks(BRANCHES_MAX) {
            let Some(merged) = merged(some, most) else { continue };
            let statement = self.tx.get_database_backend().build(&merged);
            for row in self.tx.query_all_raw(statement).await? {
                found.push((row.try_get_by_index(0)?, row.try_get_by_index(1)?));
            }
        }
        found.sort_unstable_by(|one: &Sized, other| Reverse(&one.0).cmp(&Reverse(&other.0)));
        found.dedup();
        found.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(found)
    }
}
