//! Kernel tracers: Trackway next to ftrace, perf, bpftrace and strace, each of which runs a command
//! and then reports its events.
//!
//! ```text
//! ours, ftrace, peers   the adapters
//! pages                 marks in ftrace's buffers
//! count                 content of Trackway's traces, and its bytes in LTTng's layout
//! ```
//!
//! Main invariant: a tracer's events are those in its own output of the same run; the caller judges
//! whether they are enough. Everything that is started ends with this process: workloads die with
//! their parent, tracers end with their workloads, and named objects have a
//! [`trackway_bench_engine::host::cleanup_shell`].

mod count;
mod ftrace;
mod pages;
mod peers;
mod trackway;

use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::tracefs::Tracefs;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;

use crate::trace_check::marks::{FoundMarks, MadeMarks, MarkEvent};

pub(crate) use crate::trace_check::marks::EventStorage;

/// Longest time of one run of a command, in seconds.
const LIMIT_S: u64 = 60;
/// Name of the workloads' program, which also moves buffers, and runs the commands that are
/// measured as a whole.
pub(crate) const PROGRAM: &str = "kernel";
/// Size of the per-CPU buffers of all tracers, in KiB.
pub(crate) const BUFFER_KIB: u64 = 8 << 10;
/// Subsystems of [`KernelEvents::Everything`], in addition to system calls. The other subsystems
/// have few events in such loads, and the kernel takes some 80 ms to detach from each of their
/// tracepoints.
const SUBSYSTEMS: [&str; 7] = ["sched", "irq", "timer", "kmem", "exceptions", "signal", "task"];

/// A kernel tracer, in one way of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KernelTracer {
    /// No tracer.
    Untraced,
    /// Trackway by BPF, for all processes.
    Trackway,
    /// Trackway by BPF, for a command and its descendants.
    TrackwayTree,
    /// Trackway by a private tracefs instance, the kernel backend without BPF.
    TrackwayTracefs,
    /// Trackway by BPF, for all processes, and the command's calls to the allocator.
    TrackwayUser,
    /// ftrace's events of all calls together (`raw_syscalls`), in a private instance.
    FtraceRaw,
    /// ftrace's events of all calls, with a separate clock for each CPU.
    FtraceLocal,
    /// ftrace's events of all calls, with a clock that is monotonic over all CPUs by a common lock.
    FtraceGlobal,
    /// ftrace's events of all calls, with a counter common to all CPUs instead of a clock.
    FtraceCounter,
    /// ftrace's separate events of each call (`syscalls`).
    FtraceSyscalls,
    /// perf record.
    Perf,
    /// bpftrace, which counts events.
    Bpftrace,
    /// strace, which writes lines of text.
    Strace,
    /// sysdig.
    Sysdig,
    /// `SystemTap`.
    Systemtap,
}

impl KernelTracer {
    /// Returns the name of the tracer's row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Untraced => "untraced",
            Self::Trackway => "trackway",
            Self::TrackwayTree => "trackway-tree",
            Self::TrackwayTracefs => "trackway-tracefs",
            Self::TrackwayUser => "trackway-user-kernel",
            Self::FtraceRaw => "ftrace",
            Self::FtraceLocal => "ftrace-local",
            Self::FtraceGlobal => "ftrace-global",
            Self::FtraceCounter => "ftrace-counter",
            Self::FtraceSyscalls => "ftrace-syscalls",
            Self::Perf => "perf",
            Self::Bpftrace => "bpftrace",
            Self::Strace => "strace",
            Self::Sysdig => "sysdig",
            Self::Systemtap => "systemtap",
        }
    }

    /// Returns the program that must be installed for the tracer, if there is one.
    const fn program(self) -> Option<&'static str> {
        match self {
            Self::Perf => Some("perf"),
            Self::Bpftrace => Some("bpftrace"),
            Self::Strace => Some("strace"),
            Self::Sysdig => Some("sysdig"),
            Self::Systemtap => Some("stap"),
            _ => None,
        }
    }

    /// Returns true if the tracer belongs to Trackway.
    const fn is_trackway(self) -> bool {
        matches!(
            self,
            Self::Trackway | Self::TrackwayTree | Self::TrackwayTracefs | Self::TrackwayUser
        )
    }

    /// Returns the clock of ftrace's instance if the tracer is ftrace: the other tracers' clock,
    /// unless the row compares clocks.
    const fn ftrace_clock(self) -> Option<&'static str> {
        match self {
            Self::FtraceRaw | Self::FtraceSyscalls => Some("mono"),
            Self::FtraceLocal => Some("local"),
            Self::FtraceGlobal => Some("global"),
            Self::FtraceCounter => Some("counter"),
            _ => None,
        }
    }
}

/// The kernel events that are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelEvents {
    /// All system calls, entry and exit.
    Calls,
    /// One system call, entry and exit.
    OneCall(&'static str),
    /// Events of the scheduler.
    Sched,
    /// Events of the subsystems that a load of processes uses most ([`SUBSYSTEMS`]), and all system
    /// calls.
    Everything,
}

/// The command that runs under a tracer.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) events: KernelEvents,
    pub(crate) keep: EventStorage,
    /// The call whose events are counted separately; empty for none.
    pub(crate) call: &'a str,
    pub(crate) work: Work<'a>,
}

/// The command of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work<'a> {
    /// The workloads' program with these arguments.
    Workload(&'a [String]),
    /// A command that is measured as a whole: the words before the tracer's processes, and the
    /// words after them.
    WholeCommand(&'a [String], &'a [String]),
    /// This program with these arguments, unchanged.
    Command(&'a [String], &'a [String]),
}

impl Job<'_> {
    /// Returns the command, word by word, with the ids of the tracer's processes (0: its parent).
    fn command(&self, tracers: &str) -> Vec<String> {
        match self.work {
            Work::Workload(arguments) => {
                let program = self.workspace.path(PROGRAM).display().to_string();
                [&[program], arguments].concat()
            }
            Work::Command(program, arguments) => [program, arguments].concat(),
            Work::WholeCommand(before, after) => [before, &[tracers.to_owned()], after].concat(),
        }
    }
}

/// The result of a run.
#[derive(Debug, Default, Clone)]
pub(crate) struct TracedRun {
    /// The output of the workload, and perhaps of other processes.
    pub(crate) stdout: String,
    /// The events in the tracer's own output.
    pub(crate) found: Option<FoundEvents>,
    /// The marks in the tracer's own output, if the workload makes any.
    pub(crate) marks: FoundMarks,
    /// The account of the user events, if they are recorded, too.
    pub(crate) of_user: Option<Account>,
}

/// The events in a tracer's own output.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundEvents {
    /// Number of events of all traced processes.
    pub(crate) events: u64,
    /// Number of events of the call that is counted separately, if calls can be distinguished.
    pub(crate) of_call: Option<u64>,
    /// Number of events that the tracer reports as lost.
    pub(crate) lost: u64,
    /// Events that newer ones overwrote, as configured.
    pub(crate) overwritten: u64,
    /// Bytes of the events; 0 if the tracer keeps none.
    pub(crate) bytes: u64,
    /// Bytes that the same events would take in LTTng's layout.
    pub(crate) lttng_bytes: Option<u64>,
}

impl FoundEvents {
    /// Returns the tracer's own account of all events, whose number only the tracer can report.
    pub(crate) const fn account(&self) -> Account {
        Account {
            emitted: self.events + self.lost + self.overwritten,
            recorded: self.events,
            lost: self.lost,
            overwritten: self.overwritten,
            record_bytes: self.bytes,
        }
    }

    /// Computes the account of the call's events. Events that are neither recorded nor reported as
    /// lost make an account that does not add up.
    pub(crate) fn account_of_call(&self, emitted: u64) -> Account {
        // If calls cannot be distinguished, the count includes other processes' calls.
        let recorded = self.of_call.unwrap_or(self.events).min(emitted);
        let missing = emitted - recorded;
        Account {
            emitted,
            recorded,
            lost: missing.min(self.lost),
            overwritten: 0,
            record_bytes: self.account().bytes_of(recorded),
        }
    }
}

impl TracedRun {
    /// Computes the account of the workload's marks, from the output of `tracer`.
    pub(crate) fn account_of_marks(
        &self,
        tracer: KernelTracer,
        events: KernelEvents,
        keep: EventStorage,
    ) -> Result<Option<Account>> {
        let (Some(found), Some(made)) = (&self.found, MadeMarks::of(&self.stdout)?) else {
            return Ok(None);
        };
        let sides: &[MarkEvent] = match events {
            KernelEvents::Calls => &[MarkEvent::Call],
            KernelEvents::OneCall(_) => &[],
            KernelEvents::Sched => &[MarkEvent::Exit],
            KernelEvents::Everything => &[MarkEvent::Call, MarkEvent::Exit],
        };
        let of =
            |sides, all: Account| made.account(tracer.name(), (&self.marks, sides), keep, &all);
        let mut account = of(sides, found.account())?;
        // A loss of the kernel tracer does not excuse missing user events, nor the reverse.
        if let Some(of_user) = self.of_user {
            account.add(&of(&[MarkEvent::Allocation], of_user)?);
        }
        Ok(Some(account))
    }

    /// Returns the number of events that the tracer reports.
    pub(crate) fn events(&self) -> u64 {
        let of_kernel = self.found.map_or(0, |found| found.account().emitted);
        of_kernel + self.of_user.map_or(0, |of_user| of_user.emitted)
    }

    /// Returns the numbers of the line that begins with `word`.
    pub(crate) fn numbers<const COUNT: usize>(&self, word: &str) -> Result<[u64; COUNT]> {
        let is_it = |line: &&str| line.split(' ').next() == Some(word);
        let line = self.stdout.lines().find(is_it);
        let line = line.ok_or_else(|| Error::output("workload", format!("no line '{word}'")))?;
        trackway_bench_engine::host::workload::parse_numbers(line, word)
    }
}

/// All kernel tracers that are available on this machine.
#[derive(Debug)]
pub(crate) struct KernelTracers {
    tracefs: std::result::Result<Tracefs, String>,
}

impl KernelTracers {
    /// Compiles the workloads' program, and finds tracefs.
    pub(crate) fn set_up(workspace: &Workspace) -> Result<Self> {
        workspace.compile(PROGRAM, &[])?;
        Ok(Self { tracefs: Tracefs::find() })
    }

    /// Returns the reason if a tracer is not available.
    pub(crate) fn absence(&self, workspace: &Workspace, tracer: KernelTracer) -> Option<String> {
        let missing = tracer.program().filter(|program| !has(program));
        if let Some(program) = missing {
            return Some(format!("{program} is not installed"));
        }
        match tracer {
            KernelTracer::Untraced | KernelTracer::Strace => None,
            KernelTracer::Sysdig | KernelTracer::Systemtap => {
                let reason = "it needs a module of the kernel, which this adapter does not load";
                Some(reason.to_owned())
            }
            _ if !is_root() => Some(ONLY_ROOT.to_owned()),
            _ if tracer.ftrace_clock().is_some() => self.tracefs.as_ref().err().cloned(),
            _ if tracer.is_trackway() => trackway::check_availability(workspace, tracer).err(),
            _ => None,
        }
    }

    /// Runs a job under a tracer.
    pub(crate) fn run(&self, tracer: KernelTracer, job: &Job<'_>) -> Result<TracedRun> {
        if let (Some(clock), Ok(tracefs)) = (tracer.ftrace_clock(), &self.tracefs) {
            return ftrace::run(tracefs, (tracer, clock), job);
        }
        match tracer {
            KernelTracer::Untraced => run_untraced(job),
            KernelTracer::Perf => peers::run_perf(job),
            KernelTracer::Bpftrace => peers::run_bpftrace(job),
            KernelTracer::Strace => peers::run_strace(job),
            _ if tracer.is_trackway() => trackway::run(tracer, job),
            _ => Err(Error::output(tracer.name(), "it cannot be had")),
        }
    }
}

const ONLY_ROOT: &str = "only root traces the kernel";

fn run_untraced(job: &Job<'_>) -> Result<TracedRun> {
    let command = job.command("");
    let mut program = Command::new(&command[0]);
    let finished = child::run_for(program.args(&command[1..]), "untraced", LIMIT_S)?;
    Ok(TracedRun { stdout: finished.stdout, ..TracedRun::default() })
}

fn is_root() -> bool {
    // SAFETY: it has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_that_was_off_has_no_account_that_adds_up() {
        let off = FoundEvents::default();
        let account = off.account_of_call(1000);
        assert!(!account.is_complete() && account.recorded == 0);
        // Reported losses count as lost; events that are neither recorded nor reported are missing.
        let some = FoundEvents { events: 900, lost: 99, bytes: 9000, ..FoundEvents::default() };
        assert!(!some.account_of_call(1000).is_complete());
        let some = FoundEvents { lost: 100, ..some };
        let account = some.account_of_call(1000);
        assert!(account.is_complete());
        assert_eq!((account.recorded, account.bytes_per_event()), (900, Some(10.0)));
        let others = FoundEvents { of_call: Some(10), ..some };
        assert!(!others.account_of_call(1000).is_complete());
    }

    #[test]
    fn events_of_others_do_not_count_as_the_calls() {
        let found = FoundEvents { events: 3000, bytes: 24_000, lost: 5, ..FoundEvents::default() };
        let account = found.account_of_call(1000);
        assert_eq!((account.recorded, account.lost, account.record_bytes), (1000, 0, 8000));
        let all = found.account();
        assert_eq!((all.emitted, all.recorded, all.lost), (3005, 3000, 5));
        assert!(all.is_complete());
    }

    #[test]
    fn commands_have_the_tracers_where_they_are_asked_for() {
        let workspace = Workspace::for_executable("trackway".into());
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (before, after) = (words("load"), words("sh -c"));
        let job = Job {
            workspace: &workspace,
            events: KernelEvents::Sched,
            keep: EventStorage::Disk,
            call: "",
            work: Work::WholeCommand(&before, &after),
        };
        assert_eq!(job.command("1,2"), ["load", "1,2", "sh", "-c"]);
        let ours = Job { work: Work::Workload(&after), ..job };
        assert_eq!(ours.command("0"), ["kernel", "sh", "-c"]);
    }
}
