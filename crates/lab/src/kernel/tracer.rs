//! The interface: tracers of the kernel, and what a run of one leaves.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::place::Place;

/// A tracer of the kernel, in one way of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelTracer {
    /// None.
    Untraced,
    /// None, again: what differs from the other is the machine's.
    UntracedAgain,
    /// Ours by BPF, of everything that runs.
    Trackway,
    /// Ours by BPF, of a command and what it starts.
    TrackwayTree,
    /// Ours by a private tracefs instance, as where there is no BPF.
    TrackwayTracefs,
    /// ftrace's events of all calls at once, in an instance of their own.
    FtraceRaw,
    /// ftrace's events of each call.
    FtraceSyscalls,
    /// perf record.
    Perf,
    /// bpftrace, which counts.
    Bpftrace,
    /// strace, which writes lines.
    Strace,
}

impl KernelTracer {
    /// All, the untraced first.
    pub const ALL: [Self; 10] = [
        Self::Untraced,
        Self::UntracedAgain,
        Self::Trackway,
        Self::TrackwayTree,
        Self::TrackwayTracefs,
        Self::FtraceRaw,
        Self::FtraceSyscalls,
        Self::Perf,
        Self::Bpftrace,
        Self::Strace,
    ];

    /// Its row in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Untraced => "untraced",
            Self::UntracedAgain => "untraced, again",
            Self::Trackway => "trackway, everything",
            Self::TrackwayTree => "trackway, one process tree",
            Self::TrackwayTracefs => "trackway, by tracefs",
            Self::FtraceRaw => "ftrace, raw_syscalls",
            Self::FtraceSyscalls => "ftrace, syscalls",
            Self::Perf => "perf record",
            Self::Bpftrace => "bpftrace, count()",
            Self::Strace => "strace",
        }
    }

    /// Whether it is none.
    pub const fn is_untraced(self) -> bool {
        matches!(self, Self::Untraced | Self::UntracedAgain)
    }

    /// By how much fewer calls it is given, because each takes so much longer.
    pub(super) const fn patience(self) -> u64 {
        match self {
            Self::Strace => 100,
            _ => 1,
        }
    }
}

/// Which of the kernel's events are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelEvents {
    /// All system calls, entry and exit.
    Calls,
    /// getppid(2), entry and exit.
    OneCall,
    /// The scheduler's.
    Sched,
    /// The subsystems that a load of processes is full of ([`SUBSYSTEMS`]), and all system calls.
    Everything,
}

/// Subsystems of [`KernelEvents::Everything`], besides system calls. Those that remain hardly say
/// anything of such loads, and to detach from their tracepoints takes the kernel some 80 ms each.
pub(super) const SUBSYSTEMS: [&str; 7] =
    ["sched", "irq", "timer", "kmem", "exceptions", "signal", "task"];

impl KernelEvents {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calls => "all system calls",
            Self::OneCall => "getppid",
            Self::Sched => "sched",
            Self::Everything => "everything",
        }
    }
}

/// What is run under a tracer.
pub(super) struct Job<'a> {
    pub(super) place: &'a Place,
    pub(super) events: KernelEvents,
    /// Our workload's arguments.
    pub(super) arguments: &'a [String],
    /// Whether it is wrapped by `load`, which measures the tracer's time, too.
    pub(super) is_load: bool,
}

impl Job<'_> {
    /// The command, where the tracer is these processes (0: who starts it).
    pub(super) fn command(&self, tracers: &str) -> Vec<String> {
        let program = self.place.path(PROGRAM).display().to_string();
        let wrapper = self.is_load.then(|| [program.clone(), "load".into(), tracers.to_owned()]);
        let mut command: Vec<String> = wrapper.into_iter().flatten().collect();
        // A load is any command.
        if !self.is_load {
            command.push(program);
        }
        command.extend(self.arguments.iter().cloned());
        command
    }
}

/// The workload's program.
pub(super) const PROGRAM: &str = "kernel";
/// Buffers of all tracers, in KiB for each CPU.
pub(super) const BUFFER_KIB: u64 = 8 << 10;

/// What a run left.
#[derive(Debug, Default, Clone)]
pub(super) struct Ran {
    /// What the workload printed, and maybe others.
    pub(super) stdout: String,
    /// What the tracer's own output has.
    pub(super) found: Option<Found>,
}

/// What a tracer's own output has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Events, of everything that was traced.
    pub(super) events: u64,
    /// Those of the call that the workload makes, where it can be told.
    pub(super) of_call: Option<u64>,
    /// Events that it says it has lost.
    pub(super) lost: u64,
    /// Bytes of the events; 0: it keeps none.
    pub(super) bytes: u64,
    /// Bytes that the same events would take in LTTng's layout.
    pub(super) lttng_bytes: Option<u64>,
}

impl Ran {
    /// The numbers of the line that begins with `word`.
    pub(super) fn numbers<const COUNT: usize>(&self, word: &str) -> Result<[u64; COUNT]> {
        let is_it = |line: &&str| line.split(' ').next() == Some(word);
        let line = self.stdout.lines().find(is_it);
        let line = line.ok_or_else(|| Error::output("workload", format!("no line '{word}'")))?;
        crate::workload::numbers(line, word)
    }
}
