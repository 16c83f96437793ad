//! The users: two tenants, each with owners of threads, approvers, and an outsider without a role.

use crate::world::{APPROVER, AUDIENCE, ISSUER, SECRET, WORKER};
use anyhow::Result;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

const TENANTS: [&str; 2] = ["acme", "globex"];
/// The number of owners, and of approvers, of each tenant.
const EACH: usize = 5;
/// The expiry of the tokens, after the end of any run.
const EXPIRES: i64 = 4_000_000_000;

#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) tenant: &'static str,
    pub(crate) id: String,
    pub(crate) token: String,
}

#[derive(Debug)]
pub(crate) struct Users {
    first: User,
    owners: Vec<User>,
    approvers: Vec<User>,
    outsiders: Vec<User>,
    workers: Vec<User>,
}

impl User {
    fn new(tenant: &'static str, id: String, roles: &[&str]) -> Result<Self> {
        let claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": id, "tenant": tenant, "roles": roles,
                             "exp": EXPIRES });
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)?;
        Ok(Self { tenant, id, token })
    }

    /// Returns the actor of the user's decisions and events.
    pub(crate) fn actor(&self) -> String {
        format!("user:{}", self.id)
    }
}

impl Users {
    pub(crate) fn new() -> Result<Self> {
        let [tenant, _] = TENANTS;
        let first = User::new(tenant, format!("{tenant}-first"), &[])?;
        let mut users = Self {
            first,
            owners: Vec::new(),
            approvers: Vec::new(),
            outsiders: Vec::new(),
            workers: Vec::new(),
        };
        for number in 0..EACH {
            for tenant in TENANTS {
                users.owners.push(User::new(tenant, format!("{tenant}-owner-{number}"), &[])?);
                let approver = format!("{tenant}-approver-{number}");
                users.approvers.push(User::new(tenant, approver, &[APPROVER])?);
            }
        }
        for tenant in TENANTS {
            users.outsiders.push(User::new(tenant, format!("{tenant}-outsider"), &[])?);
            users.workers.push(User::new(tenant, format!("{tenant}-worker"), &[WORKER])?);
        }
        Ok(users)
    }

    pub(crate) fn owner(&self, number: usize) -> &User {
        self.owners.get(number % (EACH * TENANTS.len())).unwrap_or(&self.first)
    }

    pub(crate) fn owner_with_id(&self, id: &str) -> Option<&User> {
        self.owners.iter().find(|user| user.id == id)
    }

    pub(crate) fn approvers(&self, tenant: &str) -> Vec<&User> {
        self.approvers.iter().filter(|user| user.tenant == tenant).collect()
    }

    /// Returns the worker of each tenant.
    pub(crate) fn workers(&self) -> &[User] {
        &self.workers
    }

    /// Returns the users for whom the rows of a tenant's owners do not exist.
    pub(crate) fn other_users(&self, tenant: &str) -> Vec<&User> {
        let others = self.owners.iter().chain(&self.approvers).filter(|user| user.tenant != tenant);
        others.chain(&self.outsiders).collect()
    }
}
