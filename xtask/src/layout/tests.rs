//! Tests with source trees on disk, which show that the checker finds violations.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

static TREES: AtomicUsize = AtomicUsize::new(0);

struct Tree(PathBuf);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        let name = format!("layout-{}-{}", std::process::id(), TREES.fetch_add(1, Ordering::Relaxed));
        let tree = Tree(std::env::temp_dir().join(name));
        for (path, text) in files {
            let path = tree.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    fn git(&self, args: &[&str]) {
        let status = git(&self.0).args(args).status().unwrap();
        assert!(status.success(), "git {args:?}");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _removed = fs::remove_dir_all(&self.0);
    }
}

/// Returns all violations as `path:line [rule]`.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let tree = Tree::new(files);
    let paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
    let violations = check(&tree.0, &paths).unwrap();
    violations.iter().map(|v| format!("{}:{} [{}]", v.path, v.line, v.rule)).collect()
}

#[test]
fn a_clean_tree_has_no_violation() {
    let none: [&str; 0] = [];
    let clean = found(&[
        ("src/lib.rs", "//! Map.\npub mod app;\nuse crate::anything;\n"),
        ("src/main.rs", "use holdpoint::{app, config::Config};\nfn main() { holdpoint::http::serve() }\n"),
        ("src/app.rs", "use crate::{approvals::decide, chat, http::Api};\n"),
        ("crates/holdpoint-settings/src/environment.rs", "fn f() { std::env::var(\"A\"); }\n"),
        ("crates/holdpoint-store/src/run/runs.rs", "use crate::entity;\nuse sea_orm::EntityTrait;\n"),
        ("crates/holdpoint-fuzz/src/lib.rs", "fn f() { std::env::var(\"A\"); }\n"),
        ("src/tools/gate.rs", "use holdpoint_store::Permit;\nfn f(permit: Permit) { run(permit); }\n"),
        ("src/approvals/execute.rs", "use crate::agent;\nfn f() { agent::run(); }\n"),
        ("src/http/error.rs", "use poem::http::StatusCode;\nuse crate::chat::Turn;\nuse super::auth;\n"),
        ("src/feed/mod.rs", "// crate::app, StatusCode\n/// crate::app\nconst X: &str = \"crate::app\";\n"),
        ("tests/api/main.rs", "fn f() { std::env::var(\"A\"); let s = StatusCode::OK; }\n"),
        ("migrations/src/lib.rs", "use sea_orm_migration::prelude::*;\nuse sea_orm::Statement;\n"),
    ]);
    assert_eq!(clean, none);
}

#[test]
fn imports_that_do_not_fall_are_found() {
    assert_eq!(found(&[("src/tools/run.rs", "\nuse crate::http::Api;\n")]), ["src/tools/run.rs:2 [ranks]"]);
    assert_eq!(
        found(&[("src/feed/mod.rs", "use crate::approvals::Approvals;")]),
        ["src/feed/mod.rs:1 [ranks]"]
    );
    assert_eq!(found(&[("src/entropy.rs", "use crate::config::Config;")]), ["src/entropy.rs:1 [ranks]"]);
    let grouped = "use crate::{\n    agent::Run,\n    chat::{Turn, end},\n    app,\n};\n";
    assert_eq!(
        found(&[("src/approvals/decide.rs", grouped)]),
        ["src/approvals/decide.rs:3 [ranks]", "src/approvals/decide.rs:4 [ranks]"]
    );
    for in_body in
        ["crate::app::start();", "assert_eq!(1, crate::app::count());", "json!({\"a\": crate::app::A});"]
    {
        let text = format!("fn f() {{\n    {in_body}\n}}\n");
        assert_eq!(found(&[("src/http/api.rs", &text)]), ["src/http/api.rs:2 [ranks]"], "{in_body}");
    }
}

#[test]
fn ways_around_the_ranks_are_found() {
    assert_eq!(found(&[("src/tools/mod.rs", "use super::http::Api;")]), ["src/tools/mod.rs:1 [ranks]"]);
    assert_eq!(found(&[("src/tools/runs.rs", "use super::super::http;")]), ["src/tools/runs.rs:1 [ranks]"]);
    assert_eq!(found(&[("src/tools/runs.rs", "use crate::*;")]), ["src/tools/runs.rs:1 [ranks]"]);
    assert_eq!(found(&[("src/tools/runs.rs", "use crate as root;")]), ["src/tools/runs.rs:1 [ranks]"]);
}

#[test]
fn modules_without_a_rank_are_found() {
    assert_eq!(found(&[("src/extra/mod.rs", "")]), ["src/extra/mod.rs:1 [ranks]"]);
    assert_eq!(found(&[("src/app.rs", "use crate::extra::X;")]), ["src/app.rs:1 [ranks]"]);
    assert_eq!(found(&[("src/main.rs", "use holdpoint::extra::X;")]), ["src/main.rs:1 [ranks]"]);
}

#[test]
fn files_that_import_each_other_are_found() {
    let face = ("src/http/mod.rs", "mod a;\nmod b;\nuse a::A;\n");
    let a = ("src/http/a.rs", "use super::b::B;\n");
    assert!(
        found(&[face, a, ("src/http/b.rs", "#[cfg(test)]\nmod tests { use super::super::a::A; }\n")])
            .is_empty()
    );
    for back in ["use super::a::A;\n", "fn f() { log!(\"{}\", super::a::text()) }\n"] {
        assert_eq!(found(&[face, a, ("src/http/b.rs", back)]), ["src/:1 [circle]"], "{back}");
    }
}

#[test]
fn files_that_do_not_parse_are_found() {
    assert_eq!(found(&[("src/app.rs", "fn f() {}\nfn g( {}\n")]), ["src/app.rs:2 [syntax]"]);
}

#[test]
fn meaningless_names_are_found() {
    assert_eq!(found(&[("tests/api/common/mod.rs", "")]), ["tests/api/common/mod.rs:1 [name]"]);
    assert_eq!(
        found(&[("web/src/types.ts", ""), ("web/utils.mjs", "")]),
        ["web/src/types.ts:1 [name]", "web/utils.mjs:1 [name]"]
    );
    assert_eq!(found(&[("src/http/api.rs", "\npub(crate) mod helpers {}")]), ["src/http/api.rs:2 [name]"]);
    assert_eq!(found(&[("src/http/api.rs", "m! {\n mod helpers {} }")]), ["src/http/api.rs:2 [name]"]);
    assert!(found(&[("src/http/api.rs", "use holdpoint::tools::types;\nfn helpers() {}")]).is_empty());
}

#[test]
fn long_files_are_found_from_the_first_line_too_many() {
    let lines = |count: usize| "//\n".repeat(count);
    assert!(found(&[("web/a.tsx", &lines(600))]).is_empty());
    assert_eq!(found(&[("web/a.tsx", &lines(601))]), ["web/a.tsx:601 [length]"]);
}

#[test]
fn confined_names_elsewhere_are_found() {
    let wire = "crates/holdpoint-models/src/wire.rs";
    assert_eq!(
        found(&[(wire, "const OK: S =\n    reqwest::StatusCode::OK;")]),
        [format!("{wire}:2 [confined]")]
    );
    let in_macros = "struct A;\nfn f() {\n    matches!(x, Err(StatusCode::OK))\n}\n";
    assert_eq!(found(&[("src/feed/mod.rs", in_macros)]), ["src/feed/mod.rs:3 [confined]"]);
}

#[test]
fn reading_the_environment_elsewhere_is_found() {
    let readings = [
        "fn f() { std::env::var(\"A\"); }",
        "use std::env::var_os;",
        "use std::{env::{self, vars}, fs};",
        "use std::env::*;",
        "use std::env as e;",
        "use std::env::{self as e};",
        "fn f() { vec![std::env::var(\"A\")]; }",
    ];
    for text in readings {
        let text = format!("\n{text}");
        assert_eq!(found(&[("src/app.rs", &text)]), ["src/app.rs:2 [environment]"], "{text}");
    }
    assert!(found(&[("src/app.rs", "fn f() { env!(\"A\"); std::env::args(); }")]).is_empty());
}

#[test]
fn a_violation_is_printed_with_its_place_and_rule() {
    let tree = Tree::new(&[("src/tools/run.rs", "\n\nuse crate::http::Api;")]);
    let violations = check(&tree.0, &["src/tools/run.rs".to_owned()]).unwrap();
    let text: Vec<String> = violations.iter().map(Violation::to_string).collect();
    assert_eq!(
        text,
        ["src/tools/run.rs:3: [ranks] `tools` (1) uses `http` (5); imports go to a lower rank only"]
    );
}

#[test]
fn git_lists_new_and_tracked_files_but_no_ignored_or_deleted_ones() {
    let tree = Tree::new(&[
        (".gitignore", "node_modules\n"),
        ("src/new.rs", ""),
        ("src/tracked.rs", ""),
        ("src/deleted.rs", ""),
        ("web/node_modules/types.ts", ""),
        ("README.md", ""),
    ]);
    tree.git(&["init", "--quiet"]);
    tree.git(&["add", "src/tracked.rs", "src/deleted.rs"]);
    fs::remove_file(tree.0.join("src/deleted.rs")).unwrap();
    assert_eq!(listed_files(&tree.0).unwrap(), ["src/new.rs", "src/tracked.rs"]);
}

#[test]
fn sql_is_made_of_constants_alone() {
    let none: [&str; 0] = [];
    let constants =
        "fn f() { Statement::from_string(DbBackend::Postgres, BEGIN); tx.execute_unprepared(LOCK_2).await;
        Expr::cust(\"now()\"); Statement::from_sql_and_values(DbBackend::Sqlite, \"SELECT ?\", []);
        Statement::from_sql_and_values(DbBackend::Postgres, LOCK, [name.into()]);
        join!(tx.execute_unprepared(LOCK), all(vec![Expr::cust(\"now()\")])); }\n";
    assert_eq!(found(&[("crates/holdpoint-store/src/lib.rs", constants)]), none);
    for file in ["crates/holdpoint-store/src/sql/tx.rs", "crates/holdpoint-store/src/sql/schema.rs"] {
        assert_eq!(found(&[(file, "fn f() { db.execute_unprepared(sql) }\n")]), none, "{file}");
    }
    assert_eq!(found(&[("src/http/x.rs", "fn f() { Name::from_string(text) }\n")]), none, "no SQL there");
    for made in [
        "Statement::from_string(backend, BEGIN)",
        "Statement::from_string(DbBackend::Postgres, sql)",
        "Statement::from_sql_and_values(DbBackend::Postgres, sql, [name.into()])",
        "tx.execute_unprepared(&format!(\"DELETE {id}\"))",
        "tx.execute_unprepared(concat!(\"DELETE\", \"x\"))",
        "Expr::cust(text)",
        "Expr::cust(LOCK.to_owned() + name)",
        "names.map(Expr::cust)",
        "sqlx::raw_sql(AssertSqlSafe(SQL))",
        "let run = Statement::from_string;",
        "join!(tx.execute_unprepared(text), end())",
        "vec![Expr::cust(&format!(\"{id}\"))]",
    ] {
        let file = format!("fn f() {{\n    {made}\n}}\n");
        let lines = found(&[("crates/holdpoint-store/src/call/calls.rs", &file)]);
        assert_eq!(
            lines.first().map(String::as_str),
            Some("crates/holdpoint-store/src/call/calls.rs:2 [raw-sql]"),
            "{made}"
        );
    }
}

#[test]
fn a_circle_is_found_in_each_crate_and_not_between_two() {
    let circle = |folder: &str| {
        let (a, b) = (format!("{folder}/a.rs"), format!("{folder}/b.rs"));
        found(&[(&a, "use super::b::B;"), (&b, "use super::a::A;")])
    };
    assert_eq!(circle("src/tools"), ["src/:1 [circle]"]);
    for crate_root in ["serve/src", "crates/holdpoint-store/src", "xtask/src", "torture/src"] {
        assert_eq!(circle(crate_root), [format!("{crate_root}/:1 [circle]")]);
    }
    let two = [("src/tools/a.rs", "use super::b::B;"), ("serve/src/b.rs", "use crate::a::A;")];
    assert!(found(&two).is_empty());
}

#[test]
fn tuples_of_parameters_are_found() {
    let tuple = "fn f(\n    (a, b): (&str, u8),\n) {}\n";
    for file in ["src/app.rs", "tests/api/a.rs"] {
        assert_eq!(found(&[(file, tuple)]), [format!("{file}:2 [tuple]")]);
    }
    assert!(found(&[("src/app.rs", "fn f(Json(a): Json<u8>) { g(|(a, b): (u8, u8)| a) }\n")]).is_empty());
}

#[test]
fn folders_with_too_many_files_are_found() {
    for (folder, extension) in [("src/http", "rs"), ("src/console", "js")] {
        let paths: Vec<String> = (0..26).map(|nth| format!("{folder}/file_{nth}.{extension}")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
        assert_eq!(found(&files), [format!("{folder}:1 [folder]")]);
        assert!(found(files.split_first().unwrap().1).is_empty());
    }
}
