//! Random numbers from one seed. Each actor has its own stream, so that the draws of one actor do not shift
//! those of another.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn of(seed: u64, actor: impl Hash) -> Self {
        // The keys of this hasher are zeros, so every process computes the same hash.
        let mut hasher = DefaultHasher::new();
        (seed, actor).hash(&mut hasher);
        Self(fastrand::Rng::with_seed(hasher.finish()))
    }

    /// Returns true with this probability, in percent.
    pub(crate) fn percent(&mut self, of_hundred: u32) -> bool {
        self.0.u32(0..100) < of_hundred
    }

    /// Returns a number from `from` up to `to`, exclusive, or `from` if the range is empty.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        if from < to { self.0.u64(from..to) } else { from }
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    /// Returns any item, or `None` for an empty slice.
    pub(crate) fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let last = among.len().checked_sub(1)?;
        among.get(self.0.usize(0..=last))
    }

    /// Returns an exponentially distributed wait with this mean, like the times between independent events.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.0.f64()).ln())
    }

    /// Returns an item by weight, or `None` if all weights are zero or there are no items.
    pub(crate) fn weighted<T: Copy>(&mut self, among: &[(T, u32)]) -> Option<T> {
        let total: u32 = among.iter().map(|(_, weight)| *weight).sum();
        let mut rest = self.0.u32(0..total.max(1));
        for (item, weight) in among {
            match rest.checked_sub(*weight) {
                Some(less) => rest = less,
                None => return Some(*item),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_each_actor_the_same_stream_again() {
        let draw = |actor: &str| {
            let mut random = Random::of(7, actor);
            [random.between(0, 1 << 40), random.between(0, 1 << 40)]
        };
        assert_eq!(draw("ann"), draw("ann"));
        assert_ne!(draw("ann"), draw("bob"));
    }

    #[test]
    fn what_has_no_weight_is_never_drawn() {
        let mut random = Random::of(1, "weights");
        let drawn = (0..500).filter_map(|_| random.weighted(&[('a', 0), ('b', 3), ('c', 1)]));
        let drawn: std::collections::BTreeSet<char> = drawn.collect();
        assert_eq!(drawn, ['b', 'c'].into());
        assert_eq!(random.weighted::<char>(&[]), None);
    }
}
