//! How many of something each may have at once.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

type InUse<K> = Arc<Mutex<HashMap<K, u32>>>;

/// So many for each.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit<K> {
    max: Option<NonZeroU32>,
    taken: InUse<K>,
}

/// One of them. It is taken until this is dropped.
#[derive(Debug)]
pub(super) struct Slot<K: Eq + Hash>(Option<(K, InUse<K>)>);

impl<K: Eq + Hash + Clone> ConcurrencyLimit<K> {
    /// At most this many, or as many as there are.
    pub(super) fn new(max: Option<NonZeroU32>) -> Self {
        Self { max, taken: Arc::default() }
    }

    /// One for this one, or how many they have already.
    pub(super) fn take(&self, of: K) -> Result<Slot<K>, NonZeroU32> {
        let Some(max) = self.max else { return Ok(Slot(None)) };
        let mut taken = self.taken.lock();
        let count = taken.entry(of.clone()).or_default();
        if *count >= max.get() {
            return Err(max);
        }
        *count += 1;
        Ok(Slot(Some((of, self.taken.clone()))))
    }
}

impl<K: Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        let Some((of, taken)) = self.0.take() else { return };
        let mut taken = taken.lock();
        if let Some(count) = taken.get_mut(&of) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(&of);
            }
        }
    }
}
