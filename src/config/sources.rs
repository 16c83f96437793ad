//! The sources of the server's configuration: the file, the environment, the flags.

use super::{Config, ConfigError, Flags, wrong};
use holdpoint_settings::{SecretKey, Sources, environment};
use std::path::Path;

/// The file that is read if no flag names one.
const FILE: &str = "holdpoint.toml";
/// The beginning of the variables that set keys.
const PREFIX: &str = "HOLDPOINT_";
const ENVIRONMENT: &str = "the environment";
const FLAGS: &str = "the flags";

/// The keys whose values can be in files of their own.
const SECRETS: [SecretKey; 8] = [
    SecretKey { section: "auth", key: "secret" },
    SecretKey { section: "auth", key: "session_key" },
    SecretKey { section: "model", key: "api_key" },
    SecretKey { section: "database", key: "url" },
    SecretKey { section: "database", key: "direct_url" },
    SecretKey { section: "mail", key: "password" },
    SecretKey { section: "slack", key: "token" },
    SecretKey { section: "slack", key: "signing_secret" },
];

/// Reads all sources in order. The values are not checked yet.
pub(super) fn read(flags: &Flags) -> Result<Config, ConfigError> {
    let mut sources = match &flags.file {
        Some(path) => Sources::file(path, true)?,
        None => Sources::file(Path::new(FILE), false)?,
    };
    if let Some(url) = environment::text("DATABASE_URL")? {
        sources.set(&["database", "url"], url, ENVIRONMENT);
    }
    // Many environments set this variable for all programs. A build without traces ignores it.
    if cfg!(feature = "otel")
        && let Some(endpoint) = environment::text("OTEL_EXPORTER_OTLP_ENDPOINT")?
    {
        sources.set(&["log", "otlp_endpoint"], endpoint, ENVIRONMENT);
    }
    for (name, value) in environment::with_prefix(PREFIX)? {
        let key = name.to_lowercase();
        let path: Vec<&str> = key.split("__").collect();
        if path.len() > 1 && path.iter().all(|part| !part.is_empty()) {
            sources.set(&path, value, ENVIRONMENT);
        } else if !is_of_service(&name, &value) && !is_of_client(&name, &value) {
            let expected = match likely(&name) {
                likely if likely.is_empty() => {
                    "HOLDPOINT_<SECTION>__<KEY>, with two underscores between".to_owned()
                }
                likely => likely.join(" or "),
            };
            wrong(format!("{PREFIX}{name}"), format!("there is no such variable; expected {expected}"))?;
        }
    }
    if let Some(bind) = &flags.bind {
        sources.set(&["server", "bind"], bind.clone(), FLAGS);
    }
    if let Some(url) = &flags.database_url {
        sources.set(&["database", "url"], url.clone(), FLAGS);
    }
    sources.read_secrets(&SECRETS)?;
    sources.read()
}

/// Returns whether this variable is one of the commands of an approver, which address a server over HTTP.
fn is_of_client(name: &str, value: &str) -> bool {
    let is_address = || value.starts_with("http://") || value.starts_with("https://");
    matches!(name, "TOKEN" | "TOKEN_FILE") || (name == "URL" && is_address())
}

/// Returns whether Kubernetes sets this variable for a service, in its own form or in the form of Docker
/// links.
fn is_of_service(name: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];
    let is_link = |protocol: &str| value.starts_with(&format!("{protocol}://"));
    let is_linked = |protocol: &str| name.contains(&format!("_{}", protocol.to_uppercase()));
    name.ends_with("SERVICE_HOST")
        || name.contains("SERVICE_PORT")
        || (name.contains("PORT_") && PROTOCOLS.into_iter().any(is_linked))
        || (name.ends_with("PORT") && PROTOCOLS.into_iter().any(is_link))
}

/// Returns the variables that the user may have meant by a name without a section, or with one underscore
/// after the section.
fn likely(name: &str) -> Vec<String> {
    let name = name.to_lowercase();
    let all = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut likely = Vec::new();
    for (section, keys) in all.as_object().into_iter().flatten() {
        let keys = keys.as_object().into_iter().flatten().map(|(key, _)| key.clone());
        let of_section = SECRETS.iter().filter(|secret| secret.section == section);
        for key in keys.chain(of_section.map(|secret| format!("{}_file", secret.key))) {
            if name == key || name == format!("{section}_{key}") {
                likely.push(format!("{PREFIX}{}__{}", section.to_uppercase(), key.to_uppercase()));
            }
        }
    }
    likely
}
