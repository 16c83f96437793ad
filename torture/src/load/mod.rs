//! The load: users, deciders, readers and strangers, each with a random stream of its own.

mod board;
mod decide;
mod look;
mod people;
mod talk;

pub(crate) use people::People;

use crate::chance::Chance;
use crate::clock::Micros;
use crate::http::{Ask, Reply};
use crate::record::{Book, LAST_LOOK, Sight, Span};
use crate::rows::{CallRow, Rows};
use crate::world::{Shared, World};
use board::Board;
use hyper::Method;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The amount of load.
#[derive(Debug, Clone)]
pub(crate) struct Amount {
    /// The number of users that chat.
    pub(crate) users: usize,
    /// The number of readers of calls.
    pub(crate) readers: usize,
    /// The number of strangers that try foreign calls.
    pub(crate) strangers: usize,
    /// The percentage of deciders that disconnect in the middle of a request.
    pub(crate) leaving: u32,
    /// The range of the times from a request to the disconnect, in milliseconds.
    pub(crate) leaving_ms: (u64, u64),
    /// The percentage of slow calls, which run for about a lease or longer.
    pub(crate) slow: u32,
    /// The range of the run times of slow calls, in milliseconds.
    pub(crate) slow_ms: (u64, u64),
}

/// The shared state of the load.
pub(crate) struct Load {
    pub(crate) world: Arc<World>,
    pub(crate) amount: Amount,
    people: People,
    board: Board,
    /// The number of the next call, unique in the run.
    next_call: AtomicI64,
    next_name: AtomicU64,
    /// Whether the server has the route for several decisions in one request.
    batches: bool,
    stopping: watch::Sender<bool>,
    /// The tasks of the deciders, which outlive the turn of their call.
    deciders: tokio::sync::Mutex<JoinSet<()>>,
}

impl Load {
    pub(crate) async fn new(world: Arc<World>, amount: Amount) -> anyhow::Result<Arc<Self>> {
        let people = People::new()?;
        let mut load = Self {
            amount,
            people,
            board: Board::default(),
            next_call: AtomicI64::new(1),
            next_name: AtomicU64::new(1),
            batches: false,
            stopping: watch::Sender::new(false),
            deciders: tokio::sync::Mutex::new(JoinSet::new()),
            world,
        };
        let owner = load.people.owner(0).clone();
        let document = load.ask(0, Ask::get("/openapi.json", &owner.token)).await;
        load.batches = document.is_some_and(|document| document.text.contains("/qa/validate_tools"));
        Ok(Arc::new(load))
    }

    /// Starts the tasks of the load.
    pub(crate) fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut everybody = JoinSet::new();
        for number in 0..self.amount.users {
            everybody.spawn(talk::talk(self.clone(), number));
        }
        for number in 0..self.amount.readers {
            everybody.spawn(look::read(self.clone(), number));
        }
        for number in 0..self.amount.strangers {
            everybody.spawn(look::pry(self.clone(), number));
        }
        everybody
    }

    /// Stops the load: its tasks end before their next request.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits for the deciders for at most this time, and then aborts them.
    pub(crate) async fn deciders_done(&self, time: Duration) {
        let mut deciders = std::mem::take(&mut *self.deciders.lock().await);
        let _late = timeout(time, async { while deciders.join_next().await.is_some() {} }).await;
        deciders.shutdown().await;
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    pub(crate) fn book(&self) -> &Book {
        &self.shared().book
    }

    fn shared(&self) -> &Shared {
        &self.world.shared
    }

    fn now(&self) -> Micros {
        self.shared().clock.now()
    }

    fn chance(&self, actor: &str, number: usize) -> Chance {
        Chance::of(self.shared().seed, (actor, number))
    }

    fn any_replica(&self, chance: &mut Chance) -> usize {
        let count = u64::try_from(self.world.replicas.len()).unwrap_or(1);
        usize::try_from(chance.between(0, count)).unwrap_or_default()
    }

    fn next_call(&self) -> i64 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    fn next_name(&self) -> String {
        format!("t{}", self.next_name.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number of held calls so far.
    pub(crate) fn calls_known(&self) -> usize {
        self.board.len()
    }

    /// Returns the token of a call's owner.
    pub(crate) fn token_of(&self, rows: &Rows, call: &CallRow) -> Option<String> {
        let thread = rows.threads.iter().find(|thread| thread.thread_id == call.thread_id)?;
        self.people.owned_by(&thread.user_id).map(|person| person.token.clone())
    }

    /// Sends a request to a replica. `None` means that the outcome is unknown.
    pub(crate) async fn ask(&self, replica: usize, ask: Ask) -> Option<Reply> {
        self.try_to_ask(replica, ask).await.ok()
    }

    /// Like [`Self::ask`], with the reason of an unknown outcome.
    async fn try_to_ask(&self, replica: usize, ask: Ask) -> Result<Reply, String> {
        let address = self.world.address(replica).await.ok_or("the replica is down")?;
        let reply = ask.send(address).await.map_err(|error| error.to_string())?;
        self.shared().progress.fetch_add(u64::from(reply.status < 500), Ordering::Relaxed);
        if reply.status == 500 {
            let what = format!(
                "replica {replica}: {} {} is answered with 500: {}",
                ask.method, ask.path, reply.text
            );
            self.book().broken.lock().push((self.now(), what));
        }
        Ok(reply)
    }

    /// Reads an existing resource as JSON.
    async fn fetch(
        &self,
        replica: usize,
        path: String,
        token: &str,
        what: &'static str,
    ) -> Option<(Value, Span)> {
        let begun = self.now();
        let reply = self.ask(replica, Ask { method: Method::GET, ..Ask::get(path, token) }).await;
        let whole = reply.filter(|reply| reply.cut.is_none() && reply.status == 200);
        self.book().count(what, whole.is_some());
        Some((whole?.json(), Span { begun, ended: self.now() }))
    }

    /// Reads a call and records its state.
    pub(crate) async fn look_at(&self, replica: usize, call: &str, token: &str) -> Option<Value> {
        self.see(replica, call, token, "tool_calls").await
    }

    /// Like [`Self::look_at`], at the end of the run.
    pub(crate) async fn look_again(&self, replica: usize, call: &str, token: &str) -> Option<Value> {
        self.see(replica, call, token, LAST_LOOK).await
    }

    async fn see(&self, replica: usize, call: &str, token: &str, route: &'static str) -> Option<Value> {
        let (shown, span) = self.fetch(replica, format!("/tool_calls/{call}"), token, "look").await?;
        self.book().sights.lock().extend(Sight::of(&shown, replica, route, span));
        Some(shown)
    }
}
