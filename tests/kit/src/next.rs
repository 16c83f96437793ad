//! A page of Next.js (`tests/next`), whose development server forwards to a server as docs/pages.md says.

use super::in_repository;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Ends when stdin is closed, however its parent ends.
const UNTIL_THE_END: &str = r#"
trap '' PIPE
node node_modules/next/dist/bin/next dev --hostname 127.0.0.1 --port 0 &
cat >/dev/null
kill $!
wait
"#;

/// The development server. It ends when this value is dropped, or with the process.
#[derive(Debug)]
pub struct Next {
    shell: Child,
    url: String,
    _project: TempDir,
}

impl Next {
    /// Starts `next dev` in a project with the configuration in docs/pages.md, for the server of this URL.
    pub fn before(server: &str) -> Self {
        let (_, config) =
            include_str!("../../../docs/pages.md").split_once("```js\n// next.config.mjs\n").unwrap();
        let (config, _) = config.split_once("```").unwrap();
        assert!(config.contains("http://127.0.0.1:8080"), "{config}");

        let installed = in_repository("tests/next");
        let packages = installed.join("node_modules");
        assert!(packages.join("next").exists(), "run `npm ci --ignore-scripts` in {}", installed.display());
        let project = tempfile::tempdir().unwrap();
        let file = |name: &str| project.path().join(name);
        symlink(packages, file("node_modules")).unwrap();
        symlink(installed.join("app"), file("app")).unwrap();
        fs::copy(installed.join("package.json"), file("package.json")).unwrap();
        fs::write(file("next.config.mjs"), config.replace("http://127.0.0.1:8080", server)).unwrap();

        let mut shell = Command::new("sh");
        shell.args(["-c", UNTIL_THE_END]).current_dir(project.path());
        shell.env("NEXT_TELEMETRY_DISABLED", "1").env("NO_COLOR", "1");
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
        let url = lines.find_map(|line| Some(line.split_once("http://")?.1.trim().to_owned()));
        let url = format!("http://{}", url.expect("Next.js prints its address"));
        assert!(lines.any(|line| line.contains("Ready in")), "Next.js is ready");
        std::thread::spawn(move || lines.for_each(drop));
        Self { shell, url, _project: project }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        // `wait` closes its stdin first.
        let _ended = self.shell.wait();
    }
}
