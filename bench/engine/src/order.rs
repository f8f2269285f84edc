//! The order in which tracers take turns.

/// A random order (splitmix64, see `testkit::random`), so that a drift over time does not always
/// affect the same tracer.
#[derive(Debug)]
pub struct Shuffle(u64);

impl Shuffle {
    /// Makes the sequence of orders of `seed`; equal seeds give equal sequences.
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Shuffles the elements.
    pub fn order<T>(&mut self, of: &mut [T]) {
        for last in (1..of.len()).rev() {
            let other = (self.next() % (last as u64 + 1)) as usize;
            of.swap(last, other);
        }
    }
}

/// Returns a random seed, short enough to type again.
pub fn drawn_seed() -> u64 {
    Shuffle::of(trackway_sys::clock::monotonic_ns()).next() % 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_once() {
        let mut shuffle = Shuffle::of(7);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let mut order = [1, 2, 3, 4];
            shuffle.order(&mut order);
            seen.insert(order);
            order.sort_unstable();
            assert_eq!(order, [1, 2, 3, 4]);
        }
        assert!(seen.len() > 15, "{seen:?}");
    }
}
