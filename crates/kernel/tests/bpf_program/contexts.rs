//! Compares contexts with the state that ftrace reports for the same events.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::{create_dir, read_to_string, remove_dir, write};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::PathBuf;

use trackway_kernel::bpf_program::contexts::{Context, Contexts};
use trackway_kernel::bpf_program::plan::EventPlan;
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::tracefs::Tracefs;
use trackway_sys::thread::CpuSet;
use trackway_testkit::report_skipped;

use crate::arguments::{PAYLOAD_MAX, RecordingPrograms, select_events};
use crate::decode::{Record, Value};

/// Compared contexts. Both of two programs on a tracepoint observe equal values of the first three;
/// the last may become true between the two programs.
const COMPARED_CONTEXTS: [&str; 4] =
    ["preemptible", "interruptible", "migratable", "need_reschedule"];
/// Events in many situations, recorded from their arguments, and one system call from its record.
const EVENTS: [&str; 5] = [
    "kmem:kmalloc",
    "sched:sched_waking",
    "sched:sched_wakeup",
    "irq:softirq_entry",
    "syscalls:sys_enter_getpgid",
];
/// The number of system calls that the test makes.
const CALLS: usize = 3000;

/// An instance of ftrace.
struct Ftrace {
    folder: PathBuf,
    _tracefs: Tracefs,
}

impl Ftrace {
    /// Creates an instance; `None`: it is not available.
    fn new() -> Option<Self> {
        let tracefs = Tracefs::open().ok()?;
        let name = format!("instances/trackway-test-{}", std::process::id());
        let folder = tracefs.root().join(name);
        create_dir(&folder).ok()?;
        let ftrace = Self { folder, _tracefs: tracefs };
        ftrace.set("buffer_size_kb", "8192");
        for event in EVENTS {
            ftrace.set(&format!("events/{}/enable", event.replace(':', "/")), "1");
        }
        Some(ftrace)
    }

    fn set(&self, file: &str, value: &str) {
        write(self.folder.join(file), value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    /// Returns the events of a thread, each with its contexts.
    fn finish(self, tid: u32) -> Vec<(String, ObservedContexts)> {
        self.set("tracing_on", "0");
        let text = read_to_string(self.folder.join("trace")).expect("it is there");
        let lost = text.lines().find(|line| line.starts_with("# entries-in-buffer"));
        let counts = lost.and_then(|line| line.split(": ").nth(1)?.split(' ').next());
        let (kept, written) = counts.and_then(|counts| counts.split_once('/')).expect("it says");
        assert_eq!(kept, written, "the kernel's buffer was too small");
        let of_thread = format!("-{tid} ");
        let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(&of_thread));
        lines.map(|line| parse_ftrace_line(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }
}

impl Drop for Ftrace {
    fn drop(&mut self) {
        let _ = remove_dir(&self.folder);
    }
}

/// The values of [`COMPARED_CONTEXTS`] for an event.
type ObservedContexts = [bool; 4];

/// Parses a line of ftrace: `NAME-TID [CPU] FLAGS TIME: EVENT: …`, with flags as in the kernel's
/// Documentation/trace/ftrace.rst.
fn parse_ftrace_line(line: &str) -> Option<(String, ObservedContexts)> {
    let mut words = line.split_once(" [")?.1.split_whitespace().skip(1);
    let flags = words.next()?.as_bytes().first_chunk::<5>()?;
    let event = words.nth(1)?.strip_suffix(':')?;
    // The line of a system call has the form of a call in C.
    let event = event.split('(').next()?.replace("sys_getpgid", "syscall_entry_getpgid");
    let [interrupts, leaves, within, count, stays] = *flags;
    let no_halves = matches!(interrupts, b'.' | b'd');
    let seen = [
        no_halves && within == b'.' && count == b'.',
        matches!(interrupts, b'.' | b'b'),
        stays == b'.',
        matches!(leaves, b'N' | b'n' | b'B' | b'b'),
    ];
    Some((event, seen))
}

/// Returns the contexts of a record.
fn recorded_contexts(record: &Record) -> ObservedContexts {
    COMPARED_CONTEXTS.map(|name| match record.fields[name] {
        Value::Number(number @ 0..=1) => number == 1,
        _ => panic!("{record:?}"),
    })
}

/// Returns the kernel's name of an event.
fn kernel_event_name(of: &str) -> String {
    of.strip_prefix("kmem_").or(of.strip_prefix("irq_")).unwrap_or(of).to_owned()
}

/// Makes the kernel allocate memory while the thread may not migrate: runs a program that creates a
/// map. `None`: the process lacks the permission.
fn allocate_without_migration() -> Option<()> {
    const PROG_LOAD: i32 = 5;
    const PROG_RUN: i32 = 10;
    const TYPE_SYSCALL: u32 = 31;
    const SLEEPABLE: u32 = 1 << 4;
    const SYS_BPF: i32 = 166;
    let insn = |op: u8, registers: u8, offset: i16, immediate: i32| -> u64 {
        u64::from(op)
            | u64::from(registers) << 8
            | u64::from(offset.cast_unsigned()) << 16
            | u64::from(immediate.cast_unsigned()) << 32
    };
    // An array (2) of one value of 8 bytes; r0 = bpf(BPF_MAP_CREATE, r10 - 24, 24).
    let insns: [u64; 11] = [
        insn(0x62, 0x0a, -24, 2),
        insn(0x62, 0x0a, -20, 4),
        insn(0x62, 0x0a, -16, 8),
        insn(0x62, 0x0a, -12, 1),
        insn(0x7a, 0x0a, -8, 0),
        insn(0xb7, 0x01, 0, 0),
        insn(0xbf, 0xa2, 0, 0),
        insn(0x07, 0x02, 0, -24),
        insn(0xb7, 0x03, 0, 24),
        insn(0x85, 0x00, 0, SYS_BPF),
        insn(0x95, 0x00, 0, 0),
    ];
    let bpf = |command: i32, attribute: &mut [u64; 12]| {
        let (address, size) = (attribute.as_mut_ptr(), size_of_val(attribute));
        // SAFETY: all addresses in the attribute refer to values that outlive the call.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, command, address.cast::<c_void>(), size) };
        i32::try_from(result).ok().filter(|&result| result >= 0)
    };
    let mut load = [0; 12];
    load[0] = u64::from(TYPE_SYSCALL) | (insns.len() as u64) << 32;
    load[1] = insns.as_ptr() as u64;
    load[2] = c"GPL".as_ptr() as u64;
    load[5] = u64::from(SLEEPABLE) << 32;
    let program = bpf(PROG_LOAD, &mut load)?;
    // SAFETY: bpf(2) has just opened the descriptor.
    let _program = unsafe { OwnedFd::from_raw_fd(program) };
    let mut run = [0; 12];
    run[0] = u64::from(program.cast_unsigned());
    bpf(PROG_RUN, &mut run)?;
    let map = (run[0] >> 32) as i32;
    // SAFETY: the program has just opened the descriptor; a negative number is not used.
    drop((map >= 0).then(|| unsafe { OwnedFd::from_raw_fd(map) }));
    (map >= 0).then_some(())
}

/// Causes events in a separate thread; returns its id, and true if it could not migrate for a
/// while.
fn cause_events() -> (u32, bool) {
    let work = || {
        // The woken thread inherits this CPU.
        CpuSet::only(trackway_sys::thread::current_cpu()).apply().expect("it is there");
        let (mut output, mut input) = std::io::pipe().expect("a pipe");
        let reader = std::thread::spawn(move || {
            let mut byte = [0];
            while std::io::Read::read(&mut output, &mut byte).is_ok_and(|count| count > 0) {}
        });
        let mut stays = false;
        for number in 0..CALLS {
            // SAFETY: getpgid(2) takes a number.
            unsafe { libc::syscall(libc::SYS_getpgid, 0) };
            std::io::Write::write_all(&mut input, &[0]).expect("it is read");
            if number % 10 == 0 {
                drop(std::fs::File::open("/proc/self/stat"));
            }
            if number % 100 == 0 {
                stays |= allocate_without_migration().is_some();
            }
        }
        drop(input);
        reader.join().expect("it ends");
        (trackway_sys::thread::current_tid(), stays)
    };
    std::thread::spawn(work).join().expect("it ends")
}

/// RUN events in many situations, recorded by Trackway and ftrace at once: with preemption or
/// interrupts disabled, for threads that must leave their CPU or must not migrate. EXPECT equal
/// contexts.
#[test]
fn preemption_contexts_match_ftrace() {
    /// Most attempts: the kernel skips a program that would interrupt itself, so records may be
    /// missing.
    const TRIES: usize = 5;
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let wanted = COMPARED_CONTEXTS.map(|name| Context::find_by_name(name).expect("there is one"));
    let contexts = match Contexts::new(&wanted, Some(btf)) {
        Ok(contexts) => contexts,
        Err(hidden) => return report_skipped(hidden),
    };
    for left in (0..TRIES).rev() {
        let Some(mut both) = RecordingPrograms::new(btf, EVENTS.len()) else { return };
        for event in EVENTS {
            let event = &select_events(&catalogue, &[event])[0];
            let of_arguments = EventPlan::from_arguments(event, btf, PAYLOAD_MAX);
            let is_raw = of_arguments.is_some();
            let plan = of_arguments.unwrap_or_else(|| EventPlan::from_record(event, PAYLOAD_MAX));
            both.attach(event, EventPlan { contexts: contexts.clone(), ..plan }, is_raw);
        }
        let Some(ftrace) = Ftrace::new() else {
            return report_skipped("there is no ftrace for us");
        };
        let (tid, stays) = cause_events();
        let perf = ftrace.finish(tid);
        let own = both.finish().concat();
        let own = own.iter().filter(|record| record.tid == u64::from(tid));
        let own: Vec<_> = own
            .map(|record| {
                (kernel_event_name(&both.events[record.id].name), recorded_contexts(record))
            })
            .collect();
        if both.missed.iter().any(|&missed| missed > 0) && left > 0 {
            continue;
        }
        return compare_contexts(between_calls(&own), between_calls(&perf), stays);
    }
}

/// Returns the events from the first system call to the last: before and after, one of the two
/// tracers may not record.
fn between_calls(all: &[(String, ObservedContexts)]) -> &[(String, ObservedContexts)] {
    let is_call = |(event, _): &(String, ObservedContexts)| event == "syscall_entry_getpgid";
    let first = all.iter().position(is_call).expect("it has called");
    &all[first..=all.iter().rposition(is_call).unwrap_or(first)]
}

/// Compares the numbers of events in each situation; if `stays`, the thread could not migrate in
/// one of them.
fn compare_contexts(
    own: &[(String, ObservedContexts)],
    perf: &[(String, ObservedContexts)],
    stays: bool,
) {
    type Counts = BTreeMap<(String, [bool; 3]), [usize; 2]>;
    // For each situation, the number of events, and the number whose thread had to leave its CPU.
    let count = |all: &[(String, ObservedContexts)]| {
        let mut counts = Counts::new();
        for (event, [preempted, interrupted, moved, leaves]) in all {
            let of = counts.entry((event.clone(), [*preempted, *interrupted, *moved])).or_default();
            of[0] += 1;
            of[1] += usize::from(*leaves);
        }
        counts
    };
    let (own, perf) = (count(own), count(perf));
    println!("{COMPARED_CONTEXTS:?}: {own:?} {perf:?}");
    let in_all = |of: &Counts| of.iter().map(|(key, [all, _])| (key.clone(), *all)).collect();
    let (our_all, their_all): (BTreeMap<_, _>, BTreeMap<_, _>) = (in_all(&own), in_all(&perf));
    assert_eq!(our_all, their_all, "{COMPARED_CONTEXTS:?}");
    // A thread must leave its CPU until it has left; Trackway's program runs before ftrace.
    let leaving = |of: &Counts| of.values().map(|[_, leaving]| leaving).sum::<usize>();
    let is_later = |(key, [_, leaving]): (_, &[usize; 2])| perf[key][1] >= *leaving;
    assert!(own.iter().all(is_later), "{own:?} {perf:?}");
    let (our_leaving, their_leaving) = (leaving(&own), leaving(&perf));
    assert!(their_leaving - our_leaving <= their_leaving / 10, "{our_leaving} {their_leaving}");
    // Situations that certainly occurred.
    let of = |event: &str, state| own.get(&(event.to_owned(), state)).copied().unwrap_or_default();
    assert_eq!(of("syscall_entry_getpgid", [true; 3])[0], CALLS);
    assert!(of("sched_waking", [false, false, true])[0] > 0, "{own:?}");
    assert!(our_leaving > 0, "{own:?}");
    assert!(!stays || of("kmalloc", [true, true, false])[0] > 0, "{own:?}");
}
