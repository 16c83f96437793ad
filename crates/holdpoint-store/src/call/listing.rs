//! Calls as an operator lists them: of all users, without inputs and results.

use crate::entity::{thread, tool_call};
use crate::{Page, Read, StoreError, sql::rows};
use holdpoint_core::call::StateKind;
use holdpoint_core::clock::Timestamp;
use sea_orm::{
    ColumnTrait, EntityTrait, FromQueryResult, JoinType, QueryFilter, QueryOrder, QuerySelect, RelationTrait,
};

const TABLE: &str = "tool_calls";

#[derive(Debug)]
pub struct ListedCall {
    pub id: String,
    pub tool: String,
    pub state: StateKind,
    pub tenant_id: String,
    pub user_id: String,
    /// When the call reached its state.
    pub since: Timestamp,
}

#[derive(FromQueryResult)]
struct Row {
    tool_call_id: String,
    name: String,
    state: String,
    tenant_id: String,
    user_id: String,
    created_at: i64,
    decided_at: Option<i64>,
    started_at: Option<i64>,
    finished_at: Option<i64>,
}

impl Read {
    /// Returns the newest calls in these states, of all users.
    pub async fn calls_in(&self, states: &[StateKind], size: u64) -> Result<Page<ListedCall>, StoreError> {
        let found = tool_call::Entity::find()
            .select_only()
            .columns([
                tool_call::Column::ToolCallId,
                tool_call::Column::Name,
                tool_call::Column::State,
                tool_call::Column::CreatedAt,
                tool_call::Column::DecidedAt,
                tool_call::Column::StartedAt,
                tool_call::Column::FinishedAt,
            ])
            .columns([thread::Column::TenantId, thread::Column::UserId])
            .join(JoinType::InnerJoin, tool_call::Relation::Thread.def())
            .filter(tool_call::Column::State.is_in(states.iter().map(|it| it.word())))
            .order_by_desc(tool_call::Column::ToolCallId)
            .limit(size.saturating_add(1))
            .into_model::<Row>()
            .all(&self.tx)
            .await?;
        let page = Page::of(found, size);
        let listed = |row: Row| rows::listed(TABLE, &row.tool_call_id.clone(), ListedCall::of(row));
        let items = page.items.into_iter().filter_map(listed).collect();
        Ok(Page { items, has_more: page.has_more })
    }
}

impl ListedCall {
    fn of(row: Row) -> Result<Self, StoreError> {
        let state = rows::word(TABLE, &row.state)?;
        let started_at = row.started_at.filter(|_| state == StateKind::Executing);
        let since = row.finished_at.or(started_at).or(row.decided_at).unwrap_or(row.created_at);
        Ok(Self {
            id: row.tool_call_id,
            tool: row.name,
            state,
            tenant_id: row.tenant_id,
            user_id: row.user_id,
            since: Timestamp::from_micros(since),
        })
    }
}
