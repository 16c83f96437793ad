//! Clients in five languages, made of the OpenAPI document by generators as their users run them. Each client compiles
//! and drives the real server through one held call: `tests/clients` has the drivers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::no_more_arguments;
use crate::openapi::{DOCUMENT, FULL_DOCUMENT};
use crate::page_types;
use crate::process::{capture, cargo, command_line, run};
use crate::programs::{PROGRAMS, WITH_ALL};
use crate::server::{Server, fresh_folder};
use crate::tooling;

const HERE: &str = "tests/clients";
/// The generated clients. A client is made again when the document, its driver or a list of packages changes.
const MADE: &str = "target/clients";
/// The file with everything that a client was made of.
const STAMP: &str = ".made-from";

/// A warning of generated Java about the example of a body, which no client contains.
const HARMLESS: &str = "Ignoring complex example on request body";

/// A language, with its driver.
struct Language {
    name: &'static str,
    /// The files of the client that its folder is made of, besides the document.
    sources: &'static [&'static str],
    make: fn(&Client<'_>) -> Result<()>,
    drive: fn(&Client<'_>) -> Command,
}

const LANGUAGES: [Language; 5] = [
    // The slowest one first.
    Language {
        name: "rust",
        sources: &["rust/Cargo.toml", "rust/Cargo.lock", "rust/build.rs", "rust/src/main.rs"],
        make: |client| client.make_rust(),
        drive: |client| Command::new(client.cache("rust/debug/drive")),
    },
    Language {
        name: "go",
        sources: &["requirements.txt", "go/drive.go"],
        make: |client| client.make_go(),
        drive: |client| Command::new(client.folder.join("drive.bin")),
    },
    Language {
        name: "java",
        sources: &["requirements.txt", "java/Drive.java"],
        make: |client| client.make_java(),
        drive: |client| {
            let mut command = Command::new("java");
            command.args(["-cp", &format!("classes:{}", client.tools.class_path), "Drive"]);
            command
        },
    },
    Language {
        name: "typescript",
        sources: &["package-lock.json", "typescript/drive.ts", "typescript/tsconfig.json"],
        make: |client| client.make_typescript(),
        drive: |_| {
            let mut command = Command::new("node");
            command.arg("out/drive.js");
            command
        },
    },
    Language {
        name: "python",
        sources: &["requirements.txt", "python/drive.py"],
        make: |client| client.make_python(),
        drive: |client| {
            let mut command = Command::new(client.tools.python.join("python"));
            command.arg("drive.py");
            command
        },
    },
];

/// The programs that make clients.
struct Tools {
    /// The folder of the programs from PyPI.
    python: PathBuf,
    /// The folder of the programs from npm.
    node: PathBuf,
    /// The jars that generated Java needs: the jar of the generator contains Jackson.
    class_path: String,
}

impl Tools {
    fn installed(root: &Path) -> Result<Self> {
        tooling::require_node()?;
        let annotations = tooling::require_java()?;
        tooling::install_node_project(root, HERE)?;
        let python = tooling::python_programs(root, &tooling::CLIENTS)?;
        let jar = "import openapi_generator_cli as it, pathlib; print(*pathlib.Path(it.__file__).parent.glob('*.jar'))";
        let jar = capture(Command::new(python.join("python")).args(["-c", jar]))?;
        let class_path = format!("{}:{annotations}", String::from_utf8(jar)?.trim());
        Ok(Self { python, node: root.join(HERE).join("node_modules/.bin"), class_path })
    }
}

/// Runs `cargo xtask clients`.
pub(crate) fn check(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("clients", args)?;
    let tools = Tools::installed(root)?;
    run(cargo(root, &PROGRAMS).args(WITH_ALL))?;
    lint(root, &tools)?;
    page_types::check(root)?;
    let clients: Vec<Client<'_>> = LANGUAGES
        .iter()
        .map(|language| Client { language, root, tools: &tools, folder: root.join(MADE).join(language.name) })
        .collect();
    for_each(&clients, "made", |client| client.make())?;
    let folder = root.join(MADE).join("server");
    fresh_folder(&folder)?;
    let mut server = Server::start(&folder, &[])?;
    for_each(&clients, "driven", |client| client.drive(&server.address))?;
    for client in &clients {
        let name = client.language.name;
        let file = folder.join(format!("holdpoint-files/{name}.txt"));
        let text = fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))?;
        ensure!(text == format!("edited in {name}"), "{name}: the tool wrote {text:?}");
    }
    server.stop()
}

/// Checks the documents with the linters that people use.
fn lint(root: &Path, tools: &Tools) -> Result<()> {
    let mut redocly = Command::new(tools.node.join("redocly"));
    redocly.args(["lint", "--format=json", DOCUMENT, FULL_DOCUMENT]).current_dir(root);
    let report =
        capture(redocly.envs([("REDOCLY_TELEMETRY", "off"), ("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")]))?;
    let report = String::from_utf8(report)?;
    let is_clean = report.contains(r#""errors": 0"#) && report.contains(r#""warnings": 0"#);
    ensure!(is_clean, "redocly reports problems:\n{report}");
    let ruleset = format!("{HERE}/spectral.yaml");
    let mut spectral = Command::new(tools.node.join("spectral"));
    spectral.args([
        "lint",
        "--quiet",
        "--fail-severity=hint",
        "--ruleset",
        &ruleset,
        DOCUMENT,
        FULL_DOCUMENT,
    ]);
    run(spectral.current_dir(root))
}

/// Runs a function for all clients at once, and prints how long each took.
fn for_each(
    clients: &[Client<'_>],
    done: &str,
    work: impl Fn(&Client<'_>) -> Result<()> + Sync,
) -> Result<()> {
    let work = &work;
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let timed = |client: &Client<'_>| {
            let (name, started) = (client.language.name, Instant::now());
            work(client).with_context(|| format!("the client in {name}"))?;
            println!("{name}: {done} in {:.1} s", started.elapsed().as_secs_f64());
            Ok(())
        };
        let running: Vec<_> = clients.iter().map(|client| scope.spawn(move || timed(client))).collect();
        running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(anyhow!("it panicked")))).collect()
    });
    results.into_iter().collect()
}

/// The client in one language.
struct Client<'a> {
    language: &'static Language,
    root: &'a Path,
    tools: &'a Tools,
    folder: PathBuf,
}

impl Client<'_> {
    /// Makes the client, unless it was made of the same files.
    fn make(&self) -> Result<()> {
        let sources = self.language.sources.iter().map(|name| self.source(name));
        let mut made_from = String::new();
        for file in sources.chain([self.root.join(DOCUMENT), self.root.join("xtask/src/clients.rs")]) {
            made_from +=
                &fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))?;
        }
        let stamp = self.folder.join(STAMP);
        if fs::read_to_string(&stamp).is_ok_and(|found| found == made_from) {
            return Ok(());
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        fs::create_dir_all(&self.folder)?;
        (self.language.make)(self)?;
        fs::write(&stamp, made_from).with_context(|| format!("could not write {}", stamp.display()))
    }

    fn drive(&self, address: &str) -> Result<()> {
        run((self.language.drive)(self).current_dir(&self.folder).env("HOLDPOINT_URL", address))
    }

    fn make_rust(&self) -> Result<()> {
        let mut build = cargo(&self.source("rust"), &["build", "--quiet", "--locked"]);
        build.env("CARGO_TARGET_DIR", self.cache("rust")).env("DOCUMENT", self.root.join(DOCUMENT));
        run(&mut build)
    }

    fn make_go(&self) -> Result<()> {
        self.generate(self.openapi_generator(&["-g", "go", "-o", "."]))?;
        self.copy("go/drive.go", "drive/main.go")?;
        let mut go = Command::new(self.tools.python.join("go"));
        go.args(["build", "-o", "drive.bin", "./drive"]).current_dir(&self.folder);
        // The generated client needs no other module.
        go.envs([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod")]);
        run(go.env("GOCACHE", self.cache("go")).env("GOPATH", self.cache("go-path")))
    }

    fn make_java(&self) -> Result<()> {
        let options = ["-g", "java", "-o", ".", "--library", "native", "--additional-properties"];
        let mut generator = self.openapi_generator(&options);
        generator.arg("openApiNullable=false,useJakartaEe=true");
        self.generate(generator)?;
        self.copy("java/Drive.java", "src/main/java/Drive.java")?;
        let compile = r#"javac -nowarn -d classes -cp "$0" $(find src/main -name '*.java') 2>&1"#;
        let compile = ["-c", compile, &self.tools.class_path];
        self.generate(self.here(Command::new("sh"), &compile))
    }

    fn make_typescript(&self) -> Result<()> {
        let document = self.root.join(DOCUMENT);
        let document = document.to_str().context("the path is no UTF-8")?;
        symlink(self.root.join(HERE).join("node_modules"), self.folder.join("node_modules"))?;
        let node = |name: &str, args: &[&str]| self.here(Command::new(self.tools.node.join(name)), args);
        self.generate(node("openapi-ts", &["-i", document, "-o", "client"]))?;
        self.generate(node("openapi-typescript", &[document, "-o", "schema.ts"]))?;
        self.copy("typescript/drive.ts", "drive.ts")?;
        self.copy("typescript/tsconfig.json", "tsconfig.json")?;
        run(&mut node("tsc", &[]))
    }

    fn make_python(&self) -> Result<()> {
        let document = self.root.join(DOCUMENT);
        let generator = Command::new(self.tools.python.join("openapi-python-client"));
        let mut generator =
            self.here(generator, &["generate", "--meta", "none", "--output-path", "client", "--path"]);
        generator.arg(document);
        self.generate(generator)?;
        self.copy("python/drive.py", "drive.py")?;
        let compile = ["-m", "compileall", "-q", "client", "drive.py"];
        run(&mut self.here(Command::new(self.tools.python.join("python")), &compile))
    }

    /// Returns the path of a file beside the drivers.
    fn source(&self, name: &str) -> PathBuf {
        self.root.join(HERE).join(name)
    }

    /// Returns the path of a cache that stays when the client is made again.
    fn cache(&self, name: &str) -> PathBuf {
        self.root.join(MADE).join("cache").join(name)
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        let to = self.folder.join(to);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(self.source(from), &to).with_context(|| format!("could not write {}", to.display()))?;
        Ok(())
    }

    /// Returns the command with these arguments, in the folder of the client.
    fn here(&self, mut command: Command, args: &[&str]) -> Command {
        command.current_dir(&self.folder).args(args);
        command
    }

    fn openapi_generator(&self, options: &[&str]) -> Command {
        let program = Command::new(self.tools.python.join("openapi-generator-cli"));
        let mut command = self.here(program, &["generate", "-i"]);
        command.arg(self.root.join(DOCUMENT)).args(options);
        command
    }

    /// Runs a generator or a compiler. A warning is an error: a part of the client would be missing.
    #[expect(
        clippy::disallowed_methods,
        reason = "the search path of a started program is not configuration"
    )]
    fn generate(&self, mut command: Command) -> Result<()> {
        let line = command_line(&command);
        // openapi-python-client formats with ruff, which is in the same folder.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.tools.python.display()));
        let Output { status, stdout, stderr } =
            command.output().with_context(|| format!("could not start `{line}`"))?;
        let output = [stdout, stderr].concat();
        let output = String::from_utf8_lossy(&output);
        let warns = |line: &&str| {
            let lower = line.to_lowercase();
            let serious = lower.contains("warn") || lower.contains("error");
            serious && !line.contains(" INFO ") && !line.contains(HARMLESS)
        };
        let warnings: Vec<&str> = output.lines().filter(warns).collect();
        if !status.success() || !warnings.is_empty() {
            bail!("`{line}` ended with {status}:\n{output}");
        }
        Ok(())
    }
}
