//! Sessions that change, in a traced process: participation of processes, and the fate of records.

mod fixture;

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use fixture::{Recording, Sizes, shared_fixture};
use trackway_abi::session::{flag, state};
use trackway_window::WriterPath;

fn pid_namespace() -> u64 {
    trackway_sys::process::pid_namespace()
}

#[test]
fn process_rules_select_the_processes() {
    let fixture = shared_fixture();
    let recording = fixture.session("who:*", Sizes::default(), |_| {});
    let event = fixture.event(c"who", c"takes_part");
    let executable = std::env::current_exe().unwrap();
    let name = executable.file_name().unwrap().to_str().unwrap();
    let (pid, namespace) = (std::process::id(), pid_namespace());
    let mut expected = Vec::new();
    for (number, (rules, takes_part)) in [
        (String::new(), true),
        (format!("pid={namespace}:{pid}"), true),
        (format!("pid={namespace}:{}", pid + 1), false),
        (format!("exe={name}"), true),
        (format!("exe={}", executable.display()), true),
        ("exe=another".into(), false),
        (format!("ns={namespace}"), true),
        (format!("ns={}", namespace + 1), false),
        (format!("exe={name}\nns={namespace}\npid={namespace}:{pid}"), true),
        (format!("exe={name}\nns={namespace}\npid={namespace}:1"), false),
    ]
    .iter()
    .enumerate()
    {
        recording.set_process_rules(rules);
        assert!(event.is_enabled(), "for others");
        event.emit(number as u64);
        event.emit(100 + number as u64); // by the decision so far
        if *takes_part {
            expected.extend([number as u64, 100 + number as u64]);
        }
    }
    expected.sort_unstable();
    assert_eq!(recording.numbers(), expected);
}

#[test]
fn an_event_that_an_outsider_describes_is_off_until_the_recorder_comes() {
    let fixture = shared_fixture();
    let recording = fixture.session("outside:*", Sizes::default(), |_| {});
    recording.set_process_rules("exe=another");
    let event = fixture.event(c"outside", c"described");
    assert!(!event.is_enabled());
    recording.set_process_rules("");
    assert!(event.is_enabled());
    event.emit(7);
    assert_eq!(recording.numbers(), [7]);
}

#[test]
fn a_fork_child_decides_for_itself() {
    let fixture = shared_fixture();
    let recording = fixture.session("fork:*", Sizes::default(), |_| {});
    let event = fixture.event(c"fork", c"child");
    recording.set_process_rules(&format!("pid={}:{}", pid_namespace(), std::process::id()));
    event.emit(1);
    // SAFETY: the child emits, which is async-signal-safe, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            event.emit(2);
            libc::_exit(0);
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
    event.emit(3);
    assert_eq!(recording.numbers(), [1, 3]);
}

#[test]
fn no_process_takes_part_in_a_pause() {
    let fixture = shared_fixture();
    let recording = fixture.session("pause:*", Sizes::default(), |_| {});
    let event = fixture.event(c"pause", c"now");
    let flags = &recording.session().flags;
    event.emit(1);
    flags.fetch_or(flag::PAUSED, Ordering::SeqCst);
    recording.raise_generation();
    event.emit(2); // an emission under way, because the bit is still set
    recording.apply_rules();
    assert!(!event.is_enabled());
    assert!(!fixture.event(c"pause", c"described_now").is_enabled());
    flags.fetch_and(!flag::PAUSED, Ordering::SeqCst);
    recording.raise_generation();
    recording.apply_rules();
    event.emit(3);
    fixture.event(c"pause", c"described_now").emit(4);
    assert_eq!(recording.numbers(), [1, 3, 4]);
    assert_eq!(recording.discards(), 0);
}

/// Replaces `old` by a session in another slot, like a recorder that changes a channel's contexts.
fn replace_session(old: Recording, rules: &str, sizes: Sizes) -> Recording {
    let window = old.fixture.window;
    let new = old.fixture.session("", sizes, |_| {});
    let layout = new.layout();
    old.session().successor.store(new.slot as u32 + 1, Ordering::SeqCst);
    for index in 0..trackway_abi::window::EVENTS_MAX {
        window.move_event(index, old.slot, &layout);
    }
    assert!(window.set_rules(new.slot, rules.as_bytes()));
    new.apply_rules();
    old.session().state.store(state::ENDING, Ordering::SeqCst);
    old.raise_generation();
    new
}

#[test]
fn records_on_their_way_to_a_session_that_was_replaced_are_in_its_successor_once() {
    const REPLACEMENTS: u64 = 12;
    const EVENTS_BETWEEN: u64 = 3000;
    const TOTAL: u64 = (REPLACEMENTS + 1) * EVENTS_BETWEEN;
    const RULES: &str = "heir:*";
    let fixture = shared_fixture();
    let sizes = Sizes { sub_shift: 15, ..Sizes::default() };
    let mut recordings = vec![fixture.session(RULES, sizes, |_| {})];
    let emitted = [const { AtomicU64::new(0) }; 2];
    std::thread::scope(|scope| {
        for (thread, emitted) in (0_u64..).zip(&emitted) {
            scope.spawn(move || {
                let event = fixture.event(c"heir", c"all_the_time");
                for number in 0..TOTAL {
                    event.emit(thread * TOTAL + number);
                    emitted.store(number + 1, Ordering::Relaxed);
                    // Some events are described while bits change.
                    if number % (TOTAL / 50) == 0 {
                        let name = CString::new(format!("new_{thread}_{number}")).unwrap();
                        fixture.event(c"heir", &name).emit((2 + thread) * TOTAL + number);
                    }
                }
            });
        }
        for replaced in 1..=REPLACEMENTS {
            let is_behind =
                || emitted.iter().any(|n| n.load(Ordering::Relaxed) < replaced * EVENTS_BETWEEN);
            while is_behind() {
                std::thread::yield_now();
            }
            let last = *recordings.last().unwrap();
            recordings.push(replace_session(last, RULES, sizes));
        }
    });
    let mut numbers: Vec<u64> = recordings.iter().flat_map(Recording::numbers).collect();
    numbers.sort_unstable();
    let seldom = |thread: u64| {
        (0..TOTAL).step_by((TOTAL / 50) as usize).map(move |number| (2 + thread) * TOTAL + number)
    };
    let expected: Vec<u64> = (0..2 * TOTAL).chain(seldom(0)).chain(seldom(1)).collect();
    assert!(numbers == expected, "{} of {} records", numbers.len(), expected.len());
    let discards: u64 = recordings.iter().map(Recording::discards).sum();
    assert_eq!(discards, 0);
    let used = recordings.iter().filter(|recording| !recording.numbers().is_empty()).count();
    assert!(used > 1, "all in one session");
}

/// A writer that stops at its first read of a session's control lines, by a page fault. The
/// handler, in the writer's thread, moves the event to a successor and ends the session. It acts
/// like a recorder that has replaced the channel and drained it by then.
mod stopped {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use trackway_abi::session::state;

    use crate::fixture::{Recording, shared_fixture};

    /// Slots of the old session and of the new one.
    static SLOTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    /// Beginning and end of the pages that fault.
    static PAGES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    static STOPS: AtomicUsize = AtomicUsize::new(0);

    fn set_page_protection(protection: i32) {
        let [start, end] = PAGES.each_ref().map(|word| word.load(Ordering::SeqCst));
        // SAFETY: pages of the window that only the old session uses.
        let changed = unsafe {
            libc::mprotect(std::ptr::without_provenance_mut(start), end - start, protection)
        };
        assert_eq!(changed, 0);
    }

    extern "C" fn replace_on_fault(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's data of a page fault.
        let address = unsafe { (*info).si_addr() } as usize;
        let [start, end] = PAGES.each_ref().map(|word| word.load(Ordering::SeqCst));
        if !(start..end).contains(&address) {
            // SAFETY: any further fault in these pages ends the test.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            return;
        }
        set_page_protection(libc::PROT_READ | libc::PROT_WRITE);
        STOPS.fetch_add(1, Ordering::SeqCst);
        let fixture = shared_fixture();
        let [old, new] =
            SLOTS.each_ref().map(|slot| Recording { fixture, slot: slot.load(Ordering::SeqCst) });
        let layout = new.layout();
        old.session().successor.store(new.slot as u32 + 1, Ordering::SeqCst);
        for index in 0..trackway_abi::window::EVENTS_MAX {
            fixture.window.move_event(index, old.slot, &layout);
        }
        old.session().state.store(state::ENDING, Ordering::SeqCst);
        old.raise_generation();
    }

    /// Returns the library's address of the window that the test has mapped at `own`.
    fn library_window_base(own: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of = |base: usize| {
            let line = maps.lines().find(|line| line.starts_with(&format!("{base:x}-")));
            line.unwrap().split_whitespace().nth(4).unwrap()
        };
        let starts = maps.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let (range, offset, file) = (words.next()?, words.nth(1)?, words.nth(1)?);
            let start = usize::from_str_radix(range.split('-').next()?, 16).ok()?;
            (offset == "00000000" && file == of(own) && start != own).then_some(start)
        });
        let starts: Vec<usize> = starts.collect();
        assert_eq!(starts.len(), 1, "{maps}");
        starts[0]
    }

    /// Calls `emit`, which stops once. Returns the number of stops.
    pub(super) fn replace_during_emit(
        old: Recording,
        new: Recording,
        emit: impl FnOnce(),
    ) -> usize {
        for (word, slot) in SLOTS.iter().zip([old.slot, new.slot]) {
            word.store(slot, Ordering::SeqCst);
        }
        let base = old.fixture.window.base().addr();
        let first = old.region(0, trackway_window::WriterPath::Sequence).control;
        let start = library_window_base(base) + (std::ptr::from_ref(first).addr() - base);
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        assert!(start.is_multiple_of(page), "the tables before them have whole pages");
        PAGES[0].store(start, Ordering::SeqCst);
        // Each granule belongs to one session.
        PAGES[1].store(start + page, Ordering::SeqCst);
        // SAFETY: zeros are valid, and the handlers take no locks and do not allocate.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = replace_on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before), 0);
            set_page_protection(libc::PROT_NONE);
            emit();
            set_page_protection(libc::PROT_READ | libc::PROT_WRITE);
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const before, std::ptr::null_mut()), 0);
        }
        STOPS.load(Ordering::SeqCst)
    }
}

#[test]
fn a_record_that_found_no_room_in_a_session_that_has_ended_is_not_counted_there() {
    let fixture = shared_fixture();
    // No region has memory, so a record that reaches a region is counted.
    let full = Sizes { is_backed: |_, _| false, ..Sizes::default() };
    let old = fixture.session("stopped:*", full, |_| {});
    let event = fixture.event(c"stopped", c"on_its_way");
    let new = fixture.session("", Sizes::default(), |_| {});
    assert_eq!(stopped::replace_during_emit(old, new, || event.emit(1)), 1, "somewhere else");
    assert_eq!((old.discards(), new.numbers(), new.discards()), (0, vec![1], 0));
}

#[test]
fn a_site_that_finds_the_bits_of_both_records_once() {
    let fixture = shared_fixture();
    let old = fixture.session("both:*", Sizes::default(), |_| {});
    let event = fixture.event(c"both", c"bits");
    let new = replace_session(old, "both:*", Sizes::default());
    // Sets the state of a library that has set the old bit, and has not checked again.
    fixture.set_bit(c"bits", old.slot);
    event.emit(1);
    assert_eq!((old.numbers(), new.numbers()), (vec![], vec![1]));
}

#[test]
fn snapshots_are_asked_of_flight_recorders_that_record_the_process() {
    let fixture = shared_fixture();
    let name = |session: &trackway_abi::session::Session, name: &[u8]| {
        for (place, byte) in session.name.iter().zip(name) {
            place.store(*byte, Ordering::Relaxed);
        }
        session.name_bytes.store(name.len() as u32, Ordering::Relaxed);
    };
    let session = |text: &'static str, trace: u64, flags: u32| {
        fixture.session("none:*", Sizes::default(), |session| {
            name(session, text.as_bytes());
            session.trace_uuid[0].store(trace, Ordering::Relaxed);
            session.flags.store(flags, Ordering::Relaxed);
            session.snapshot_requests.store(0, Ordering::Relaxed);
        })
    };
    let web = session("web", 1, flag::OVERWRITE);
    let other_channel = session("web", 1, flag::OVERWRITE);
    let database = session("database", 2, flag::OVERWRITE);
    let outside = session("outside", 3, flag::OVERWRITE);
    outside.set_process_rules("exe=another");
    let plain = session("plain", 4, 0);
    let paused = session("paused", 5, flag::OVERWRITE | flag::PAUSED);
    let all = [web, other_channel, database, outside, plain, paused];
    let requests = || all.map(|one| one.session().snapshot_requests.load(Ordering::Relaxed));
    // SAFETY: null, and C strings.
    let ask = |name: Option<&std::ffi::CStr>| unsafe {
        trackway_agent::snapshot::request_snapshots(
            name.map_or(std::ptr::null(), std::ffi::CStr::as_ptr),
        )
    };
    assert_eq!((ask(None), requests()), (2, [1, 1, 1, 0, 0, 0]), "a session's channels are one");
    assert_eq!((ask(Some(c"web")), requests()), (1, [2, 2, 1, 0, 0, 0]));
    for stranger in [c"we", c"webs", c"", c"outside", c"plain", c"paused"] {
        assert_eq!(ask(Some(stranger)), 0, "{stranger:?}");
    }
    assert_eq!(requests(), [2, 2, 1, 0, 0, 0]);
}

#[test]
fn records_on_a_cpu_without_memory_go_where_some_is_and_ask_for_it() {
    let fixture = shared_fixture();
    // Only the claim regions of CPU 0 have memory.
    let is_backed = |cpu: u32, way: WriterPath| cpu == 0 && way != WriterPath::Sequence;
    let sizes = Sizes { is_backed, ..Sizes::default() };
    let recording =
        fixture.session("spare:*", sizes, |session| session.spare_cpus.store(1, Ordering::Relaxed));
    let event = fixture.event(c"spare", c"early");
    let numbers: Vec<u64> = (0..1000).collect();
    numbers.iter().for_each(|number| event.emit(*number));
    assert_eq!((recording.numbers(), recording.discards()), (numbers, 0));
    let layout = recording.layout();
    let wants_memory =
        |cpu, way| recording.region(cpu, way).control.wants_memory.load(Ordering::Relaxed);
    let cpus: Vec<u32> =
        (0..layout.cpus).filter(|&cpu| wants_memory(cpu, WriterPath::Sequence) != 0).collect();
    assert!(!cpus.is_empty(), "nobody asked");
    // The recorder gives the requested memory.
    (0..layout.cpus).for_each(|cpu| recording.back(&layout, cpu, WriterPath::Sequence));
    event.emit(1000);
    let sequences =
        (0..layout.cpus).flat_map(|cpu| recording.numbers_in(cpu, WriterPath::Sequence));
    assert_eq!(sequences.collect::<Vec<_>>(), [1000]);
}

#[test]
fn where_no_memory_is_at_all_records_are_counted_and_memory_asked_for() {
    let fixture = shared_fixture();
    let sizes = Sizes { is_backed: |_, _| false, ..Sizes::default() };
    let recording =
        fixture.session("bare:*", sizes, |session| session.spare_cpus.store(7, Ordering::Relaxed));
    fixture.event(c"bare", c"early").emit(1);
    assert_eq!((recording.numbers(), recording.discards()), (vec![], 1));
    let asked = |way| {
        let of = |cpu| recording.region(cpu, way).control.wants_memory.load(Ordering::Relaxed);
        (0..recording.layout().cpus).map(of).sum::<u64>()
    };
    assert_eq!(
        [WriterPath::Sequence, WriterPath::Claim(0), WriterPath::Claim(1)].map(asked),
        [1; 3]
    );
}

#[test]
fn records_wait_for_room_where_program_and_session_want_it() {
    const COUNT: u64 = 3000;
    let fixture = shared_fixture();
    let sizes = Sizes { sub_shift: 12, ..Sizes::default() };
    let recording = fixture.session("wait:*", sizes, |session| {
        session.blocking_ns.store(u64::MAX, Ordering::Relaxed);
    });
    // Models a recorder that adds memory by single sub-buffers, only when all others are full.
    let cpus = recording.layout().cpus;
    let regions = || (0..cpus).map(|cpu| recording.region(cpu, WriterPath::Sequence));
    let sub_bytes = recording.layout().geometry.sub_bytes();
    regions().for_each(|region| region.raise_limit(sub_bytes));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let event = fixture.event(c"wait", c"long");
            (0..COUNT).for_each(|number| event.emit(number));
        });
        while !writer.is_finished() {
            for region in regions() {
                let (limit, head) =
                    (region.control.limit.load(Ordering::Relaxed), region.expected() >> 1);
                if head + 64 > limit {
                    region.raise_limit(limit + sub_bytes);
                }
            }
            std::thread::yield_now();
        }
    });
    assert_eq!((recording.numbers(), recording.discards()), ((0..COUNT).collect(), 0));
    assert!(regions().any(|region| region.control.limit.load(Ordering::Relaxed) > sub_bytes));
}

#[test]
fn no_record_waits_beyond_the_timeout_or_for_a_dead_recorder() {
    let fixture = shared_fixture();
    let sizes = Sizes { sub_shift: 12, ..Sizes::default() };
    let recording = fixture.session("late:*", sizes, |session| {
        session.blocking_ns.store(300_000, Ordering::Relaxed);
    });
    for (cpu, way) in
        (0..recording.layout().cpus).flat_map(|cpu| WriterPath::ALL.map(|way| (cpu, way)))
    {
        // The region has some memory, but too little for a record.
        recording.region(cpu, way).raise_limit(1);
    }
    let event = fixture.event(c"late", c"ever");
    event.emit(1);
    assert_eq!(recording.discards(), 1);
    assert!(event.is_enabled());
    recording.session().blocking_ns.store(u64::MAX, Ordering::Relaxed);
    recording.session().lease_until_ns.store(0, Ordering::Relaxed);
    event.emit(2);
    assert_eq!(recording.discards(), 2);
    assert!(!event.is_enabled(), "nobody is there to record it");
}
