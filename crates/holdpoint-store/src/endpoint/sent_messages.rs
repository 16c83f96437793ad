//! Messages that later ones about the same call change: which one each endpoint has.

use crate::entity::sent_message;
use crate::{Read, StoreError, Write};
use holdpoint_core::id::ToolCallId;
use sea_orm::ActiveValue::Set;
use sea_orm::EntityTrait;
use sea_orm::sea_query::OnConflict;

/// Maximum length of an id, in bytes.
const ID_BYTES: usize = 64;

/// A message, by the ids that change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// The conversation, or another place.
    pub place: String,
    /// The id inside of the place.
    pub id: String,
}

impl SentMessage {
    /// Returns `None` if a text is empty, too long, or has other characters than visible ASCII.
    pub fn new(place: String, id: String) -> Option<Self> {
        let is_id =
            |id: &str| (1..=ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
        (is_id(&place) && is_id(&id)).then_some(Self { place, id })
    }
}

impl Read {
    /// Returns the message of an endpoint about a call.
    pub async fn sent_message(
        &self,
        endpoint: &str,
        call: ToolCallId,
    ) -> Result<Option<SentMessage>, StoreError> {
        let key = (endpoint.to_owned(), call.to_string());
        let row = sent_message::Entity::find_by_id(key).one(&self.tx).await?;
        Ok(row.map(|row| SentMessage { place: row.channel, id: row.ts }))
    }
}

impl Write {
    /// Records the message of an endpoint about a call. The first one stays.
    pub(crate) async fn keep_sent_message(
        &self,
        endpoint: &str,
        call: ToolCallId,
        message: &SentMessage,
    ) -> Result<(), StoreError> {
        let row = sent_message::ActiveModel {
            endpoint: Set(endpoint.to_owned()),
            tool_call_id: Set(call.to_string()),
            channel: Set(message.place.clone()),
            ts: Set(message.id.clone()),
        };
        let insert = sent_message::Entity::insert(row);
        insert
            .on_conflict(OnConflict::new().do_nothing().to_owned())
            .exec_without_returning(&self.tx)
            .await?;
        Ok(())
    }
}
