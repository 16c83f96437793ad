//! Messages in Slack: which one each endpoint has about a call.

use crate::entity::slack_message;
use crate::{Read, StoreError, Write};
use holdpoint_core::id::ToolCallId;
use sea_orm::ActiveValue::Set;
use sea_orm::EntityTrait;
use sea_orm::sea_query::OnConflict;

/// Maximum length of an id of Slack, in bytes.
const ID_BYTES: usize = 64;

/// A message, by the ids that change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackMessage {
    /// The conversation.
    pub channel: String,
    /// The id inside of the conversation.
    pub ts: String,
}

impl SlackMessage {
    /// Returns `None` if a text is empty, too long, or has other characters than visible ASCII.
    pub fn new(channel: String, ts: String) -> Option<Self> {
        let is_id =
            |id: &str| (1..=ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
        (is_id(&channel) && is_id(&ts)).then_some(Self { channel, ts })
    }
}

impl Read {
    /// Returns the message of an endpoint about a call.
    pub async fn slack_message(
        &self,
        endpoint: &str,
        call: ToolCallId,
    ) -> Result<Option<SlackMessage>, StoreError> {
        let key = (endpoint.to_owned(), call.to_string());
        let row = slack_message::Entity::find_by_id(key).one(&self.tx).await?;
        Ok(row.map(|row| SlackMessage { channel: row.channel, ts: row.ts }))
    }
}

impl Write {
    /// Records the message of an endpoint about a call. The first one stays.
    pub(crate) async fn keep_slack_message(
        &self,
        endpoint: &str,
        call: ToolCallId,
        message: &SlackMessage,
    ) -> Result<(), StoreError> {
        let row = slack_message::ActiveModel {
            endpoint: Set(endpoint.to_owned()),
            tool_call_id: Set(call.to_string()),
            channel: Set(message.channel.clone()),
            ts: Set(message.ts.clone()),
        };
        let insert = slack_message::Entity::insert(row);
        insert
            .on_conflict(OnConflict::new().do_nothing().to_owned())
            .exec_without_returning(&self.tx)
            .await?;
        Ok(())
    }
}
