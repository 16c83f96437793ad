//! Rows of several tables from one statement.

use super::StoreError;
use super::tx::Tx;
use sea_orm::sea_query::{
    Alias, ColumnType, Expr, ExprTrait, Query, SelectStatement, SimpleExpr, TableRef, UnionType,
};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, Iterable, QueryResult, Statement,
    TryIntoModel, Value,
};
use std::collections::HashMap;

/// Selects rows of several tables with one statement. The first column of the result is the place of its table.
/// The columns of the tables share the others, by their types: texts first, then numbers, then truths.
#[derive(Default)]
pub(super) struct Union {
    tables: Vec<Table>,
}

struct Table {
    name: &'static str,
    from: TableRef,
    condition: SimpleExpr,
    texts: Vec<SimpleExpr>,
    numbers: Vec<SimpleExpr>,
    truths: Vec<SimpleExpr>,
}

/// The types of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    BigInteger,
    Boolean,
}

/// The numbers of the columns that the tables share.
#[derive(Debug, Clone, Copy)]
struct Width {
    texts: usize,
    numbers: usize,
    truths: usize,
}

/// A statement, and the columns of its result.
#[derive(Debug, Clone)]
pub(super) struct UnionStatement {
    pub(super) statement: Statement,
    tables: Vec<&'static str>,
    width: Width,
}

/// The rows that unions found.
#[derive(Default)]
pub(super) struct UnionRows {
    /// The rows of each table, and the columns of their result.
    tables: HashMap<&'static str, (Width, Vec<QueryResult>)>,
}

impl Kind {
    fn of(column: &impl ColumnTrait) -> Self {
        match column.def().get_column_type() {
            ColumnType::BigInteger => Self::BigInteger,
            ColumnType::Integer => Self::Integer,
            ColumnType::Boolean => Self::Boolean,
            _ => Self::Text,
        }
    }
}

impl Union {
    /// Adds the rows of a table that match the condition.
    pub(super) fn of<E: EntityTrait>(mut self, name: &'static str, condition: SimpleExpr) -> Self {
        let (texts, numbers, truths) = Default::default();
        let from = E::default().table_ref();
        let mut table = Table { name, from, condition, texts, numbers, truths };
        for column in E::Column::iter() {
            let value = column.into_expr();
            match Kind::of(&column) {
                Kind::Text => table.texts.push(value),
                // Numbers of both types share columns.
                Kind::Integer => table.numbers.push(value.cast_as("BIGINT")),
                Kind::BigInteger => table.numbers.push(value),
                Kind::Boolean => table.truths.push(value),
            }
        }
        self.tables.push(table);
        self
    }

    /// Builds one statement for each table.
    pub(super) fn apart(self, backend: DbBackend) -> Vec<UnionStatement> {
        let alone = |table| Self { tables: vec![table] }.build(backend);
        self.tables.into_iter().map(alone).collect()
    }

    /// Builds one statement for all tables.
    pub(super) fn build(self, backend: DbBackend) -> UnionStatement {
        let most = |count: fn(&Table) -> usize| self.tables.iter().map(count).max().unwrap_or_default();
        let width = Width {
            texts: most(|table| table.texts.len()),
            numbers: most(|table| table.numbers.len()),
            truths: most(|table| table.truths.len()),
        };
        let mut selects = (0..).zip(&self.tables).map(|(position, table)| table.select(width, position));
        let mut all = selects.next().unwrap_or_default();
        for more in selects {
            all.union(UnionType::All, more);
        }
        let tables = self.tables.iter().map(|table| table.name).collect();
        UnionStatement { statement: backend.build(&all), tables, width }
    }
}

impl Table {
    /// Selects the rows of this table. The first select names the columns and gives each NULL its type. Without
    /// it Postgres takes a NULL for a text.
    fn select(&self, width: Width, position: i64) -> SelectStatement {
        let is_first = position == 0;
        let mut select = Query::select();
        select.from(self.from.clone()).and_where(self.condition.clone());
        select.expr_as(Expr::value(position), Alias::new("of_table"));
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

impl UnionRows {
    /// Executes a union, and adds its rows.
    pub(super) async fn add(&mut self, tx: &Tx, union: UnionStatement) -> Result<(), StoreError> {
        let UnionStatement { statement, tables, width } = union;
        for row in tx.query_all_raw(statement).await? {
            let position: i64 = row.try_get_by_index(0)?;
            let table = usize::try_from(position).ok().and_then(|position| tables.get(position));
            if let Some(table) = table {
                self.tables.entry(table).or_insert_with(|| (width, Vec::new())).1.push(row);
            }
        }
        Ok(())
    }

    /// Returns the rows of a table.
    pub(super) fn take<E>(&mut self) -> Result<Vec<E::Model>, StoreError>
    where
        E: EntityTrait,
        E::ActiveModel: TryIntoModel<E::Model>,
    {
        let Some((width, rows)) = self.tables.remove(E::default().table_name()) else {
            return Ok(Vec::new());
        };
        let columns = width.columns::<E>();
        rows.iter().map(|row| read::<E>(&columns, row)).collect()
    }
}

impl Width {
    /// Returns the columns of a table, each with its type and its position in the result.
    fn columns<E: EntityTrait>(self) -> Vec<(E::Column, Kind, usize)> {
        let (mut text, mut number) = (1, 1 + self.texts);
        let mut truth = number + self.numbers;
        let placed = E::Column::iter().map(|column| {
            let kind = Kind::of(&column);
            let next = match kind {
                Kind::Text => &mut text,
                Kind::BigInteger | Kind::Integer => &mut number,
                Kind::Boolean => &mut truth,
            };
            let position = *next;
            *next += 1;
            (column, kind, position)
        });
        placed.collect()
    }
}

fn read<E>(columns: &[(E::Column, Kind, usize)], row: &QueryResult) -> Result<E::Model, StoreError>
where
    E: EntityTrait,
    E::ActiveModel: TryIntoModel<E::Model>,
{
    let mut read = <E::ActiveModel as ActiveModelTrait>::default();
    for (column, kind, position) in columns {
        let value = match kind {
            Kind::Text => Value::String(row.try_get_by_index(*position)?),
            Kind::BigInteger => Value::BigInt(row.try_get_by_index(*position)?),
            Kind::Integer => {
                let number: Option<i64> = row.try_get_by_index(*position)?;
                Value::Int(number.and_then(|number| i32::try_from(number).ok()))
            }
            Kind::Boolean => Value::Bool(row.try_get_by_index(*position)?),
        };
        read.try_set(*column, value)?;
    }
    Ok(read.try_into_model()?)
}
