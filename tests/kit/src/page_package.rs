//! The npm package of the repository (`packages/page`), packed and installed as a team does it.

use super::{in_repository, scratch};
use crate::JsonFields;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The code of a section of a page of the documentation: each block whose first line names a file, with that name.
pub fn code_of<'a>(page: &'a str, section: &str) -> Vec<(&'a str, &'a str)> {
    let (_, text) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let blocks = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let named = blocks.filter_map(|(_, code)| Some((code.strip_prefix("// ")?.lines().next()?, code)));
    named.collect()
}

/// The installed package.
pub struct PagePackage {
    /// The folder in which a page would have its `package.json`.
    pub folder: PathBuf,
    /// The files of the tarball.
    pub files: Vec<String>,
}

impl PagePackage {
    /// Packs and installs the package, once for all tests of this process.
    pub fn installed() -> &'static Self {
        static INSTALLED: OnceLock<PagePackage> = OnceLock::new();
        INSTALLED.get_or_init(Self::install)
    }

    fn install() -> Self {
        let home = scratch().join("page_package");
        if home.exists() {
            fs::remove_dir_all(&home).unwrap();
        }
        // A copy of the sources, as a fresh checkout has them: other tests read what is built in the repository.
        let (source, copy) = (in_repository("packages/page"), home.join("packages/page"));
        fs::create_dir_all(copy.join("src")).unwrap();
        for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(in_repository(file), home.join(file)).unwrap();
        }
        for file in ["package.json", "tsconfig.json", "README.md"] {
            fs::copy(source.join(file), copy.join(file)).unwrap();
        }
        for file in fs::read_dir(source.join("src")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.join("src").join(file.file_name())).unwrap();
        }
        let modules = source.join("node_modules");
        assert!(modules.exists(), "run `npm ci --ignore-scripts` in {}", source.display());
        symlink(modules, copy.join("node_modules")).unwrap();

        let packed: Value = serde_json::from_str(&npm(&copy, &["pack", "--json"])).unwrap();
        let [tarball] = &packed.as_array().unwrap()[..] else { panic!("{packed}") };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let files = tarball.list("files").iter().map(|file| text(&file["path"])).collect();
        let folder = home.join("app");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("package.json"), r#"{"private": true, "type": "module"}"#).unwrap();
        let tarball = copy.join(text(&tarball["filename"]));
        // Offline: the package has no dependencies.
        npm(&folder, &["install", "--offline", "--no-audit", "--no-fund", tarball.to_str().unwrap()]);
        Self { folder, files }
    }
}

/// What npm prints to its standard output.
fn npm(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("npm");
    let ended = command.current_dir(folder).args(args).stderr(Stdio::piped()).output();
    let ended = ended.expect("npm is installed");
    assert!(ended.status.success(), "npm {args:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}
