//! The key for a model's server is sent only over TLS or to the loopback interface.

use holdpoint_testkit::{EndedCommand, MODEL_KEY, holdpoint};

fn configured(url: &str, more: &[(&str, &str)]) -> EndedCommand {
    let dir = tempfile::tempdir().unwrap();
    let mut command = holdpoint(dir.path(), "sqlite://x.db", &["config"]);
    command.env("HOLDPOINT_MODEL__BASE_URL", url).envs(more.iter().copied());
    EndedCommand::of(command.output().unwrap())
}

#[test]
fn a_key_that_would_be_sent_in_clear_to_another_machine_is_refused() {
    let key = ("HOLDPOINT_MODEL__API_KEY", MODEL_KEY);
    let elsewhere = [
        "http://model.example/v1",
        "HTTP://model.example/v1",
        "http://10.0.0.1:8000/v1",
        "http://localhost.model.example/v1",
        "http://127.0.0.1@model.example/v1",
        "http://[2001:db8::1]/v1",
    ];
    for url in elsewhere {
        let refused = configured(url, &[key]);
        refused.refused_for("model.base_url");
        refused.refused_for("model.allow_insecure");
        assert!(!refused.stderr.contains(MODEL_KEY), "{refused:?}");
        for more in [vec![], vec![key, ("HOLDPOINT_MODEL__ALLOW_INSECURE", "true")]] {
            configured(url, &more).stdout_of_success();
        }
    }
    for url in
        ["https://model.example/v1", "http://127.0.0.1:1/v1", "http://localhost:1", "http://[::1]:1/v1"]
    {
        assert!(configured(url, &[key]).stdout_of_success().contains("allow_insecure = false"), "{url}");
    }
}
