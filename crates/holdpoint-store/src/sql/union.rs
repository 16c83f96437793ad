//! Rows of several tables from one statement.

use crate::StoreError;
use crate::sql::cells::{Cells, ColumnCounts, Kind, View};
use crate::sql::tx::Tx;
use sea_orm::sea_query::{
    Alias, Asterisk, Expr, ExprTrait, Query, SelectStatement, SimpleExpr, TableRef, UnionType,
};
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, JoinType, QueryResult, Statement};
use std::collections::HashMap;

/// Selects rows of several tables with one statement. The first column of the result is the place of the part.
/// The columns of the parts share the others, by their types: texts first, then numbers, then truths.
#[derive(Default)]
pub(crate) struct Union {
    parts: Vec<Part>,
}

/// The rows of a table, and of the tables that are joined to them.
struct Part {
    name: &'static str,
    rows: SelectStatement,
    joined: Vec<JoinedTable>,
    texts: Vec<SimpleExpr>,
    numbers: Vec<SimpleExpr>,
    truths: Vec<SimpleExpr>,
}

/// A table whose rows are joined to each row of a part.
struct JoinedTable {
    table: TableRef,
    name: &'static str,
    on: SimpleExpr,
}

/// A statement, and the columns of its result.
#[derive(Debug, Clone)]
pub(crate) struct UnionStatement {
    pub(crate) statement: Statement,
    parts: Vec<&'static str>,
    width: ColumnCounts,
}

/// The rows that unions found.
#[derive(Default)]
pub(crate) struct UnionRows {
    /// The rows of each part, and the columns of their result.
    parts: HashMap<&'static str, (ColumnCounts, Vec<QueryResult>)>,
}

impl Union {
    /// Adds the rows of a table that match the condition.
    pub(crate) fn of<E: View>(mut self, name: &'static str, condition: SimpleExpr) -> Self {
        let rows = Query::select().from(E::default().table_ref()).and_where(condition).to_owned();
        let (joined, texts, numbers, truths) = Default::default();
        let mut part = Part { name, rows, joined, texts, numbers, truths };
        part.add_columns::<E>();
        self.parts.push(part);
        self
    }

    /// Joins the rows of another table to each row of the last part, if there are any.
    pub(crate) fn with<E: View>(mut self, on: SimpleExpr) -> Self {
        if let Some(part) = self.parts.last_mut() {
            let (table, name) = (E::default().table_ref(), E::default().table_name());
            part.joined.push(JoinedTable { table, name, on });
            part.add_columns::<E>();
        }
        self
    }

    /// Adds the parts of another union.
    pub(crate) fn and(mut self, more: Self) -> Self {
        self.parts.extend(more.parts);
        self
    }

    /// Builds one statement for each part.
    pub(crate) fn apart(self, backend: DbBackend) -> Vec<UnionStatement> {
        let alone = |part| Self { parts: vec![part] }.build(backend);
        self.parts.into_iter().map(alone).collect()
    }

    /// Builds one statement for all parts.
    pub(crate) fn build(self, backend: DbBackend) -> UnionStatement {
        let most = |count: fn(&Part) -> usize| self.parts.iter().map(count).max().unwrap_or_default();
        let width = ColumnCounts {
            texts: most(|part| part.texts.len()),
            numbers: most(|part| part.numbers.len()),
            truths: most(|part| part.truths.len()),
        };
        let mut selects =
            (0..).zip(&self.parts).map(|(position, part)| part.select(width, position, backend));
        let mut all = selects.next().unwrap_or_default();
        for more in selects {
            all.union(UnionType::All, more);
        }
        let parts = self.parts.iter().map(|part| part.name).collect();
        UnionStatement { statement: backend.build(&all), parts, width }
    }
}

impl Part {
    fn add_columns<E: View>(&mut self) {
        for column in E::COLUMNS {
            let value = column.into_expr();
            match Kind::of(column) {
                Kind::Text => self.texts.push(value),
                // Numbers of both types share columns.
                Kind::Integer => self.numbers.push(value.cast_as("BIGINT")),
                Kind::BigInteger => self.numbers.push(value),
                Kind::Boolean => self.truths.push(value),
            }
        }
    }

    /// Selects the rows of this part. The first select names the columns and gives each NULL its type. Without
    /// it Postgres takes a NULL for a text.
    fn select(&self, width: ColumnCounts, position: i64, backend: DbBackend) -> SelectStatement {
        let is_first = position == 0;
        let mut select = self.rows.clone();
        for joined in &self.joined {
            joined.join_to(&mut select, backend);
        }
        select.expr_as(Expr::value(position), Alias::new("of_part"));
        for (of_kind, count, letter, null) in [
            (&self.texts, width.texts, 't', Expr::cust("CAST(NULL AS TEXT)")),
            (&self.numbers, width.numbers, 'n', Expr::cust("CAST(NULL AS BIGINT)")),
            (&self.truths, width.truths, 'b', Expr::cust("CAST(NULL AS BOOLEAN)")),
        ] {
            let null = if is_first { null } else { Expr::cust("NULL") };
            for number in 0..count {
                let value = of_kind.get(number).unwrap_or(&null).clone();
                match is_first {
                    true => select.expr_as(value, Alias::new(format!("{letter}{number}"))),
                    false => select.expr(value),
                };
            }
        }
        select
    }
}

impl JoinedTable {
    /// Joins the rows of this table to each row of the statement, if there are any.
    ///
    /// On Postgres each row looks its rows up. A plain join may read the whole table for a hash, because a session keeps
    /// the plan that it made when the table was small. The OFFSET keeps Postgres from making a plain join of the lookup.
    fn join_to(&self, select: &mut SelectStatement, backend: DbBackend) {
        let Self { table, name, on } = self;
        if backend != DbBackend::Postgres {
            select.join(JoinType::LeftJoin, table.clone(), on.clone());
            return;
        }
        let lookup =
            Query::select().column(Asterisk).from(table.clone()).and_where(on.clone()).offset(0).to_owned();
        select.join_lateral(JoinType::LeftJoin, lookup, Alias::new(*name), Expr::cust("TRUE"));
    }
}

impl UnionRows {
    /// Executes a union, and adds its rows.
    pub(crate) async fn add(&mut self, tx: &Tx, union: UnionStatement) -> Result<(), StoreError> {
        let UnionStatement { statement, parts, width } = union;
        for row in tx.query_all_raw(statement).await? {
            let position: i64 = row.try_get_by_index(0)?;
            let part = usize::try_from(position).ok().and_then(|position| parts.get(position));
            if let Some(part) = part {
                self.parts.entry(part).or_insert_with(|| (width, Vec::new())).1.push(row);
            }
        }
        Ok(())
    }

    pub(crate) fn of(&self, part: &str) -> impl ExactSizeIterator<Item = Result<Cells<'_>, StoreError>> {
        let (width, rows) =
            self.parts.get(part).map_or((ColumnCounts::default(), &[][..]), |(width, rows)| (*width, rows));
        rows.iter().map(move |row| Cells::of(row, width))
    }

    /// Returns the rows of a part without joined tables.
    pub(crate) fn all<E: View>(&self, part: &str) -> Result<Vec<E::Row<'_>>, StoreError> {
        self.of(part).map(|cells| cells?.read::<E>()).collect()
    }
}
