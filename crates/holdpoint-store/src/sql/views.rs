//! The columns that unions read of each table, listed once for the statement and for the rows.

use crate::StoreError;
use crate::entity::{decision, message, run, sent_answer, step, tool_call};
use crate::sql::cells::{Cell, Cells, View};

/// A value that a row takes from a model, without a copy of a text.
trait BorrowedValue<'r, T> {
    fn of(value: &'r T) -> Self;
}

/// Rows that lend their texts: a turn reads hundreds of them, and parses most texts.
macro_rules! lent_rows {
    ($($(#[$doc:meta])* $row:ident of $table:ident { $($field:ident: $type:ty = $column:ident),+ $(,)? })+) => { $(
        $(#[$doc])*
        pub(crate) struct $row<'r> {
            $(pub(crate) $field: $type,)+
        }

        impl View for $table::Entity {
            type Row<'r> = $row<'r>;
            const COLUMNS: &'static [Self::Column] = &[$($table::Column::$column),+];

            fn read<'r>(cells: &mut Cells<'r>) -> Result<$row<'r>, StoreError> {
                // The fields are read in this order.
                Ok($row { $($field: Cell::read(cells)?),+ })
            }
        }

        impl<'r> From<&'r $table::Model> for $row<'r> {
            fn from(model: &'r $table::Model) -> Self {
                Self { $($field: BorrowedValue::of(&model.$field)),+ }
            }
        }
    )+ };
}

/// Rows with all columns of their table.
macro_rules! whole_rows {
    ($($table:ident { $($field:ident: $column:ident),+ $(,)? })+) => { $(
        impl View for $table::Entity {
            type Row<'r> = $table::Model;
            const COLUMNS: &'static [Self::Column] = &[$($table::Column::$column),+];

            fn read(cells: &mut Cells<'_>) -> Result<$table::Model, StoreError> {
                // The fields are read in this order.
                Ok($table::Model { $($field: Cell::read(cells)?),+ })
            }
        }
    )+ };
}

impl<'r> BorrowedValue<'r, String> for &'r str {
    fn of(value: &'r String) -> Self {
        value
    }
}

impl<'r> BorrowedValue<'r, Option<String>> for Option<&'r str> {
    fn of(value: &'r Option<String>) -> Self {
        value.as_deref()
    }
}

impl<T: Copy> BorrowedValue<'_, T> for T {
    fn of(value: &T) -> Self {
        *value
    }
}

lent_rows! {
    /// A row of `messages`.
    MessageRow of message {
        message_id: &'r str = MessageId,
        thread_id: &'r str = ThreadId,
        run_id: &'r str = RunId,
        ordinal: i64 = Ordinal,
        role: &'r str = Role,
        client_id: Option<&'r str> = ClientId,
        content: Option<&'r str> = Content,
        created_at: i64 = CreatedAt,
        superseded_at: Option<i64> = SupersededAt,
    }
    /// A row of `runs`.
    RunRow of run {
        run_id: &'r str = RunId,
        thread_id: &'r str = ThreadId,
        user_message_id: &'r str = UserMessageId,
        assistant_message_id: &'r str = AssistantMessageId,
        status: &'r str = Status,
        model: Option<&'r str> = Model,
        tools: Option<&'r str> = Tools,
        instructions: Option<&'r str> = Instructions,
        roles: &'r str = Roles,
        lease_until: Option<i64> = LeaseUntil,
        cut_short: bool = CutShort,
        resumed_alone: bool = ResumedAlone,
        error_code: Option<&'r str> = ErrorCode,
        error_message: Option<&'r str> = ErrorMessage,
        created_at: i64 = CreatedAt,
        finished_at: Option<i64> = FinishedAt,
    }
    /// A row of `message_steps`.
    StepRow of step {
        message_id: &'r str = MessageId,
        n: i32 = N,
        status: &'r str = Status,
        parts: &'r str = Parts,
        input_tokens: Option<i64> = InputTokens,
        output_tokens: Option<i64> = OutputTokens,
        origin: Option<&'r str> = Origin,
        provider_state: Option<&'r str> = ProviderState,
        turns_left_out: i32 = TurnsLeftOut,
        turns_shortened: i32 = TurnsShortened,
        refused_tokens: Option<i64> = RefusedTokens,
        created_at: i64 = CreatedAt,
    }
}

whole_rows! {
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
        model_arguments: ModelArguments,
        secret_paths: SecretPaths,
        schema_hash: SchemaHash,
        held: Held,
        listed_for: ListedFor,
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
        progress: Progress,
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
