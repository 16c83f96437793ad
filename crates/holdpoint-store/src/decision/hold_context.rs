//! What surrounds a held call: the part of the policy that holds it, the decisions about earlier calls of the same
//! tool and requester, and the words before the call.

use crate::decision::inbox::visible_calls;
use crate::entity::{event, message, run, step, tool_call};
use crate::sql::parts::read_parts;
use crate::sql::words::literal;
use crate::{Read, StoreError, Thread, Visibility, VisibleCall};
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::{GrantId, ToolCallId};
use holdpoint_core::message::Part;
use sea_orm::sea_query::{Expr, ExprTrait, Query};
use sea_orm::{ColumnTrait, EntityName, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use std::cmp::Reverse;

/// Maximum number of earlier decisions.
const HISTORY_MAX: u64 = 10;
/// Maximum length of an excerpt, in characters.
const EXCERPT_CHARS: usize = 2000;

/// The words before a held call: that much of its thread and no more.
#[derive(Debug, Default)]
pub struct CallContext {
    /// The beginning of the message that the run answers. In the thread of a sub-agent, of its task.
    pub user: Option<Excerpt>,
    /// The end of the text that the model wrote before the call, in the step that makes the call.
    pub model: Option<Excerpt>,
}

/// A text, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The text, at most 2000 characters.
    pub text: String,
    /// Whether the text is longer.
    pub is_cut: bool,
}

impl Excerpt {
    /// Returns the beginning of a text. `None` if the text is blank.
    fn first(text: &str) -> Option<Self> {
        Self::part(text, text.char_indices().nth(EXCERPT_CHARS).and_then(|(end, _)| text.get(..end)))
    }

    /// Returns the end of a text. `None` if the text is blank.
    fn last(text: &str) -> Option<Self> {
        // The character before the excerpt, if there is one, makes the text longer than the excerpt.
        let mut backwards = text.char_indices().rev();
        let start = backwards.nth(EXCERPT_CHARS - 1).map(|(start, _)| start);
        let is_longer = backwards.next().is_some();
        Self::part(text, start.filter(|_| is_longer).and_then(|start| text.get(start..)))
    }

    fn part(whole: &str, part: Option<&str>) -> Option<Self> {
        let text = part.unwrap_or(whole);
        (!text.trim().is_empty()).then(|| Self { text: text.to_owned(), is_cut: part.is_some() })
    }
}

impl Read {
    /// Returns a held call that this principal may see, with its approvals.
    pub async fn visible_hold(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        id: ToolCallId,
    ) -> Result<Option<VisibleCall>, StoreError> {
        let seen = self.visible_call(principal, visibility, id).await?;
        let Some((call, thread)) = seen.filter(|(call, _)| call.held) else { return Ok(None) };
        let votes = self.votes_of(id).await?;
        let delegations = self.delegations_of(id).await?;
        Ok(Some(VisibleCall { call, thread, votes, delegations }))
    }

    /// Returns the part of the policy that holds this call, as the event of the hold names it.
    pub async fn hold_source(&self, call: &ToolCall) -> Result<Option<String>, StoreError> {
        let held = self.hold_event(call).await?.map(|row| EventData::of_json(&row.data));
        Ok(match held {
            Some(EventData::Held { source, .. }) => Some(source),
            _ => None,
        })
    }

    pub async fn hold_event_id(&self, call: &ToolCall) -> Result<Option<String>, StoreError> {
        Ok(self.hold_event(call).await?.map(|row| row.event_id))
    }

    /// Returns the id of the grant that the approval of this call left, as the event of the approval names it.
    pub(crate) async fn left_grant(&self, call: &ToolCall) -> Result<Option<GrantId>, StoreError> {
        let approved = self.event_of(call, EventType::ToolApproved).await?;
        Ok(match approved.map(|row| EventData::of_json(&row.data)) {
            Some(EventData::Decided { grant_id, .. }) => grant_id,
            _ => None,
        })
    }

    async fn hold_event(&self, call: &ToolCall) -> Result<Option<event::Model>, StoreError> {
        self.event_of(call, EventType::ToolRequiresApproval).await
    }

    async fn event_of(&self, call: &ToolCall, event: EventType) -> Result<Option<event::Model>, StoreError> {
        let found = event::Entity::find()
            // By the run: the index of the calls leaves out events without a number.
            .filter(event::Column::RunId.eq(call.run_id.to_string()))
            .filter(event::Column::ToolCallId.eq(call.id.to_string()))
            .filter(event::Column::EventType.eq(event.word()));
        Ok(found.one(&self.tx).await?)
    }

    /// Returns the calls of the same tool and requester that were approved or rejected last, the latest decision
    /// first: of the last ten such calls, those that the principal may see.
    pub async fn decided_like(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        call: &ToolCall,
        thread: &Thread,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let like = decided_like(&thread.tenant_id, &thread.user_id, &call.name, call.id);
        let ids: Vec<String> = like.into_tuple().all(&self.tx).await?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = visible_calls(principal, visibility).filter(tool_call::Column::ToolCallId.is_in(ids));
        let mut calls = self.listed_with_decisions(found.all(&self.tx).await?).await?;
        calls.sort_by_key(|call| Reverse((call.decision.as_ref().map(|it| it.at), call.id.to_string())));
        Ok(calls)
    }

    pub async fn words_before(&self, call: &ToolCall) -> Result<CallContext, StoreError> {
        let question = Query::select()
            .column(run::Column::UserMessageId)
            .from(run::Entity.table_ref())
            .and_where(run::Column::RunId.eq(call.run_id.to_string()))
            .to_owned();
        let question = message::Entity::find().filter(message::Column::MessageId.in_subquery(question));
        let question = question.one(&self.tx).await?.and_then(|row| row.content);
        let step = step::Entity::find_by_id((call.message_id.to_string(), call.step)).one(&self.tx).await?;
        let parts = step.and_then(|row| read_parts(&row.parts).ok()).unwrap_or_default();
        let before = parts
            .iter()
            .take_while(|part| !matches!(part, Part::ToolCall { tool_call_id } if *tool_call_id == call.id));
        let texts: Vec<&str> = before
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                Part::Reasoning { .. } | Part::ToolCall { .. } | Part::Source(_) | Part::File(_) => None,
            })
            .collect();
        Ok(CallContext {
            user: question.as_deref().and_then(Excerpt::first),
            model: Excerpt::last(&texts.join("\n\n")),
        })
    }
}

/// Selects the ids of the calls of a tool and a requester that were approved or rejected last, without one call.
fn decided_like(tenant: &str, user: &str, tool: &str, but: ToolCallId) -> Select<event::Entity> {
    // Literals, so that the partial index is usable.
    let decided = [EventType::ToolApproved, EventType::ToolRejected].map(literal);
    event::Entity::find()
        .select_only()
        .column(event::Column::ToolCallId)
        .filter(event::Column::TenantId.eq(tenant))
        .filter(event::Column::HeldTool.eq(tool))
        .filter(event::Column::UserId.eq(user))
        .filter(ExprTrait::is_in(Expr::col(event::Column::EventType), decided))
        .filter(event::Column::ToolCallId.ne(but.to_string()))
        .order_by_desc(event::Column::At)
        .order_by_desc(event::Column::EventId)
        .limit(HISTORY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::config::Database;
    use holdpoint_core::clock::SystemClock;
    use holdpoint_metrics::Metrics;
    use sea_orm::{ConnectionTrait, DbBackend, QueryTrait, Statement};
    use std::sync::Arc;
    use uuid::Uuid;

    #[tokio::test]
    async fn on_sqlite_the_history_comes_from_its_index_in_the_order_of_the_decisions() {
        let database = Database::in_memory();
        let store = Store::connect(&database, Arc::new(SystemClock), Metrics::new([], 0.0));
        let store = store.await.unwrap();
        store.migrate().await.unwrap();
        let like = decided_like("acme", "alice", "pay", ToolCallId::new(Uuid::nil()));
        let Statement { sql, values, .. } = like.build(DbBackend::Sqlite);
        let sql = format!("EXPLAIN QUERY PLAN {}", sql.replace("\"holdpoint\".", ""));
        let plan = Statement { sql, values, db_backend: DbBackend::Sqlite };
        let plan = store.read().await.unwrap().tx.query_all_raw(plan).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.try_get("", "detail").unwrap()).collect();
        let search = "SEARCH events USING INDEX events_decided (tenant_id=? AND held_tool=? AND user_id=?)";
        assert!(plan.iter().any(|step| step == search), "{plan:#?}");
        assert!(!plan.iter().any(|step| step == "USE TEMP B-TREE FOR ORDER BY"), "{plan:#?}");
    }

    #[test]
    fn an_excerpt_has_at_most_two_thousand_characters_of_the_named_end() {
        let text = format!("{}é", "a".repeat(1999));
        for excerpt in [Excerpt::first(&text), Excerpt::last(&text)] {
            assert_eq!(excerpt, Some(Excerpt { text: text.clone(), is_cut: false }));
        }
        let longer = format!("b{text}");
        let first = Excerpt::first(&longer).unwrap();
        assert_eq!((first.text, first.is_cut), (format!("b{}", "a".repeat(1999)), true));
        assert_eq!(Excerpt::last(&longer), Some(Excerpt { text, is_cut: true }));
        for blank in ["", " \n"] {
            assert_eq!((Excerpt::first(blank), Excerpt::last(blank)), (None, None), "{blank:?}");
        }
    }
}
