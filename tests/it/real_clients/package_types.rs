//! The tarball of `@holdpoint/page`, and its types: the examples of its README compile against AI SDK 5, 6 and 7.

use crate::support::{PagePackage, in_repository};
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

/// The code of a section of the README, each block with the file that its first line names.
fn examples<'a>(readme: &'a str, section: &str) -> Vec<(&'a str, &'a str)> {
    let (_, text) = readme.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let blocks = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let named = blocks.filter_map(|(_, code)| Some((code.strip_prefix("// ")?.lines().next()?, code)));
    named.collect()
}

#[test]
fn the_tarball_has_the_compiled_package_and_its_texts() {
    let package = PagePackage::installed();
    let mut files: Vec<&str> = package.files.iter().map(String::as_str).collect();
    files.retain(|file| !(file.starts_with("dist/") && (file.ends_with(".js") || file.ends_with(".d.ts"))));
    assert_eq!(files, ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json"]);
    let installed =
        fs::read_to_string(package.folder.join("node_modules/@holdpoint/page/package.json")).unwrap();
    let installed: serde_json::Value = serde_json::from_str(&installed).unwrap();
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
    for version in ["5", "6", "7"] {
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

        let (main, own) = (examples(&readme, "AI SDK 6 and 7"), examples(&readme, "AI SDK 5"));
        assert_eq!((main.len(), own.len()), (2, 1));
        let own = if version == "5" { own } else { Vec::new() };
        for (file, code) in examples(&readme, "Client").into_iter().chain(main).chain(own) {
            fs::write(
                project.join(file),
                code.replace("dialect: 'ui-v7'", &format!("dialect: 'ui-v{version}'")),
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

fn compiles(project: &Path) {
    let compiler = in_repository("packages/page/node_modules/.bin/tsc");
    let ended = Command::new(compiler).current_dir(project).output().expect("tsc is installed");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}
