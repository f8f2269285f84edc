//! Messages told once: every look at a growing trace finds the same damage and the same losses
//! again.

use std::collections::{HashSet, VecDeque};
use std::io::{self, Write};

/// How many messages are remembered; older ones may be told again.
const REMEMBERED: usize = 4096;

/// What was told.
#[derive(Default)]
pub(crate) struct Told {
    told: HashSet<Vec<u8>>,
    order: VecDeque<Vec<u8>>,
    /// What the latest look said that may be passing.
    doubted: HashSet<Vec<u8>>,
    damage: bool,
}

impl Told {
    /// Tells the lines `said` that were not told before to `messages`; those of which there is
    /// `doubt` only if they were said the last time, too.
    pub(crate) fn say(
        &mut self,
        said: &[u8],
        doubt: bool,
        messages: &mut dyn Write,
    ) -> io::Result<()> {
        let doubted = std::mem::take(&mut self.doubted);
        for line in said.split_inclusive(|&byte| byte == b'\n') {
            if self.told.contains(line) {
                continue;
            }
            if doubt && !doubted.contains(line) {
                self.doubted.insert(line.to_vec());
                continue;
            }
            // Losses are the tracer's; what is ours to say is damage.
            self.damage |= line.starts_with(b"trackway: ");
            messages.write_all(line)?;
            self.remember(line.to_vec());
        }
        Ok(())
    }

    fn remember(&mut self, line: Vec<u8>) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.told.remove(&oldest);
        }
        self.order.push_back(line.clone());
        self.told.insert(line);
    }

    /// Whether there is something that was said once and may be said again.
    pub(crate) fn is_doubtful(&self) -> bool {
        !self.doubted.is_empty()
    }

    /// Whether damage was told of.
    pub(crate) const fn damage(&self) -> bool {
        self.damage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_once_and_doubtful_ones_the_second_time() {
        let (mut told, mut out) = (Told::default(), Vec::new());
        told.say(b"WARNING: lost\n", false, &mut out).expect("memory");
        told.say(b"WARNING: lost\ntrackway: torn\n", true, &mut out).expect("memory");
        assert_eq!(out, b"WARNING: lost\n");
        assert!(!told.damage());
        // Gone, then back: it was passing.
        told.say(b"", true, &mut out).expect("memory");
        told.say(b"trackway: torn\n", true, &mut out).expect("memory");
        assert_eq!(out, b"WARNING: lost\n");
        told.say(b"trackway: torn\n", true, &mut out).expect("memory");
        assert_eq!(out, b"WARNING: lost\ntrackway: torn\n");
        assert!(told.damage());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut told, mut out) = (Told::default(), Vec::new());
        for number in 0..REMEMBERED + 10 {
            told.say(format!("{number}\n").as_bytes(), false, &mut out).expect("memory");
        }
        assert_eq!((told.told.len(), told.order.len()), (REMEMBERED, REMEMBERED));
    }
}
