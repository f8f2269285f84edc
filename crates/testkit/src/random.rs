//! Random numbers from a seed: the same seed gives the same test.
//!
//! Splitmix64, after Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
//! (2014). Good enough to choose test cases, and nothing else.

/// A pseudorandom generator.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Makes a generator that starts at `seed`. Print the seed when the test fails.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which is not zero. (For small bounds the bias does not
    /// matter.)
    pub const fn next_below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true once in `times`, on average.
    pub const fn once_in(&mut self, times: u64) -> bool {
        self.next_below(times) == 0
    }

    /// Returns one of `choices`, which is not empty.
    pub const fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.next_below(choices.len() as u64) as usize;
        &choices[index]
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn gives_the_published_sequence() {
        let mut random = Random::new(1_234_567);
        let first = [random.next(), random.next(), random.next()];
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first, published);
    }

    #[test]
    fn fills_odd_lengths() {
        let mut bytes = [0; 13];
        Random::new(1).fill(&mut bytes);
        assert!(bytes[8..].iter().any(|&byte| byte != 0));
    }
}
