//! The definitions of the tools of MCP servers: what each server lists, and what was accepted of that.

use crate::entity::{accepted_definition, listed_definition};
use crate::{Read, Store, StoreError, Write};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::system;
use holdpoint_core::tool::definition::{Accepted, ListedDefinition};
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Statement,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Serializes the transactions that record the listings of one server, so that the first one is alone.
const LOCK_SERVER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

/// What an operator's acceptance did.
#[derive(Debug)]
pub enum AcceptOutcome {
    /// The definition is accepted, by this request or before.
    Accepted(Accepted),
    /// The server lists a definition with this hash now, and not the named one.
    Moved {
        /// The hash.
        current: String,
    },
    /// No server lists such a tool.
    NoTool,
}

/// A tool in the list for operators.
#[derive(Debug)]
pub struct ListedTool {
    /// The definition as its server lists it.
    pub listed: ListedDefinition,
    /// The text of the accepted definition, and its acceptance; `None` if none was ever accepted.
    pub accepted: Option<(String, Accepted)>,
}

type NameAndHash = (String, String);

impl Store {
    /// Records what a server lists now. At the first listing of the server, all of it is accepted. Later listings
    /// accept nothing.
    pub async fn record_listing(&self, server: &str, listed: &[ListedDefinition]) -> Result<(), StoreError> {
        if self.read().await?.is_recorded(server, listed).await? {
            return Ok(());
        }
        let write = self.write().await?;
        write.record_listing(server, listed).await?;
        write.commit().await
    }

    /// Returns the accepted definitions of a server's tools: by the name of the tool, the hash and, if it is not the
    /// listed one, the text.
    pub async fn accepted_definitions(
        &self,
        server: &str,
        listed: &[ListedDefinition],
    ) -> Result<BTreeMap<String, (String, Option<String>)>, StoreError> {
        let read = self.read().await?;
        let accepted = read.accepted_hashes(server).await?;
        let others = listed.iter().filter_map(|it| {
            let hash = accepted.get(&it.tool_name).filter(|hash| **hash != it.hash)?;
            Some((&it.tool_name, hash))
        });
        let (names, hashes) = others.unzip();
        let mut texts = read.accepted_texts(names, hashes).await?;
        let of = |(name, hash): NameAndHash| {
            let text = texts.remove(&(name.clone(), hash.clone()));
            (name, (hash, text))
        };
        Ok(accepted.into_iter().map(of).collect())
    }
}

impl Read {
    async fn is_recorded(&self, server: &str, listed: &[ListedDefinition]) -> Result<bool, StoreError> {
        let recorded = self.listed_hashes(server).await?;
        let now: BTreeMap<&str, &str> = listed.iter().map(|it| (&*it.tool_name, &*it.hash)).collect();
        let recorded = recorded.iter().map(|(name, hash)| (name.as_str(), hash.as_str()));
        Ok(recorded.eq(now))
    }

    async fn listed_hashes(&self, server: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let found: Vec<NameAndHash> = listed_definition::Entity::find()
            .select_only()
            .column(listed_definition::Column::ToolName)
            .column(listed_definition::Column::Hash)
            .filter(listed_definition::Column::Server.eq(server))
            .into_tuple()
            .all(&self.tx)
            .await?;
        Ok(found.into_iter().collect())
    }

    /// Returns the hashes of the accepted definitions in force.
    async fn accepted_hashes(&self, server: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let found: Vec<NameAndHash> = accepted_definition::Entity::find()
            .select_only()
            .column(accepted_definition::Column::ToolName)
            .column(accepted_definition::Column::Hash)
            .filter(accepted_definition::Column::Server.eq(server))
            .order_by_asc(accepted_definition::Column::N)
            .into_tuple()
            .all(&self.tx)
            .await?;
        // Of the rows of a tool, the last one counts.
        Ok(found.into_iter().collect())
    }

    async fn accepted_texts(
        &self,
        names: Vec<&String>,
        hashes: Vec<&String>,
    ) -> Result<BTreeMap<NameAndHash, String>, StoreError> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let found = accepted_definition::Entity::find()
            .filter(accepted_definition::Column::ToolName.is_in(names))
            .filter(accepted_definition::Column::Hash.is_in(hashes))
            .all(&self.tx)
            .await?;
        Ok(found.into_iter().map(|row| ((row.tool_name, row.hash), row.definition)).collect())
    }

    /// Returns what all servers list, by the names of the tools.
    pub async fn listed_tools(&self) -> Result<Vec<ListedTool>, StoreError> {
        let rows = accepted_definition::Entity::find().order_by_asc(accepted_definition::Column::N);
        let mut in_force = BTreeMap::new();
        for row in rows.all(&self.tx).await? {
            in_force.insert(row.tool_name.clone(), (row.definition.clone(), accepted(row)));
        }
        let listed = listed_definition::Entity::find().order_by_asc(listed_definition::Column::ToolName);
        let listed = listed.all(&self.tx).await?.into_iter().map(|row| ListedTool {
            accepted: in_force.remove(&row.tool_name),
            listed: ListedDefinition { tool_name: row.tool_name, hash: row.hash, text: row.definition },
        });
        Ok(listed.collect())
    }
}

impl Write {
    async fn record_listing(&self, server: &str, listed: &[ListedDefinition]) -> Result<(), StoreError> {
        if self.tx.get_database_backend() == DbBackend::Postgres {
            let key = json!(["definitions", server]).to_string();
            let lock = Statement::from_sql_and_values(DbBackend::Postgres, LOCK_SERVER, [key.into()]);
            self.tx.execute_raw(lock).await?;
        }
        let (recorded, accepted) = (self.listed_hashes(server).await?, self.accepted_hashes(server).await?);
        let names: BTreeSet<&String> = listed.iter().map(|it| &it.tool_name).collect();
        let removed: Vec<&String> = recorded.keys().filter(|name| !names.contains(name)).collect();
        if !removed.is_empty() {
            let removed = listed_definition::Column::ToolName.is_in(removed);
            listed_definition::Entity::delete_many().filter(removed).exec(&self.tx).await?;
        }
        let added: Vec<&ListedDefinition> =
            listed.iter().filter(|it| recorded.get(&it.tool_name) != Some(&it.hash)).collect();
        if added.is_empty() {
            return Ok(());
        }
        let row = |it: &&ListedDefinition| listed_definition::ActiveModel {
            tool_name: Set(it.tool_name.clone()),
            server: Set(server.to_owned()),
            hash: Set(it.hash.clone()),
            definition: Set(it.text.clone()),
            listed_at: Set(self.now.as_micros()),
        };
        let mut replace = OnConflict::column(listed_definition::Column::ToolName);
        replace.update_columns([
            listed_definition::Column::Server,
            listed_definition::Column::Hash,
            listed_definition::Column::Definition,
            listed_definition::Column::ListedAt,
        ]);
        let rows = added.iter().map(row);
        let insert = listed_definition::Entity::insert_many(rows).on_conflict(replace);
        insert.exec_without_returning(&self.tx).await?;
        // A server of which nothing was ever accepted lists its tools for the first time.
        if accepted.is_empty() {
            let rows = listed.iter().map(|it| self.acceptance(server, it, 1, system::FIRST_LISTING));
            accepted_definition::Entity::insert_many(rows).exec_without_returning(&self.tx).await?;
        }
        Ok(())
    }

    fn acceptance(
        &self,
        server: &str,
        it: &ListedDefinition,
        n: i32,
        by: &str,
    ) -> accepted_definition::ActiveModel {
        accepted_definition::ActiveModel {
            tool_name: Set(it.tool_name.clone()),
            n: Set(n),
            server: Set(server.to_owned()),
            hash: Set(it.hash.clone()),
            definition: Set(it.text.clone()),
            accepted_by: Set(by.to_owned()),
            accepted_at: Set(self.now.as_micros()),
        }
    }

    /// Accepts the definition with this hash, if the server of the tool lists it now.
    pub async fn accept_definition(
        &self,
        tool_name: &str,
        hash: &str,
        by: &str,
    ) -> Result<AcceptOutcome, StoreError> {
        // The lock makes several acceptances one after the other, and a new listing wait.
        let listed = listed_definition::Entity::find_by_id(tool_name).lock_exclusive();
        let Some(listed) = listed.one(&self.tx).await? else { return Ok(AcceptOutcome::NoTool) };
        let listed_definition::Model { server, hash: current, definition: text, .. } = listed;
        if current != hash {
            return Ok(AcceptOutcome::Moved { current });
        }
        let last = accepted_definition::Entity::find()
            .filter(accepted_definition::Column::ToolName.eq(tool_name))
            .order_by_desc(accepted_definition::Column::N)
            .one(&self.tx)
            .await?;
        let n = last.as_ref().map_or(1, |last| last.n.saturating_add(1));
        if let Some(before) = last.filter(|last| last.hash == hash) {
            return Ok(AcceptOutcome::Accepted(accepted(before)));
        }
        let it = ListedDefinition { tool_name: tool_name.to_owned(), hash: current, text };
        let row = self.acceptance(&server, &it, n, by);
        accepted_definition::Entity::insert(row).exec_without_returning(&self.tx).await?;
        let ListedDefinition { tool_name, hash, .. } = it;
        Ok(AcceptOutcome::Accepted(Accepted { tool_name, hash, by: by.to_owned(), at: self.now }))
    }
}

fn accepted(row: accepted_definition::Model) -> Accepted {
    Accepted {
        tool_name: row.tool_name,
        hash: row.hash,
        by: row.accepted_by,
        at: Timestamp::from_micros(row.accepted_at),
    }
}
