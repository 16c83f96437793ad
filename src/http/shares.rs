//! How many of something each may have at once.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;

type Taken<K> = Arc<Mutex<HashMap<K, u32>>>;

/// So many for each.
#[derive(Debug)]
pub(super) struct Shares<K> {
    max: Option<NonZeroU32>,
    taken: Taken<K>,
}

/// One of them. It is taken until this is dropped.
#[derive(Debug)]
pub(super) struct Share<K: Eq + Hash>(Option<(K, Taken<K>)>);

impl<K: Eq + Hash + Clone> Shares<K> {
    /// At most this many, or as many as there are.
    pub(super) fn new(max: Option<NonZeroU32>) -> Self {
        Self { max, taken: Arc::default() }
    }

    /// One for this one, or how many they have already.
    pub(super) fn take(&self, of: K) -> Result<Share<K>, NonZeroU32> {
        let Some(max) = self.max else { return Ok(Share(None)) };
        let mut taken = self.taken.lock();
        let count = taken.entry(of.clone()).or_default();
        if *count >= max.get() {
            return Err(max);
        }
        *count += 1;
        Ok(Share(Some((of, self.taken.clone()))))
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
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
