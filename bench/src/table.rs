//! The table of a run: the rows, their goals, and the ratios.

use crate::load::{APPROVAL, EARLY_TURN, Figures, LATE_TURN, TO_FIRST_TOKEN, Times};
use crate::plan::{FAST, FIRST_TOKEN, FIRST_TOKEN_8, HOLDS, HOLDS_16, SLOW, THREADS};
use crate::postgres::Effects;
use serde::Serialize;
use std::collections::BTreeMap;

pub(crate) const UPSTREAM: &str = "model";
pub(crate) const FLOOR_PASS: &str = "floor-pass";
pub(crate) const FLOOR_UI: &str = "floor-ui";
pub(crate) const AI_SDK: &str = "ai-sdk-7";
pub(crate) const HOLDPOINT: &str = "holdpoint";

/// The servers with a column.
const COLUMNS: [&str; 4] = [FLOOR_PASS, FLOOR_UI, AI_SDK, HOLDPOINT];

/// The figures of a server in one repeat.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Run {
    pub(crate) figures: Vec<Figures>,
    /// What the tool did, on a server with the tool.
    pub(crate) effects: Option<Effects>,
}

pub(crate) type Repeat = BTreeMap<&'static str, Run>;

struct Row {
    measure: &'static str,
    /// The value of a server, of its figures and those of the model asked directly.
    value: fn(&Run, &Run) -> Option<f64>,
    goal: Goal,
}

/// A limit for the value of holdpoint: of the value itself, or of its ratio to that of another server.
enum Goal {
    AtLeast(f64, Option<&'static str>),
    AtMost(f64, Option<&'static str>),
}

const ROWS: [Row; 13] = [
    Row {
        measure: "whole hold rounds/s, 16 at once",
        value: |run, _| run.step(HOLDS_16).map(|step| f64::from(step.done) / step.seconds),
        goal: Goal::AtLeast(1.8, Some(AI_SDK)),
    },
    Row {
        measure: "approval to the end of the answer, p50 ms, alone",
        value: |run, _| run.median(HOLDS, APPROVAL),
        goal: Goal::AtMost(1.4, Some(AI_SDK)),
    },
    Row {
        measure: "server CPU ms per hold round",
        value: |run, _| run.step(HOLDS_16).map(|step| per(step.server_cpu_s, step.done) * 1000.0),
        goal: Goal::AtMost(0.42, Some(AI_SDK)),
    },
    Row {
        measure: "database CPU ms per hold round, 16 at once",
        value: |run, _| run.step(HOLDS_16).map(|step| per(step.postgres_cpu_s, step.done) * 1000.0),
        goal: Goal::AtMost(2.5, Some(AI_SDK)),
    },
    Row {
        measure: "database CPU ms per hold round, alone",
        value: |run, _| run.step(HOLDS).map(|step| per(step.postgres_cpu_s, step.done) * 1000.0),
        goal: Goal::AtMost(4.5, Some(AI_SDK)),
    },
    Row {
        measure: "write-ahead log per hold round, KB, 16 at once",
        value: |run, _| run.step(HOLDS_16).map(|step| per(step.log_bytes, step.done) / 1000.0),
        goal: Goal::AtMost(10.0, None),
    },
    Row {
        measure: "added latency to the first token, p50 ms, alone",
        value: |run, model| run.added(FIRST_TOKEN, model),
        goal: Goal::AtMost(0.6, Some(AI_SDK)),
    },
    Row {
        measure: "added latency to the first token, p50 ms, 8 at once",
        value: |run, model| run.added(FIRST_TOKEN_8, model),
        goal: Goal::AtMost(0.6, Some(AI_SDK)),
    },
    Row {
        measure: "server CPU s per 1M tokens (200 a turn), 16 streams",
        value: |run, _| run.step(FAST).map(|step| per(step.server_cpu_s, step.done) / 200.0 * 1e6),
        goal: Goal::AtMost(1.5, Some(FLOOR_UI)),
    },
    Row {
        measure: "server CPU s per 1000 slow streams of 60 tokens",
        value: |run, _| run.all_served().map(|step| per(step.server_cpu_s, step.done) * 1000.0),
        goal: Goal::AtMost(1.75, Some(FLOOR_UI)),
    },
    Row {
        measure: "memory per slow stream, KiB",
        value: |run, _| {
            let grown = |step: &Figures| step.resident_peak_kib.saturating_sub(step.resident_before_kib);
            run.all_served()
                .map(|step| per(u32::try_from(grown(step)).map_or(f64::NAN, f64::from), step.done))
        },
        goal: Goal::AtMost(1.75, Some(FLOOR_UI)),
    },
    Row {
        measure: "chats served of 1000 started within 1.5 s",
        value: |run, _| run.step(SLOW).map(|step| f64::from(step.done)),
        goal: Goal::AtLeast(1000.0, None),
    },
    Row {
        measure: "a turn at message 400 of a thread, less one at its beginning, p50 ms",
        value: |run, _| Some(run.median(THREADS, LATE_TURN)? - run.median(THREADS, EARLY_TURN)?),
        goal: Goal::AtMost(4.0, None),
    },
];

impl Run {
    fn step(&self, name: &str) -> Option<&Figures> {
        self.figures.iter().find(|figures| figures.step == name && figures.done > 0)
    }

    /// Returns the step with slow streams, if no stream failed: streams that end early cost less.
    fn all_served(&self) -> Option<&Figures> {
        self.step(SLOW).filter(|step| step.failed == 0)
    }

    fn median(&self, step: &str, time: &str) -> Option<f64> {
        self.step(step)?.times.get(time).map(|Times { p50_ms, .. }| *p50_ms)
    }

    fn added(&self, step: &str, model: &Self) -> Option<f64> {
        Some(self.median(step, TO_FIRST_TOKEN)? - model.median(step, TO_FIRST_TOKEN)?)
    }
}

fn per(value: f64, count: u32) -> f64 {
    value / f64::from(count)
}

impl Row {
    fn median(&self, server: &str, repeats: &[Repeat]) -> Option<f64> {
        let none = Run::default();
        let value =
            |repeat: &Repeat| (self.value)(repeat.get(server)?, repeat.get(UPSTREAM).unwrap_or(&none));
        let mut values: Vec<f64> = repeats.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        let upper = values.get(values.len() / 2)?;
        let lower = values.get((values.len() - 1) / 2)?;
        Some(f64::midpoint(*lower, *upper))
    }
}

impl Goal {
    /// Returns the ratio, the goal, and whether it is met, as cells of the table. `value` gives the value of a server.
    fn cells(&self, value: impl Fn(&str) -> Option<f64>) -> [String; 3] {
        let (Self::AtLeast(limit, base) | Self::AtMost(limit, base)) = self;
        let ratio = base.and_then(|base| Some(value(HOLDPOINT)? / value(base)?));
        let judged = if base.is_some() { ratio } else { value(HOLDPOINT) };
        let (sign, met) = match self {
            Self::AtLeast(..) => ("≥", judged.map(|value| value >= *limit)),
            Self::AtMost(..) => ("≤", judged.map(|value| value <= *limit)),
        };
        let goal = base.map_or(format!("{sign} {limit}"), |base| format!("{sign} {limit} × {base}"));
        let met = met.map_or("–", |met| if met { "yes" } else { "no" });
        [ratio.map(|ratio| format!("× {}", number(ratio))).unwrap_or_default(), goal, met.to_owned()]
    }
}

/// Returns the table in Markdown.
pub(crate) fn table(repeats: &[Repeat]) -> String {
    let head = ["measure"].into_iter().chain(COLUMNS).chain(["ratio", "goal", "met"]);
    let mut lines = vec![line(head.map(str::to_owned)), format!("|---|{}", "--:|".repeat(5) + "---|---|")];
    for row in &ROWS {
        let value = |server: &str| row.median(server, repeats);
        let values = COLUMNS.map(|server| value(server).map_or_else(|| "–".to_owned(), number));
        let cells = [row.measure.to_owned()].into_iter().chain(values).chain(row.goal.cells(value));
        lines.push(line(cells));
    }
    lines.join("\n") + "\n"
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
}

/// Writes three digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Returns what makes a run worthless, or doubtful: failed chats, calls that did not run once, other work on the
/// machine.
pub(crate) fn faults(repeats: &[Repeat]) -> Vec<String> {
    /// In cores.
    const FOREIGN_MAX: f64 = 0.1;
    let mut faults = Vec::new();
    for (server, run) in repeats.iter().flatten() {
        for Figures { step, failed, errors, .. } in run.figures.iter().filter(|figures| figures.failed > 0) {
            faults.push(format!("{server}, {step}: {failed} failed: {}", errors.join("; ")));
        }
        let rounds: u32 = run
            .figures
            .iter()
            .filter(|figures| figures.times.contains_key(APPROVAL))
            .map(|figures| figures.done)
            .sum();
        if let Some(Effects { runs, calls }) = run.effects.filter(|effects| *effects != Effects::once(rounds))
        {
            faults.push(format!(
                "{server}: the tool ran {runs} times for {calls} calls; {rounds} rounds ended"
            ));
        }
    }
    let foreign = repeats.iter().flat_map(BTreeMap::values).flat_map(|run| &run.figures);
    let worst = foreign.map(|figures| figures.foreign_cores).fold(0.0, f64::max);
    if worst > FOREIGN_MAX {
        faults.push(format!("other processes used up to {worst:.2} cores; the figures are doubtful"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose rounds take this CPU time, and whose holds come at this rate.
    fn run(cpu_ms: f64, rounds: u32) -> Run {
        let step = HOLDS_16;
        let server_cpu_s = cpu_ms / 1000.0 * f64::from(rounds);
        let figures = Figures { step, done: rounds, seconds: 1.0, server_cpu_s, ..Figures::default() };
        Run { figures: vec![figures], effects: None }
    }

    fn repeat(holdpoint: Run) -> Repeat {
        Repeat::from([(UPSTREAM, Run::default()), (AI_SDK, run(9.0, 100)), (HOLDPOINT, holdpoint)])
    }

    #[test]
    fn a_row_has_the_medians_their_ratio_and_whether_the_goal_is_met() {
        let repeats = [repeat(run(2.0, 190)), repeat(run(3.96, 210)), repeat(run(90.0, 290))];
        let table = table(&repeats);
        let row = |measure: &str| table.lines().find(|line| line.contains(measure)).unwrap().to_owned();
        let rate = row("hold rounds/s");
        assert!(rate.ends_with("| – | – | 100 | 210 | × 2.10 | ≥ 1.8 × ai-sdk-7 | yes |"), "{rate}");
        let cpu = row("server CPU ms");
        assert!(cpu.ends_with("| – | – | 9.00 | 3.96 | × 0.44 | ≤ 0.42 × ai-sdk-7 | no |"), "{cpu}");
        let served = row("chats served");
        assert!(served.ends_with("| – | – | – | – |  | ≥ 1000 | – |"), "{served}");
    }

    #[test]
    fn a_call_that_ran_twice_and_a_failed_chat_are_faults() {
        let mut bad = run(1.0, 2);
        bad.effects = Some(Effects { runs: 3, calls: 2 });
        bad.figures[0].failed = 1;
        bad.figures[0].times.insert(APPROVAL, Times { count: 2, p50_ms: 1.0, p99_ms: 1.0 });
        let faults = faults(&[Repeat::from([(HOLDPOINT, bad)])]);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[1].contains("ran 3 times for 2 calls"), "{faults:?}");
    }
}
