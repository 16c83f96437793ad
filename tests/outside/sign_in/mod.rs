//! Sign-ins: how they begin and end, and the sessions that they leave.

mod begun;
mod identity;
mod kept;

use holdpoint_testkit::issuer::{Issuer, KeysResponse};
use holdpoint_testkit::{Answer, Client, Embedded, Oidc};
use reqwest::Method;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use serde_json::json;

pub(crate) const COOKIE_OF_SESSION: &str = "__Host-holdpoint=";
pub(crate) const COOKIE_OF_SIGN_IN: &str = "__Host-holdpoint-sign-in=";
pub(crate) const CSRF: &str = "x-csrf-token";

/// What a browser gets: the status, the address that comes next, and the cookies.
pub(crate) struct BrowserAnswer {
    pub(crate) status: u16,
    pub(crate) to: String,
    pub(crate) cookies: Vec<String>,
}

impl BrowserAnswer {
    /// The value of the cookie that begins so.
    pub(crate) fn cookie(&self, name: &str) -> String {
        let cookie = self.cookies.iter().find_map(|cookie| cookie.strip_prefix(name)).unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }
}

pub(crate) async fn browse(url: &str, cookie: &str) -> BrowserAnswer {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let response = client.get(url).header(COOKIE, cookie).send().await.unwrap();
    let text = |value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned();
    BrowserAnswer {
        status: response.status().as_u16(),
        to: response.headers().get(LOCATION).map(text).unwrap_or_default(),
        cookies: response.headers().get_all(SET_COOKIE).iter().map(text).collect(),
    }
}

/// Begins a sign-in. Returns where the issuer sends the browser back to, and the cookie of the sign-in.
pub(crate) async fn came_back(oidc: &Oidc, app: &Embedded) -> (String, String) {
    let started = browse(&app.client.url("/auth/sign-in"), "").await;
    assert_eq!(started.status, 303);
    let cookie = format!("{COOKIE_OF_SIGN_IN}{}", started.cookie(COOKIE_OF_SIGN_IN));
    (oidc.sent_back(&started.to).await, cookie)
}

pub(crate) async fn signed_in(oidc: &Oidc, app: &Embedded) -> String {
    let (callback, cookie) = came_back(oidc, app).await;
    let got = browse(&callback, &cookie).await;
    assert_eq!((got.status, &got.to), (303, &app.client.url("/")));
    format!("{COOKIE_OF_SESSION}{}", got.cookie(COOKIE_OF_SESSION))
}

/// Sends a request with these headers.
pub(crate) async fn send(client: &Client, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = client.http.request(method, client.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request).await
}

/// Starts a server whose people sign in at an issuer that supports these methods of PKCE.
pub(crate) async fn signs_in_with(methods: &[&str]) -> (Issuer, Embedded) {
    Box::pin(signs_in_on(methods, None)).await
}

/// The same, on this database.
async fn signs_in_on(methods: &[&str], database: Option<String>) -> (Issuer, Embedded) {
    let issuer = Issuer::start(KeysResponse::Nothing).await;
    let base = issuer.url.strip_suffix("/keys").unwrap().to_owned();
    let document = json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "code_challenge_methods_supported": methods,
    });
    issuer.answers(KeysResponse::Body(document.to_string()));
    let trusted = issuer.trusted();
    let app = Embedded::with(|config| {
        trusted(config);
        if let Some(url) = database {
            config.database.url = url.into();
        }
        config.server.public_url = Some("http://127.0.0.1:1".to_owned());
        config.auth.issuer = Some(base);
        config.auth.client_id = Some("console".to_owned());
    })
    .await;
    (issuer, app)
}
