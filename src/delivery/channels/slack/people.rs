//! The users of Slack accounts, as `[[notify]]` maps them.

use crate::config::Notify;
use holdpoint_core::Principal;
use std::collections::HashMap;

/// The users that decide by buttons. A Slack account is one user of each tenant.
pub(super) struct People {
    /// The tenant of each endpoint with messages in Slack.
    tenants: HashMap<String, String>,
    /// The users, by tenant and id of the Slack account.
    users: HashMap<(String, String), Principal>,
}

impl People {
    /// Reads the entries. The roles of a user with several entries are those of all of them.
    pub(super) fn of(entries: &[Notify]) -> Self {
        let (mut tenants, mut users) = (HashMap::new(), HashMap::new());
        for entry in entries {
            let Some(slack) = &entry.slack else { continue };
            tenants.insert(entry.name.clone(), entry.tenant.clone());
            let Some(account) = entry.slack_account() else { continue };
            let key = (entry.tenant.clone(), slack.clone());
            let user: &mut Principal = users.entry(key).or_insert_with(|| Principal {
                tenant_id: entry.tenant.clone(),
                user_id: account.to_owned(),
                roles: Vec::new(),
            });
            if let Some(role) = entry.role.as_ref().filter(|role| !user.roles.contains(role)) {
                user.roles.push(role.clone());
            }
        }
        Self { tenants, users }
    }

    /// Returns the user of this Slack account in the tenant of the endpoint.
    pub(super) fn user(&self, endpoint: &str, account: &str) -> Option<&Principal> {
        let tenant = self.tenants.get(endpoint)?;
        self.users.get(&(tenant.clone(), account.to_owned()))
    }
}
