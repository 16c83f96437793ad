//! Rows of several tables from one statement.

use super::StoreError;
use super::entity::{decision, message, run, sent_answer, step, tool_call};
use super::tx::Tx;
use sea_orm::sea_query::{
    Alias, ColumnType, Expr, ExprTrait, Query, SelectStatement, SimpleExpr, TableRef, UnionType,
};
use sea_orm::sqlx::postgres::{PgRow, Postgres};
use sea_orm::sqlx::sqlite::{Sqlite, SqliteRow};
use sea_orm::sqlx::{self, Decode, Row, Type};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryResult, RuntimeErr, Statement,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Selects rows of several tables with one statement. The first column of the result is the place of its table.
/// The columns of the tables share the others, by their types: texts first, then numbers, then truths.
#[derive(Default)]
pub(super) struct Union {
    tables: Vec<Table>,
}

/// A table whose rows a union reads.
pub(super) trait UnionTable: EntityTrait {
    /// The columns, in the order in which they are read.
    const COLUMNS: &'static [Self::Column];

    /// Reads a row.
    fn read(cells: &mut Cells<'_>) -> Result<Self::Model, StoreError>;
}

/// Lists the columns of each table once, for the statement and for the rows.
macro_rules! union_tables {
    ($($table:ident { $($field:ident: $column:ident),+ $(,)? })+) => { $(
        impl UnionTable for $table::Entity {
            const COLUMNS: &'static [Self::Column] = &[$($table::Column::$column),+];

            fn read(cells: &mut Cells<'_>) -> Result<Self::Model, StoreError> {
                // The fields are read in this order.
                Ok($table::Model { $($field: Cell::read(cells)?),+ })
            }
        }
    )+ };
}

union_tables! {
    message {
        message_id: MessageId,
        thread_id: ThreadId,
        run_id: RunId,
        ordinal: Ordinal,
        role: Role,
        status: Status,
        client_id: ClientId,
        content: Content,
        created_at: CreatedAt,
        erased_at: ErasedAt,
    }
    run {
        run_id: RunId,
        thread_id: ThreadId,
        user_message_id: UserMessageId,
        assistant_message_id: AssistantMessageId,
        status: Status,
        model: Model,
        tools: Tools,
        instructions: Instructions,
        roles: Roles,
        owner: Owner,
        lease_until: LeaseUntil,
        cancel_requested_at: CancelRequestedAt,
        server_resumes: ServerResumes,
        error_code: ErrorCode,
        error_message: ErrorMessage,
        created_at: CreatedAt,
        finished_at: FinishedAt,
    }
    step {
        message_id: MessageId,
        n: N,
        status: Status,
        parts: Parts,
        finish_reason: FinishReason,
        input_tokens: InputTokens,
        output_tokens: OutputTokens,
        origin: Origin,
        provider_state: ProviderState,
        created_at: CreatedAt,
        finished_at: FinishedAt,
        erased_at: ErasedAt,
    }
    tool_call {
        tool_call_id: ToolCallId,
        thread_id: ThreadId,
        tenant_id: TenantId,
        message_id: MessageId,
        step: Step,
        ordinal: Ordinal,
        run_id: RunId,
        provider_call_id: ProviderCallId,
        wire_call_id: WireCallId,
        name: Name,
        arguments: Arguments,
        schema_hash: SchemaHash,
        held: Held,
        idempotent: Idempotent,
        risk_level: RiskLevel,
        reason: Reason,
        preview: Preview,
        preview_failed: PreviewFailed,
        state: State,
        validated: Validated,
        validated_inputs: ValidatedInputs,
        validated_preview: ValidatedPreview,
        validated_preview_failed: ValidatedPreviewFailed,
        decided_by: DecidedBy,
        decided_at: DecidedAt,
        expires_at: ExpiresAt,
        remind_at: RemindAt,
        escalate_at: EscalateAt,
        escalate_to: EscalateTo,
        escalated_at: EscalatedAt,
        start_deadline: StartDeadline,
        exec_id: ExecId,
        exec_owner: ExecOwner,
        exec_attempt: ExecAttempt,
        lease_until: LeaseUntil,
        started_at: StartedAt,
        child_run_id: ChildRunId,
        by_worker: ByWorker,
        permit_hash: PermitHash,
        result_deadline: ResultDeadline,
        mcp_server: McpServer,
        task_id: TaskId,
        input_round: InputRound,
        polled_by: PolledBy,
        polled_until: PolledUntil,
        cancel_requested_at: CancelRequestedAt,
        output: Output,
        result: Result,
        created_at: CreatedAt,
        finished_at: FinishedAt,
        erased_at: ErasedAt,
    }
    decision {
        decision_id: DecisionId,
        tool_call_id: ToolCallId,
        actor: Actor,
        on_behalf_of: OnBehalfOf,
        verdict: Verdict,
        is_final: IsFinal,
        edited: Edited,
        input_hash: InputHash,
        reason: Reason,
        remember: Remember,
        surface: Surface,
        source: Source,
        at: At,
    }
    sent_answer {
        tool_call_id: ToolCallId,
        n: N,
        kind: Kind,
        text: Text,
        message_id: MessageId,
        step: Step,
        at: At,
        erased_at: ErasedAt,
    }
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

/// The cells of a row, in the order of the columns of its table.
pub(super) struct Cells<'r> {
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

/// A value that a cell holds.
trait Cell: Sized {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError>;
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
    pub(super) fn of<E: UnionTable>(mut self, name: &'static str, condition: SimpleExpr) -> Self {
        let (texts, numbers, truths) = Default::default();
        let from = E::default().table_ref();
        let mut table = Table { name, from, condition, texts, numbers, truths };
        for column in E::COLUMNS {
            let value = column.into_expr();
            match Kind::of(column) {
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

    /// Adds the tables of another union.
    pub(super) fn and(mut self, more: Self) -> Self {
        self.tables.extend(more.tables);
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
    pub(super) fn take<E: UnionTable>(&mut self) -> Result<Vec<E::Model>, StoreError> {
        let Some((width, rows)) = self.tables.remove(E::default().table_name()) else {
            return Ok(Vec::new());
        };
        rows.iter().map(|row| E::read(&mut Cells::of(row, width)?)).collect()
    }
}

impl<'r> Cells<'r> {
    fn of(row: &'r QueryResult, width: Width) -> Result<Self, StoreError> {
        let row = match (row.try_as_pg_row(), row.try_as_sqlite_row()) {
            (Some(row), _) => DatabaseRow::Postgres(row),
            (None, Some(row)) => DatabaseRow::Sqlite(row),
            (None, None) => return Err(DbErr::Type("a row of no known database".to_owned()).into()),
        };
        let number = 1 + width.texts;
        Ok(Self { row, text: 1, number, truth: number + width.numbers })
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

/// Returns the place of the next cell of a kind.
const fn next(place: &mut usize) -> usize {
    let this = *place;
    *place = this + 1;
    this
}

impl Cell for Option<String> {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        cells.row.get(next(&mut cells.text))
    }
}

impl Cell for Option<i64> {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        cells.row.get(next(&mut cells.number))
    }
}

impl Cell for Option<bool> {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        cells.row.get(next(&mut cells.truth))
    }
}

fn present<T>(value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| DbErr::Type("a column without a value".to_owned()).into())
}

impl Cell for String {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        present(Cell::read(cells)?)
    }
}

impl Cell for i64 {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        present(Cell::read(cells)?)
    }
}

impl Cell for i32 {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        let number: i64 = Cell::read(cells)?;
        Self::try_from(number).map_err(|error| DbErr::Type(error.to_string()).into())
    }
}

impl Cell for bool {
    fn read(cells: &mut Cells<'_>) -> Result<Self, StoreError> {
        present(Cell::read(cells)?)
    }
}
