//! Runs a step against a server and measures it.

use crate::client::{Client, Stream};
use crate::machine::Snapshot;
use crate::plan::{Answer, Step, Work};
use crate::upstream::FINAL_TOKENS;
use crate::wire::{HeldCall, Wire};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A server under load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) wire: Wire,
}

/// The processes whose CPU time is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Processes {
    pub(crate) server: u32,
    pub(crate) postgres: u32,
    pub(crate) model: u32,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) step: &'static str,
    pub(crate) done: u32,
    pub(crate) failed: u32,
    /// Some of the failures.
    pub(crate) errors: Vec<String>,
    pub(crate) tokens: u64,
    pub(crate) seconds: f64,
    pub(crate) server_cpu_s: f64,
    pub(crate) postgres_cpu_s: f64,
    /// The write-ahead log of Postgres.
    pub(crate) log_bytes: f64,
    /// The model and the clients.
    pub(crate) driver_cpu_s: f64,
    /// The cores that other processes used. Above 0.1 the times are doubtful.
    pub(crate) foreign_cores: f64,
    pub(crate) resident_before_kib: u64,
    pub(crate) resident_peak_kib: u64,
    pub(crate) times: BTreeMap<&'static str, Times>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) count: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// From the request of a chat to its first token.
pub(crate) const TO_FIRST_TOKEN: &str = "to first token";
/// From the request of a chat to its end.
pub(crate) const TO_END: &str = "to end";
/// From the request of a chat to the end of the stream that asks for an approval.
const TO_HOLD: &str = "to hold";
/// From the approval to the end of the answer.
pub(crate) const APPROVAL: &str = "approval";
/// The first turns of a long thread.
pub(crate) const EARLY_TURN: &str = "early turn";
/// The last turns of a long thread.
pub(crate) const LATE_TURN: &str = "late turn";

/// As many turns count as the first ones, and as the last ones, of a long thread.
const TURNS_AT_END: u32 = 5;

/// A chat that takes longer has failed.
const CHAT_TIMEOUT: Duration = Duration::from_secs(60);

/// A client gives up after as many failures.
const FAILURES_MAX: u32 = 20;

/// A pause before each step, for the server to finish the work of the step before.
const SETTLE: Duration = Duration::from_millis(300);

/// The interval at which the memory of the server is read.
const MEMORY_INTERVAL: Duration = Duration::from_millis(200);

/// Runs a step. Failures of the server are figures too.
pub(crate) async fn run(server: Server, step: Step, processes: Processes) -> Result<Figures> {
    sleep(SETTLE).await;
    let before = Snapshot::now()?;
    let resident_before_kib = before.resident_kib(processes.server);
    let mut resident_peak_kib = resident_before_kib;
    let began = Instant::now();
    let mut work = pin!(work(server, step.work));
    let tally = loop {
        tokio::select! {
            tally = &mut work => break tally,
            () = sleep(MEMORY_INTERVAL) => {
                resident_peak_kib = resident_peak_kib.max(before.resident_kib(processes.server));
            }
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    let after = Snapshot::now()?;
    let cpu = |process| after.cpu_since(&before, process).as_secs_f64();
    let server_cpu_s = cpu(processes.server);
    let postgres_cpu_s = cpu(processes.postgres);
    // The servers are descendants of this process, but Postgres is not.
    let own_cpu_s = cpu(std::process::id());
    let all_cpu_s = after.busy_since(&before).as_secs_f64();
    Ok(Figures {
        step: step.name,
        done: tally.done,
        failed: tally.failed,
        errors: tally.errors,
        tokens: tally.tokens,
        seconds,
        server_cpu_s,
        postgres_cpu_s,
        log_bytes: 0.0,
        driver_cpu_s: own_cpu_s - if processes.server == processes.model { 0.0 } else { server_cpu_s },
        foreign_cores: (all_cpu_s - own_cpu_s - postgres_cpu_s).max(0.0) / seconds,
        resident_before_kib,
        resident_peak_kib,
        times: tally.times.into_iter().map(|(name, times)| (name, Times::of(times))).collect(),
    })
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let quantile = |percent: usize| {
            let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
        };
        Self { count: times.len(), p50_ms: quantile(50), p99_ms: quantile(99) }
    }
}

/// The results of clients.
#[derive(Debug, Default)]
struct Tally {
    done: u32,
    failed: u32,
    errors: Vec<String>,
    tokens: u64,
    times: BTreeMap<&'static str, Vec<Duration>>,
}

impl Tally {
    fn time(&mut self, name: &'static str, time: Duration) {
        self.times.entry(name).or_default().push(time);
    }

    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.tokens += other.tokens;
        self.errors.extend(other.errors);
        self.errors.truncate(4);
        for (name, times) in other.times {
            self.times.entry(name).or_default().extend(times);
        }
    }

    fn count(&mut self, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(error) => {
                self.failed += 1;
                self.errors.push(format!("{error:#}").chars().take(500).collect());
            }
        }
    }
}

async fn work(server: Server, work: Work) -> Tally {
    let began = Instant::now();
    let mut clients = JoinSet::new();
    match work {
        Work::Chats { at_once, answer, time } => {
            for n in 0..at_once {
                // The tokens of the clients should not arrive together.
                let from = began + answer.pause * n / at_once;
                clients.spawn(repeat(server, Action::Chat(answer), from, began + time));
            }
        }
        Work::Holds { at_once, time } => {
            for _ in 0..at_once {
                clients.spawn(repeat(server, Action::Round, began, began + time));
            }
        }
        Work::Burst { chats, answer, within } => {
            for n in 0..chats {
                let from = began + within * n / chats;
                clients.spawn(repeat(server, Action::Chat(answer), from, from));
            }
        }
        Work::Threads { threads, turns, answer } => {
            clients.spawn(async move {
                let mut tally = Tally::default();
                for _ in 0..threads {
                    let outcome = User::of(server).thread(turns, answer, &mut tally).await;
                    tally.count(outcome);
                }
                tally
            });
        }
    }
    let mut all = Tally::default();
    while let Some(client) = clients.join_next().await {
        match client {
            Ok(tally) => all.add(tally),
            Err(error) => all.count(Err(error.into())),
        }
    }
    all
}

/// What a user does again and again.
#[derive(Debug, Clone, Copy)]
enum Action {
    Chat(Answer),
    Round,
}

/// Repeats an action of one user from a time until another, at least once.
async fn repeat(server: Server, action: Action, from: Instant, until: Instant) -> Tally {
    let (mut user, mut tally) = (User::of(server), Tally::default());
    sleep_until(from).await;
    loop {
        let outcome = timeout(CHAT_TIMEOUT, user.act(action, &mut tally)).await;
        let outcome = outcome.unwrap_or_else(|elapsed| Err(elapsed.into()));
        if outcome.is_err() {
            user = User::of(server);
        }
        tally.count(outcome);
        if Instant::now() >= until || tally.failed >= FAILURES_MAX {
            return tally;
        }
    }
}

/// A user with a connection.
struct User {
    wire: Wire,
    client: Client,
}

impl User {
    fn of(server: Server) -> Self {
        Self { wire: server.wire, client: Client::new(server.port) }
    }

    async fn act(&mut self, action: Action, tally: &mut Tally) -> Result<()> {
        match action {
            Action::Chat(answer) => self.chat(answer, tally).await,
            Action::Round => self.round(tally).await,
        }
    }

    /// Has one turn in a new chat.
    async fn chat(&mut self, answer: Answer, tally: &mut Tally) -> Result<()> {
        let stream = self.turn(&new_id("chat"), answer).await?;
        tally.tokens += stream.tokens;
        tally.time(TO_FIRST_TOKEN, stream.first_token.context("no token")?);
        tally.time(TO_END, stream.total);
        Ok(())
    }

    /// Has one turn whose call is held, approves the call, and reads the rest of the answer.
    async fn round(&mut self, tally: &mut Tally) -> Result<()> {
        let chat = new_id("chat");
        let message = self.wire.message(&chat, &new_id("message"), "tool:delete_file");
        let stream = self.client.post(self.wire.path(), &message).await?;
        let approval = self.wire.approval(&chat, &HeldCall::of_stream(&stream.body)?);
        let rest = self.client.post(self.wire.path(), &approval).await.context("approval")?;
        ensure!(rest.tokens == FINAL_TOKENS, "{} tokens after the approval", rest.tokens);
        tally.time(TO_HOLD, stream.total);
        tally.time(APPROVAL, rest.total);
        Ok(())
    }

    /// Has many turns in a new thread.
    async fn thread(&mut self, turns: u32, answer: Answer, tally: &mut Tally) -> Result<()> {
        let thread = new_id("chat");
        for turn in 0..turns {
            let stream = timeout(CHAT_TIMEOUT, self.turn(&thread, answer)).await??;
            if turn < TURNS_AT_END {
                tally.time(EARLY_TURN, stream.total);
            }
            if turn + TURNS_AT_END >= turns {
                tally.time(LATE_TURN, stream.total);
            }
        }
        Ok(())
    }

    async fn turn(&mut self, chat: &str, answer: Answer) -> Result<Stream> {
        let Answer { tokens, pause } = answer;
        let text = format!("plain:{tokens}:{}", pause.as_millis());
        let message = self.wire.message(chat, &new_id("message"), &text);
        let stream = self.client.post(self.wire.path(), &message).await?;
        ensure!(stream.tokens == u64::from(tokens), "{} tokens of {tokens}", stream.tokens);
        Ok(stream)
    }
}

/// Returns an id that is new in this process. Each server has a database of its own.
fn new_id(kind: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("{kind}-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times = Times::of((1..=200).rev().map(Duration::from_millis).collect());
        assert_eq!((times.count, times.p50_ms, times.p99_ms), (200, 100.0, 198.0));
        assert_eq!(Times::of(vec![Duration::from_millis(7)]).p99_ms, 7.0);
    }
}
