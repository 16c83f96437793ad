//! The deployment files: the variables that they set are settings that the server knows.

use std::collections::BTreeMap;
use std::process::{Command, Output};

const KUBERNETES: &str = include_str!("../../../deploy/kubernetes.yaml");
const CONTAINERFILE: &str = include_str!("../../../Containerfile");
const IGNORED: &str = include_str!("../../../.dockerignore");
const WORKSPACE: &str = include_str!("../../../Cargo.toml");

/// The server's variables in a file, one per line.
fn variables(file: &str) -> BTreeMap<&str, &str> {
    let lines = file.lines().map(|line| line.trim().trim_start_matches("ENV "));
    let pairs = lines.filter(|line| line.starts_with("HOLDPOINT_"));
    pairs
        .map(|line| line.split_once(": ").or(line.split_once('=')).unwrap())
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect()
}

/// Runs the server's `migrate` command with these variables, which loads the configuration without serving.
fn migrate(variables: &BTreeMap<&str, &str>) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.arg("migrate").env_clear().envs(variables).current_dir(&dir);
    // Replaces the database URL of the file, which names a server that does not exist here.
    command.env("HOLDPOINT_DATABASE__URL", "sqlite://holdpoint.db").output().unwrap()
}

#[test]
fn the_deployment_files_set_a_valid_configuration_on_sqlite() {
    let kubernetes = variables(KUBERNETES);
    assert!(kubernetes.len() >= 15, "{kubernetes:?}");
    let done = migrate(&kubernetes);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let mut misspelt = kubernetes.clone();
    misspelt.insert("HOLDPOINT_SERVER__GRAZE", "45s");
    let refused = migrate(&misspelt);
    let reported = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && reported.contains("graze"), "{reported}");
}

#[test]
fn the_image_does_not_start_without_an_auth_mode_on_sqlite() {
    let image = variables(CONTAINERFILE);
    assert_eq!(image.len(), 1, "{image:?}");
    let refused = migrate(&image);
    let reported = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && reported.contains("auth.mode"), "{reported}");

    let mut output = variables(KUBERNETES);
    output.extend(image);
    assert!(migrate(&output).status.success());
}

#[test]
fn the_termination_grace_of_kubernetes_exceeds_the_grace_of_the_server() {
    let grace: u64 = variables(KUBERNETES)["HOLDPOINT_SERVER__GRACE"].trim_end_matches('s').parse().unwrap();
    let (_, period) = KUBERNETES.split_once("terminationGracePeriodSeconds: ").unwrap();
    let period: u64 = period.lines().next().unwrap().parse().unwrap();
    assert!(period >= grace + 10, "{period} s, of which {grace} s for work");
}

#[test]
fn the_build_of_the_image_has_every_crate_of_the_workspace() {
    let workspace: toml::Value = toml::from_str(WORKSPACE).unwrap();
    let lines = || IGNORED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        let folders: Vec<&str> =
            member.match_indices('/').map(|(at, _)| &member[..at]).chain([member]).collect();
        assert!(!lines().any(|line| folders.contains(&line)), "{member}");
        let is_left_out =
            lines().any(|line| line.strip_suffix("/*").is_some_and(|folder| folders.contains(&folder)));
        assert!(!is_left_out || lines().any(|line| line.strip_prefix('!') == Some(member)), "{member}");
    }
}
