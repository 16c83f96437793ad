//! The CPU time and the memory of processes, from `/proc`.

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// The CPU time of all processes up to a moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    processes: HashMap<u32, Process>,
    /// The time of all processes together, the ended ones included.
    busy: Duration,
}

#[derive(Debug)]
struct Process {
    parent: u32,
    /// User and system, with the children that have ended.
    cpu: Duration,
}

impl Snapshot {
    pub(crate) fn now() -> Result<Self> {
        let mut snapshot = Self { busy: busy().context("/proc/stat")?, ..Self::default() };
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may end meanwhile.
            let process =
                fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|stat| process(&stat));
            snapshot.processes.extend(process.map(|process| (pid, process)));
        }
        Ok(snapshot)
    }

    /// Returns the CPU time of a process and its descendants between an earlier snapshot and this one.
    pub(crate) fn cpu_since(&self, earlier: &Self, root: u32) -> Duration {
        self.cpu(root).saturating_sub(earlier.cpu(root))
    }

    /// Returns the CPU time of all processes between an earlier snapshot and this one.
    pub(crate) fn busy_since(&self, earlier: &Self) -> Duration {
        self.busy.saturating_sub(earlier.busy)
    }

    pub(crate) fn parent(&self, pid: u32) -> Option<u32> {
        self.processes.get(&pid).map(|process| process.parent)
    }

    /// Returns the memory of a process and its descendants, in KiB.
    pub(crate) fn resident_kib(&self, root: u32) -> u64 {
        self.tree(root).iter().filter_map(|pid| resident_kib(*pid)).sum()
    }

    fn cpu(&self, root: u32) -> Duration {
        self.tree(root).iter().filter_map(|pid| self.processes.get(pid)).map(|process| process.cpu).sum()
    }

    fn tree(&self, root: u32) -> Vec<u32> {
        let mut found = vec![root];
        let mut next = 0;
        while let Some(parent) = found.get(next).copied() {
            found.extend(
                self.processes.iter().filter(|(_, process)| process.parent == parent).map(|(pid, _)| *pid),
            );
            next += 1;
        }
        found
    }
}

/// Reads a line of `/proc/<pid>/stat`. The name of the program, in parentheses, may have spaces.
fn process(stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Process { parent: fields.get(1)?.parse().ok()?, cpu: of_ticks(ticks) })
}

/// Returns the busy time of the machine: user, nice, system and interrupts, without idle and waiting.
fn busy() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    Some(of_ticks([0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).sum()))
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000) / clock_ticks_per_second().max(1))
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_look_like_fields() {
        let fields = "S 7 1 1 0 -1 0 0 0 0 0 100 20 3 4 20 0 1 0 5 1000 10";
        let process = process(&format!("42 (a b) c) {fields}")).unwrap();
        assert_eq!((process.parent, process.cpu), (7, of_ticks(127)));
    }
}
