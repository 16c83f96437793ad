//! The claims of workers that wait in this process for a call.
//!
//! A call that may be claimed wakes one claim, which looks at the rows, and not all of them. A claim that leaves with a
//! wake that it has not used passes the wake on: no call waits because the client of a woken claim has gone, or because
//! the claim got another call.

use holdpoint_core::id::ToolCallId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// The claims of a process that look at the rows at once. Each uses a connection of chats.
const LOOKS_MAX: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ToolOf {
    tenant_id: String,
    tool: String,
}

/// What a wake is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// This call may be claimed.
    One(ToolCallId),
    /// Calls may have become claimable, in any number: a claim that gets one wakes another claim.
    Some,
}

/// The wakes that a claim has not used, at most one for each tool.
type Wakes = BTreeMap<ToolOf, Wake>;

#[derive(Debug, Default)]
struct Waiting {
    /// The wakes since the beginning of its last look.
    woken: Wakes,
    /// The wakes of the look that it does now.
    looking: Wakes,
    signal: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Queue {
    last: u64,
    claims: HashMap<u64, Waiting>,
    /// The claims that name each tool, the oldest first.
    of_tool: HashMap<ToolOf, BTreeSet<u64>>,
}

impl Queue {
    /// Gives a wake to the oldest claim without one, or else to the oldest, which looks again.
    fn wake(&mut self, tool: &ToolOf, wake: Wake) {
        let Some(claims) = self.of_tool.get(tool) else { return };
        let is_idle = |id: &&u64| {
            self.claims.get(*id).is_some_and(|claim| claim.woken.is_empty() && claim.looking.is_empty())
        };
        let chosen = claims.iter().find(is_idle).or_else(|| claims.first()).copied();
        self.give(chosen, tool, wake);
    }

    fn give(&mut self, chosen: Option<u64>, tool: &ToolOf, wake: Wake) {
        let Some(claim) = chosen.and_then(|id| self.claims.get_mut(&id)) else { return };
        // Of two wakes one claim can use one, and passes the rest on.
        claim.woken.entry(tool.clone()).and_modify(|both| *both = Wake::Some).or_insert(wake);
        claim.signal.notify_one();
    }
}

/// The waiting claims of one process.
#[derive(Debug, Clone)]
pub(super) struct ClaimQueue {
    queue: Arc<Mutex<Queue>>,
    looks: Arc<Semaphore>,
}

impl Default for ClaimQueue {
    fn default() -> Self {
        Self { queue: Arc::default(), looks: Arc::new(Semaphore::new(LOOKS_MAX)) }
    }
}

impl ClaimQueue {
    /// Adds a claim of these tools, which waits until it is dropped.
    pub(super) fn wait(&self, tenant_id: &str, tools: &[String]) -> WaitingClaim {
        let of_tenant = |tool: &String| ToolOf { tenant_id: tenant_id.to_owned(), tool: tool.clone() };
        let tools: BTreeSet<ToolOf> = tools.iter().map(of_tenant).collect();
        let mut queue = self.queue.lock();
        queue.last += 1;
        let id = queue.last;
        let claim = Waiting::default();
        let signal = claim.signal.clone();
        queue.claims.insert(id, claim);
        for tool in &tools {
            queue.of_tool.entry(tool.clone()).or_default().insert(id);
        }
        WaitingClaim { queue: self.clone(), id, tools, signal }
    }

    pub(super) fn wake(&self, tenant_id: String, tool: String, call: ToolCallId) {
        self.queue.lock().wake(&ToolOf { tenant_id, tool }, Wake::One(call));
    }

    /// Wakes the oldest claim of each tool: for calls that other processes approved.
    pub(super) fn wake_one_of_each(&self) {
        let mut queue = self.queue.lock();
        let oldest = |(tool, claims): (&ToolOf, &BTreeSet<u64>)| (tool.clone(), claims.first().copied());
        let oldest: Vec<_> = queue.of_tool.iter().map(oldest).collect();
        for (tool, chosen) in oldest {
            queue.give(chosen, &tool, Wake::Some);
        }
    }

    /// Completes when the claim may look at the rows.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.looks.acquire().await.ok()
    }
}

/// The place of a claim in the queue. A drop leaves the queue, and passes on the wakes that the claim has not used.
#[derive(Debug)]
pub(super) struct WaitingClaim {
    queue: ClaimQueue,
    id: u64,
    tools: BTreeSet<ToolOf>,
    signal: Arc<Notify>,
}

impl WaitingClaim {
    /// Completes after a wake since the beginning of the last look.
    pub(super) async fn woken(&self) {
        let has_wakes =
            || self.queue.queue.lock().claims.get(&self.id).is_some_and(|claim| !claim.woken.is_empty());
        while !has_wakes() {
            self.signal.notified().await;
        }
    }

    /// Called before each look at the rows. A wake from now on leads to another look.
    pub(super) fn looks(&self) {
        if let Some(claim) = self.queue.queue.lock().claims.get_mut(&self.id) {
            claim.looking = std::mem::take(&mut claim.woken);
        }
    }

    /// Called after a look that found no call for this claim.
    pub(super) fn found_none(&self) {
        if let Some(claim) = self.queue.queue.lock().claims.get_mut(&self.id) {
            claim.looking.clear();
        }
    }

    /// Called after the claim got this call.
    pub(super) fn got(&self, call: ToolCallId) {
        if let Some(claim) = self.queue.queue.lock().claims.get_mut(&self.id) {
            let is_left = |_: &ToolOf, wake: &mut Wake| *wake != Wake::One(call);
            claim.looking.retain(is_left);
            claim.woken.retain(is_left);
        }
    }
}

impl Drop for WaitingClaim {
    fn drop(&mut self) {
        let mut queue = self.queue.queue.lock();
        for tool in &self.tools {
            if let Some(claims) = queue.of_tool.get_mut(tool) {
                claims.remove(&self.id);
                if claims.is_empty() {
                    queue.of_tool.remove(tool);
                }
            }
        }
        let Some(Waiting { woken, looking, .. }) = queue.claims.remove(&self.id) else { return };
        for (tool, wake) in looking.into_iter().chain(woken) {
            queue.wake(&tool, wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use uuid::Uuid;

    fn call(n: u128) -> ToolCallId {
        ToolCallId::new(Uuid::from_u128(n))
    }

    fn claim(queue: &ClaimQueue, tools: &[&str]) -> WaitingClaim {
        let tools: Vec<_> = tools.iter().map(|tool| (*tool).to_owned()).collect();
        queue.wait("acme", &tools)
    }

    fn wake(queue: &ClaimQueue, tool: &str, n: u128) {
        queue.wake("acme".to_owned(), tool.to_owned(), call(n));
    }

    fn woken(claims: &[&WaitingClaim]) -> Vec<bool> {
        claims.iter().map(|claim| claim.woken().now_or_never().is_some()).collect()
    }

    #[test]
    fn each_call_wakes_one_claim_of_its_tool_and_tenant() {
        let queue = ClaimQueue::default();
        let (pack, ship, both) =
            (claim(&queue, &["pack"]), claim(&queue, &["ship"]), claim(&queue, &["pack", "ship"]));
        let elsewhere = queue.wait("other", &["ship".to_owned()]);
        let all = [&pack, &ship, &both, &elsewhere];
        wake(&queue, "ship", 1);
        assert_eq!(woken(&all), [false, true, false, false]);
        wake(&queue, "ship", 2);
        assert_eq!(woken(&all), [false, true, true, false]);
        wake(&queue, "none", 3);
        assert_eq!(woken(&all), [false, true, true, false]);
        wake(&queue, "pack", 4);
        assert_eq!(woken(&all), [true, true, true, false]);
    }

    #[test]
    fn a_wake_is_passed_on_by_a_claim_that_leaves_before_or_during_its_look() {
        let queue = ClaimQueue::default();
        for looks in [false, true] {
            let (first, second) = (claim(&queue, &["ship"]), claim(&queue, &["ship"]));
            wake(&queue, "ship", 1);
            if looks {
                first.looks();
            }
            assert_eq!(woken(&[&second]), [false]);
            drop(first);
            assert_eq!(woken(&[&second]), [true], "{looks}");
        }
    }

    #[test]
    fn a_wake_is_used_by_the_claim_that_gets_its_call_or_finds_none() {
        let queue = ClaimQueue::default();
        for finds in [false, true] {
            let (first, second) = (claim(&queue, &["ship"]), claim(&queue, &["ship"]));
            wake(&queue, "ship", 1);
            first.looks();
            if finds {
                first.got(call(1));
            } else {
                first.found_none();
            }
            drop(first);
            assert_eq!(woken(&[&second]), [false], "{finds}");
        }
    }

    #[test]
    fn a_claim_that_gets_another_call_passes_its_wake_on() {
        let queue = ClaimQueue::default();
        let (first, second) = (claim(&queue, &["pack", "ship"]), claim(&queue, &["ship"]));
        wake(&queue, "ship", 1);
        first.looks();
        first.got(call(7));
        drop(first);
        assert_eq!(woken(&[&second]), [true]);
    }

    #[test]
    fn a_wake_during_a_look_leads_to_another_look_or_is_passed_on() {
        let queue = ClaimQueue::default();
        let first = claim(&queue, &["ship"]);
        first.looks();
        wake(&queue, "ship", 1);
        first.found_none();
        assert_eq!(woken(&[&first]), [true]);
        first.looks();
        // It comes while the only claim looks for the other call.
        wake(&queue, "ship", 2);
        first.got(call(1));
        let second = claim(&queue, &["ship"]);
        drop(first);
        assert_eq!(woken(&[&second]), [true]);
    }

    #[test]
    fn calls_of_other_processes_wake_one_claim_of_each_tool_and_then_another_for_each_call_found() {
        let queue = ClaimQueue::default();
        let (pack, both, ship) =
            (claim(&queue, &["pack"]), claim(&queue, &["pack", "ship"]), claim(&queue, &["ship"]));
        queue.wake_one_of_each();
        assert_eq!(woken(&[&pack, &both, &ship]), [true, true, false]);
        pack.looks();
        pack.found_none();
        both.looks();
        both.got(call(1));
        drop(both);
        assert_eq!(woken(&[&pack, &ship]), [false, true]);
        ship.looks();
        ship.found_none();
        drop(ship);
        assert_eq!(woken(&[&pack]), [false]);
    }

    #[test]
    fn a_queue_without_claims_is_empty() {
        let queue = ClaimQueue::default();
        drop([claim(&queue, &["pack", "ship"]), claim(&queue, &["ship"])]);
        let queue = queue.queue.lock();
        assert!(queue.claims.is_empty() && queue.of_tool.is_empty());
    }
}
