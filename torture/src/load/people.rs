//! The people: two tenants, each with owners of threads, approvers, and an outsider without a role.

use crate::world::{APPROVER, AUDIENCE, ISSUER, SECRET};
use anyhow::Result;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

const TENANTS: [&str; 2] = ["acme", "globex"];
/// The number of owners, and of approvers, of each tenant.
const EACH: usize = 5;
/// The expiry of the tokens, after the end of any run.
const EXPIRES: i64 = 4_000_000_000;

/// A user.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    pub(crate) tenant: &'static str,
    pub(crate) user: String,
    pub(crate) token: String,
}

/// All users.
#[derive(Debug)]
pub(crate) struct People {
    first: Person,
    owners: Vec<Person>,
    approvers: Vec<Person>,
    outsiders: Vec<Person>,
}

impl Person {
    fn new(tenant: &'static str, user: String, roles: &[&str]) -> Result<Self> {
        let claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": user, "tenant": tenant, "roles": roles,
                             "exp": EXPIRES });
        let key = EncodingKey::from_secret(SECRET.as_bytes());
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)?;
        Ok(Self { tenant, user, token })
    }

    /// Returns the actor of the user's decisions and events.
    pub(crate) fn actor(&self) -> String {
        format!("user:{}", self.user)
    }
}

impl People {
    pub(crate) fn new() -> Result<Self> {
        let [tenant, _] = TENANTS;
        let first = Person::new(tenant, format!("{tenant}-first"), &[])?;
        let mut people = Self { first, owners: Vec::new(), approvers: Vec::new(), outsiders: Vec::new() };
        for number in 0..EACH {
            for tenant in TENANTS {
                people.owners.push(Person::new(tenant, format!("{tenant}-owner-{number}"), &[])?);
                let approver = format!("{tenant}-approver-{number}");
                people.approvers.push(Person::new(tenant, approver, &[APPROVER])?);
            }
        }
        for tenant in TENANTS {
            people.outsiders.push(Person::new(tenant, format!("{tenant}-outsider"), &[])?);
        }
        Ok(people)
    }

    /// Returns the owner with a number.
    pub(crate) fn owner(&self, number: usize) -> &Person {
        self.owners.get(number % (EACH * TENANTS.len())).unwrap_or(&self.first)
    }

    /// Returns the owner with a name.
    pub(crate) fn owned_by(&self, user: &str) -> Option<&Person> {
        self.owners.iter().find(|person| person.user == user)
    }

    /// Returns the approvers of a tenant.
    pub(crate) fn approvers(&self, tenant: &str) -> Vec<&Person> {
        self.approvers.iter().filter(|person| person.tenant == tenant).collect()
    }

    /// Returns the users for whom the rows of a tenant's owners do not exist.
    pub(crate) fn strangers(&self, tenant: &str) -> Vec<&Person> {
        let others = self.owners.iter().chain(&self.approvers).filter(|person| person.tenant != tenant);
        others.chain(&self.outsiders).collect()
    }
}
