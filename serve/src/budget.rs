//! Budgets for bytes in the memory of this process, with a limit for each user.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Number of users after which the budget first forgets those without bytes.
const USERS: usize = 64;

/// A number of bytes that all users of a process share. One user has at most a part of them.
#[derive(Debug)]
pub struct Budget<K> {
    free: Arc<Semaphore>,
    bytes_per_user: usize,
    users: Mutex<Users<K>>,
}

/// The free bytes of each user who has reserved some.
#[derive(Debug)]
struct Users<K> {
    free: HashMap<K, Arc<Semaphore>>,
    /// Number of users at which those without bytes are forgotten.
    forget_at: usize,
}

/// Bytes of a budget that one user holds. They are released on drop.
#[derive(Debug)]
pub struct Reserved {
    free: Free,
    held: Option<Held>,
}

/// Where the bytes of a user come from.
#[derive(Debug, Clone)]
struct Free {
    of_user: Arc<Semaphore>,
    of_all: Arc<Semaphore>,
    bytes_per_user: usize,
}

/// The same number of bytes of both.
#[derive(Debug)]
struct Held {
    of_user: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

/// The reason why bytes cannot be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// The user holds as many bytes as one user may.
    #[error("the user holds as many bytes as one user may")]
    User,
    /// All users together hold the whole budget.
    #[error("all users together hold the whole budget")]
    All,
}

/// Bytes in memory, with their reservation.
struct ReservedBytes {
    bytes: Bytes,
    _reserved: Reserved,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<K: Eq + Hash> Budget<K> {
    /// A budget of `bytes`, with at most `bytes_per_user` for one user. Both count as at most 4 GiB.
    pub fn new(bytes: usize, bytes_per_user: usize) -> Self {
        let most = usize::try_from(u32::MAX).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let (bytes, bytes_per_user) = (bytes.min(most), bytes_per_user.min(bytes).min(most));
        let users = Users { free: HashMap::new(), forget_at: USERS };
        Self { free: Arc::new(Semaphore::new(bytes)), bytes_per_user, users: Mutex::new(users) }
    }

    /// Returns an empty reservation of a user.
    pub fn of(&self, user: K) -> Reserved {
        let mut users = self.users.lock();
        if users.free.len() >= users.forget_at {
            users.free.retain(|_, free| Arc::strong_count(free) > 1);
            users.forget_at = users.free.len().saturating_mul(2).max(USERS);
        }
        let of_user = users.free.entry(user).or_insert_with(|| Arc::new(Semaphore::new(self.bytes_per_user)));
        let (of_user, of_all) = (of_user.clone(), self.free.clone());
        Reserved { free: Free { of_user, of_all, bytes_per_user: self.bytes_per_user }, held: None }
    }
}

impl Reserved {
    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.of_all.num_permits())
    }

    /// Returns an empty reservation of the same user.
    pub fn another(&self) -> Self {
        Self { free: self.free.clone(), held: None }
    }

    /// Grows the reservation to at least `bytes`. More bytes than one user may hold count as that many, so that
    /// they fit if the user holds no others.
    ///
    /// # Errors
    /// The budget has too few bytes left. The reservation does not change.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let missing = self.missing(bytes);
        if missing > 0 {
            let Free { of_user, of_all, .. } = self.free.clone();
            let of_user = of_user.try_acquire_many_owned(missing).map_err(|_| Exhausted::User)?;
            let of_all = of_all.try_acquire_many_owned(missing).map_err(|_| Exhausted::All)?;
            self.add(Held { of_user, of_all });
        }
        Ok(())
    }

    /// Grows the reservation like [`grow`](Self::grow), and waits at most `wait` until they are free. Users wait in
    /// the order in which they came; the requests of one user wait for each other first, so that they take one
    /// place in that order.
    ///
    /// # Errors
    /// The bytes did not become free in time. The reservation does not change.
    pub async fn grow_within(&mut self, bytes: usize, wait: Duration) -> Result<(), Exhausted> {
        let missing = self.missing(bytes);
        if missing > 0 {
            let Free { of_user, of_all, .. } = self.free.clone();
            let mut exhausted = Exhausted::User;
            let waiting = async {
                let of_user = of_user.acquire_many_owned(missing).await.ok()?;
                exhausted = Exhausted::All;
                let of_all = of_all.acquire_many_owned(missing).await.ok()?;
                Some(Held { of_user, of_all })
            };
            let held = timeout(wait, waiting).await.ok().flatten();
            self.add(held.ok_or(exhausted)?);
        }
        Ok(())
    }

    /// Releases all but `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let excess = self.bytes().saturating_sub(bytes);
        drop(self.split(excess));
    }

    /// Takes `bytes` out of the reservation, or all if it has fewer.
    #[must_use = "the bytes are released on drop"]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes());
        let held = self.held.as_mut().and_then(|held| {
            let (of_user, of_all) = (held.of_user.split(bytes)?, held.of_all.split(bytes)?);
            Some(Held { of_user, of_all })
        });
        Self { held, ..self.another() }
    }

    /// Ties the reservation to its bytes. It is released when the last reference to them is dropped.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ReservedBytes { bytes, _reserved: self })
    }

    fn missing(&self, bytes: usize) -> u32 {
        let missing = bytes.min(self.free.bytes_per_user).saturating_sub(self.bytes());
        u32::try_from(missing).unwrap_or(u32::MAX)
    }

    fn add(&mut self, more: Held) {
        match &mut self.held {
            Some(held) => {
                held.of_user.merge(more.of_user);
                held.of_all.merge(more.of_all);
            }
            None => self.held = Some(more),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_at_most_a_share_and_all_have_at_most_the_budget() {
        let budget = Budget::new(10, 4);
        let [mut ann, mut bob, mut eve] = ["ann", "bob", "eve"].map(|user| budget.of(user));
        assert_eq!((ann.grow(1), ann.grow(5), ann.bytes()), (Ok(()), Ok(()), 4));
        assert_eq!(budget.of("ann").grow(1), Err(Exhausted::User));
        assert_eq!(bob.grow(4), Ok(()));
        assert_eq!(eve.grow(3), Err(Exhausted::All));
        assert_eq!((eve.grow(2), eve.bytes()), (Ok(()), 2));
        drop(ann);
        assert_eq!(eve.grow(4), Ok(()));
        assert_eq!(budget.of("ann").grow(2), Ok(()));
    }

    #[test]
    fn bytes_are_released_when_the_last_piece_of_them_is_dropped() {
        let budget = Budget::new(10, 10);
        let mut reserved = budget.of("ann");
        reserved.grow(10).unwrap();
        reserved.shrink(8);
        let rest = reserved.split(3);
        assert_eq!((reserved.bytes(), rest.bytes()), (5, 3));
        let mut bytes = reserved.hold(Bytes::from_static(b"hello"));
        let first = bytes.split_to(2);
        drop(bytes);
        assert_eq!(budget.of("bob").grow(3), Err(Exhausted::All));
        drop(first);
        assert_eq!(budget.of("bob").grow(7), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_waits_until_bytes_are_released_or_its_time_is_over() {
        let budget = Budget::new(4, 2);
        let mut first = budget.of("ann");
        first.grow(2).unwrap();
        let mut second = budget.of("ann");
        assert_eq!(second.grow_within(1, Duration::from_secs(1)).await, Err(Exhausted::User));
        let (waited, ()) =
            tokio::join!(second.grow_within(1, Duration::from_secs(1)), async { first.shrink(1) });
        assert_eq!(waited, Ok(()));
        let mut others = ["bob", "eve"].map(|user| budget.of(user));
        assert_eq!(others[0].grow(2), Ok(()));
        assert_eq!(others[1].grow_within(1, Duration::from_secs(1)).await, Err(Exhausted::All));
    }

    #[test]
    fn users_without_bytes_are_forgotten() {
        let budget = Budget::new(10, 10);
        for user in 0..1000 {
            drop(budget.of(user));
        }
        assert!(budget.users.lock().free.len() <= USERS);
    }
}
