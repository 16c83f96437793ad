//! Slack: requests to its Web API, the signatures of its own requests, and the users of its accounts.

use super::people::People;
use super::signature::{SIGNATURE, SignatureHeaders, SignatureRefusal, SigningSecret, TIMESTAMP};
use crate::config::{Config, ConfigError};
use holdpoint_egress::{Post, Unanswered, read};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Maximum length of an answer that opens a form, in bytes. It repeats the form.
const ANSWER_BYTES: usize = 64 * 1024;
/// The longest time of a request to Slack.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);

/// A method of the Web API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    PostMessage,
    /// Changes a message.
    Update,
    /// Opens a form.
    OpenView,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::PostMessage => "chat.postMessage",
            Self::Update => "chat.update",
            Self::OpenView => "views.open",
        }
    }
}

/// The answer to a request that opens a form.
#[derive(Debug, Default, Deserialize)]
struct FormAnswer {
    ok: bool,
    error: Option<String>,
}

/// The Slack application of the configuration.
pub(in crate::delivery::channels) struct Slack {
    /// The address of the Web API, without a slash at its end.
    api: Url,
    post: Post,
    authorization: HeaderValue,
    secret: SigningSecret,
    people: People,
}

impl fmt::Debug for Slack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slack").field("api", &self.api.as_str()).finish_non_exhaustive()
    }
}

impl Slack {
    /// Prepares the application of the configuration, if it has one, and sends nothing.
    pub(in crate::delivery::channels) fn new(config: &Config) -> Result<Option<Self>, ConfigError> {
        let Some(slack) = &config.slack else { return Ok(None) };
        let wrong = |field: &str, why: &str| ConfigError::Value {
            key: format!("slack.{field}"),
            why: why.to_owned(),
        };
        let api = slack.api()?;
        let post = Post::to_operator(api.clone()).map_err(|why| wrong("api_url", &why))?;
        let authorization = bearer(&slack.token).ok_or_else(|| wrong("token", "expected a token"))?;
        let secret = SigningSecret::new(slack.signing_secret.expose_secret())
            .ok_or_else(|| wrong("signing_secret", "expected the signing secret of the application"))?;
        Ok(Some(Self { api, post, authorization, secret, people: People::of(&config.notify) }))
    }

    /// Calls a method of the Web API, once.
    pub(super) async fn call(
        &self,
        method: Method,
        body: &Value,
        until: Instant,
    ) -> Result<Response, Unanswered> {
        let mut url = self.api.clone();
        url.set_path(&format!("{}/{}", self.api.path().trim_end_matches('/'), method.name()));
        let mut headers = json_headers();
        headers.insert(AUTHORIZATION, self.authorization.clone());
        self.post.at(url).send(headers, body.to_string().into_bytes(), until).await
    }

    /// Opens a form for the user whose press has this `trigger_id`, which Slack takes for three seconds. The error is the
    /// reason, for the log.
    pub(super) async fn open(&self, trigger_id: &str, view: &Value, until: Instant) -> Result<(), String> {
        let body = json!({ "trigger_id": trigger_id, "view": view });
        let answer = self.call(Method::OpenView, &body, until).await.map_err(|error| format!("{error:?}"))?;
        let status = answer.status();
        let bytes = timeout_at(until, read(answer, ANSWER_BYTES)).await;
        let bytes = bytes.map_err(|_elapsed| "it did not answer in time".to_owned())??;
        let FormAnswer { ok, error } = serde_json::from_slice(&bytes).unwrap_or_default();
        let why = || format!("it answered {status}, {}", error.as_deref().unwrap_or("without an error"));
        if ok { Ok(()) } else { Err(why()) }
    }

    /// Shows a text to the user that pressed a button, and to no other. The URL is that of Slack's request. The text
    /// contains no text of a call.
    pub(super) async fn reply(&self, response_url: &str, text: &str) -> Result<Response, Unanswered> {
        let Some(url) = self.own_url(response_url) else {
            return Err(Unanswered::NotSent("response_url is not an address of Slack".to_owned()));
        };
        let body = json!({ "response_type": "ephemeral", "replace_original": false, "text": text });
        let until = Instant::now() + TIMEOUT;
        self.post.at(url).send(json_headers(), body.to_string().into_bytes(), until).await
    }

    /// Returns the URL if it is one of Slack: of the scheme and the port of the Web API, at its host or, unless that is
    /// an address, at a name below it, as `hooks.slack.com` is below `slack.com`.
    fn own_url(&self, text: &str) -> Option<Url> {
        let url = Url::parse(text).ok()?;
        let own = self.api.host()?;
        let is_below = |host: &str| match own {
            url::Host::Domain(own) => host.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')),
            url::Host::Ipv4(_) | url::Host::Ipv6(_) => false,
        };
        let is_own = url.host()? == own || url.host_str().is_some_and(is_below);
        let is_alike = url.scheme() == self.api.scheme()
            && url.port_or_known_default() == self.api.port_or_known_default();
        let is_plain = url.username().is_empty() && url.password().is_none();
        (is_own && is_alike && is_plain).then_some(url)
    }

    /// Verifies a request of Slack at this time, in seconds since 1970.
    pub(super) fn verify(
        &self,
        signed: SignatureHeaders<'_>,
        body: &[u8],
        now: i64,
    ) -> Result<(), SignatureRefusal> {
        self.secret.verify(signed, body, now)
    }

    /// The users of Slack that decide.
    pub(super) const fn people(&self) -> &People {
        &self.people
    }
}

impl<'a> SignatureHeaders<'a> {
    /// Reads the headers of a request, by their names. `None` if one of them is missing.
    pub(super) fn of(header: impl Fn(&'static str) -> Option<&'a str>) -> Option<Self> {
        Some(Self { timestamp: header(TIMESTAMP)?, signature: header(SIGNATURE)? })
    }
}

/// Returns a text of Block Kit without markup, with at most this many characters.
pub(super) fn plain(text: &str, chars_max: usize) -> Value {
    let short: String = match text.char_indices().nth(chars_max) {
        Some(_) => text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    };
    json!({ "type": "plain_text", "text": short, "emoji": false })
}

fn bearer(token: &SecretString) -> Option<HeaderValue> {
    let token = token.expose_secret();
    let usable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let mut value: HeaderValue = format!("Bearer {token}").parse().ok().filter(|_| usable)?;
    value.set_sensitive(true);
    Some(value)
}

fn json_headers() -> HeaderMap {
    // Without the charset Slack warns in each answer.
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slack(api_url: &str) -> Slack {
        let section = crate::config::Slack {
            token: "xoxb-1".into(),
            signing_secret: "secret".into(),
            api_url: api_url.to_owned(),
        };
        Slack::new(&Config { slack: Some(section), ..Config::default() }).unwrap().unwrap()
    }

    #[test]
    fn a_response_url_is_an_address_of_slack_or_gets_nothing() {
        let own = slack("https://slack.com/api");
        for url in
            ["https://hooks.slack.com/actions/T1/1/x", "https://slack.com/x", "https://slack.com:443/x"]
        {
            assert!(own.own_url(url).is_some(), "{url}");
        }
        for url in [
            "http://hooks.slack.com/x",
            "https://hooks.slack.com:8443/x",
            "https://evilslack.com/x",
            "https://slack.com.evil.example/x",
            "https://user@hooks.slack.com/x",
            "https://127.0.0.1/x",
            "https://[::1]/x",
            "file:///etc/passwd",
            "hooks.slack.com",
            "",
        ] {
            assert!(own.own_url(url).is_none(), "{url}");
        }
        let here = slack("http://127.0.0.1:8181/api");
        assert!(here.own_url("http://127.0.0.1:8181/response/1").is_some());
        for url in ["http://127.0.0.1:8182/", "http://1.127.0.0.1:8181/", "http://169.254.169.254/"] {
            assert!(here.own_url(url).is_none(), "{url}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        assert_eq!(
            format!("{:?}", slack("https://slack.com/api")),
            "Slack { api: \"https://slack.com/api\", .. }"
        );
    }
}
