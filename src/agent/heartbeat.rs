//! Heartbeats: they renew the leases of the work of this process, and report when the work should end.
//!
//! One task keeps the time of all leases. Each renewal runs in a short task of its own: beside the work it would be
//! dropped with the work, in the middle of a transaction, and in the task of all leases one that hangs would let the
//! leases after it expire. So there are at most [`RENEWALS_MAX`] renewals at once, and each has a time limit.

use super::Tasks;
use futures::future::{BoxFuture, Shared};
use holdpoint_core::call::Execution;
use holdpoint_core::id::{RunId, ToolCallId};
use holdpoint_metrics::Metrics;
use holdpoint_store::{Lease, Polls, RenewalOutcome, Store, StoreError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// The number of renewals per lease. Two of them may fail.
const BEATS_PER_LEASE: u32 = 3;
/// The most renewals at once. More wait for one of them to end.
const RENEWALS_MAX: usize = 32;
/// The least time limit of a renewal, however short the lease is.
const RENEWAL_TIME_MIN: Duration = Duration::from_secs(1);

/// The reason why work under a lease should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// A cancel was requested.
    Cancelled,
    /// The lease is lost, and the work counts as dead.
    Lost,
    /// The process exits.
    Leaving,
}

/// Completes when the start of a turn is committed, with an error if the turn never starts.
pub(crate) type StartCommitted = Shared<oneshot::Receiver<()>>;

/// Work under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Turn(RunId),
    Call(ToolCallId),
}

/// A lease, with what its renewal needs.
#[derive(Debug, Clone)]
pub(crate) enum LeaseInForce {
    /// Of a turn. Before the commit of its start there is no lease to renew.
    Turn { lease: Arc<Lease>, start_committed: StartCommitted },
    /// Of an execution by this process.
    Execution { call: ToolCallId, execution: Execution },
    /// Of the polls of a call that a server executes.
    Polls(Box<Polls>),
}

/// The leases of this process, which renews each of them until its [`Heartbeat`] is dropped.
#[derive(Clone)]
pub(crate) struct Heartbeats(Arc<Leases>);

struct Leases {
    tasks: Tasks,
    metrics: Metrics,
    /// The time between two renewals of a lease.
    beat: Duration,
    renew: Renew,
    slots: Arc<Semaphore>,
    kept: Mutex<Kept>,
    /// A lease is due earlier than the task expects.
    due_earlier: Notify,
}

type Renew =
    Box<dyn Fn(LeaseInForce) -> BoxFuture<'static, Result<RenewalOutcome, StoreError>> + Send + Sync>;

#[derive(Default)]
struct Kept {
    last: u64,
    leases: BTreeMap<u64, KeptLease>,
    /// The leases that wait for their renewal. All wait equally long, so the first one is due first. Some are not kept any
    /// more, or were renewed early.
    due: VecDeque<DueLease>,
}

struct KeptLease {
    lease: LeaseInForce,
    halt: Arc<HaltSignal>,
    /// When the lease is due. `None` while it is renewed.
    due_at: Option<Instant>,
    /// Whether a renewal was requested while the lease was renewed.
    is_requested: bool,
}

#[derive(Clone, Copy)]
struct DueLease {
    at: Instant,
    number: u64,
}

#[derive(Debug, Default)]
struct HaltSignal {
    halt: Mutex<Option<Halt>>,
    changed: Notify,
}

/// A lease that is renewed until this value is dropped.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    heartbeats: Heartbeats,
    number: u64,
    halt: Arc<HaltSignal>,
}

impl Work {
    /// Returns the name of the kind of work, for metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Turn(_) => "turn",
            Self::Call(_) => "call",
        }
    }

    fn id(self) -> String {
        match self {
            Self::Turn(run) => run.to_string(),
            Self::Call(call) => call.to_string(),
        }
    }
}

impl LeaseInForce {
    fn work(&self) -> Work {
        match self {
            Self::Turn { lease, .. } => Work::Turn(lease.run.id),
            Self::Execution { call, .. } => Work::Call(*call),
            Self::Polls(polls) => Work::Call(polls.call),
        }
    }

    /// Renews this lease in a transaction of its own.
    async fn renew(self, store: Store, time: Duration) -> Result<RenewalOutcome, StoreError> {
        if let Self::Turn { start_committed, .. } = &self
            && start_committed.clone().await.is_err()
        {
            return Ok(RenewalOutcome::Lost);
        }
        let write = store.urgent_write().await?;
        let renewed = match &self {
            Self::Turn { lease, .. } => write.renew_turn(lease).await?,
            Self::Execution { call, execution } => write.renew_call(*call, *execution, time).await?,
            Self::Polls(polls) => write.renew_polls(polls, time).await?,
        };
        write.commit().await?;
        Ok(renewed)
    }
}

impl Heartbeats {
    /// Returns the leases of a process, none so far, each of this length. [`Heartbeats::run`] renews them.
    pub(crate) fn new(store: Store, tasks: Tasks, metrics: Metrics, lease: Duration) -> Self {
        Self::renewed_by(tasks, metrics, lease, move |kept: LeaseInForce| {
            Box::pin(kept.renew(store.clone(), lease))
        })
    }

    fn renewed_by(
        tasks: Tasks,
        metrics: Metrics,
        lease: Duration,
        renew: impl Fn(LeaseInForce) -> BoxFuture<'static, Result<RenewalOutcome, StoreError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(Leases {
            tasks,
            metrics,
            beat: lease / BEATS_PER_LEASE,
            renew: Box::new(renew),
            slots: Arc::new(Semaphore::new(RENEWALS_MAX)),
            kept: Mutex::default(),
            due_earlier: Notify::new(),
        }))
    }

    /// Renews this lease from now on, until the result is dropped.
    pub(crate) fn keep(&self, lease: LeaseInForce) -> Heartbeat {
        let halt = Arc::<HaltSignal>::default();
        let mut kept = self.0.kept.lock();
        kept.last = kept.last.wrapping_add(1);
        let number = kept.last;
        let lease = KeptLease { lease, halt: halt.clone(), due_at: None, is_requested: false };
        kept.leases.insert(number, lease);
        let is_first = kept.due.is_empty();
        kept.wait(number, self.0.beat);
        drop(kept);
        if is_first {
            self.0.due_earlier.notify_one();
        }
        Heartbeat { heartbeats: self.clone(), number, halt }
    }

    /// Renews the lease of this work now, if this process does it, and so finds a request to cancel.
    pub(crate) fn renew_now(&self, work: Work) {
        let mut kept = self.0.kept.lock();
        let working = kept.leases.iter().filter(|(_, lease)| lease.lease.work() == work);
        let working: Vec<u64> = working.map(|(number, _)| *number).collect();
        working.into_iter().for_each(|number| kept.request(number));
        drop(kept);
        self.0.due_earlier.notify_one();
    }

    /// Renews the leases when they are due, until the work of this process has ended.
    pub(crate) async fn run(self) {
        loop {
            let next = self.0.kept.lock().due.front().map(|due| due.at);
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.0.due_earlier.notified() => continue,
                () = self.0.tasks.over() => return,
            }
            let slot = tokio::select! {
                slot = self.0.slots.clone().acquire_owned() => slot,
                () = self.0.tasks.over() => return,
            };
            // The semaphore is never closed.
            let Ok(slot) = slot else { return };
            self.begin_renewal(slot);
        }
    }

    /// Begins the renewal of the first lease, if it is due.
    fn begin_renewal(&self, slot: OwnedSemaphorePermit) {
        let Some((number, lease)) = self.0.kept.lock().take_due() else { return };
        let (heartbeats, work) = (self.clone(), lease.work());
        let mut renewal = Renewal { heartbeats, number, work, outcome: RenewalOutcome::Held, _slot: slot };
        self.0.tasks.spawn(async move {
            renewal.outcome = renewal.heartbeats.outcome_of(lease).await;
            drop(renewal);
        });
    }

    /// Renews a lease. A renewal that failed is repeated, as that of a lease that holds.
    async fn outcome_of(&self, lease: LeaseInForce) -> RenewalOutcome {
        let (work, limit) = (lease.work(), self.0.beat.max(RENEWAL_TIME_MIN));
        let (kind, id) = (work.as_str(), work.id());
        match timeout(limit, (self.0.renew)(lease)).await {
            Ok(Ok(outcome)) => return outcome,
            // A lost lease shows when the database answers again.
            Ok(Err(error)) => tracing::warn!(work = kind, id, %error, "could not renew a lease"),
            Err(_elapsed) => tracing::warn!(work = kind, id, "could not renew a lease in time"),
        }
        RenewalOutcome::Held
    }
}

/// A renewal in progress. Its end is noted also if it fails in any way, so that the lease is renewed again.
struct Renewal {
    heartbeats: Heartbeats,
    number: u64,
    work: Work,
    outcome: RenewalOutcome,
    _slot: OwnedSemaphorePermit,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let leases = &self.heartbeats.0;
        let mut kept = leases.kept.lock();
        // Work that has ended meanwhile has no lease either.
        let Some(lease) = kept.leases.get_mut(&self.number) else { return };
        match self.outcome {
            RenewalOutcome::Held => {}
            RenewalOutcome::CancelRequested => lease.halt.set(Halt::Cancelled),
            RenewalOutcome::Lost => {
                lease.halt.set(Halt::Lost);
                kept.leases.remove(&self.number);
                return leases.metrics.lease_lost(self.work.as_str());
            }
        }
        kept.wait(self.number, leases.beat);
        drop(kept);
        leases.due_earlier.notify_one();
    }
}

impl fmt::Debug for Heartbeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeats").field("beat", &self.0.beat).finish_non_exhaustive()
    }
}

impl Kept {
    /// Lets a lease wait for its next renewal.
    fn wait(&mut self, number: u64, beat: Duration) {
        let Some(lease) = self.leases.get_mut(&number) else { return };
        let at = Instant::now() + beat;
        lease.due_at = Some(at);
        self.due.push_back(DueLease { at, number });
        if std::mem::take(&mut lease.is_requested) {
            self.request(number);
        }
    }

    /// Lets a lease be renewed before all others.
    fn request(&mut self, number: u64) {
        match self.leases.get_mut(&number) {
            Some(KeptLease { due_at: Some(due_at), .. }) => {
                let at = Instant::now();
                *due_at = at;
                self.due.push_front(DueLease { at, number });
            }
            Some(renewed) => renewed.is_requested = true,
            None => {}
        }
    }

    /// Takes the first lease that is due.
    fn take_due(&mut self) -> Option<(u64, LeaseInForce)> {
        let now = Instant::now();
        while let Some(DueLease { at, number }) = self.due.pop_front_if(|due| due.at <= now) {
            if let Some(lease) = self.leases.get_mut(&number)
                && lease.due_at == Some(at)
            {
                lease.due_at = None;
                return Some((number, lease.lease.clone()));
            }
        }
        None
    }
}

impl HaltSignal {
    fn set(&self, halt: Halt) {
        *self.halt.lock() = Some(halt);
        self.changed.notify_waiters();
    }

    async fn wait(&self) -> Halt {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look, so that no change is missed in between.
            changed.as_mut().enable();
            if let Some(halt) = *self.halt.lock() {
                return halt;
            }
            changed.await;
        }
    }
}

impl Heartbeat {
    /// Completes when the work should end.
    pub(crate) async fn halt(&self) -> Halt {
        tokio::select! {
            halt = self.halt.wait() => halt,
            () = self.heartbeats.0.tasks.aborted() => Halt::Leaving,
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.heartbeats.0.kept.lock().leases.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_core::clock::Timestamp;
    use holdpoint_core::id::ExecId;
    use std::collections::HashMap;
    use std::future::pending;
    use uuid::Uuid;

    const LEASE: Duration = Duration::from_secs(30);

    /// How the renewals of a call end.
    #[derive(Clone, Copy)]
    enum Renewals {
        Hold,
        Hang,
        Panic,
        AreCancelled,
        AreLost,
    }

    fn call(n: u128) -> ToolCallId {
        ToolCallId::new(Uuid::from_u128(n))
    }

    fn lease(n: u128) -> LeaseInForce {
        let id = ExecId::new(Uuid::from_u128(n));
        let execution = Execution { id, attempt: 1, started_at: Timestamp::from_micros(0) };
        LeaseInForce::Execution { call: call(n), execution }
    }

    /// The heartbeats of a process, and when each call was renewed.
    struct Process {
        heartbeats: Heartbeats,
        renewed: Arc<Mutex<HashMap<ToolCallId, Vec<Duration>>>>,
    }

    fn process(renewals: impl Fn(ToolCallId) -> Renewals + Send + Sync + 'static) -> Process {
        let (began, renewed) = (Instant::now(), Arc::<Mutex<HashMap<ToolCallId, Vec<Duration>>>>::default());
        let noted = renewed.clone();
        let renew = move |lease: LeaseInForce| -> BoxFuture<'static, _> {
            let LeaseInForce::Execution { call, .. } = lease else { panic!("{lease:?}") };
            noted.lock().entry(call).or_default().push(began.elapsed());
            let renewal = renewals(call);
            Box::pin(async move {
                match renewal {
                    Renewals::Hold => Ok(RenewalOutcome::Held),
                    Renewals::Hang => pending().await,
                    Renewals::Panic => panic!("a renewal that fails"),
                    Renewals::AreCancelled => Ok(RenewalOutcome::CancelRequested),
                    Renewals::AreLost => Ok(RenewalOutcome::Lost),
                }
            })
        };
        let tasks = Tasks::new();
        let heartbeats = Heartbeats::renewed_by(tasks.clone(), Metrics::new([], 0.0), LEASE, renew);
        tasks.spawn_background(heartbeats.clone().run());
        Process { heartbeats, renewed }
    }

    impl Process {
        fn renewed(&self, n: u128) -> Vec<u64> {
            self.renewed.lock().get(&call(n)).into_iter().flatten().map(Duration::as_secs).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_lease_is_renewed_every_third_of_it_until_its_work_ends() {
        let process = process(|_| Renewals::Hold);
        let first = process.heartbeats.keep(lease(1));
        tokio::time::sleep(Duration::from_secs(4)).await;
        let _second = process.heartbeats.keep(lease(2));
        tokio::time::sleep(Duration::from_secs(21)).await;
        drop(first);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!((process.renewed(1), process.renewed(2)), (vec![10, 20], vec![14, 24, 34, 44]));
        assert_eq!(process.heartbeats.0.kept.lock().leases.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_that_hang_or_fail_let_no_other_lease_expire_and_are_repeated() {
        let hanging = u128::try_from(RENEWALS_MAX).unwrap();
        let process = process(move |id| match id {
            id if id <= call(hanging) => Renewals::Hang,
            id if id == call(hanging + 1) => Renewals::Panic,
            _ => Renewals::Hold,
        });
        let _kept: Vec<_> = (1..=hanging + 2).map(|n| process.heartbeats.keep(lease(n))).collect();
        tokio::time::sleep(LEASE * 4).await;
        for n in [1, hanging + 1, hanging + 2] {
            let renewed = process.renewed(n);
            assert!(renewed.len() > 3, "{renewed:?}");
            let longest = renewed.windows(2).map(|two| two[1] - two[0]).max().unwrap();
            assert!(longest < LEASE.as_secs(), "lease {n} was renewed at {renewed:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_to_cancel_is_found_at_once_by_the_work_that_it_is_about() {
        let process = process(|id| if id == call(1) { Renewals::AreCancelled } else { Renewals::Hold });
        let (asked, other) = (process.heartbeats.keep(lease(1)), process.heartbeats.keep(lease(2)));
        tokio::time::sleep(Duration::from_secs(3)).await;
        process.heartbeats.renew_now(Work::Call(call(1)));
        assert_eq!(asked.halt().await, Halt::Cancelled);
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!((process.renewed(1), process.renewed(2)), (vec![3, 13], vec![10]));
        assert!(futures::FutureExt::now_or_never(other.halt()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_when_its_lease_is_lost_and_the_lease_is_not_renewed_any_more() {
        let process = process(|_| Renewals::AreLost);
        let heartbeat = process.heartbeats.keep(lease(1));
        assert_eq!(heartbeat.halt().await, Halt::Lost);
        tokio::time::sleep(LEASE).await;
        assert_eq!(process.renewed(1), [10]);
    }
}
