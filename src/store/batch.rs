//! Changes that reach Postgres with one statement.
//!
//! A round trip costs more than most changes. So a transaction collects the changes whose result it does not need, and
//! executes them together: before its next other statement, or before its commit.
//!
//! The parts of the statement see the same rows and have no order. So a batch has at most one change for each table, and
//! no change whose guard reads other rows before it lets a row in: a claim is never part of a batch, because its guard
//! reads the decision. Foreign keys, counts and the guard of decisions follow after the whole statement.

use sea_orm::sea_query::{
    Alias, CommonTableExpression, Expr, Func, InsertStatement, Query, SelectStatement, SubQueryStatement,
    UpdateStatement, WithClause,
};
use sea_orm::{
    ActiveModelTrait, DbBackend, DbErr, EntityName, EntityTrait, QueryResult, QueryTrait, Statement,
    UpdateMany,
};

/// Maximum number of inserted rows in a batch. Postgres limits the number of parameters of a statement.
const ROWS_MAX: usize = 100;

/// A change of one table that returns nothing and reads no other table.
#[derive(Debug)]
pub(super) struct Change {
    table: &'static str,
    rows: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Insert(InsertStatement),
    /// An update that changes one row. The text says what is wrong otherwise.
    Update(UpdateStatement, &'static str),
}

/// The changes that the next statement makes.
#[derive(Debug, Default)]
pub(super) struct Batch(Vec<Change>);

impl Change {
    /// Inserts these rows. Returns `None` if there are none.
    pub(super) fn insert<A: ActiveModelTrait>(rows: impl IntoIterator<Item = A>) -> Option<Self> {
        let new: Vec<A> = rows.into_iter().collect();
        let rows = new.len();
        if rows == 0 {
            return None;
        }
        let insert = <A::Entity as EntityTrait>::insert_many(new).into_query();
        Some(Self { table: A::Entity::default().table_name(), rows, kind: Kind::Insert(insert) })
    }

    /// Updates one row.
    pub(super) fn update<E: EntityTrait>(update: UpdateMany<E>, otherwise: &'static str) -> Self {
        let kind = Kind::Update(update.into_query(), otherwise);
        Self { table: E::default().table_name(), rows: 1, kind }
    }

    /// Returns the change as a statement of its own.
    pub(super) fn statement(&self, backend: DbBackend) -> Statement {
        match &self.kind {
            Kind::Insert(insert) => backend.build(insert),
            Kind::Update(update, _) => backend.build(update),
        }
    }

    /// Checks how many rows the change has changed.
    pub(super) fn check(&self, rows: u64) -> Result<(), DbErr> {
        match &self.kind {
            Kind::Update(_, otherwise) if rows != 1 => {
                Err(DbErr::Custom(format!("inconsistent row in {}: {otherwise}", self.table)))
            }
            Kind::Insert(_) | Kind::Update(..) => Ok(()),
        }
    }
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the change can be made with those of the batch.
    pub(super) fn takes(&self, change: &Change) -> bool {
        let rows: usize = self.0.iter().map(|other| other.rows).sum();
        let is_new = self.0.iter().all(|other| other.table != change.table);
        self.is_empty() || (is_new && rows + change.rows <= ROWS_MAX)
    }

    pub(super) fn add(&mut self, change: Change) {
        self.0.push(change);
    }

    /// Takes the only change out of the batch, if there is only one.
    pub(super) fn take_one(&mut self) -> Option<Change> {
        if self.0.len() == 1 { self.0.pop() } else { None }
    }

    /// Returns the changes as one statement on Postgres. Its row has the number of rows of each update.
    pub(super) fn statement(&self) -> Statement {
        let mut with = WithClause::new();
        let mut counts = Query::select();
        for (n, change) in self.0.iter().enumerate() {
            let name = format!("change_{n}");
            let part: SubQueryStatement = match &change.kind {
                Kind::Insert(insert) => insert.clone().into(),
                Kind::Update(update, _) => {
                    counts.expr(Expr::SubQuery(None, Box::new(count(&name).into())));
                    let one = Query::returning().expr(Expr::cust("1"));
                    update.clone().returning(one).to_owned().into()
                }
            };
            with.cte(CommonTableExpression::new().table_name(Alias::new(name)).query(part).to_owned());
        }
        // A select has a column.
        counts.expr(Expr::cust("1"));
        DbBackend::Postgres.build(&with.query(counts))
    }

    /// Checks the row of the statement.
    pub(super) fn check(&self, counts: &QueryResult) -> Result<(), DbErr> {
        let updates = self.0.iter().filter(|change| matches!(change.kind, Kind::Update(..)));
        for (n, update) in updates.enumerate() {
            let rows: i64 = counts.try_get_by_index(n)?;
            update.check(rows.unsigned_abs())?;
        }
        Ok(())
    }
}

/// Counts the rows of a part of the statement.
fn count(part: &str) -> SelectStatement {
    Query::select().expr(Func::count(Expr::cust("*"))).from(Alias::new(part)).to_owned()
}
