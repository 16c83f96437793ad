//! The minimum that a run has to see. A run without kills, races and outages proves nothing by finding no
//! violations.

use crate::figures::Figures;
use crate::mix::Db;
use crate::world::REMOTE;

/// A minimum for each minute of harm, on two cores with other load.
struct Gate {
    what: &'static str,
    seen: u64,
    /// The minimum per minute.
    expected: f64,
}

/// Returns a text for each minimum that a run missed.
pub(crate) fn too_few(figures: &Figures, db: Db, minutes: f64) -> Vec<String> {
    let on_postgres = |expected: f64| if db == Db::Postgres { expected } else { 0.0 };
    let state = |name: &str| figures.states.get(name).copied().unwrap_or_default() as u64;
    let gate = |what, seen: usize, expected| Gate { what, seen: seen as u64, expected };
    let mut gates = vec![
        gate("calls that a person decided", figures.decided, 15.0),
        gate("kills", figures.kills, 5.0),
        gate("kills in mid-tool", figures.kills_in_mid_tool, 1.0),
        gate("processes paused for longer than a lease", figures.zombies, 2.0),
        gate("decisions that lost a race", figures.races_lost, 10.0),
        gate("kills of remote tools", figures.remote_kills, 1.0),
        gate("calls with an acknowledged report", figures.reported, 3.0),
        gate("outages of the database", figures.outages, 1.0),
        gate("tries of other users", figures.other_users, 15.0),
        Gate { what: "commits without an answer", seen: figures.unknown_commits, expected: 1.0 },
        Gate { what: "connections lost", seen: figures.cuts, expected: on_postgres(2.0) },
    ];
    for tool in REMOTE {
        let ran = figures.ran.get(tool).copied().unwrap_or_default();
        gates.push(Gate { what: tool, seen: ran as u64, expected: 2.0 });
    }
    for name in ["succeeded", "failed", "interrupted", "rejected", "expired", "cancelled", "invalid"] {
        gates.push(Gate { what: name, seen: state(name), expected: 1.0 });
    }
    let mut missing: Vec<String> = gates.iter().filter_map(|gate| gate.missing(minutes)).collect();
    if figures.ok_share < 40.0 {
        missing.push(format!("answers that are no failure: {:.0} %, at least 40 % wanted", figures.ok_share));
    }
    for (action, expected) in [("die", 1.0), ("refuse", 0.5), ("lose", 0.5), ("pause", 1.0)] {
        let seen = figures.strikes.get(action).copied().unwrap_or_default() as u64;
        missing.extend(Gate { what: action, seen, expected }.missing(minutes));
    }
    let passed = |name: &str| figures.points.get(name).is_some_and(|(passed, _)| *passed > 0);
    // A run of less than a minute does not pass all failpoints.
    let points: &[&str] = if minutes < 1.0 { &[] } else { &crate::mix::POINTS };
    for point in points {
        for side in ["before", "after"] {
            let name = format!("{side}:{point}");
            if !passed(&name) {
                missing.push(format!("the failpoint {name} was never passed"));
            }
        }
    }
    missing
}

impl Gate {
    fn missing(&self, minutes: f64) -> Option<String> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let expected = ((self.expected * minutes).floor() as u64).max(u64::from(self.expected > 0.0));
        (self.seen < expected).then(|| format!("{}: {}, at least {expected} wanted", self.what, self.seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enough() -> Figures {
        let states = ["succeeded", "failed", "interrupted", "rejected", "expired", "cancelled", "invalid"];
        let sides = ["before", "after"];
        let points = crate::mix::POINTS.iter().flat_map(|it| sides.map(|side| format!("{side}:{it}")));
        Figures {
            decided: 1000,
            kills: 1000,
            kills_in_mid_tool: 1000,
            zombies: 1000,
            races_lost: 1000,
            outages: 1000,
            remote_kills: 1000,
            reported: 1000,
            ran: REMOTE.map(|tool| (tool.to_owned(), 1000)).into(),
            other_users: 1000,
            unknown_commits: 1000,
            cuts: 1000,
            ok_share: 90.0,
            states: states.map(|state| (state.to_owned(), 1000)).into(),
            points: points.map(|point| (point, (1, 0))).collect(),
            strikes: ["die", "refuse", "lose", "pause"].map(|action| (action.to_owned(), 1000)).into(),
            ..Figures::default()
        }
    }

    #[test]
    fn a_run_that_saw_enough_passes_and_one_that_saw_nothing_does_not() {
        assert!(too_few(&enough(), Db::Postgres, 2.0).is_empty());
        assert!(too_few(&Figures::default(), Db::Sqlite, 2.0).len() > 20);
    }

    #[test]
    fn a_missed_minimum_is_named() {
        let few = Figures { kills_in_mid_tool: 1, ..enough() };
        assert_eq!(too_few(&few, Db::Postgres, 2.0), ["kills in mid-tool: 1, at least 2 wanted"]);
        let mut unpassed = enough();
        unpassed.points.remove("after:tool.started");
        let expected = ["the failpoint after:tool.started was never passed"];
        assert_eq!(too_few(&unpassed, Db::Postgres, 2.0), expected);
        let dead = Figures { ok_share: 20.0, ..enough() };
        assert_eq!(too_few(&dead, Db::Sqlite, 2.0).len(), 1);
    }
}
