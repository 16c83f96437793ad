//! The tarball of `@holdpoint/page`, and its types: the examples of its README compile against AI SDK 5, 6 and 7.

use super::decided_elsewhere::{DECISION, HOLD, OutsideDecision, decide};
use super::native_approval::{PAY, held_call};
use super::page::{self, UI_V7, Version};
use holdpoint_testkit::dialects::{PageApprovals, dialects_of};
use holdpoint_testkit::{PagePackage, code_of, in_repository};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const OPTIONS: &str = r#"{
  "compilerOptions": {
    "target": "ES2022", "module": "NodeNext", "lib": ["ES2022", "DOM", "DOM.Iterable"], "jsx": "react-jsx",
    "types": [], "noEmit": true, "skipLibCheck": true,
    "strict": true, "exactOptionalPropertyTypes": true, "noUncheckedIndexedAccess": true
  },
  "include": ["v*/*"]
}"#;

#[test]
fn the_tarball_has_the_compiled_package_and_its_texts() {
    let package = PagePackage::installed();
    let mut files: Vec<&str> = package.files.iter().map(String::as_str).collect();
    files.retain(|file| !(file.starts_with("dist/") && (file.ends_with(".js") || file.ends_with(".d.ts"))));
    assert_eq!(files, ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json"]);
    let installed =
        fs::read_to_string(package.folder.join("node_modules/@holdpoint/page/package.json")).unwrap();
    let installed: serde_json::Value = serde_json::from_str(&installed).unwrap();
    assert_eq!(installed["version"], env!("CARGO_PKG_VERSION"), "the package has the version of the server");
    for kind in ["dependencies", "peerDependencies", "optionalDependencies"] {
        assert_eq!(installed.get(kind), None);
    }
}

#[test]
fn the_examples_of_the_readme_and_the_types_compile_against_each_sdk() {
    let package = PagePackage::installed();
    let home = package.folder.with_file_name("types");
    let readme = fs::read_to_string(in_repository("packages/page/README.md")).unwrap();
    let wire = in_repository("tests/wire");
    for version in page::ui() {
        let dialect = dialects_of(version.number()).last().unwrap();
        let version = version.number();
        let project = home.join(format!("v{version}"));
        let modules = project.join("node_modules");
        fs::create_dir_all(modules.join("@ai-sdk")).unwrap();
        fs::write(project.join("package.json"), r#"{"type": "module"}"#).unwrap();
        for (installed, name) in
            [(format!("ai{version}"), "ai"), (format!("react{version}"), "@ai-sdk/react")]
        {
            let installed = wire.join("node_modules").join(installed);
            assert!(installed.exists(), "run `npm ci --ignore-scripts` in {}", wire.display());
            symlink(installed, modules.join(name)).unwrap();
        }
        symlink(package.folder.join("node_modules/@holdpoint"), modules.join("@holdpoint")).unwrap();

        let (main, own) = (code_of(&readme, "AI SDK 6 and 7"), code_of(&readme, "AI SDK 5"));
        assert_eq!((main.len(), own.len()), (2, 1));
        let own = if dialect.approvals == PageApprovals::Unknown { own } else { Vec::new() };
        let shared = code_of(&readme, "Client").into_iter().chain(code_of(&readme, "Card"));
        for (file, code) in shared.chain(main).chain(own) {
            fs::write(
                project.join(file),
                code.replace("dialect: 'ui-v7'", &format!("dialect: '{}'", dialect.name)),
            )
            .unwrap();
        }
        fs::copy(wire.join("package/typed_page.ts"), project.join("typed_page.ts")).unwrap();
    }
    fs::write(home.join("tsconfig.json"), OPTIONS).unwrap();
    let modules = home.join("node_modules");
    fs::create_dir(&modules).unwrap();
    symlink(wire.join("node_modules/@types"), modules.join("@types")).unwrap();
    compiles(&home);
}

/// The text of this type in a source of the package.
fn declared(source: &str, name: &str) -> String {
    let text = fs::read_to_string(in_repository("packages/page/src").join(source)).unwrap();
    let (_, rest) = text.split_once(&format!("export type {name} =")).unwrap();
    rest.split("\n};").next().unwrap().split("\n\n").next().unwrap().to_owned()
}

/// The fields of a type, and whether each has to be there.
fn fields(source: &str, name: &str) -> BTreeMap<String, bool> {
    let text = declared(source, name);
    let lines = text.split(['\n', ';', '{', '}']).map(str::trim).filter(|line| !line.starts_with(['/', '*']));
    let fields = lines.filter_map(|line| line.split_once(": ")).map(|(field, _)| field);
    fields.map(|field| (field.trim_end_matches('?').to_owned(), !field.ends_with('?'))).collect()
}

#[tokio::test]
async fn the_types_of_the_data_parts_have_the_fields_that_the_server_sends() {
    let (app, mut page) = held_call(Version::V7, &PAY, &["--header", UI_V7]).await;
    let call = page.first();
    decide(&app, &call, OutsideDecision::Edit).await;
    page.answer(&call, false).await;
    for (part, name) in [(HOLD, "ToolHold"), (DECISION, "ToolDecision")] {
        let sent = page.data_about(part, &call);
        let (sent, fields) = (sent.as_object().unwrap(), fields("parts.ts", name));
        assert!(sent.keys().all(|field| fields.contains_key(field)), "{name}: {sent:?}");
        assert!(
            fields.iter().all(|(field, required)| !required || sent.contains_key(field)),
            "{name}: {sent:?}"
        );
        assert!(fields.len() <= sent.len() + 8, "{name}: {fields:?}");
    }
}

fn compiles(project: &Path) {
    let compiler = in_repository("packages/page/node_modules/.bin/tsc");
    let ended = Command::new(compiler).current_dir(project).output().expect("tsc is installed");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}
