//! Proposals for answers to requests that need several people. Each person has one, which they may change while the
//! request is open. The schema removes the contents with the end of the request.

use crate::entity::tool_request_vote as vote;
use crate::event::new_event::Subject;
use crate::{LockedCall, Read, StoreError, Write, sql::rows};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::RequestStep;
use holdpoint_core::id::RequestId;
use holdpoint_core::tool::tool_request::{Content, ContentVote, ToolRequest};
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::Value;
use std::collections::HashMap;

const TABLE: &str = "tool_request_votes";

impl Read {
    /// Returns the votes about a request, oldest first.
    pub async fn content_votes(&self, request: RequestId) -> Result<Vec<ContentVote>, StoreError> {
        Ok(self.content_votes_of(vec![request]).await?.into_values().flatten().collect())
    }

    /// Returns the votes about these requests in the same way.
    pub(crate) async fn content_votes_of(
        &self,
        requests: Vec<RequestId>,
    ) -> Result<HashMap<RequestId, Vec<ContentVote>>, StoreError> {
        let mut votes: HashMap<RequestId, Vec<ContentVote>> = HashMap::new();
        if requests.is_empty() {
            return Ok(votes);
        }
        let found = vote::Entity::find()
            .filter(vote::Column::RequestId.is_in(requests.iter().map(RequestId::to_string)))
            .order_by_asc(vote::Column::At)
            .order_by_asc(vote::Column::Actor);
        for row in found.all(&self.tx).await? {
            if let Some((request, vote)) = rows::listed(TABLE, &row.request_id.clone(), content_vote(row)) {
                votes.entry(request).or_default().push(vote);
            }
        }
        Ok(votes)
    }
}

impl Write {
    /// Stores what a person proposes as the content of an answer to an open request of a locked call. It replaces what
    /// the same person proposed before.
    pub async fn vote_for_content(
        &self,
        request: &ToolRequest,
        content_hash: &str,
        Content(content): &Content,
        by: &str,
    ) -> Result<(), StoreError> {
        let content = Value::Object(content.clone()).to_string();
        let changed = vote::Entity::update_many()
            .col_expr(vote::Column::Content, Expr::value(&content))
            .col_expr(vote::Column::ContentHash, Expr::value(content_hash))
            .col_expr(vote::Column::At, Expr::value(self.now.as_micros()))
            .filter(vote::Column::RequestId.eq(request.id.to_string()))
            .filter(vote::Column::Actor.eq(by))
            .exec(&self.tx)
            .await?;
        if changed.rows_affected == 0 {
            let row = vote::ActiveModel {
                request_id: Set(request.id.to_string()),
                actor: Set(by.to_owned()),
                content: Set(Some(content)),
                content_hash: Set(content_hash.to_owned()),
                at: Set(self.now.as_micros()),
            };
            vote::Entity::insert(row).exec_without_returning(&self.tx).await?;
        }
        Ok(())
    }

    /// Adds the event of a vote after which the request needs this number of further people. `agreed` are those that
    /// propose the same content, with the actor of the vote.
    pub fn content_proposed(
        &self,
        locked: &LockedCall,
        request: &ToolRequest,
        by: &str,
        agreed: &[String],
        missing: usize,
    ) {
        let proposed = RequestStep::Proposed { confirmed_by: agreed.to_vec(), missing };
        let subject = Subject::call(&locked.thread, &locked.call);
        self.request_event(EventType::ToolInputProposed, by, &subject, request, proposed);
    }
}

fn content_vote(row: vote::Model) -> Result<(RequestId, ContentVote), StoreError> {
    let content = row.content.map(|content| rows::json(TABLE, &content)).transpose()?;
    let vote = ContentVote {
        by: row.actor,
        content: content.map(Content),
        content_hash: row.content_hash,
        at: Timestamp::from_micros(row.at),
    };
    Ok((rows::id(TABLE, &row.request_id)?, vote))
}
