//! What the policy reads about calls besides the calls: the roles of their users, and the policies of their sessions.

use crate::entity::{run, thread};
use crate::thread::sessions::read_policy;
use crate::{Read, StoreError, sql::rows};
use holdpoint_core::id::RunId;
use holdpoint_core::policy::SessionPolicy;
use sea_orm::sea_query::{Alias, Expr, ExprTrait, JoinType, Query};
use sea_orm::{ConnectionTrait, EntityName, FromQueryResult};
use std::collections::HashMap;

/// The policy about the calls of one run.
#[derive(Debug)]
pub struct CallPolicy {
    /// The roles of the user of the run, as of its last start or resume.
    pub roles: Vec<String>,
    pub session: SessionPolicy,
}

#[derive(FromQueryResult)]
struct Row {
    run_id: String,
    roles: String,
    policy: Option<String>,
}

impl Read {
    /// Returns the policies about the calls of these runs, with one statement.
    pub async fn call_policies(
        &self,
        runs: impl Iterator<Item = RunId>,
    ) -> Result<HashMap<RunId, CallPolicy>, StoreError> {
        let root = Alias::new("root");
        let found = Query::select()
            .column((run::Entity, run::Column::RunId))
            .column((run::Entity, run::Column::Roles))
            .column((root.clone(), thread::Column::Policy))
            .from(run::Entity.table_ref())
            .join(
                JoinType::InnerJoin,
                thread::Entity.table_ref(),
                Expr::col((thread::Entity, thread::Column::ThreadId))
                    .equals((run::Entity, run::Column::ThreadId)),
            )
            .join_as(
                JoinType::InnerJoin,
                thread::Entity.table_ref(),
                root.clone(),
                Expr::col((root, thread::Column::ThreadId))
                    .equals((thread::Entity, thread::Column::SessionId)),
            )
            .and_where(Expr::col((run::Entity, run::Column::RunId)).is_in(runs.map(|run| run.to_string())))
            .to_owned();
        let found = self.tx.get_database_backend().build(&found);
        let found = Row::find_by_statement(found).all(&self.tx).await?;
        let policy = |Row { run_id, roles, policy }| {
            let session = policy.map(|policy| read_policy(&policy)).transpose()?.unwrap_or_default();
            Ok((rows::id("runs", &run_id)?, CallPolicy { roles: rows::json("runs", &roles)?, session }))
        };
        found.into_iter().map(policy).collect()
    }
}
