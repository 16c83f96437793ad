//! The defaults that `docs/configuration.md` names are those of the server.

use super::Deployment;
use std::collections::BTreeMap;
use std::path::Path;

/// Keys whose default `holdpoint config` does not print: the server takes it where it uses the key, or from another key.
const UNPRINTED: [&str; 7] = [
    "http_tools.result_deadline",
    "log.level",
    "mcp.result_deadline",
    "mcp.start_timeout",
    "notify.content_type",
    "tools.pay.exact_numbers",
    "worker_tools.timeout",
];

/// Entries of the lists and the sections without a default, with their required keys alone.
const ENTRIES: &str = r#"
tools.pay.approve_roles = "clerk"
auth = { mode = "jwt", jwks_url = "https://id.example/keys", issuer = "i", audience = "a", worker_roles = "w" }
mail = { server = "smtp.example", from = "a@example.com" }
slack = { token = "t", signing_secret = "s" }
http_tools = [{ name = "h", description = "d", url = "https://h.example", secret_file = "s", input_schema = { a = 1 } }]
worker_tools = [{ name = "w", description = "d", input_schema = { a = 1 } }]
mcp = [{ name = "m", url = "https://m.example" }]
webhooks = [{ name = "e", tenant = "t", url = "https://w.example", secret_file = "s" }]
notify = [{ name = "n", tenant = "t", user = "u", mail = "a@example.com" }]
approval.rules = [{ name = "r", effect = "ask", tools = ["*"] }]
"#;

/// The keys with a default to which the entries give a value.
const SET: [&str; 6] = [
    "auth.audience",
    "auth.issuer",
    "auth.jwks_url",
    "auth.mode",
    "auth.worker_roles",
    "tools.pay.approve_roles",
];

/// The defaults on the page, by their full keys. A default in words is left out.
fn documented() -> BTreeMap<String, String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md"));
    let (mut section, mut defaults, mut is_table) = (String::new(), BTreeMap::new(), false);
    for line in page.unwrap().lines() {
        is_table = line.starts_with("<!-- begin keys: ") || is_table && line != "<!-- end keys -->";
        match line.strip_prefix("<!-- begin keys: ").and_then(|rest| rest.split([' ', ',']).next()) {
            Some("ToolRules") => section = "tools.pay".to_owned(),
            Some("McpOauth" | "RuleCondition") => section.clear(),
            _ => {}
        }
        if let Some(name) = line.strip_prefix("## ") {
            section = name.trim_matches('`').to_owned();
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", key, _, default, _, ""] = cells[..] else { continue };
        let Some(key) = key.strip_prefix('`').and_then(|key| key.strip_suffix('`')) else { continue };
        let literal =
            default.strip_prefix('`').and_then(|it| it.strip_suffix('`')).filter(|it| !it.contains('`'));
        match literal.or((default == "none").then_some("none")) {
            Some(default) if is_table && !section.is_empty() => {
                defaults.insert(format!("{section}.{key}"), default.to_owned());
            }
            _ => {}
        }
    }
    defaults
}

/// The printed values, by their full keys.
fn in_force(printed: &str) -> BTreeMap<String, String> {
    let (mut section, mut values) = (String::new(), BTreeMap::new());
    for line in printed.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, value)) = line.split_once(" = ") {
            values.insert(format!("{section}.{key}"), value.trim_matches('"').to_owned());
        }
    }
    values
}

/// Whether a printed value is the one that the page names. The page may name a duration in another unit.
fn is_same(printed: Option<&String>, documented: &str) -> bool {
    let duration = |text: &str| humantime_serde::re::humantime::parse_duration(text).ok();
    match printed {
        None => documented == "none",
        Some(printed) if documented == "none" => printed == "[]" || printed == "{}" || printed.is_empty(),
        Some(printed) => {
            let as_list = documented.replace(['[', ']', '"'], "");
            printed == documented
                || printed.trim_matches(['[', ']']).replace('"', "") == as_list
                || duration(printed).is_some_and(|time| duration(documented) == Some(time))
        }
    }
}

#[test]
fn the_documented_default_of_a_key_is_the_one_in_force() {
    let printed = Deployment::with_file(ENTRIES).in_force(&[]);
    let printed = in_force(&printed);
    let documented = documented();
    assert!(documented.len() > 120, "only {} defaults were read", documented.len());
    let wrong: Vec<String> = documented
        .iter()
        .filter(|(key, _)| !UNPRINTED.contains(&key.as_str()) && !SET.contains(&key.as_str()))
        .filter(|(key, default)| !is_same(printed.get(*key), default))
        .map(|(key, default)| format!("{key}: documented {default}, in force {:?}", printed.get(key)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for key in UNPRINTED {
        assert!(
            documented.contains_key(key) && !printed.contains_key(key),
            "{key} is printed, or not documented"
        );
    }
}
