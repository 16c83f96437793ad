//! The cells of a row that a union found, and the tables that read them.

use crate::StoreError;
use sea_orm::sea_query::ColumnType;
use sea_orm::sqlx::postgres::{PgRow, Postgres};
use sea_orm::sqlx::sqlite::{Sqlite, SqliteRow};
use sea_orm::sqlx::{self, Decode, Row, Type};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryResult, RuntimeErr};
use std::sync::Arc;

/// The types of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    BigInteger,
    Boolean,
}

/// The numbers of columns, by their types.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ColumnCounts {
    pub(crate) texts: usize,
    pub(crate) numbers: usize,
    pub(crate) truths: usize,
}

/// The cells of a row, in the order of the columns of its tables.
#[derive(Clone, Copy)]
pub(crate) struct Cells<'r> {
    row: DatabaseRow<'r>,
    /// The places of the next text, the next number and the next truth.
    text: usize,
    number: usize,
    truth: usize,
}

#[derive(Clone, Copy)]
enum DatabaseRow<'r> {
    Postgres(&'r PgRow),
    Sqlite(&'r SqliteRow),
}

/// A table whose rows a union reads.
pub(crate) trait View: EntityTrait {
    type Row<'r>;
    /// The columns, in the order in which they are read.
    const COLUMNS: &'static [Self::Column];

    fn read<'r>(cells: &mut Cells<'r>) -> Result<Self::Row<'r>, StoreError>;
}

/// A value that a cell holds.
pub(crate) trait Cell<'r>: Sized {
    /// Reads the next cell of the type.
    fn read(cells: &mut Cells<'r>) -> Result<Self, StoreError>;
}

impl Kind {
    pub(crate) fn of(column: &impl ColumnTrait) -> Self {
        match column.def().get_column_type() {
            ColumnType::BigInteger => Self::BigInteger,
            ColumnType::Integer => Self::Integer,
            ColumnType::Boolean => Self::Boolean,
            _ => Self::Text,
        }
    }
}

impl ColumnCounts {
    /// Returns the numbers of the columns of a table.
    pub(crate) fn of<E: View>() -> Self {
        let mut width = Self::default();
        for column in E::COLUMNS {
            match Kind::of(column) {
                Kind::Text => width.texts += 1,
                Kind::Integer | Kind::BigInteger => width.numbers += 1,
                Kind::Boolean => width.truths += 1,
            }
        }
        width
    }
}

impl<'r> Cells<'r> {
    pub(crate) fn of(row: &'r QueryResult, width: ColumnCounts) -> Result<Self, StoreError> {
        let row = match (row.try_as_pg_row(), row.try_as_sqlite_row()) {
            (Some(row), _) => DatabaseRow::Postgres(row),
            (None, Some(row)) => DatabaseRow::Sqlite(row),
            (None, None) => return Err(DbErr::Type("a row of no known database".to_owned()).into()),
        };
        let number = 1 + width.texts;
        Ok(Self { row, text: 1, number, truth: number + width.numbers })
    }

    pub(crate) const fn after(self, table: ColumnCounts) -> Self {
        let Self { row, text, number, truth } = self;
        Self { row, text: text + table.texts, number: number + table.numbers, truth: truth + table.truths }
    }

    /// Reads the row of a table.
    pub(crate) fn read<E: View>(mut self) -> Result<E::Row<'r>, StoreError> {
        E::read(&mut self)
    }

    /// Reads the row of a joined table, whose first column is a text that is never NULL. Returns `None` if no row
    /// was joined.
    pub(crate) fn read_joined<E: View>(self) -> Result<Option<E::Row<'r>>, StoreError> {
        match self.row.get::<&str>(self.text)? {
            Some(_) => self.read::<E>().map(Some),
            None => Ok(None),
        }
    }
}

impl<'r> DatabaseRow<'r> {
    /// Returns the value of a column. The statement gives each column its type on Postgres. On SQLite a row may
    /// have a value of another type.
    fn get<T>(self, column: usize) -> Result<Option<T>, StoreError>
    where
        T: Decode<'r, Postgres> + Decode<'r, Sqlite> + Type<Sqlite>,
    {
        let value = match self {
            Self::Postgres(row) => row.try_get_unchecked(column),
            Self::Sqlite(row) => row.try_get(column),
        };
        value.map_err(|error| decode_error(error).into())
    }
}

fn decode_error(error: sqlx::Error) -> DbErr {
    DbErr::Query(RuntimeErr::SqlxError(Arc::new(error)))
}

/// Returns the place of the next cell of a type.
const fn next(place: &mut usize) -> usize {
    let this = *place;
    *place = this + 1;
    this
}

fn present<T>(value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| DbErr::Type("a column without a value".to_owned()).into())
}

/// Reads cells of each type, and of its option.
macro_rules! cells {
    ($($type:ty: $place:ident),+ $(,)?) => { $(
        impl<'r> Cell<'r> for Option<$type> {
            fn read(cells: &mut Cells<'r>) -> Result<Self, StoreError> {
                cells.row.get(next(&mut cells.$place))
            }
        }

        impl<'r> Cell<'r> for $type {
            fn read(cells: &mut Cells<'r>) -> Result<Self, StoreError> {
                present(Cell::read(cells)?)
            }
        }
    )+ };
}

cells! { &'r str: text, String: text, i64: number, bool: truth }

impl<'r> Cell<'r> for i32 {
    fn read(cells: &mut Cells<'r>) -> Result<Self, StoreError> {
        let number: i64 = Cell::read(cells)?;
        Self::try_from(number).map_err(|error| DbErr::Type(error.to_string()).into())
    }
}
