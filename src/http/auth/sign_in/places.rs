//! Places at the issuer, for the exchange of codes. A browser that comes back from the issuer has no token yet, so
//! every client of the network may wait here.
//!
//! At most [`PLACES`] exchanges are in progress, and at most [`WAITING_MAX`] requests wait. Of those that wait, the
//! address with the fewest places is next, and of its requests the newest: a crowd of old requests delays no new one.
//! Beyond the bound a new request takes the place of the oldest one of the address with the most, which fails at once.

use crate::http::auth::network::Network;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Maximum number of codes that a process exchanges at the same time.
const PLACES: usize = 16;
/// Maximum number of requests that wait for a place.
const WAITING_MAX: usize = 32;
/// How long a request waits: longer than the issuer may take for one exchange.
const WAIT: Duration = Duration::from_secs(15);

/// The places at the issuer.
#[derive(Debug, Clone, Default)]
pub(in crate::http::auth) struct Places(Arc<Mutex<Crowd>>);

#[derive(Debug, Default)]
struct Crowd {
    /// The number of places that each network has now. A network without a place has no entry.
    taken: HashMap<Network, usize>,
    /// The oldest first.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    network: Network,
    turn: oneshot::Sender<Place>,
}

/// One place. A drop gives it to the next request.
#[derive(Debug)]
pub(in crate::http::auth) struct Place {
    network: Network,
    places: Places,
}

impl Places {
    /// Waits for a place. Returns `None` if there is none in time, or if newer requests need the room.
    pub(in crate::http::auth) async fn take(&self, network: Network) -> Option<Place> {
        let (turn, place) = oneshot::channel();
        self.enter(Waiting { network, turn });
        timeout(WAIT, place).await.ok()?.ok()
    }

    fn enter(&self, new: Waiting) {
        let mut crowd = self.0.lock();
        crowd.waiting.retain(|waiting| !waiting.turn.is_closed());
        crowd.waiting.push(new);
        if crowd.waiting.len() > WAITING_MAX {
            crowd.remove_oldest_of_the_largest();
        }
        drop(crowd);
        self.give();
    }

    /// Gives a free place to the next request, if there are both.
    fn give(&self) {
        let next = self.0.lock().next();
        let Some(Waiting { network, turn }) = next else { return };
        // If the request has gone meanwhile, the drop of the place gives it to the next one.
        let _taken = turn.send(Place { network, places: self.clone() });
    }
}

impl Crowd {
    /// Removes the next request, and counts its place as taken.
    fn next(&mut self) -> Option<Waiting> {
        if self.taken.values().sum::<usize>() >= PLACES {
            return None;
        }
        let taken = |waiting: &Waiting| self.taken.get(&waiting.network).copied().unwrap_or_default();
        let (next, _) = self.waiting.iter().enumerate().rev().min_by_key(|(_, waiting)| taken(waiting))?;
        let next = self.waiting.remove(next);
        *self.taken.entry(next.network).or_default() += 1;
        Some(next)
    }

    fn remove_oldest_of_the_largest(&mut self) {
        let mut counts = HashMap::<Network, usize>::new();
        for waiting in &self.waiting {
            *counts.entry(waiting.network).or_default() += 1;
        }
        let largest = counts.values().copied().max();
        let oldest = self.waiting.iter().position(|waiting| counts.get(&waiting.network).copied() == largest);
        if let Some(oldest) = oldest {
            // The drop of its sender ends the wait of the request.
            self.waiting.remove(oldest);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut crowd = self.places.0.lock();
        if let Some(count) = crowd.taken.get_mut(&self.network) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                crowd.taken.remove(&self.network);
            }
        }
        drop(crowd);
        self.places.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use std::net::IpAddr;

    fn at(last: u8) -> Network {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// A request that waits. `None` as its result means that it still waits.
    struct WaitingRequest(BoxFuture<'static, Option<Place>>);

    impl WaitingRequest {
        fn of(places: &Places, network: Network) -> Self {
            let places = places.clone();
            let mut asked = Self(async move { places.take(network).await }.boxed());
            assert!(asked.result().is_none(), "no place is free");
            asked
        }

        fn result(&mut self) -> Option<Option<Place>> {
            (&mut self.0).now_or_never()
        }

        fn place(&mut self) -> Place {
            self.result().expect("it has ended").expect("it has a place")
        }
    }

    async fn all_taken(places: &Places, network: Network) -> Vec<Place> {
        let mut all = Vec::new();
        for _ in 0..PLACES {
            all.push(places.take(network).await.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn the_newest_request_is_next_and_beyond_the_bound_the_oldest_fails_at_once() {
        let places = Places::default();
        let mut taken = all_taken(&places, at(1)).await;
        let mut asked: Vec<WaitingRequest> =
            (0..=WAITING_MAX).map(|_| WaitingRequest::of(&places, at(1))).collect();
        assert!(asked[0].result().expect("it has ended").is_none());
        taken.pop();
        let newest = asked.last_mut().unwrap().place();
        assert!(asked[1..WAITING_MAX].iter_mut().all(|asked| asked.result().is_none()), "they wait");
        drop(newest);
        asked[WAITING_MAX - 1].place();
    }

    #[tokio::test]
    async fn a_crowd_at_one_address_delays_no_other_address() {
        let places = Places::default();
        let mut taken = all_taken(&places, at(1)).await;
        let mut person = WaitingRequest::of(&places, at(2));
        let crowd: Vec<WaitingRequest> =
            (0..3 * WAITING_MAX).map(|_| WaitingRequest::of(&places, at(1))).collect();
        assert!(person.result().is_none(), "the crowd does not push it out");
        taken.pop();
        let place = person.place();
        drop((crowd, place));
    }

    #[tokio::test]
    async fn a_request_that_has_gone_takes_no_place() {
        let places = Places::default();
        let mut taken = all_taken(&places, at(1)).await;
        let (mut stays, goes) = (WaitingRequest::of(&places, at(1)), WaitingRequest::of(&places, at(1)));
        drop(goes);
        taken.pop();
        stays.place();
        drop(taken);
        assert!(places.0.lock().taken.is_empty());
        all_taken(&places, at(1)).await;
    }
}
