//! Whether the run would see it: it is made again for each of ten planted bugs, once with the guards of the database,
//! which have to refuse what they can see, and once without, where only the checks are left.

use crate::nemesis::{Harming, Mix};
use crate::progress::Progress;
use crate::run::{self, Outcome, Settings, Until};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// How long each bug may do harm, at most.
const TIME: Duration = Duration::from_secs(25);
/// About how many calls people are asked in each run.
const ENOUGH: usize = 40;

/// What servers and databases say is not for the checks to have found.
const NOT_BY_A_CHECK: [&str; 3] = ["G", "P", "E"];

/// A planted bug, and what brings it out.
pub(crate) struct Planted {
    /// As the server under test calls it.
    name: &'static str,
    /// Whether the database can refuse what it does.
    guarded: bool,
    bring_out: fn(&mut Settings),
}

/// All ten.
pub(crate) const PLANTED: [Planted; 10] = [
    Planted { name: "decide-any-state", guarded: true, bring_out: |_| {} },
    Planted { name: "claim-after-tool", guarded: false, bring_out: |_| {} },
    Planted { name: "reap-by-id", guarded: true, bring_out: ends_while_reaped },
    Planted { name: "reap-to-approved", guarded: true, bring_out: |it| it.fails("after:tool.run=die@0.15") },
    Planted {
        name: "tell-before-commit",
        guarded: false,
        bring_out: |it| it.fails("before:tool.requires_approval=die@0.2"),
    },
    Planted { name: "no-tenant", guarded: false, bring_out: |it| it.amount.strangers = 3 },
    Planted { name: "request-owns-work", guarded: false, bring_out: everybody_leaves },
    Planted { name: "leaked-transaction", guarded: false, bring_out: kills },
    Planted { name: "late-rewrites", guarded: true, bring_out: ends_late },
    Planted { name: "last-wins", guarded: true, bring_out: |_| {} },
];

impl Settings {
    /// Has every server fail so.
    fn fails(&mut self, fault: &str) {
        self.mix.faults.push(fault.to_owned());
    }

    /// Most tools take so long, in milliseconds.
    fn takes(&mut self, from: u64, to: u64) {
        self.amount.slow = 70;
        self.amount.slow_ms = (from, to);
    }
}

/// A tool ends between the sweeper's look and its move.
fn ends_while_reaped(settings: &mut Settings) {
    settings.takes(2500, 3300);
    settings.fails("before:call.renewed=refuse");
    settings.fails("before:sweep.found=pause:1500");
}

/// A tool ends when the model was told already that nobody knows.
fn ends_late(settings: &mut Settings) {
    settings.takes(4000, 4800);
    settings.fails("before:call.renewed=refuse");
}

fn everybody_leaves(settings: &mut Settings) {
    // In the middle of the tool.
    settings.takes(2500, 3500);
    settings.amount.leaving = 95;
    settings.amount.leaving_ms = (300, 2500);
}

fn kills(settings: &mut Settings) {
    settings.mix.weights = vec![(Harming::Kill, 1)];
    settings.mix.mean = Duration::from_millis(1500);
}

/// What came of one bug in one run.
struct Caught {
    /// The guards of the database.
    refused: bool,
    /// The checks that found it.
    checks: BTreeSet<&'static str>,
}

/// Runs all of them, or that of this name. Whether each was caught in both its runs.
pub(crate) async fn mutate(usual: &Settings, only: Option<&str>, folder: &Path) -> Result<bool> {
    let mut table = format!("{:<22} {:<34} {}\n", "bug", "guards on", "guards dropped");
    let (mut right, mut all) = (0, 0);
    for planted in PLANTED.iter().filter(|planted| only.is_none_or(|only| only == planted.name)) {
        let with = try_it(planted, usual, false, folder).await?;
        let without = try_it(planted, usual, true, folder).await?;
        let caught_with = if planted.guarded { with.refused } else { !with.checks.is_empty() };
        let caught_without = !without.checks.is_empty();
        let told = |caught: bool, it: &Caught| {
            let checks = it.checks.iter().copied().collect::<Vec<_>>().join(" ");
            let refused = if it.refused { "refused " } else { "" };
            if caught { format!("{refused}{checks}") } else { format!("NOT CAUGHT {refused}{checks}") }
        };
        // Writing to memory cannot fail.
        let _infallible = writeln!(
            table,
            "{:<22} {:<34} {}",
            planted.name,
            told(caught_with, &with),
            told(caught_without, &without)
        );
        all += 1;
        right += usize::from(caught_with && caught_without);
    }
    println!("{table}\n{right}/{all} caught in both runs");
    Ok(right == all && all > 0)
}

async fn try_it(planted: &Planted, usual: &Settings, dropped: bool, folder: &Path) -> Result<Caught> {
    let mut settings =
        Settings { mix: Mix::nothing(), time: TIME, until: Until::Calls(ENOUGH), ..usual.clone() };
    (planted.bring_out)(&mut settings);
    settings.always = ["--bug", planted.name].map(str::to_owned).to_vec();
    settings.unguarded = dropped;
    let guards = if dropped { "without guards" } else { "with guards" };
    let progress = Progress::new(&format!("{} {guards}", planted.name), TIME);
    let own = folder.join(format!("{}-{}", planted.name, if dropped { "dropped" } else { "on" }));
    std::fs::create_dir_all(&own)?;
    let Outcome { violations, .. } = run::run(&settings, &own, &progress).await?;
    progress.end();
    let checks = violations.iter().map(|it| it.id).filter(|id| !NOT_BY_A_CHECK.contains(id)).collect();
    Ok(Caught { refused: violations.iter().any(|it| it.id == "G"), checks })
}
