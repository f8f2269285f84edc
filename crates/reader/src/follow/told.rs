//! Messages told once: every look at a growing trace finds the same damage again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::time::Duration;

/// Number of messages that are remembered; older ones may be reported again.
const REMEMBERED: usize = 4096;

/// Time that an error must last before it is reported: the data may be half written.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// The messages so far.
#[derive(Default)]
pub(crate) struct Told {
    told: HashSet<Vec<u8>>,
    order: VecDeque<Vec<u8>>,
    /// Doubtful messages of the latest look, and since when.
    doubted: HashMap<Vec<u8>, Duration>,
    damage: bool,
}

impl Told {
    /// Tells the lines `said` to `messages`: damage that was not told before, and all losses.
    pub(crate) fn say(&mut self, said: &[u8], messages: &mut dyn Write) -> io::Result<()> {
        for line in said.split_inclusive(|&byte| byte == b'\n') {
            // Losses are the tracer's, and each is found once; damage is found by every look.
            let is_damage = line.starts_with(b"trackway: ");
            if is_damage && !self.remember(line.to_vec()) {
                continue;
            }
            self.damage |= is_damage;
            messages.write_all(line)?;
        }
        Ok(())
    }

    /// The same at the instant `now` of what may be passing: it is told once it was said for
    /// [`PATIENCE`].
    pub(crate) fn doubt(
        &mut self,
        said: &[u8],
        now: Duration,
        messages: &mut dyn Write,
    ) -> io::Result<()> {
        let before = std::mem::take(&mut self.doubted);
        for line in said.split_inclusive(|&byte| byte == b'\n') {
            let since = before.get(line).copied().unwrap_or(now);
            if now.saturating_sub(since) >= PATIENCE {
                self.say(line, messages)?;
            }
            self.doubted.insert(line.to_vec(), since);
        }
        Ok(())
    }

    /// Returns true if a line is new.
    fn remember(&mut self, line: Vec<u8>) -> bool {
        if self.told.contains(&line) {
            return false;
        }
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.told.remove(&oldest);
        }
        self.order.push_back(line.clone());
        self.told.insert(line)
    }

    /// Returns true if there is something that may have to be reported.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubted.keys().any(|line| !self.told.contains(line))
    }

    /// Returns true if damage was reported.
    pub(crate) const fn damage(&self) -> bool {
        self.damage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_once_and_what_is_doubtful_once_it_lasts() {
        let (mut told, mut out) = (Told::default(), Vec::new());
        let at = Duration::from_millis;
        told.say(b"WARNING: lost\ntrackway: bad\n", &mut out).expect("memory");
        told.say(b"WARNING: lost\ntrackway: bad\n", &mut out).expect("memory");
        assert_eq!(out, b"WARNING: lost\ntrackway: bad\nWARNING: lost\n");
        out.clear();
        told.doubt(b"trackway: torn\n", at(0), &mut out).expect("memory");
        assert!(told.is_doubtful());
        // Gone, then back: it was passing.
        told.doubt(b"", at(1000), &mut out).expect("memory");
        assert!(!told.is_doubtful());
        told.doubt(b"trackway: torn\n", at(1100), &mut out).expect("memory");
        told.doubt(b"trackway: torn\n", at(3000), &mut out).expect("memory");
        assert_eq!(out, b"");
        told.doubt(b"trackway: torn\n", at(3100), &mut out).expect("memory");
        told.doubt(b"trackway: torn\n", at(3200), &mut out).expect("memory");
        assert_eq!(out, b"trackway: torn\n");
        assert!(told.damage() && !told.is_doubtful());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut told, mut out) = (Told::default(), Vec::new());
        for number in 0..REMEMBERED + 10 {
            told.say(format!("trackway: {number}\n").as_bytes(), &mut out).expect("memory");
        }
        assert_eq!((told.told.len(), told.order.len()), (REMEMBERED, REMEMBERED));
    }
}
