//! What a round does: drawn from its seed, so that the seed repeats it.

use trackway_testkit::Random;

use crate::shared::{Orders, Word};

/// What happens when the buffers are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// New events are lost.
    Discard,
    /// The oldest events are overwritten.
    Overwrite,
    /// They are never full: nothing may be lost.
    Roomy,
}

/// Which way records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By restartable sequence.
    Sequence,
    /// By claim.
    Claim,
    /// Both, in one session.
    Mixed,
}

/// A round.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// What happens when the buffers are full.
    pub(crate) mode: Mode,
    /// Which way records go.
    pub(crate) way: Way,
    /// Size of a sub-buffer, in bytes.
    pub(crate) sub_bytes: u64,
    /// Sub-buffers of a region.
    pub(crate) sub_count: u64,
    /// Value of `--context`.
    pub(crate) contexts: &'static str,
    /// Largest payload, in bytes.
    pub(crate) body_max: u64,
    /// How long program and recorder stand still in the middle of it (SIGSTOP), in ms.
    pub(crate) pause_ms: u64,
    /// What the program is told.
    pub(crate) orders: Orders,
}

impl Plan {
    /// The round with this seed, whose program records for `duration_ms`.
    pub(crate) fn new(seed: u64, duration_ms: u64) -> Self {
        let random = &mut Random::new(seed);
        let mode = *random.pick(&[Mode::Discard, Mode::Discard, Mode::Overwrite, Mode::Roomy]);
        // Claims are lost when all claim regions are taken, memory or not.
        let way = match mode {
            Mode::Roomy => Way::Sequence,
            _ => *random.pick(&[Way::Sequence, Way::Sequence, Way::Claim, Way::Mixed]),
        };
        let (sub_bytes, sub_count) = match mode {
            Mode::Roomy => (1 << 20, 32),
            _ => (*random.pick(&[4096, 4096, 4096, 16384, 65536]), 2 << random.below(4)),
        };
        let contexts = *random.pick(&["none", "vtid", "vpid,vtid,procname"]);
        let body_max = *random.pick(&[64, 512, 4000]);
        let mut orders = Self::orders(random, duration_ms);
        // Only where there is time: the recorder's lease alone is 5 s.
        let stands_still = duration_ms >= crate::LONG_MS && random.once_in(8);
        let pause_ms = if stands_still { *random.pick(&[1000, 8000, 8000, 120_000]) } else { 0 };
        let lasts = orders.iter_mut().filter(|(word, _)| matches!(word, Word::DurationMs));
        lasts.for_each(|(_, value)| *value += pause_ms);
        orders.extend([(Word::Seed, seed), (Word::BodyMax, body_max)]);
        orders.push((Word::Claims, u64::from(way == Way::Mixed)));
        if mode == Mode::Roomy {
            // Half, so that bytes which a sub-buffer's end leaves unused do not matter.
            orders.push((Word::Budget, sub_bytes * sub_count / 2));
            // vfork children record by claim.
            orders.retain(|(word, _)| !matches!(word, Word::Vforks));
        }
        Self { mode, way, sub_bytes, sub_count, contexts, body_max, pause_ms, orders }
    }

    fn orders(random: &mut Random, duration_ms: u64) -> Orders {
        let mut orders = vec![
            (Word::DurationMs, duration_ms),
            (Word::Processes, 1 + random.below(6)),
            (Word::Threads, 1 + random.below(8)),
        ];
        if random.once_in(2) {
            orders.push((Word::AlarmUs, 50 + random.below(150)));
        }
        if random.once_in(2) {
            orders.push((Word::DirectedUs, 20 + random.below(200)));
        }
        let switches = [
            Word::Forks,
            Word::Execs,
            Word::Vforks,
            Word::Kills,
            Word::Hops,
            Word::Nices,
            Word::Restarts,
        ];
        orders.extend(switches.map(|switch| (switch, u64::from(random.once_in(2)))));
        orders.push((Word::Pace, *random.pick(&[0, 50, 500])));
        orders
    }

    /// Options of `trackway record` for it.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = vec![
            "--on=torture:*".to_owned(),
            format!("--buffer-size={}", self.sub_bytes * self.sub_count),
            format!("--sub-buffers={}", self.sub_count),
            format!("--context={}", self.contexts),
        ];
        if self.mode == Mode::Overwrite {
            options.push("--overwrite".to_owned());
        }
        options
    }

    /// The round in a line.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!(
            "{:?} {:?} {}×{} contexts {} ",
            self.mode, self.way, self.sub_count, self.sub_bytes, self.contexts
        );
        for (word, value) in self.orders.iter().filter(|(_, value)| *value != 0) {
            if !matches!(word, Word::Seed | Word::DurationMs | Word::Budget) {
                text.push_str(&format!("{word:?} {value} ").to_lowercase());
            }
        }
        if self.pause_ms > 0 {
            text.push_str(&format!("stands still for {} ms", self.pause_ms));
        }
        text.trim_end().to_owned()
    }
}
