//! Running test programs, with the time that each test takes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{capture, command_line};

/// As many of the slowest tests are printed.
const SLOWEST: usize = 10;

/// A test, and how many seconds it took.
#[derive(Debug, Clone, PartialEq)]
struct TimedTest {
    seconds: f64,
    name: String,
}

/// The arguments with which a test program prints the time of each test.
pub(crate) const REPORT_TIME: [&str; 3] = ["-Z", "unstable-options", "--report-time"];

/// Has cargo start test programs so that they take [`REPORT_TIME`], which is for unstable toolchains alone.
///
/// The variable is set for the programs and not for cargo: build scripts watch it, and everything would be compiled
/// again.
pub(crate) fn allow_report_time(command: &mut Command) -> Result<&mut Command> {
    let version = String::from_utf8(capture(Command::new("rustc").arg("-vV"))?).context("rustc -vV")?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let runner = format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_"));
    Ok(command.env(runner, "env RUSTC_BOOTSTRAP=1"))
}

/// Runs test programs to the end and prints the slowest tests of all.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("could not start `{line}`"))?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut tests = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        tests.extend(timed(&line));
    }
    let status = child.wait()?;
    print!("{}", slowest(tests));
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// The test that this line of output is about: `test some::name ... ok <0.123s>`.
fn timed(line: &str) -> Option<TimedTest> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (_, time) = outcome.rsplit_once(" <")?;
    let seconds = time.strip_suffix("s>")?.parse().ok()?;
    Some(TimedTest { seconds, name: name.to_owned() })
}

fn slowest(mut tests: Vec<TimedTest>) -> String {
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut table = format!("\nthe slowest of {} tests, in seconds:\n", tests.len());
    for TimedTest { seconds, name } in tests.iter().take(SLOWEST) {
        table.push_str(&format!("{seconds:>8.1}  {name}\n"));
    }
    table
}

/// How many tests run at a time. Most wait for servers, databases and time-outs, so there are more than cores.
pub(crate) fn threads() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("--test-threads={}", cores * THREADS_PER_CORE)
}

const THREADS_PER_CORE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_test_is_read_from_its_line_and_of_no_other() {
        let test = TimedTest { seconds: 0.123, name: "a::b".to_owned() };
        assert_eq!(timed("test a::b ... ok <0.123s>"), Some(test));
        for line in ["test a::b ... ok", "running 3 tests", "test result: ok. 3 passed; finished in 0.5s", ""]
        {
            assert_eq!(timed(line), None, "{line}");
        }
    }

    #[test]
    fn the_ten_slowest_are_listed_the_slowest_first() {
        let tests = (0..20_u8).map(|n| TimedTest { seconds: f64::from(n), name: format!("t{n}") }).collect();
        let table = slowest(tests);
        let lines: Vec<&str> = table.lines().skip(1).collect();
        assert_eq!(lines[0], "the slowest of 20 tests, in seconds:");
        assert_eq!((lines[1], lines[10], lines.len()), ("    19.0  t19", "    10.0  t10", 11));
    }
}
