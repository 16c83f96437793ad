//! A third-party OpenID Connect server: npm's `oidc-provider`, started by `tests/oidc`.

use super::Client;
use super::ports::free_port;
use crate::{JsonFields, in_repository};
use holdpoint::config::{AuthMode, Config, SessionFrom};
use reqwest::Url;
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// The prefix of a resource; the algorithm of its tokens follows.
const RESOURCE: &str = "https://holdpoint.example/";

/// A running server, which publishes keys of all three kinds. Dropping it kills the process.
pub struct Oidc {
    client: Client,
    child: Child,
}

impl Oidc {
    pub fn start() -> Self {
        let dir = in_repository("tests/oidc");
        assert!(dir.join("node_modules").exists(), "run `npm ci --ignore-scripts` in {}", dir.display());
        let mut child = Command::new("node")
            .current_dir(dir)
            .arg("server.mjs")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Its stderr only has a warning that the setup is not for production.
            .stderr(Stdio::null())
            .spawn()
            .expect("node is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split_once("the issuer listens on ").map(|(_, it)| it.trim().to_owned()))
            .expect("the issuer prints its address");
        std::thread::spawn(move || lines.for_each(drop));
        Self { client: Client::new(address), child }
    }

    /// Configures the server to trust this issuer, from the issuer's discovery document.
    pub async fn trusted(&self) -> impl FnOnce(&mut Config) + use<> {
        let found = self.client.get("/.well-known/openid-configuration").await.body;
        let text = |field: &str| found[field].as_str().map(str::to_owned);
        let (issuer, jwks_url) = (text("issuer"), text("jwks_uri"));
        assert!(issuer.is_some() && jwks_url.is_some(), "{found}");
        move |config| {
            config.auth.mode = AuthMode::Jwt;
            config.auth.audience = Some("holdpoint".to_owned());
            (config.auth.issuer, config.auth.jwks_url) = (issuer, jwks_url);
        }
    }

    /// Configures the server to trust this issuer, and to let this user sign in.
    pub async fn signs_in(&self, user: &str) -> impl FnOnce(&mut Config) + use<> {
        let trusted = self.trusted().await;
        let params = [("resource", format!("{RESOURCE}RS256")), ("login_hint", user.to_owned())];
        move |config| {
            trusted(config);
            config.server.bind.set_port(free_port());
            config.server.public_url = Some(format!("http://{}", config.server.bind));
            config.auth.client_id = Some("console".to_owned());
            config.auth.sign_in_params = params.map(|(name, value)| (name.to_owned(), value)).into();
        }
    }

    /// The same, and to keep the sign-ins.
    pub async fn keeps_sign_ins(&self, user: &str) -> impl FnOnce(&mut Config) + use<> {
        let signs_in = self.signs_in(user).await;
        move |config| {
            signs_in(config);
            config.auth.session_key = Some("a key of a test, of 32 bytes or more".to_owned().into());
        }
    }

    /// The same, where the access tokens are opaque.
    pub async fn keeps_sign_ins_by(&self, user: &str, from: SessionFrom) -> impl FnOnce(&mut Config) + use<> {
        let keeps = self.keeps_sign_ins(user).await;
        move |config| {
            keeps(config);
            config.auth.session_from = from;
            config.auth.sign_in_params.insert("resource".to_owned(), format!("{RESOURCE}opaque"));
        }
    }

    /// Sets how the token endpoint behaves from now on: `roles` and `tenant` of tokens, `fails` with a status, `holds`
    /// its answers until the next behaviour.
    pub async fn behaves(&self, how: Value) {
        self.client.post("/behave", &how).await.has_status(200);
    }

    /// How often the token endpoint was asked, and the refresh tokens that it gave.
    pub async fn given(&self) -> (u64, Vec<String>) {
        let given = self.client.get("/given").await.body;
        let tokens = given.list("refresh").iter();
        (given["asked"].as_u64().unwrap(), tokens.map(|it| it.as_str().unwrap().to_owned()).collect())
    }

    /// The error of the token endpoint for this refresh token of the console, or null for tokens.
    pub async fn refused(&self, refresh_token: &str) -> Value {
        self.client.post("/refresh", &json!(refresh_token)).await.body["error"].clone()
    }

    /// The address of the issuer.
    pub fn issuer(&self) -> &str {
        &self.client.base
    }

    /// Goes from this address of the issuer to where it sends a browser back to.
    pub async fn sent_back(&self, from: &str) -> String {
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let (mut at, mut cookies) = (Url::parse(from).unwrap(), BTreeMap::new());
        while at.origin().ascii_serialization() == self.issuer() {
            let pairs = cookies.iter().map(|(name, value)| format!("{name}={value}"));
            let cookie = pairs.collect::<Vec<_>>().join("; ");
            let response = client.get(at.clone()).header(COOKIE, cookie).send().await.unwrap();
            for set in response.headers().get_all(SET_COOKIE) {
                let (name, value) = set.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
                cookies.insert(name.to_owned(), value.to_owned());
            }
            let location = response.headers().get(LOCATION).map(|to| to.to_str().unwrap().to_owned());
            let Some(location) = location else { panic!("{at}: {:?}", response.text().await) };
            at = at.join(&location).unwrap();
        }
        at.into()
    }

    /// An access token for this client itself, signed with this algorithm.
    pub async fn token(&self, client: &str, algorithm: &str) -> String {
        let resource = format!("{RESOURCE}{algorithm}");
        let body = format!("grant_type=client_credentials&resource={resource}");
        let request = self.client.http.post(self.client.url("/token"));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let answer =
            self.client.send(request.basic_auth(client, Some("only%20a%20test%27s")).body(body)).await;
        answer.body["access_token"].as_str().unwrap_or_else(|| panic!("{:?}", answer.body)).to_owned()
    }

    /// The response of the token endpoint to this page after a user has signed in: `access_token`,
    /// `id_token`, `refresh_token`.
    pub async fn sign_in(&self, page: &str, user: &str, algorithm: &str) -> Value {
        let body = json!({ "client": page, "user": user, "alg": algorithm });
        self.client.post("/sign-in", &body).await.body_of(200)
    }

    /// Publishes exactly these keys, each with its algorithm, and signs with the first. Returns them as PEM.
    pub async fn publish(&self, keys: &[(&str, &str)]) -> Vec<String> {
        let answer = self.client.post("/keys", &json!(keys)).await;
        keys.iter().map(|(name, _)| answer.body[name].as_str().unwrap().to_owned()).collect()
    }

    /// The published keys.
    pub async fn published(&self) -> Vec<Value> {
        self.client.get("/jwks").await.body.list("keys").clone()
    }
}

impl Drop for Oidc {
    fn drop(&mut self) {
        // The process may have ended already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}
