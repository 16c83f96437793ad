//! A test of the checks with ten planted bugs. Each bug is a patch (`bugs`). Each bug has one run with the guards of the database, which
//! have to refuse every bug that they can see, and one run without them, where only the checks can find the
//! bug. The same conditions also run without a bug, and then the run must have no violations.

mod bugs;

use crate::checks::Violation;
use crate::mix::{Harm, Mix};
use crate::progress::Progress;
use crate::run::{self, HarmEnd, Settings};
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// The maximal time of harm for each bug.
const TIME: Duration = Duration::from_secs(25);
/// The approximate number of held calls after which a run ends.
const ENOUGH: usize = 40;

struct PlantedBug {
    name: &'static str,
    /// The errors of the guards that refuse the bug. Empty if no guard can see the bug.
    refused: &'static [&'static str],
    /// The checks, one of which has to find the bug.
    found_by: &'static [&'static str],
    conditions: Conditions,
}

/// The conditions under which a bug shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Conditions {
    /// Only the load.
    Load,
    /// A tool ends between the sweeper's query and its update.
    EndsWhileReaped,
    /// Servers die after a tool has run.
    DiesBehindTools,
    /// Servers die before a hold is durable.
    DiesBeforeHolds,
    /// Several other users.
    OtherUsers,
    /// Most clients disconnect while a tool runs.
    Disconnects,
    /// Servers are killed.
    Kills,
    /// A tool ends after the model has read that its outcome is unknown.
    EndsLate,
}

/// The errors of the guards against a changed decision.
const FINAL: &[&str] = &["a decision is final", "illegal transition of a tool call"];

/// The ten planted bugs.
const PLANTED: [PlantedBug; 10] = [
    PlantedBug {
        name: "decide-any-state",
        refused: FINAL,
        found_by: &["S4", "S5"],
        conditions: Conditions::Load,
    },
    PlantedBug {
        name: "claim-after-tool",
        refused: &[],
        found_by: &["S1", "S7"],
        conditions: Conditions::Load,
    },
    PlantedBug {
        name: "reap-by-id",
        refused: &["illegal transition of a tool call"],
        found_by: &["S5", "C2", "D3"],
        conditions: Conditions::EndsWhileReaped,
    },
    PlantedBug {
        name: "reap-to-approved",
        refused: &["a call runs once", "check constraint", "CHECK constraint failed"],
        found_by: &["S2", "S5", "SQL"],
        conditions: Conditions::DiesBehindTools,
    },
    PlantedBug {
        name: "tell-before-commit",
        refused: &[],
        found_by: &["D2"],
        conditions: Conditions::DiesBeforeHolds,
    },
    PlantedBug { name: "no-tenant", refused: &[], found_by: &["T1"], conditions: Conditions::OtherUsers },
    PlantedBug {
        name: "request-owns-work",
        refused: &[],
        found_by: &["I1"],
        conditions: Conditions::Disconnects,
    },
    PlantedBug {
        name: "leaked-transaction",
        refused: &[],
        found_by: &["D1", "S4", "C2", "D2"],
        conditions: Conditions::Kills,
    },
    PlantedBug {
        name: "late-rewrites",
        refused: &["never change", "does not change"],
        found_by: &["H3"],
        conditions: Conditions::EndsLate,
    },
    PlantedBug {
        name: "last-wins",
        refused: FINAL,
        found_by: &["D1", "S4", "C2"],
        conditions: Conditions::Load,
    },
];

impl Conditions {
    fn change(self, settings: &mut Settings) {
        let mut fails = |fault: &str| settings.mix.faults.push(fault.to_owned());
        match self {
            Self::Load => {}
            Self::EndsWhileReaped => {
                fails("before:call.renewed=refuse");
                // The sweeper reaps the later calls of its page from an old list.
                fails("after:tool.interrupted=pause:1500");
                takes(settings, 2500, 3300);
            }
            Self::DiesBehindTools => fails("after:tool.run=die@0.15"),
            Self::DiesBeforeHolds => fails("before:tool.requires_approval=die@0.2"),
            Self::OtherUsers => settings.amount.other_users = 3,
            Self::Disconnects => {
                takes(settings, 2500, 3500);
                settings.amount.disconnecting = 95;
                settings.amount.disconnecting_ms = (300, 2500);
            }
            Self::Kills => {
                settings.mix.weights = vec![(Harm::Kill, 1)];
                settings.mix.mean = Duration::from_millis(1500);
            }
            Self::EndsLate => {
                fails("before:call.renewed=refuse");
                takes(settings, 4000, 4800);
            }
        }
    }
}

/// Makes most tools take a time from this range, in milliseconds.
fn takes(settings: &mut Settings, from: u64, to: u64) {
    settings.amount.slow = 70;
    settings.amount.slow_ms = (from, to);
}

/// The result of a run.
struct RunFindings {
    violations: Vec<Violation>,
    /// The error of a run that did not complete.
    error: Option<String>,
}

impl RunFindings {
    /// Whether a guard refused a statement with one of these errors.
    fn refused(&self, errors: &[&str]) -> bool {
        let of_a_guard = self.violations.iter().filter(|it| it.id == "G");
        of_a_guard.into_iter().any(|it| errors.iter().any(|error| it.what.contains(error)))
    }

    fn by(&self, ids: &[&str]) -> bool {
        self.violations.iter().any(|it| ids.contains(&it.id))
    }

    fn summary(&self, right: bool) -> String {
        let ids: BTreeSet<&str> = self.violations.iter().map(|it| it.id).collect();
        let ids = ids.into_iter().collect::<Vec<_>>().join(" ");
        let error = self.error.as_ref().map(|error| format!(" ended early: {error}")).unwrap_or_default();
        format!("{}{ids}{error}", if right { "" } else { "WRONG " })
    }
}

/// Runs all bugs, or only the bug with this name. Returns whether both runs of each bug caught it, and the
/// runs without a bug have no violations.
pub(crate) async fn mutate(usual: &Settings, only: Option<&str>, folder: &Path) -> Result<bool> {
    let chosen: Vec<&PlantedBug> =
        PLANTED.iter().filter(|planted| only.is_none_or(|only| only == planted.name)).collect();
    let tree = bugs::tree().await?;
    // Each line is printed at once, because the runs take long and a user may interrupt them.
    let line = |name: &str, on: &str, dropped: &str| println!("{name:<22} {on:<36} {dropped}");
    line("bug", "guards on", "guards dropped");
    let mut caught = 0;
    for planted in &chosen {
        eprintln!("{}: building the server", planted.name);
        let server = match bugs::build(&tree, planted.name).await {
            Ok(server) => server,
            Err(error) => {
                line(planted.name, &format!("WRONG not built: {error:#}"), "");
                continue;
            }
        };
        let with_bug = &Settings { server, ..usual.clone() };
        let on = run_once(Some(planted.name), planted.conditions, with_bug, false, folder).await;
        let dropped = run_once(Some(planted.name), planted.conditions, with_bug, true, folder).await;
        let on_is_right = match planted.refused {
            [] => on.by(planted.found_by),
            errors => on.refused(errors),
        };
        let dropped_is_right = dropped.by(planted.found_by);
        line(planted.name, &on.summary(on_is_right), &dropped.summary(dropped_is_right));
        caught += usize::from(on_is_right && dropped_is_right);
    }
    let mut clean = true;
    let all_conditions: BTreeMap<Conditions, ()> =
        chosen.iter().map(|planted| (planted.conditions, ())).collect();
    for conditions in all_conditions.into_keys() {
        let on = run_once(None, conditions, usual, false, folder).await;
        let dropped = run_once(None, conditions, usual, true, folder).await;
        let nothing = |found: &RunFindings| found.violations.is_empty() && found.error.is_none();
        line(
            &format!("none, {conditions:?}"),
            &on.summary(nothing(&on)),
            &dropped.summary(nothing(&dropped)),
        );
        clean &= nothing(&on) && nothing(&dropped);
    }
    println!("\n{caught}/{} caught in both runs", chosen.len());
    if !clean {
        println!("the runs without a bug have violations, so the caught bugs prove nothing");
    }
    Ok(caught == chosen.len() && caught > 0 && clean)
}

async fn run_once(
    bug: Option<&str>,
    conditions: Conditions,
    usual: &Settings,
    unguarded: bool,
    folder: &Path,
) -> RunFindings {
    let mut settings = Settings {
        mix: Mix::nothing(),
        time: TIME,
        until: HarmEnd::Calls(ENOUGH),
        unguarded,
        ..usual.clone()
    };
    conditions.change(&mut settings);
    let what = bug.map_or_else(|| format!("none-{conditions:?}"), str::to_owned);
    let name = format!("{what}-{}", if unguarded { "dropped" } else { "on" });
    let progress = Progress::new(&name, TIME);
    let own = folder.join(&name);
    let done = match std::fs::create_dir_all(&own) {
        Ok(()) => Box::pin(run::run(&settings, &own, &progress)).await,
        Err(error) => Err(error.into()),
    };
    progress.end();
    match done {
        Ok(outcome) => RunFindings { violations: outcome.violations, error: None },
        Err(error) => RunFindings { violations: Vec::new(), error: Some(format!("{error:#}")) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::CHECKS;

    #[test]
    fn every_bug_names_existing_checks() {
        let known: BTreeSet<&str> = CHECKS.iter().map(|(id, _)| *id).collect();
        for planted in PLANTED {
            assert!(planted.found_by.iter().all(|id| known.contains(id)), "{}", planted.name);
        }
    }

    #[test]
    fn each_bug_has_a_patch_with_a_description_and_each_patch_is_a_bug() {
        let patches = Path::new(env!("CARGO_MANIFEST_DIR")).join("bugs");
        let there: BTreeSet<String> = std::fs::read_dir(&patches)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let named: BTreeSet<String> =
            PLANTED.iter().map(|planted| format!("{}.patch", planted.name)).collect();
        assert_eq!(there, named);
        for patch in there {
            let text = std::fs::read_to_string(patches.join(&patch)).unwrap();
            let (description, _) = text.split_once("\ndiff --git ").unwrap();
            assert!(description.contains("\nGuard: "), "{patch}");
        }
    }

    #[test]
    fn a_finding_of_another_check_does_not_catch_a_bug() {
        let found = |id, what: &str| RunFindings {
            violations: vec![Violation { id, call: None, what: what.to_owned() }],
            error: None,
        };
        assert!(found("S2", "twice").by(&["S2", "SQL"]) && !found("D4", "words").by(&["S2", "SQL"]));
        assert!(found("G", "error: a decision is final").refused(FINAL));
        assert!(!found("G", "error: a call runs once").refused(FINAL));
        assert!(!found("S4", "a decision is final").refused(FINAL));
    }
}
