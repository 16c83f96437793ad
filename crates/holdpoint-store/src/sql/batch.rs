//! Changes that reach Postgres with one statement.
//!
//! A round trip costs more than most changes. So a transaction collects the changes whose result it does not need, and
//! executes them together: before its next other statement, or before its commit.
//!
//! The parts of the statement see the same rows and have no order. So a batch has at most one change for each table, and
//! no change whose guard reads other rows before it lets a row in: a claim is never part of a batch, because its guard
//! reads the decision. Foreign keys and the guard of decisions follow after the whole statement.
//!
//! A change of a batch is about rows that the transaction has locked or inserts. An update that does not change its one
//! row fails the transaction. A change whose result decides what follows, such as a claim, is a statement of its own;
//! the move of a call by that statement inserts its events too, and its decision, and only if the call was moved
//! (`Write::update_with`). On SQLite each change is one statement.

use crate::sql::with::{not_built, with_parts};
use sea_orm::sea_query::{
    Alias, Expr, Func, InsertStatement, Query, SelectStatement, SubQueryStatement, UpdateStatement,
    ValueTuple,
};
use sea_orm::{
    ActiveModelTrait, DbBackend, DbErr, EntityName, EntityTrait, Iterable, QueryResult, QueryTrait,
    Statement, UpdateMany,
};

/// Maximum number of inserted rows in a batch. Postgres limits the number of parameters of a statement.
const ROWS_MAX: usize = 100;
/// The name of the table with the rows that a guarded change inserts.
const NEW: &str = "new";
/// The name of the updated row of a guarded change.
const MOVED: &str = "moved";

type Column<A> = <<A as ActiveModelTrait>::Entity as EntityTrait>::Column;

/// A change of one table that returns nothing and reads no other table.
#[derive(Debug)]
pub(crate) struct Change {
    table: &'static str,
    rows: usize,
    /// Boxed, because it is large, and the futures of transactions contain it.
    kind: Box<StatementKind>,
}

#[derive(Debug)]
enum StatementKind {
    Insert(InsertStatement),
    /// An update that changes one row. The text says what is wrong otherwise.
    Update(UpdateStatement, &'static str),
}

/// An update of the row that matches a guard, and rows that are inserted only if there is one: one statement on
/// Postgres. Boxed, because the parts are large, and the futures of transactions contain them.
#[derive(Debug)]
pub(crate) struct Guarded {
    update: Box<UpdateStatement>,
    inserts: Vec<GuardedInsert>,
}

/// Rows for one table.
#[derive(Debug)]
struct GuardedInsert {
    insert: InsertStatement,
    /// The rows to insert, as a table.
    rows: SelectStatement,
}

/// The changes that the next statement makes.
#[derive(Debug, Default)]
pub(crate) struct Batch(Vec<Change>);

/// The numbers of rows that the updates of a batch have changed, one column each.
pub(crate) struct Counts(Vec<OneRow>);

/// An update that changes one row.
struct OneRow {
    table: &'static str,
    /// What is wrong otherwise.
    otherwise: &'static str,
}

impl Change {
    /// Inserts these rows. Returns `None` if there are none.
    pub(crate) fn insert<A: ActiveModelTrait>(rows: impl IntoIterator<Item = A>) -> Option<Self> {
        let new: Vec<A> = rows.into_iter().collect();
        let rows = new.len();
        if rows == 0 {
            return None;
        }
        let insert = <A::Entity as EntityTrait>::insert_many(new).into_query();
        Some(Self {
            table: A::Entity::default().table_name(),
            rows,
            kind: Box::new(StatementKind::Insert(insert)),
        })
    }

    /// Updates one row.
    pub(crate) fn update<E: EntityTrait>(update: UpdateMany<E>, otherwise: &'static str) -> Self {
        let kind = Box::new(StatementKind::Update(update.into_query(), otherwise));
        Self { table: E::default().table_name(), rows: 1, kind }
    }

    /// Returns the change as a statement of its own.
    pub(crate) fn statement(&self, backend: DbBackend) -> Statement {
        match self.kind.as_ref() {
            StatementKind::Insert(insert) => backend.build(insert),
            StatementKind::Update(update, _) => backend.build(update),
        }
    }

    /// Checks how many rows the change has changed.
    pub(crate) fn check(&self, rows: u64) -> Result<(), DbErr> {
        match self.kind.as_ref() {
            StatementKind::Update(_, otherwise) => OneRow { table: self.table, otherwise }.check(rows),
            StatementKind::Insert(_) => Ok(()),
        }
    }
}

impl Guarded {
    /// Updates a row.
    pub(crate) fn new<E: EntityTrait>(update: UpdateMany<E>) -> Self {
        Self { update: Box::new(update.into_query()), inserts: Vec::new() }
    }

    /// Also inserts at least one row of another table. All inserted rows set the same columns.
    pub(crate) fn with<A: ActiveModelTrait>(mut self, rows: &[A]) -> Self {
        let is_set = |column: &Column<A>| rows.iter().any(|row| !row.is_not_set(*column));
        let columns: Vec<_> = Column::<A>::iter().filter(is_set).collect();
        let values = |row: &A| columns.iter().filter_map(|column| row.get(*column).into_value()).collect();
        let values = rows.iter().map(|row| ValueTuple::Many(values(row)));
        let mut rows = Query::select();
        rows.from_values(values, Alias::new(NEW));
        for n in 1..=columns.len() {
            rows.column((Alias::new(NEW), Alias::new(format!("column{n}"))));
        }
        let mut insert = Query::insert();
        insert.into_table(A::Entity::default().table_ref()).columns(columns);
        self.inserts.push(GuardedInsert { insert, rows });
        self
    }

    /// Returns all parts as one statement, whose row has the number of updated rows.
    pub(crate) fn into_statement(mut self) -> Result<Statement, DbErr> {
        let update = self.update.returning(Query::returning().expr(Expr::cust("1"))).take();
        let mut parts = vec![(MOVED.to_owned(), SubQueryStatement::from(update))];
        for (n, GuardedInsert { mut insert, mut rows }) in self.inserts.into_iter().enumerate() {
            let moved = Query::select().expr(Expr::cust("1")).from(MOVED).take();
            let rows = rows.and_where(Expr::exists(moved)).take();
            let insert = insert.select_from(rows).map_err(not_built)?.take();
            parts.push((format!("added_{n}"), insert.into()));
        }
        Ok(DbBackend::Postgres.build(&with_parts(parts, count(MOVED))))
    }
}

impl OneRow {
    fn check(&self, rows: u64) -> Result<(), DbErr> {
        let Self { table, otherwise } = self;
        let not_one = || DbErr::Custom(format!("inconsistent row in {table}: {otherwise}"));
        (rows == 1).then_some(()).ok_or_else(not_one)
    }
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the change can be made with those of the batch.
    pub(crate) fn takes(&self, change: &Change) -> bool {
        let rows: usize = self.0.iter().map(|other| other.rows).sum();
        let is_new = self.0.iter().all(|other| other.table != change.table);
        self.is_empty() || (is_new && rows + change.rows <= ROWS_MAX)
    }

    pub(crate) fn add(&mut self, change: Change) {
        self.0.push(change);
    }

    /// Takes the only change out of the batch, if there is only one.
    pub(crate) fn take_one(&mut self) -> Option<Change> {
        if self.0.len() == 1 { self.0.pop() } else { None }
    }

    /// Returns the changes as one statement on Postgres, and what its row has to show.
    pub(crate) fn into_statement(self) -> (Statement, Counts) {
        let (mut parts, mut select, mut counts) = (Vec::new(), Query::select(), Vec::new());
        for (n, Change { table, kind, .. }) in self.0.into_iter().enumerate() {
            let name = format!("change_{n}");
            let part: SubQueryStatement = match *kind {
                StatementKind::Insert(insert) => insert.into(),
                StatementKind::Update(mut update, otherwise) => {
                    counts.push(OneRow { table, otherwise });
                    select.expr(Expr::SubQuery(None, Box::new(count(&name).into())));
                    update.returning(Query::returning().expr(Expr::cust("1"))).take().into()
                }
            };
            parts.push((name, part));
        }
        // A select has a column.
        select.expr(Expr::cust("1"));
        (DbBackend::Postgres.build(&with_parts(parts, select)), Counts(counts))
    }
}

impl Counts {
    /// Checks the row of the statement.
    pub(crate) fn check(&self, row: &QueryResult) -> Result<(), DbErr> {
        for (n, update) in self.0.iter().enumerate() {
            let rows: i64 = row.try_get_by_index(n)?;
            update.check(rows.unsigned_abs())?;
        }
        Ok(())
    }
}

/// Counts the rows of a part of the statement.
fn count(part: &str) -> SelectStatement {
    Query::select().expr(Func::count(Expr::cust("*"))).from(Alias::new(part)).take()
}
