//! Rows of several tables from one statement.

use super::StoreError;
use super::tx::Tx;
use sea_orm::sea_query::{Alias, ColumnType, Expr, Query, SelectStatement, SimpleExpr, UnionType};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, IdenStatic, Iterable, QueryResult,
};

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
    rows: Vec<(String, QueryResult)>,
}

impl Union {
    /// Adds the rows of a table that match the condition.
    pub(super) fn of<E: EntityTrait>(mut self, condition: SimpleExpr) -> Self {
        let name = sea_orm::EntityName::table_name(&E::default()).to_owned();
        let column = |column: E::Column| Column {
            alias: format!("{name}.{}", column.as_str()),
            value: column.into_expr().into(),
            null: null_of(column.def().get_column_type()),
        };
        let columns = E::Column::iter().map(column).collect();
        self.tables.push(Table { name, columns, condition });
        self
    }

    /// Returns all rows.
    pub(super) async fn all(self, tx: &Tx) -> Result<UnionRows, StoreError> {
        let mut selects = (0..self.tables.len()).map(|place| self.select(place));
        let Some(mut all) = selects.next() else { return Ok(UnionRows { rows: Vec::new() }) };
        for more in selects {
            all.union(UnionType::All, more);
        }
        let found = tx.query_all_raw(tx.get_database_backend().build(&all)).await?;
        let named = |row: QueryResult| Ok((row.try_get::<String>("", TABLE)?, row));
        Ok(UnionRows { rows: found.into_iter().map(named).collect::<Result<_, StoreError>>()? })
    }

    fn select(&self, place: usize) -> SelectStatement {
        let mut select = Query::select();
        for (other, table) in self.tables.iter().enumerate() {
            if other == place {
                select.from(Alias::new(&table.name)).and_where(table.condition.clone());
                select.expr_as(Expr::cust(format!("'{}'", table.name)), Alias::new(TABLE));
            }
        }
        for (other, table) in self.tables.iter().enumerate() {
            for column in &table.columns {
                let value = if other == place { column.value.clone() } else { Expr::cust(column.null) };
                select.expr_as(value, Alias::new(&column.alias));
            }
        }
        select
    }
}

impl UnionRows {
    /// Returns the rows of a table.
    pub(super) fn take<E: EntityTrait>(&mut self) -> Result<Vec<E::Model>, StoreError> {
        let name = sea_orm::EntityName::table_name(&E::default()).to_owned();
        let prefix = format!("{name}.");
        let of_table = self.rows.iter().filter(|(table, _)| *table == name);
        of_table.map(|(_, row)| Ok(E::Model::from_query_result(row, &prefix)?)).collect()
    }
}

/// Returns a NULL of the type of a column. Without it Postgres takes each NULL for a text.
fn null_of(column: &ColumnType) -> &'static str {
    match column {
        ColumnType::BigInteger => "CAST(NULL AS BIGINT)",
        ColumnType::Integer => "CAST(NULL AS INTEGER)",
        ColumnType::Boolean => "CAST(NULL AS BOOLEAN)",
        _ => "CAST(NULL AS TEXT)",
    }
}
