//! Diagnostics of growing traces, reported once: each reading finds the same damage again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::time::Duration;

/// Maximum number of remembered messages; older ones may be reported again.
const REMEMBERED_MAX: usize = 4096;

/// Time that an error must last before it is reported, because data may be half written.
pub(crate) const CONFIRMATION_TIME: Duration = Duration::from_secs(2);

/// The reported and the unconfirmed diagnostics.
#[derive(Default)]
pub(crate) struct DiagnosticLog {
    known: HashSet<Vec<u8>>,
    order: VecDeque<Vec<u8>>,
    /// Unconfirmed messages of the latest reading, and the time of their first appearance.
    doubted: HashMap<Vec<u8>, Duration>,
    damage: bool,
}

impl DiagnosticLog {
    /// Writes `lines` to `messages`: new damage, and all losses.
    pub(crate) fn report(&mut self, lines: &[u8], messages: &mut dyn Write) -> io::Result<()> {
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            // Each loss is found once; each reading finds the same damage.
            let is_damage = line.starts_with(b"trackway: ");
            if is_damage && !self.remember(line.to_vec()) {
                continue;
            }
            self.damage |= is_damage;
            messages.write_all(line)?;
        }
        Ok(())
    }

    /// Writes lines that may describe a passing state, found at the instant `now`. Each line is
    /// reported once it has lasted for [`CONFIRMATION_TIME`].
    pub(crate) fn report_if_lasting(
        &mut self,
        lines: &[u8],
        now: Duration,
        messages: &mut dyn Write,
    ) -> io::Result<()> {
        let before = std::mem::take(&mut self.doubted);
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            let since = before.get(line).copied().unwrap_or(now);
            if now.saturating_sub(since) >= CONFIRMATION_TIME {
                self.report(line, messages)?;
            }
            self.doubted.insert(line.to_vec(), since);
        }
        Ok(())
    }

    /// Records a line; returns true if it is new.
    fn remember(&mut self, line: Vec<u8>) -> bool {
        if self.known.contains(&line) {
            return false;
        }
        if self.order.len() == REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(line.clone());
        self.known.insert(line)
    }

    /// Returns true if a message waits for confirmation.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubted.keys().any(|line| !self.known.contains(line))
    }

    /// Returns true if damage was reported.
    pub(crate) const fn has_damage(&self) -> bool {
        self.damage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_once_and_what_is_doubtful_once_it_lasts() {
        let (mut log, mut out) = (DiagnosticLog::default(), Vec::new());
        let at = Duration::from_millis;
        log.report(b"WARNING: lost\ntrackway: bad\n", &mut out).expect("memory");
        log.report(b"WARNING: lost\ntrackway: bad\n", &mut out).expect("memory");
        assert_eq!(out, b"WARNING: lost\ntrackway: bad\nWARNING: lost\n");
        out.clear();
        log.report_if_lasting(b"trackway: torn\n", at(0), &mut out).expect("memory");
        assert!(log.is_doubtful());
        // An error that disappeared in between was passing.
        log.report_if_lasting(b"", at(1000), &mut out).expect("memory");
        assert!(!log.is_doubtful());
        log.report_if_lasting(b"trackway: torn\n", at(1100), &mut out).expect("memory");
        log.report_if_lasting(b"trackway: torn\n", at(3000), &mut out).expect("memory");
        assert_eq!(out, b"");
        log.report_if_lasting(b"trackway: torn\n", at(3100), &mut out).expect("memory");
        log.report_if_lasting(b"trackway: torn\n", at(3200), &mut out).expect("memory");
        assert_eq!(out, b"trackway: torn\n");
        assert!(log.has_damage() && !log.is_doubtful());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut log, mut out) = (DiagnosticLog::default(), Vec::new());
        for number in 0..REMEMBERED_MAX + 10 {
            log.report(format!("trackway: {number}\n").as_bytes(), &mut out).expect("memory");
        }
        assert_eq!((log.known.len(), log.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }
}
