//! What a server and its issuer say about themselves: where tokens for the server are given.
//!
//! RFC 9728 for the server, RFC 8414 and OpenID Connect Discovery for the issuer. Every address is one that another server
//! has named, so each request stays within the reach of the entry, follows no redirect, and has a limit.

use crate::config::is_safe;
use holdpoint_egress::{ISSUER_BYTES_MAX, ISSUER_TIMEOUT, Reach, chain, read};
use reqwest::Url;
use reqwest::header::ACCEPT;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The well-known path of a server (RFC 9728, 3).
const RESOURCE: &str = "/.well-known/oauth-protected-resource";
/// The well-known paths of an issuer (RFC 8414, 3; OpenID Connect Discovery 1.0, 4).
const ISSUER: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

/// What a server says about itself (RFC 9728, 2).
#[derive(Deserialize)]
pub(in crate::mcp) struct OfServer {
    pub(in crate::mcp) resource: String,
    #[serde(default)]
    pub(in crate::mcp) authorization_servers: Vec<String>,
    pub(in crate::mcp) scopes_supported: Option<Vec<String>>,
}

/// What an issuer says about itself (RFC 8414, 2).
#[derive(Deserialize)]
pub(in crate::mcp) struct OfIssuer {
    issuer: String,
    pub(in crate::mcp) token_endpoint: String,
    pub(in crate::mcp) token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// The parameters of a challenge (RFC 6750, 3; RFC 9728, 5.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::mcp) struct Challenge {
    resource_metadata: Option<String>,
    pub(in crate::mcp) scope: Option<String>,
}

impl Challenge {
    /// Reads the value of `WWW-Authenticate`. What it does not have is `None`.
    pub(in crate::mcp) fn parse(value: &str) -> Self {
        Self { resource_metadata: parameter(value, "resource_metadata"), scope: parameter(value, "scope") }
    }
}

/// Returns the value of a parameter: a token, or a text in quotes.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    loop {
        let (before, after) = rest.split_once('=')?;
        let is_it =
            before.trim_end().rsplit([' ', ',']).next().is_some_and(|key| key.eq_ignore_ascii_case(name));
        let (value, next) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let (mut value, mut chars) = (String::new(), quoted.chars());
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => value.extend(chars.next()),
                        c => value.push(c),
                    }
                }
                (value, chars.as_str())
            }
            None => {
                let end = after.find([',', ' ']).unwrap_or(after.len());
                let (value, next) = after.split_at(end);
                (value.to_owned(), next)
            }
        };
        if is_it {
            return Some(value);
        }
        rest = next;
    }
}

/// Returns what the server at this address says about itself, at the address that its challenge names, or else at its
/// well-known addresses. `None` if it says nothing.
pub(in crate::mcp) async fn of_server(
    url: &Url,
    challenge: &Challenge,
    reach: &Reach,
) -> Result<Option<OfServer>, String> {
    let named = match &challenge.resource_metadata {
        Some(named) => {
            let named = url.join(named).map_err(|_| "its challenge names no address".to_owned())?;
            Some(get(&named, reach).await?.ok_or_else(|| format!("there is nothing at {named}"))?)
        }
        None => None,
    };
    let found: Option<OfServer> = match named {
        Some(found) => Some(found),
        None => first(&[with_path(url, RESOURCE, url.path()), with_path(url, RESOURCE, "")], reach).await?,
    };
    match found {
        Some(found) if !is_within(url, &found.resource) => {
            Err(format!("it says that it is {}, which is another server", found.resource))
        }
        found => Ok(found),
    }
}

/// Returns what an issuer says about itself. A document of another issuer is refused: it could send the secret elsewhere.
pub(in crate::mcp) async fn of_issuer(issuer: &str, reach: &Reach) -> Result<OfIssuer, String> {
    let url = Url::parse(issuer).map_err(|_| "the issuer is no URL".to_owned())?;
    let path = url.path().trim_end_matches('/');
    let mut places = vec![with_path(&url, ISSUER, path), with_path(&url, OPENID, path)];
    if !path.is_empty() {
        places.push(with_path(&url, path, OPENID));
    }
    let found: Option<OfIssuer> = first(&places, reach).await?;
    let found =
        found.ok_or_else(|| format!("{issuer} has no metadata; set oauth.issuer or oauth.token_url"))?;
    if found.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(format!("the metadata of {issuer} is that of another issuer, {}", found.issuer));
    }
    Ok(found)
}

/// Returns the address of the same origin with this path.
fn with_path(url: &Url, first: &str, second: &str) -> Url {
    let mut at = url.clone();
    at.set_path(&format!("{first}{}", second.trim_end_matches('/')));
    at.set_query(None);
    at.set_fragment(None);
    at
}

/// Whether a server may name itself like this: by its address, or by a part of the path above it.
fn is_within(url: &Url, resource: &str) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let (path, above) = (url.path().trim_end_matches('/'), resource.path().trim_end_matches('/'));
    let below = path.strip_prefix(above);
    url.origin() == resource.origin() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

async fn first<T: DeserializeOwned>(places: &[Url], reach: &Reach) -> Result<Option<T>, String> {
    for place in places {
        if let Some(found) = get(place, reach).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns the document at this address. `None` if there is none.
async fn get<T: DeserializeOwned>(at: &Url, reach: &Reach) -> Result<Option<T>, String> {
    let wrong = |why: String| format!("{at}: {why}");
    if !is_safe(at.as_str()) {
        return Err(wrong("it is neither https:// nor on this machine".to_owned()));
    }
    let client = reach.client(at).map_err(wrong)?;
    let request = client.get(at.clone()).header(ACCEPT, "application/json").timeout(ISSUER_TIMEOUT);
    let response = request.send().await.map_err(|error| wrong(chain(error)))?;
    match response.status().as_u16() {
        200 => {}
        400..=499 => return Ok(None),
        status => return Err(wrong(format!("HTTP {status}"))),
    }
    let body = read(response, ISSUER_BYTES_MAX).await.map_err(wrong)?;
    serde_json::from_slice(&body).map(Some).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_a_challenge_are_read_wherever_they_are() {
        let named = Some("https://s.example/a,b".to_owned());
        for (value, resource_metadata, scope) in [
            (r#"Bearer resource_metadata="https://s.example/a,b", scope="a b""#, named.clone(), Some("a b")),
            (r#"Bearer error="x=\"y", scope=a,Resource_Metadata="https://s.example/a,b""#, named, Some("a")),
            ("Bearer scope = \"a\"", None, Some("a")),
            ("Bearer", None, None),
            (r#"Bearer realm="scope=z""#, None, None),
            (r#"Bearer scope="unclosed"#, None, None),
            ("", None, None),
        ] {
            let scope = scope.map(str::to_owned);
            assert_eq!(Challenge::parse(value), Challenge { resource_metadata, scope }, "{value}");
        }
    }

    #[test]
    fn a_server_names_itself_by_its_address_or_above_it() {
        let url = Url::parse("https://s.example/a/mcp").unwrap();
        for (resource, is) in [
            ("https://s.example/a/mcp", true),
            ("https://s.example/a/mcp/", true),
            ("https://s.example/a", true),
            ("https://s.example", true),
            ("https://s.example:444/a/mcp", false),
            ("https://s.example/a/mc", false),
            ("https://s.example/a/mcp/b", false),
            ("http://s.example/a/mcp", false),
            ("https://other.example/a/mcp", false),
            ("mcp", false),
        ] {
            assert_eq!(is_within(&url, resource), is, "{resource}");
        }
    }
}
