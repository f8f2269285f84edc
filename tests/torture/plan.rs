//! Plan of a round. It is drawn from the round's seed, so that the seed repeats it.

use trackway_testkit::Random;

use crate::shared::{SharedWord, WorkloadOrders};

/// Behaviour of the session when its buffers are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferMode {
    /// New events are lost.
    Discard,
    /// The oldest events are overwritten.
    Overwrite,
    /// The buffers are never full: nothing may be lost.
    Roomy,
}

/// Writer paths of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriterPath {
    /// By restartable sequence.
    Sequence,
    /// By claim: `--reserve claim`.
    Claim,
    /// By claim, because the program has no restartable sequences.
    Without,
    /// By sequence and by claim, in one session.
    Mixed,
    /// By reserve and commit: `--reserve lockless`.
    Lockless,
}

/// End of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoundEnd {
    /// The program ends, then the recorder.
    ByItself,
    /// The program, one process with its threads, is killed.
    ProgramKilled,
    /// The recorder is killed; the program runs on for a while and is killed, too.
    RecorderKilled,
    /// Recorder and program are killed at once.
    AllKilled,
}

impl BufferMode {
    /// All modes; duplicates are drawn more often.
    pub(crate) const ALL: [Self; 4] = [Self::Discard, Self::Discard, Self::Overwrite, Self::Roomy];
}

impl WriterPath {
    /// All writer paths; duplicates are drawn more often.
    pub(crate) const ALL: [Self; 7] = [
        Self::Sequence,
        Self::Sequence,
        Self::Claim,
        Self::Without,
        Self::Mixed,
        Self::Lockless,
        Self::Lockless,
    ];
}

impl RoundEnd {
    /// All ends; duplicates are drawn more often.
    pub(crate) const ALL: [Self; 6] = [
        Self::ByItself,
        Self::ByItself,
        Self::ByItself,
        Self::ProgramKilled,
        Self::RecorderKilled,
        Self::AllKilled,
    ];
}

/// The plan of a round.
#[derive(Debug, Clone)]
pub(crate) struct RoundPlan {
    /// Behaviour of the session when its buffers are full.
    pub(crate) mode: BufferMode,
    /// Writer paths of the program.
    pub(crate) writer_path: WriterPath,
    /// End of the round.
    pub(crate) end: RoundEnd,
    /// Size of a sub-buffer, in bytes.
    pub(crate) sub_bytes: u64,
    /// Number of sub-buffers of a region.
    pub(crate) sub_count: u64,
    /// Value of `--context`.
    pub(crate) contexts: &'static str,
    /// Largest payload, in bytes.
    pub(crate) body_max: u64,
    /// Time for which SIGSTOP suspends the program and the recorder in the middle of the round, in
    /// ms.
    pub(crate) pause_ms: u64,
    /// Time from the start to the first kill, in µs.
    pub(crate) kill_after_us: u64,
    /// Time from the recorder's death to the program's, in µs.
    pub(crate) outlives_us: u64,
    /// Orders to the program.
    pub(crate) orders: WorkloadOrders,
}

impl RoundPlan {
    /// Returns the plan of the round with this seed, whose program records for `duration_ms`. The
    /// plan depends only on the seed, except for that time and for pauses, which only long rounds
    /// have.
    pub(crate) fn new(seed: u64, duration_ms: u64) -> Self {
        let random = &mut Random::new(seed);
        let mode = *random.pick(&BufferMode::ALL);
        let drawn = *random.pick(&WriterPath::ALL);
        let writer_path = match (mode, drawn) {
            // Events are lost when all claim regions are in use, for any amount of memory.
            (BufferMode::Roomy, WriterPath::Claim | WriterPath::Without | WriterPath::Mixed) => {
                WriterPath::Sequence
            }
            _ => drawn,
        };
        let end = *random.pick(&RoundEnd::ALL);
        let (sub_bytes, sub_count) = match mode {
            BufferMode::Roomy => (1 << 20, 32),
            _ => (*random.pick(&[4096, 4096, 4096, 16384, 65536]), 2 << random.next_below(4)),
        };
        let contexts = *random.pick(&["none", "vtid", "vpid,vtid,procname"]);
        let body_max = *random.pick(&[64, 512, 4000]);
        let mut orders = Self::orders(random, duration_ms);
        let pause_ms = *random.pick(&[1000, 8000, 8000, 120_000]);
        // Pauses occur only in long rounds: the recorder's lease is 5 s.
        let stands_still = random.once_in(8) && duration_ms >= crate::LONG_ROUND_MS;
        let pause_ms = if stands_still && end == RoundEnd::ByItself { pause_ms } else { 0 };
        let kill_after_us = random.next_below(duration_ms * 1000);
        let outlives_us = random.next_below(500_000);
        let lasts = orders.iter_mut().filter(|(word, _)| matches!(word, SharedWord::DurationMs));
        lasts.for_each(|(_, value)| *value += pause_ms);
        orders.extend([(SharedWord::Seed, seed), (SharedWord::BodyMax, body_max)]);
        orders.push((SharedWord::Claims, u64::from(writer_path == WriterPath::Mixed)));
        match end {
            RoundEnd::ByItself => {}
            RoundEnd::ProgramKilled => {
                // The program is one process without children: no recorder would record the
                // children's events after its end.
                orders.retain(|(word, _)| !matches!(word, SharedWord::Forks | SharedWord::Vforks));
                orders.push((SharedWord::EndNs, u64::MAX));
            }
            // The program must not end before it is killed.
            RoundEnd::RecorderKilled | RoundEnd::AllKilled => {
                orders.push((SharedWord::DurationMs, 1 << 20))
            }
        }
        if mode == BufferMode::Roomy {
            // Half of the buffer is used, so that unused bytes at the end of sub-buffers do not
            // matter.
            orders.push((SharedWord::Budget, sub_bytes * sub_count / 2));
            // vfork children record by claim.
            orders.retain(|(word, _)| !matches!(word, SharedWord::Vforks));
        }
        Self {
            mode,
            writer_path,
            end,
            sub_bytes,
            sub_count,
            contexts,
            body_max,
            pause_ms,
            kill_after_us,
            outlives_us,
            orders,
        }
    }

    fn orders(random: &mut Random, duration_ms: u64) -> WorkloadOrders {
        let mut orders = vec![
            (SharedWord::DurationMs, duration_ms),
            (SharedWord::Processes, 1 + random.next_below(6)),
            (SharedWord::Threads, 1 + random.next_below(8)),
        ];
        if random.once_in(2) {
            orders.push((SharedWord::AlarmUs, 50 + random.next_below(150)));
        }
        if random.once_in(2) {
            orders.push((SharedWord::DirectedUs, 20 + random.next_below(200)));
        }
        let switches = [
            SharedWord::Forks,
            SharedWord::Execs,
            SharedWord::Vforks,
            SharedWord::Kills,
            SharedWord::Hops,
            SharedWord::Nices,
            SharedWord::Restarts,
            SharedWord::Stops,
        ];
        orders.extend(switches.map(|switch| (switch, u64::from(random.once_in(2)))));
        orders.push((SharedWord::Pace, *random.pick(&[0, 50, 500])));
        orders
    }

    /// Returns true if the plan may kill a writer in the middle of an event.
    pub(crate) fn kills(&self) -> bool {
        let ordered =
            |(word, value): &(SharedWord, u64)| matches!(word, SharedWord::Kills) && *value != 0;
        self.end != RoundEnd::ByItself || self.orders.iter().any(ordered)
    }

    /// Returns the options of `trackway record` for the plan.
    pub(crate) fn options(&self) -> Vec<String> {
        let reserve = match self.writer_path {
            WriterPath::Sequence | WriterPath::Without | WriterPath::Mixed => "rseq",
            WriterPath::Claim => "claim",
            WriterPath::Lockless => "lockless",
        };
        let mut options = vec![
            "--event=torture:*".to_owned(),
            format!("--buffer-size={}", self.sub_bytes * self.sub_count),
            format!("--sub-buffers={}", self.sub_count),
            format!("--context={}", self.contexts),
            format!("--reserve={reserve}"),
        ];
        if self.mode == BufferMode::Overwrite {
            options.push("--overwrite".to_owned());
        }
        options
    }

    /// Describes the plan in a line.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!(
            "{:?} {:?} {:?} {}×{} contexts {} ",
            self.mode, self.writer_path, self.end, self.sub_count, self.sub_bytes, self.contexts
        );
        for (word, value) in self.orders.iter().filter(|(_, value)| *value != 0) {
            if !matches!(
                word,
                SharedWord::Seed | SharedWord::DurationMs | SharedWord::Budget | SharedWord::EndNs
            ) {
                text.push_str(&format!("{word:?} {value} ").to_lowercase());
            }
        }
        match self.end {
            RoundEnd::ByItself => {}
            RoundEnd::RecorderKilled => text.push_str(&format!(
                "killed after {} and {} µs",
                self.kill_after_us, self.outlives_us
            )),
            _ => text.push_str(&format!("killed after {} µs", self.kill_after_us)),
        }
        if self.pause_ms > 0 {
            text.push_str(&format!("stands still for {} ms", self.pause_ms));
        }
        text.trim_end().to_owned()
    }
}
