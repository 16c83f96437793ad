//! Who there is: two tenants, each with people who ask, people who approve for others, and people who may not.

use crate::world::{APPROVER, AUDIENCE, ISSUER, SECRET};
use anyhow::Result;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

const TENANTS: [&str; 2] = ["acme", "globex"];
/// Owners and approvers of each tenant.
const EACH: usize = 5;
/// Until a time that no run sees.
const EXPIRES: i64 = 4_000_000_000;

/// Somebody.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    pub(crate) tenant: &'static str,
    pub(crate) user: String,
    pub(crate) token: String,
}

/// Everybody.
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

    /// As decisions and events name them.
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

    /// Who asks under this number.
    pub(crate) fn owner(&self, number: usize) -> &Person {
        self.owners.get(number % (EACH * TENANTS.len())).unwrap_or(&self.first)
    }

    /// Who asks under this name.
    pub(crate) fn owned_by(&self, user: &str) -> Option<&Person> {
        self.owners.iter().find(|person| person.user == user)
    }

    /// Who may decide calls of this tenant's owners, beside them.
    pub(crate) fn approvers(&self, tenant: &str) -> Vec<&Person> {
        self.approvers.iter().filter(|person| person.tenant == tenant).collect()
    }

    /// For whom nothing of this tenant's is there.
    pub(crate) fn strangers(&self, tenant: &str) -> Vec<&Person> {
        let others = self.owners.iter().chain(&self.approvers).filter(|person| person.tenant != tenant);
        others.chain(&self.outsiders).collect()
    }
}
