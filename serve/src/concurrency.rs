//! Concurrency limits by key.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

type InUse<K> = Arc<Mutex<HashMap<K, u32>>>;

/// A limit on concurrent uses for each key.
#[derive(Debug)]
pub struct ConcurrencyLimit<K> {
    max: Option<NonZeroU32>,
    in_use: InUse<K>,
}

/// One use of a key. It is released on drop.
#[derive(Debug)]
pub struct Slot<K: Eq + Hash>(Option<(K, InUse<K>)>);

impl<K: Eq + Hash + Clone> ConcurrencyLimit<K> {
    /// A limit of `max` for each key, or no limit.
    pub fn new(max: Option<NonZeroU32>) -> Self {
        Self { max, in_use: Arc::default() }
    }

    /// Takes a slot for the key `of`.
    ///
    /// # Errors
    /// The limit, if the key has no free slot.
    pub fn take(&self, of: K) -> Result<Slot<K>, NonZeroU32> {
        let Some(max) = self.max else { return Ok(Slot(None)) };
        let mut in_use = self.in_use.lock();
        let count = in_use.entry(of.clone()).or_default();
        if *count >= max.get() {
            return Err(max);
        }
        *count += 1;
        Ok(Slot(Some((of, self.in_use.clone()))))
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let Some((of, in_use)) = self.0.take() else { return };
        let mut in_use = in_use.lock();
        if let Some(count) = in_use.get_mut(&of) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                in_use.remove(&of);
            }
        }
    }
}
