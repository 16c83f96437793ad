//! Invalid values, each named by its key.

use super::Deployment;

/// An invalid value for each key.
const WRONG: &[(&str, &str)] = &[
    ("server.bind", "\"nowhere\""),
    ("server.bind", "8080"),
    ("server.cors_origins", "5"),
    ("server.cors_origins", "[[\"https://a.example\"]]"),
    ("server.docs", "\"maybe\""),
    ("server.docs", "1"),
    ("server.console", "\"maybe\""),
    ("server.metrics_bind", "\"localhost:9090\""),
    ("server.public_url", "5"),
    ("server.public_url", "\"chat.example\""),
    ("server.public_url", "\"ftp://chat.example\""),
    ("server.public_url", "\"https://chat.example/\""),
    ("server.public_url", "\"https://chat.example?x=1\""),
    ("server.public_url", "\"https://me:hunter2@chat.example\""),
    ("server.grace", "\"soon\""),
    ("server.grace", "\"4000 days\""),
    ("database.url", "7.5"),
    ("database.url", "[\"sqlite://x.db\"]"),
    ("database.direct_url", "5"),
    ("database.direct_url", "\"sqlite://x.db\""),
    ("database.direct_url_file", "\"/nowhere/secret\""),
    ("database.schema", "\"\""),
    ("database.schema", "\"Holdpoint\""),
    ("database.schema", "\"1st\""),
    ("database.schema", "\"my-app\""),
    ("database.schema", "\"a\\\"b\""),
    ("database.schema", "\"pg_temp\""),
    ("database.schema", "\"information_schema\""),
    ("database.schema", "\"a234567890123456789012345678901234567890123456789012345678901234\""),
    ("database.max_connections", "0"),
    ("database.max_connections", "-1"),
    ("database.max_connections", "4294967296"),
    ("model.provider", "\"oracle\""),
    ("model.name", "[]"),
    ("model.base_url", "{}"),
    ("model.api_key", "{}"),
    ("model.allow_insecure", "\"perhaps\""),
    ("model.system_prompt", "[\"Be kind.\"]"),
    ("model.max_steps", "1.5"),
    ("model.max_steps", "-1"),
    ("model.context_tokens", "1023"),
    ("model.context_tokens", "\"many\""),
    ("model.first_byte_timeout", "5"),
    ("model.idle_timeout", "\"5 parsecs\""),
    ("model.retries", "11"),
    ("model.options", "5"),
    ("model.options", "\"5\""),
    ("model.options", "\"{\""),
    ("model.options", "{ messages = [] }"),
    ("tools.demo", "\"perhaps\""),
    ("tools.files_dir", "[]"),
    ("tools.timeout", "60"),
    ("tools.timeout", "\"4000 days\""),
    ("tools.cancel_grace", "5"),
    ("tools.cancel_grace", "\"4000 days\""),
    ("tools.timeout_max", "5"),
    ("tools.timeout_max", "\"59s\""),
    ("tools.timeout_max", "\"4000 days\""),
    ("tools.preview_timeout", "5"),
    ("tools.repair", "\"sometimes\""),
    ("tools.preview_timeout", "\"0s\""),
    ("tools.preview_timeout", "\"31s\""),
    ("tools.timeouts", "\"60s\""),
    ("tools.pay.run_rolls", "\"admin\""),
    ("tools.pay.run_roles", "5"),
    ("tools.pay.approve_roles", "{}"),
    ("tools.pay.other_person", "\"perhaps\""),
    ("tools.pay.exact_numbers", "true"),
    ("tools.pay.answers", "\"two\""),
    ("tools.pay.answers", "2"),
    ("tools.pay.approvals", "0"),
    ("tools.pay.approvals", "\"two\""),
    ("tools.pay.approvals", "1.5"),
    ("auth.mode", "\"hope\""),
    ("auth.allow_insecure", "\"perhaps\""),
    ("auth.secret", "[]"),
    ("auth.jwks_url", "[]"),
    ("auth.issuer", "[]"),
    ("auth.audience", "[]"),
    ("auth.audience_claim", "[]"),
    ("auth.user_claim", "[]"),
    ("auth.tenant_claim", "[]"),
    ("auth.default_tenant", "[]"),
    ("auth.roles_claim", "[]"),
    ("auth.roles_key", "[]"),
    ("auth.operator_roles", "{}"),
    ("auth.accept_roles", "{}"),
    ("auth.worker_roles", "{}"),
    ("auth.client_id", "[]"),
    ("auth.sign_in_params", "[]"),
    ("auth.session_key", "[]"),
    ("auth.session_from", "\"hope\""),
    ("auth.session_max", "7"),
    ("auth.session_max", "\"59s\""),
    ("auth.session_max", "\"91d\""),
    ("approval.resume_on_expiry", "\"perhaps\""),
    ("approval.pending_ttl", "\"4000 days\""),
    ("approval.answer_timeout", "\"0s\""),
    ("approval.ttl_max", "\"4000 days\""),
    ("approval.ttl_max", "7"),
    ("approval.remind_before", "\"soon\""),
    ("approval.escalate_after", "\"0s\""),
    ("approval.escalate_to", "[5]"),
    ("approval.handler_timeout", "\"0s\""),
    ("approval.handler_timeout", "\"soon\""),
    ("approval.start_deadline", "\"soon\""),
    ("approval.lease", "\"soon\""),
    ("approval.lease", "5"),
    ("approval.lease", "\"0s\""),
    ("approval.sweep", "\"0s\""),
    ("approval.wait", "\"-1s\""),
    ("approval.while_pending", "\"maybe\""),
    ("approval.remember", "\"disk\""),
    ("approval.remember_inputs", "\"some\""),
    ("approval.exact_numbers", "\"sometimes\""),
    ("approval.share_context", "\"everybody\""),
    ("approval.mode", "\"yolo\""),
    ("approval.always_allow", "[5]"),
    ("approval.always_allow", "\"pay it\""),
    ("approval.always_deny", "{}"),
    ("approval.rules", "\"none\""),
    ("egress.allow", "5"),
    ("egress.allow", "\"10.0.0.0/33\""),
    ("http_tools", "5"),
    ("worker_tools", "5"),
    ("webhooks", "5"),
    ("mail", "5"),
    ("mail.server", "[]"),
    ("mail.tls", "\"maybe\""),
    ("mail.ca_file", "[]"),
    ("mail.from", "[]"),
    ("mail.user", "[]"),
    ("mail.password", "[]"),
    ("mail.password_file", "\"/nowhere/secret\""),
    ("mail.timeout", "\"soon\""),
    ("slack", "5"),
    ("slack.token", "[]"),
    ("slack.token_file", "\"/nowhere/secret\""),
    ("slack.signing_secret", "[]"),
    ("slack.signing_secret_file", "\"/nowhere/secret\""),
    ("slack.api_url", "[]"),
    ("notify", "5"),
    ("stream.default_ui_dialect", "\"ui-v0\""),
    ("stream.default_ui_dialect", "\"data-v1\""),
    ("stream.default_ui_dialect", "6"),
    ("stream.keep_alive", "15"),
    ("stream.keep_alive", "\"often\""),
    ("stream.keep_alive", "\"4000 days\""),
    ("limits.body_bytes", "\"many\""),
    ("limits.body_bytes", "-1"),
    ("limits.chat_body_bytes", "true"),
    ("limits.chat_body_bytes", "[]"),
    ("limits.bodies_in_flight_bytes", "\"many\""),
    ("limits.bodies_in_flight_bytes", "67108863"),
    ("limits.answers_in_flight_bytes", "16777215"),
    ("limits.message_bytes", "-1"),
    ("limits.message_bytes", "0"),
    ("limits.thread_bytes", "{}"),
    ("limits.thread_bytes", "262144"),
    ("limits.thread_messages", "1"),
    ("limits.page_bytes", "-1"),
    ("limits.args_bytes", "1.5"),
    ("limits.result_bytes", "\"1 MiB\""),
    ("limits.json_depth", "-1"),
    ("limits.calls_per_step", "{}"),
    ("limits.agent_depth", "0"),
    ("limits.agents_per_run", "0"),
    ("limits.pending_per_thread", "1.5"),
    ("limits.batch", "-1"),
    ("limits.stream_buffer_bytes", "\"\""),
    ("limits.requests_per_minute", "-1"),
    ("limits.turns_per_minute", "4294967296"),
    ("limits.decisions_per_minute", "\"many\""),
    ("limits.turns_per_user", "1.5"),
    ("limits.turns_per_tenant", "[]"),
    ("limits.open_requests_per_user", "-1"),
    ("limits.streams_per_user", "-5"),
    ("limits.claims_per_user", "-5"),
    ("limits.connections", "\"all\""),
    ("limits.connections_per_ip", "99999999999"),
    ("log.format", "\"xml\""),
    ("log.level", "\"a=b=c\""),
    ("log.level", "\"inof\""),
    ("log.level", "[]"),
    ("log.otlp_endpoint", "\"collector\""),
    ("auth.secret_file", "\"/nowhere/secret\""),
    ("auth.session_key_file", "\"/nowhere/key\""),
    ("model.api_key_file", "\"/nowhere/secret\""),
    ("database.url_file", "\"/nowhere/secret\""),
    ("database.url_file", "[]"),
    ("limits.body_bites", "1"),
];

#[test]
fn an_invalid_value_of_any_key_is_an_error_that_names_it() {
    let mut unnamed = Vec::new();
    for (key, value) in WRONG {
        let deployment = Deployment::with_file(&format!("{key} = {value}"));
        let ended = deployment.migrate(&[], &[]);
        assert!(!ended.ok, "{key} = {value}");
        assert_eq!(deployment.databases(), Vec::<String>::new(), "{key} = {value}");
        if !ended.printed.contains(key) {
            unnamed.push(format!("{key} = {value}: {}", ended.printed));
        }
    }
    assert!(unnamed.is_empty(), "{}", unnamed.concat());
}

#[test]
fn the_list_has_an_invalid_value_for_every_key() {
    let secret = format!("secret = \"{}\"", "s".repeat(32));
    let printed = [&secret, "jwks_url = \"https://j\""].map(|keys| {
        let deployment = Deployment::with_file(&format!(
            "model = {{ name = \"m\", base_url = \"https://m\", api_key = \"k\", system_prompt = \"s\" }}\n\
             log = {{ format = \"json\", level = \"info\" }}\ntools.pay.run_roles = \"a\"\n\
             server.metrics_bind = \"127.0.0.1:0\"\n\
             mail = {{ server = \"s\", from = \"a@b\", user = \"u\", password = \"p\", ca_file = \"c\" }}\n\
             slack = {{ token = \"t\", signing_secret = \"s\" }}\n\
             auth = {{ mode = \"jwt\", issuer = \"i\", audience = \"a\", default_tenant = \"t\", {keys} }}",
        ));
        deployment.in_force(&[])
    });
    let mut section = String::new();
    let mut missing = Vec::new();
    for line in printed.concat().lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((key, _)) = line.split_once(" = ") {
            let key = format!("{section}.{key}");
            if !WRONG.iter().any(|(wrong, _)| *wrong == key) {
                missing.push(key);
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// A valid rule in which these lines replace the lines with the same keys.
pub(super) fn rules(lines: &str) -> String {
    let own = ["name = \"a\"", "effect = \"ask\"", "tools = [\"*\"]"];
    let keeps = |own: &&str| !lines.lines().any(|line| line.split(' ').next() == own.split(' ').next());
    let kept: Vec<&str> = own.into_iter().filter(keeps).collect();
    format!("[[approval.rules]]\n{}\n{lines}", kept.join("\n"))
}

/// A valid mode `jwt` in which these lines replace the lines with the same keys. A secret replaces the published keys.
fn jwt(lines: &str) -> String {
    let own = [
        "mode = \"jwt\"",
        "issuer = \"https://issuer.example\"",
        "audience = \"holdpoint\"",
        "jwks_url = \"https://issuer.example/jwks\"",
    ];
    let replaced = |key: &str| lines.lines().any(|line| line.split(' ').next() == Some(key));
    let keeps = |own: &&str| {
        let key = own.split(' ').next().unwrap();
        !(replaced(key) || key == "jwks_url" && replaced("secret"))
    };
    let kept: Vec<&str> = own.into_iter().filter(keeps).collect();
    format!("[auth]\n{}\n{lines}", kept.join("\n"))
}

#[test]
fn conflicting_values_are_named() {
    for (toml, key) in [
        ("[model]\nprovider = \"gemini\"", "model.name"),
        ("[model]\nprovider = \"openai\"\nname = \"m\"", "model.base_url"),
        ("[auth]\nissuer = \"https://issuer.example\"", "auth.mode"),
        ("[auth]\nclient_id = \"page\"", "auth.mode"),
        ("[auth.sign_in_params]\nscope = \"openid\"", "auth.mode"),
        (&jwt("sign_in_params = { scope = \"openid\" }"), "auth.sign_in_params"),
        (&jwt("sign_in_params = { state = \"mine\" }"), "auth.sign_in_params.state"),
        (&jwt("client_id = \"\""), "auth.client_id"),
        (&jwt("audience_claim = \"\""), "auth.audience_claim"),
        (&jwt("roles_key = \"\""), "auth.roles_key"),
        ("[auth]\nsession_key = \"page\"", "auth.mode"),
        (&jwt(&format!("session_key = \"{}\"", "k".repeat(32))), "auth.session_key"),
        (&jwt("client_id = \"page\"\nsession_key = \"short\""), "auth.session_key"),
        (&jwt("session_from = \"id-token\""), "auth.session_from"),
        (&jwt("client_id = \"page\""), "server.public_url"),
        (&jwt("client_id = \"page\"\nissuer = \"issuer\""), "auth.issuer"),
        (&jwt(&format!("client_id = \"page\"\nsecret = \"{}\"", "s".repeat(32))), "auth.client_id"),
        ("[tools.pay]\nother_person = true", "tools.pay.approve_roles"),
        ("[tools.pay]\napprovals = 2", "tools.pay.approve_roles"),
        ("[tools.pay]\napprovals = 2\napprove_roles = \"chief\"", "tools.pay.approvals"),
        ("limits = 3", "limits"),
        (&rules("effect = \"maybe\""), "approval.rules[0].effect"),
        (&rules("who = \"me\""), "approval.rules[0].who"),
        (&rules("name = \"a b\""), "approval.rules[0].name"),
        (&rules("name = \"a\"\ntools = []"), "approval.rules[0].tools"),
        (&rules("name = \"a\"\ntools = [\"pay?\", \"a/b\"]"), "approval.rules[0].tools"),
        (&rules("when = [{ argument = \"amount\", above = 5 }]"), "approval.rules[0].when[0].argument"),
        (&rules("when = [{ argument = \"/amount\" }]"), "approval.rules[0].when[0]"),
        (&rules("when = [{ argument = \"/a\", above = 5, below = 9 }]"), "approval.rules[0].when[0]"),
        (&format!("{0}\n{0}", rules("")), "approval.rules[1].name"),
        ("[database]\nurl = \"sqlite://x.db\"\nurl_file = \"url\"", "database.url_file"),
    ] {
        let deployment = Deployment::with_file(toml);
        deployment.migrate(&[], &[]).refused_for(key);
        assert_eq!(deployment.databases(), Vec::<String>::new(), "{toml}");
    }
}
