//! Entries of `[[worker_tools]]` and `auth.worker_roles` that cannot be used, each named by its key.

use super::crashes::Shop;
use holdpoint_testkit::EndedCommand;
use std::process::Command;

/// Runs `holdpoint` with this configuration and this argument to its end.
async fn run(toml: &str, argument: &str) -> EndedCommand {
    let shop = Shop::new(toml).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.current_dir(shop.dir.path()).env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0").arg(argument);
    EndedCommand::of(command.output().unwrap())
}

/// A configuration with one tool and these lines in its entry.
fn one(lines: &str) -> String {
    format!(
        "tools.demo = false\n[[worker_tools]]\nname = \"ship\"\ndescription = \"Ships.\"\n{lines}\n\
         [worker_tools.input_schema]\ntype = \"object\"\n"
    )
}

#[tokio::test]
async fn a_wrong_value_of_an_entry_is_an_error_that_names_it() {
    let jwt = "auth = { mode = \"jwt\", secret = \"a secret of at least thirty-two bytes\", issuer = \"https://i\", \
               audience = \"a\" }\n";
    for (toml, key) in [
        (one("").replace("name = \"ship\"\n", ""), "worker_tools[0].name"),
        (one("").replace("\"ship\"", "\"ship it\""), "worker_tools[0].name"),
        (one("").replace("Ships.", " "), "worker_tools[0].description"),
        (one("url = \"https://x.example\""), "worker_tools[0].url"),
        (one("hil = \"perhaps\""), "worker_tools[0].hil"),
        (one("risk = \"huge\""), "worker_tools[0].risk"),
        (one("idempotent = \"perhaps\""), "worker_tools[0].idempotent"),
        (one("timeout = \"0s\""), "worker_tools[0].timeout"),
        (one("timeout = \"4000 days\""), "worker_tools[0].timeout"),
        (one("input_schema_file = \"schema.json\""), "worker_tools[0].input_schema"),
        (
            one("").replace("[worker_tools.input_schema]\ntype = \"object\"\n", ""),
            "worker_tools[0].input_schema",
        ),
        (format!("{}{}", one(""), one("").replace("tools.demo = false\n", "")), "worker_tools[1].name"),
        (format!("{jwt}{}", one("")), "auth.worker_roles"),
    ] {
        run(&toml, "config").await.refused_for(&format!("configuration: {key}"));
    }
}

#[tokio::test]
async fn the_entry_of_a_tool_is_shown_with_its_defaults() {
    let shown = run(&one("timeout = \"2 hours\""), "config").await;
    let shown = shown.stdout_of_success();
    for line in
        ["[[worker_tools]]", "name = \"ship\"", "hil = true", "idempotent = false", "timeout = \"2h\""]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

#[tokio::test]
async fn two_kinds_of_tools_have_different_names() {
    let shop =
        Shop::new(&one("").replace("\"ship\"", "\"read_file\"").replace("demo = false", "demo = true")).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    command.current_dir(shop.dir.path()).env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0");
    EndedCommand::of(command.output().unwrap()).refused_for("tool \"read_file\" is registered twice");
}
