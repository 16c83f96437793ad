//! Rows of several tables from one statement.

use super::StoreError;
use super::tx::Tx;
use sea_orm::sea_query::{Alias, ColumnType, Expr, Query, SelectStatement, SimpleExpr, UnionType};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, FromQueryResult, IdenStatic, Iterable, QueryResult,
    Statement,
};
use std::collections::HashMap;

/// The column with the table of a row.
const TABLE: &str = "of_table";

/// Selects rows of several tables with one statement. A row of the result has the columns of all tables, and
/// values in those of its own table.
#[derive(Default)]
pub(super) struct Union {
    tables: Vec<Table>,
}

struct Table {
    name: String,
    columns: Vec<Column>,
    condition: SimpleExpr,
}

struct Column {
    alias: String,
    value: SimpleExpr,
    null: &'static str,
}

/// The rows that a union found.
pub(super) struct UnionRows {
    /// The rows of each table.
    rows: HashMap<String, Vec<QueryResult>>,
}

impl Union {
    /// Adds the rows of a table that match the condition.
    pub(super) fn of<E: EntityTrait>(mut self, condition: SimpleExpr) -> Self {
        let name = E::default().table_name().to_owned();
        let column = |column: E::Column| Column {
            alias: format!("{name}.{}", column.as_str()),
            value: column.into_expr().into(),
            null: null_of(column.def().get_column_type()),
        };
        let columns = E::Column::iter().map(column).collect();
        self.tables.push(Table { name, columns, condition });
        self
    }

    /// Builds the statement.
    pub(super) fn build(self, backend: DbBackend) -> Statement {
        let mut all = self.select(0);
        for place in 1..self.tables.len() {
            all.union(UnionType::All, self.select(place));
        }
        backend.build(&all)
    }

    /// Selects the rows of a table. The first select names the columns and gives each NULL its type. Without
    /// it Postgres takes a NULL for a text.
    fn select(&self, place: usize) -> SelectStatement {
        let mut select = Query::select();
        if let Some(table) = self.tables.get(place) {
            select.from(Alias::new(&table.name)).and_where(table.condition.clone());
            select.expr_as(Expr::cust(format!("'{}'", table.name)), Alias::new(TABLE));
        }
        for (other, table) in self.tables.iter().enumerate() {
            for column in &table.columns {
                let value = match (other == place, place) {
                    (true, _) => column.value.clone(),
                    (false, 0) => Expr::cust(column.null),
                    (false, _) => Expr::cust("NULL"),
                };
                match place {
                    0 => select.expr_as(value, Alias::new(&column.alias)),
                    _ => select.expr(value),
                };
            }
        }
        select
    }
}

impl UnionRows {
    /// Executes the statement of a union.
    pub(super) async fn all(tx: &Tx, statement: Statement) -> Result<Self, StoreError> {
        let mut rows: HashMap<String, Vec<QueryResult>> = HashMap::new();
        for row in tx.query_all_raw(statement).await? {
            rows.entry(row.try_get_by_index(0)?).or_default().push(row);
        }
        Ok(Self { rows })
    }

    /// Returns the rows of a table.
    pub(super) fn take<E: EntityTrait>(&mut self) -> Result<Vec<E::Model>, StoreError> {
        let name = E::default().table_name().to_owned();
        let prefix = format!("{name}.");
        let of_table = self.rows.remove(&name).unwrap_or_default();
        of_table.iter().map(|row| Ok(E::Model::from_query_result(row, &prefix)?)).collect()
    }
}

/// Returns a NULL of the type of a column.
fn null_of(column: &ColumnType) -> &'static str {
    match column {
        ColumnType::BigInteger => "CAST(NULL AS BIGINT)",
        ColumnType::Integer => "CAST(NULL AS INTEGER)",
        ColumnType::Boolean => "CAST(NULL AS BOOLEAN)",
        _ => "CAST(NULL AS TEXT)",
    }
}
