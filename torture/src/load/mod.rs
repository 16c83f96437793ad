//! The load: users, deciders, readers and other users, each with a random stream of its own.

mod chat;
mod decide;
mod held_calls;
mod readers;
mod users;

pub(crate) use users::Users;

use crate::clock::Micros;
use crate::http::{Disconnect, DisconnectKind, Request, Response};
use crate::random::Random;
use crate::record::{Book, FINAL_READ, Observation, Span};
use crate::rows::{CallRow, Rows};
use crate::world::{Shared, World};
use held_calls::HeldCalls;
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
    /// The number of other users that try foreign calls.
    pub(crate) other_users: usize,
    /// The percentage of deciders that disconnect in the middle of a request.
    pub(crate) disconnecting: u32,
    /// The range of the times from a request to the disconnect, in milliseconds.
    pub(crate) disconnecting_ms: (u64, u64),
    /// The percentage of slow calls, which run for about a lease or longer.
    pub(crate) slow: u32,
    /// The range of the run times of slow calls, in milliseconds.
    pub(crate) slow_ms: (u64, u64),
}

impl Amount {
    /// Draws a disconnect.
    fn disconnect(&self, random: &mut Random) -> Option<Disconnect> {
        let kind = *random.pick(&DisconnectKind::ALL)?;
        let (from, to) = self.disconnecting_ms;
        Some(Disconnect { after: random.millis(from, to), kind })
    }
}

/// The shared state of the load.
pub(crate) struct Load {
    pub(crate) world: Arc<World>,
    pub(crate) amount: Amount,
    users: Users,
    held_calls: HeldCalls,
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
        let users = Users::new()?;
        let mut load = Self {
            amount,
            users,
            held_calls: HeldCalls::default(),
            next_call: AtomicI64::new(1),
            next_name: AtomicU64::new(1),
            batches: false,
            stopping: watch::Sender::new(false),
            deciders: tokio::sync::Mutex::new(JoinSet::new()),
            world,
        };
        let owner = load.users.owner(0).clone();
        let document = load.send(0, Request::get("/openapi.json", &owner.token)).await;
        load.batches = document.is_some_and(|document| document.text.contains("/qa/validate_tools"));
        Ok(Arc::new(load))
    }

    /// Starts the tasks of the load.
    pub(crate) fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for number in 0..self.amount.users {
            clients.spawn(chat::chat(self.clone(), number));
        }
        for number in 0..self.amount.readers {
            clients.spawn(readers::read(self.clone(), number));
        }
        for number in 0..self.amount.other_users {
            clients.spawn(readers::probe(self.clone(), number));
        }
        clients
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

    fn random(&self, actor: &str, number: usize) -> Random {
        Random::of(self.shared().seed, (actor, number))
    }

    fn any_replica(&self, random: &mut Random) -> usize {
        let count = u64::try_from(self.world.replicas.len()).unwrap_or(1);
        usize::try_from(random.between(0, count)).unwrap_or_default()
    }

    fn next_call(&self) -> i64 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    fn next_name(&self) -> String {
        format!("t{}", self.next_name.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number of held calls so far.
    pub(crate) fn held_call_count(&self) -> usize {
        self.held_calls.len()
    }

    /// Returns the token of a call's owner.
    pub(crate) fn token_of(&self, rows: &Rows, call: &CallRow) -> Option<String> {
        let thread = rows.threads.iter().find(|thread| thread.thread_id == call.thread_id)?;
        self.users.owner_with_id(&thread.user_id).map(|user| user.token.clone())
    }

    /// Sends a request to a replica. `None` means that the outcome is unknown.
    pub(crate) async fn send(&self, replica: usize, request: Request) -> Option<Response> {
        self.try_send(replica, request).await.ok()
    }

    /// Like [`Self::send`], with the reason of an unknown outcome.
    async fn try_send(&self, replica: usize, request: Request) -> Result<Response, String> {
        let address = self.world.address(replica).await.ok_or("the replica is down")?;
        let response = request.send(address).await.map_err(|error| error.to_string())?;
        self.shared().progress.fetch_add(u64::from(response.status < 500), Ordering::Relaxed);
        if response.status == 500 {
            let what = format!(
                "replica {replica}: {} {} is answered with 500: {}",
                request.method, request.path, response.text
            );
            self.book().broken.lock().push((self.now(), what));
        }
        Ok(response)
    }

    /// Reads an existing resource as JSON.
    async fn fetch(
        &self,
        replica: usize,
        path: String,
        token: &str,
        what: &'static str,
    ) -> Option<(Value, Span)> {
        let started = self.now();
        let response = self.send(replica, Request { method: Method::GET, ..Request::get(path, token) }).await;
        let complete = response.filter(|response| response.cut.is_none() && response.status == 200);
        self.book().count(what, complete.is_some());
        Some((complete?.json(), Span { started, ended: self.now() }))
    }

    /// Reads a call and records its state.
    pub(crate) async fn read_call(&self, replica: usize, call: &str, token: &str) -> Option<Value> {
        self.read_and_record(replica, call, token, "tool_calls").await
    }

    /// Like [`Self::read_call`], at the end of the run.
    pub(crate) async fn read_call_at_end(&self, replica: usize, call: &str, token: &str) -> Option<Value> {
        self.read_and_record(replica, call, token, FINAL_READ).await
    }

    async fn read_and_record(
        &self,
        replica: usize,
        call: &str,
        token: &str,
        route: &'static str,
    ) -> Option<Value> {
        let (shown, span) = self.fetch(replica, format!("/tool_calls/{call}"), token, "tool_call").await?;
        self.book().observations.lock().extend(Observation::of(&shown, replica, route, span));
        Some(shown)
    }
}
