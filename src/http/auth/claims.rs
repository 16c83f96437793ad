//! The claims of a token, and the principal that they name.

use crate::config::Auth;
use crate::http::auth::failure::Unknown;
use holdpoint_core::Principal;
use serde_json::{Map, Value};

/// Maximum length of the name of a user or a tenant, in characters.
const NAME_CHARS_MAX: usize = 256;
/// Claims that only ID tokens have (OpenID Connect Core, 3.1.3.6 and 3.3.2.11).
const OF_ID_TOKENS: [&str; 2] = ["at_hash", "c_hash"];
/// A claim of ID tokens (OpenID Connect Core, 2) that the access tokens of some issuers have too. Such an
/// access token names its purpose.
const OF_SIGN_INS: &str = "nonce";
/// Claims in which some issuers name the purpose of a token. `ACCESS` lists the values of access tokens,
/// `OTHER_PURPOSES` the values of other tokens.
const PURPOSES: [&str; 2] = ["token_use", "typ"];
const ACCESS: [&str; 2] = ["access", "bearer"];
const OTHER_PURPOSES: [&str; 4] = ["id", "refresh", "offline", "logout"];

/// The names of the claims for the user, the tenant and the roles.
#[derive(Debug)]
pub(super) struct Claims {
    user: String,
    tenant: String,
    default_tenant: Option<String>,
    roles: String,
    /// The key of a role that is an object.
    roles_key: Option<String>,
}

impl Claims {
    pub(super) fn new(auth: &Auth) -> Self {
        Self {
            user: auth.user_claim.clone(),
            tenant: auth.tenant_claim.clone(),
            default_tenant: auth.default_tenant.clone(),
            roles: auth.roles_claim.clone(),
            roles_key: auth.roles_key.clone(),
        }
    }

    /// Returns the principal that the claims of a checked access token name.
    pub(super) fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, Unknown> {
        check_purpose(claims)?;
        self.person(claims)
    }

    /// Returns the person that these claims name, whatever the token is for.
    pub(super) fn person(&self, claims: &Map<String, Value>) -> Result<Principal, Unknown> {
        let user_id = match claims.get(&self.user) {
            None => return Err(Unknown::NoClaim(self.user.clone())),
            Some(user) => name(user).ok_or_else(|| Unknown::Name(self.user.clone()))?,
        };
        let tenant_id = match (claims.get(&self.tenant), &self.default_tenant) {
            (None, None) => return Err(Unknown::NoTenant(self.tenant.clone())),
            (None, Some(default)) => default.clone(),
            (Some(tenant), _) => name(tenant).ok_or_else(|| Unknown::Name(self.tenant.clone()))?,
        };
        let roles = self.roles(claims).ok_or_else(|| Unknown::Roles(self.roles.clone()))?;
        Ok(Principal { tenant_id, user_id, roles })
    }

    /// Returns the roles. An item of their list that names no role is left out: no setting can name it. An object of
    /// objects has the roles by key. `None` if the claim is of another form, or a list of objects and no setting says
    /// which of their fields is the role: a rule about such a role would have no effect.
    fn roles(&self, claims: &Map<String, Value>) -> Option<Vec<String>> {
        let items = match self.find_roles(claims) {
            None | Some(Value::Null) => return Some(Vec::new()),
            Some(Value::String(words)) => {
                return Some(words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect());
            }
            Some(Value::Array(items)) => items,
            // `{"approver": false}` would say the opposite of what its key says.
            Some(Value::Object(roles)) if roles.values().all(Value::is_object) => {
                return Some(roles.keys().cloned().collect());
            }
            Some(_) => return None,
        };
        let mut roles = Vec::new();
        for item in items {
            let role = match (item, &self.roles_key) {
                (Value::Object(_), None) => return None,
                (Value::Object(fields), Some(key)) => fields.get(key).and_then(Value::as_str),
                (item, _) => item.as_str(),
            };
            roles.extend(role.map(str::to_owned));
        }
        Some(roles)
    }

    fn find_roles<'a>(&self, claims: &'a Map<String, Value>) -> Option<&'a Value> {
        let Some(pointer) = self.roles.strip_prefix('/') else { return claims.get(&self.roles) };
        let (first, rest) = pointer.split_at(pointer.find('/').unwrap_or(pointer.len()));
        claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
    }
}

/// Refuses an ID token and a refresh token, where the claims show the kind of the token.
fn check_purpose(claims: &Map<String, Value>) -> Result<(), Unknown> {
    let has_type = |words: &[&str]| {
        let mut purposes = PURPOSES.iter().filter_map(|claim| claims.get(*claim)?.as_str());
        purposes.any(|is| words.iter().any(|word| is.eq_ignore_ascii_case(word)))
    };
    let of_a_sign_in = claims.contains_key(OF_SIGN_INS) && !has_type(&ACCESS);
    if of_a_sign_in || OF_ID_TOKENS.iter().any(|claim| claims.contains_key(*claim)) {
        return Err(Unknown::IdToken);
    }
    match has_type(&OTHER_PURPOSES) {
        true => Err(Unknown::Purpose),
        false => Ok(()),
    }
}

fn name(claim: &Value) -> Option<String> {
    // The name appears in rows, in headers and in logs.
    let usable = |name: &&str| {
        !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.contains(char::is_control)
    };
    claim.as_str().filter(usable).map(str::to_owned)
}
