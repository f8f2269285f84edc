//! Filters in a traced process: which records they pass, while they change.
//!
//! Longer than 600 lines because all tests share one process's lanes and the helpers for filters.

mod fixture;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fixture::{Fixture, Recording, Sizes, shared_fixture};
use trackway_abi::session::{filters_word, flag};
use trackway_abi::window::granule;
use trackway_filter::compile::compile;
use trackway_filter::layout::{Layout, Member};
use trackway_jit::block::{BLOCK_BYTES_MAX, Entry, encode};
use trackway_schema::Scalar;
use trackway_sys::thread::CpuSet;

/// Serializes tests: one thread at a time makes links, and a thread that waits too long counts the
/// event as discarded. (In a debug build on a busy machine, a link takes long.)
fn serialize_tests() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session's filters, as its recorder publishes them.
struct Filters {
    recording: Recording,
    /// Memory for two blocks.
    room: u64,
    which: u64,
    ids: u64,
}

impl Filters {
    fn of(recording: Recording) -> Self {
        let owner = granule::CONTROL + recording.slot as u8;
        let bytes = 2 * BLOCK_BYTES_MAX as u64;
        let room = recording.fixture.allocator.lock().unwrap().take(bytes, owner).unwrap();
        Self { recording, room, which: 0, ids: 1000 * (recording.slot as u64 + 1) }
    }

    /// Publishes these filters: rules and objects.
    fn set(&mut self, filters: &[(&str, &[u8])]) {
        self.ids += filters.len() as u64;
        self.set_again(filters);
    }

    /// Publishes these filters with the ids of the last ones.
    fn set_again(&mut self, filters: &[(&str, &[u8])]) {
        let first = self.ids - filters.len() as u64;
        let entries = filters.iter().enumerate().map(|(number, (rules, object))| Entry {
            id: first + number as u64 + 1,
            rules: rules.as_bytes(),
            object,
        });
        let mut block = vec![0; BLOCK_BYTES_MAX];
        let size = encode(entries, &mut block).expect("a block");
        self.publish(&block[..size]);
    }

    /// Publishes a block, valid or not.
    fn publish(&mut self, block: &[u8]) {
        self.which ^= 1;
        let offset = self.room + self.which * BLOCK_BYTES_MAX as u64;
        fence(Ordering::Release);
        for (index, word) in block.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            let at = self.recording.fixture.window.base().wrapping_add(offset as usize + 8 * index);
            // SAFETY: memory in the window that was allocated for blocks.
            let place = unsafe { AtomicU64::from_ptr(at.cast()) };
            place.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        let session = self.recording.session();
        session.filters.store(filters_word(offset, block.len() as u32), Ordering::Release);
        session.flags.fetch_or(flag::FILTERED, Ordering::Relaxed);
        self.recording.raise_generation();
    }

    fn remove(&self) {
        let session = self.recording.session();
        session.flags.fetch_and(!flag::FILTERED, Ordering::Relaxed);
        session.filters.store(0, Ordering::Relaxed);
        self.recording.raise_generation();
    }
}

/// Compiles an object for events with a number.
fn compile_object(text: &str) -> Vec<u8> {
    let number = Member { name: "number".into(), of: Scalar::U64.into() };
    let contexts = Layout::program_contexts();
    let layout = Layout { fields: vec![number], contexts, ..Layout::default() };
    compile(text, &layout).expect("a filter").into_object().encode().expect("an object")
}

/// Visits every CPU, if a process has requested it.
fn visit_cpus_if_requested(fixture: &Fixture) -> bool {
    let header = fixture.window.header();
    let asked = header.visits_asked.load(Ordering::Acquire);
    if asked == header.visits_done.load(Ordering::Relaxed) {
        return false;
    }
    let before = CpuSet::current().expect("this thread's");
    for cpu in (0..1024).filter(|&cpu| before.contains(cpu)) {
        CpuSet::only(cpu).apply().expect("a CPU");
    }
    before.apply().expect("as before");
    header.visits_done.store(asked, Ordering::Release);
    true
}

fn emit_all(event: &fixture::Event, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| event.emit(number));
}

#[test]
fn what_a_filter_does_not_pass_is_not_recorded() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("pass:*", Sizes::default(), |_| {});
    let event = fixture.event(c"pass", c"number");
    let other = fixture.event(c"pass", c"other");
    let mut filters = Filters::of(recording);
    emit_all(&event, 0..2); // unfiltered
    filters.set(&[("pass:number", &compile_object("number % 10 == 3"))]);
    emit_all(&event, 10..30);
    emit_all(&other, 90..92); // no filter applies to it
    filters.set(&[
        ("pass:*", &compile_object("number >= 45 && number < 50")),
        ("*", &compile_object("number & 1")),
    ]);
    emit_all(&event, 40..60);
    emit_all(&other, 40..60);
    filters.remove();
    emit_all(&event, 70..72);
    let expected = [0, 1, 13, 23, 45, 45, 47, 47, 49, 49, 70, 71, 90, 91];
    assert_eq!(recording.numbers(), expected);
    assert_eq!(recording.discards(), 0);
}

/// RUN filters that are machine code alone. EXPECT that sites call the function for such filters
/// while these are set.
#[test]
fn sites_go_by_another_function_where_a_filter_is_asked_at_once() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("quick:*", Sizes::default(), |_| {});
    let event = fixture.event(c"quick", c"number");
    let mut filters = Filters::of(recording);
    let is_there = cfg!(target_arch = "x86_64");
    emit_all(&event, 0..4);
    assert!(!event.is_filtered());
    filters.set(&[("*", &compile_object("number % 2 == 1"))]);
    emit_all(&event, 10..30);
    assert_eq!(event.is_filtered(), is_there);
    // Sets another filter of that kind.
    filters.set(&[("*", &compile_object("number % 4 == 1"))]);
    emit_all(&event, 30..50);
    assert_eq!(event.is_filtered(), is_there);
    // Filters with state, and two filters, are not of that kind.
    filters.set(&[("*", &compile_object("count() < 1000 && number % 2 == 1"))]);
    emit_all(&event, 50..60);
    assert!(!event.is_filtered());
    filters.set(&[("*", &compile_object("number >= 1")), ("*", &compile_object("number < 70"))]);
    emit_all(&event, 60..80);
    assert!(!event.is_filtered());
    filters.set(&[("*", &compile_object("number > 85"))]);
    emit_all(&event, 80..90);
    assert_eq!(event.is_filtered(), is_there);
    filters.remove();
    emit_all(&event, 90..100);
    assert!(!event.is_filtered());
    let passes = |number: &u64| match number {
        0..4 | 60..70 | 90..100 => true,
        10..30 | 50..60 => number % 2 == 1,
        30..50 => number % 4 == 1,
        _ => (86..90).contains(number),
    };
    assert_eq!(recording.numbers(), (0..100).filter(passes).collect::<Vec<u64>>());
    assert_eq!(recording.discards(), 0);
}

#[test]
fn events_without_what_is_needed_are_not_recorded() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("lacks:*", Sizes::default(), |_| {});
    let event = fixture.event(c"lacks", c"number");
    let mut filters = Filters::of(recording);
    let size = Member { name: "size".into(), of: Scalar::U64.into() };
    let layout = Layout { fields: vec![size], ..Layout::default() };
    let other = compile("size > 0", &layout).expect("a filter").into_object();
    let other = other.encode().expect("an object");
    filters.set(&[("*", &other)]);
    emit_all(&event, 0..5);
    assert_eq!((recording.numbers(), recording.discards()), (vec![], 0));
    // The event has the field with another meaning: the recorder must check the event again.
    let text = Member { name: "number".into(), of: trackway_filter::layout::Type::String };
    let layout = Layout { fields: vec![text], ..Layout::default() };
    let text = compile("number == \"x\"", &layout).expect("a filter").into_object();
    let revision = || fixture.window.header().events_revision.load(Ordering::Relaxed);
    let before = revision();
    filters.set(&[("*", &text.encode().expect("an object"))]);
    emit_all(&event, 5..10);
    assert_eq!((recording.numbers(), recording.discards()), (vec![], 5));
    assert!(revision() > before);
    // The event has one field with another meaning and lacks the other field, so no alternative
    // applies.
    let member = |name: &str, of| Member { name: name.into(), of };
    let fields = vec![
        member("number", trackway_filter::layout::Type::String),
        member("size", Scalar::U64.into()),
    ];
    let layout = Layout { fields, ..Layout::default() };
    let both = compile("number == \"x\" && size > 0", &layout).expect("a filter").into_object();
    filters.set(&[("*", &both.encode().expect("an object"))]);
    emit_all(&event, 10..15);
    assert_eq!((recording.numbers(), recording.discards()), (vec![], 5));
}

#[test]
fn contexts_are_those_of_the_emitting_thread() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("context:*", Sizes::default(), |_| {});
    let event = fixture.event(c"context", c"number");
    let mut filters = Filters::of(recording);
    let mut expected = Vec::new();
    let (pid, own) = (std::process::id(), trackway_sys::thread::current_tid());
    for (number, (text, passes)) in [
        (format!("$ctx.vpid == {pid}"), true),
        (format!("$ctx.vpid == {}", pid + 1), false),
        (format!("$ctx.vtid == {own}"), true),
        ("$ctx.procname == \"filters-test\"".into(), true),
        ("$ctx.procname == \"filters*\" && number >= 0".into(), true),
        ("$ctx.procname == \"other\"".into(), false),
        ("length($ctx.procname) == 12".into(), true),
    ]
    .into_iter()
    .enumerate()
    {
        // SAFETY: a C string; the call changes only this thread's name.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"filters-test".as_ptr()) };
        filters.set(&[("*", &compile_object(&text))]);
        for repeated in 0..3 {
            event.emit(10 * number as u64 + repeated);
            if passes {
                expected.push(10 * number as u64 + repeated);
            }
        }
    }
    assert_eq!(recording.numbers(), expected);
}

#[test]
fn state_is_a_filters_and_goes_on_with_it() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("state:*", Sizes::default(), |_| {});
    let event = fixture.event(c"state", c"number");
    let other = fixture.event(c"state", c"other");
    let mut filters = Filters::of(recording);
    let third = compile_object("count() % 3 == 0");
    filters.set(&[("*", &third)]);
    emit_all(&event, 0..4); // 0 3
    recording.raise_generation();
    emit_all(&event, 4..8); // 6
    emit_all(&other, 8..10); // 9: the filter counts for both events
    filters.set_again(&[("*", &third)]);
    emit_all(&event, 10..13); // 12
    filters.set(&[("*", &third)]);
    emit_all(&event, 20..22); // another filter with new state: 20
    filters.set(&[("*", &compile_object("changed(number / 4)"))]);
    emit_all(&event, 30..42);
    assert_eq!(recording.numbers(), [0, 3, 6, 9, 12, 20, 30, 32, 36, 40]);
}

#[test]
fn what_is_no_filter_records_nothing_and_is_counted() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("hostile:*", Sizes::default(), |_| {});
    let event = fixture.event(c"hostile", c"number");
    let mut filters = Filters::of(recording);
    let mut events = 0;
    for block in [&b"nonsense"[..], &[0; 200], b"twb\x01\xff\xff\xff\xff"] {
        filters.publish(block);
        emit_all(&event, 0..3);
        events += 3;
        assert_eq!((recording.numbers(), recording.discards()), (vec![], events));
    }
    // A program that the verifier refuses: it loads beyond its slots.
    let mut beyond = compile_object("number > 3");
    let size = beyond.len();
    let load = beyond.iter().rposition(|&byte| byte == 0x79).expect("a load");
    beyond[load + 2] = 80;
    assert_eq!(beyond.len(), size);
    filters.set(&[("*", &beyond)]);
    emit_all(&event, 0..3);
    assert_eq!((recording.numbers(), recording.discards()), (vec![], events + 3));
    // A block beyond the window's end is not used either.
    recording.session().filters.store(filters_word(1 << 37, 64), Ordering::Relaxed);
    recording.raise_generation();
    emit_all(&event, 0..3);
    assert_eq!((recording.numbers(), recording.discards()), (vec![], events + 6));
}

/// RUN a plan that is too large for every part. EXPECT that the linker tries it once, not at each
/// event: its events are counted, and other events go on.
#[test]
fn what_is_too_large_for_memory_is_counted_and_not_made_again_and_again() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("large:*", Sizes::default(), |_| {});
    let (event, other) = (fixture.event(c"large", c"number"), fixture.event(c"large", c"other"));
    // As many programs as possible, more than are compiled: one filter's programs fill almost a
    // part.
    let many = |text: &str| {
        let number = Member { name: "number".into(), of: Scalar::U64.into() };
        let layout = Layout { fields: vec![number], ..Layout::default() };
        let mut object = compile(text, &layout).expect("a filter").into_object();
        let programs = &mut object.alternatives[0].programs;
        programs.resize(255, programs[0].clone());
        object.encode().expect("an object")
    };
    let large = ["number > 0", "number > 1", "number > 2"].map(many);
    let small = compile_object("number < 1000");
    let mut filters = Filters::of(recording);
    let mut all: Vec<(&str, &[u8])> =
        large.iter().map(|object| ("large:number", &object[..])).collect();
    all.push(("large:other", &small));
    filters.set(&all);
    // Earlier tests may have used all parts, which become free after a while.
    let begin = Instant::now();
    while recording.numbers().is_empty() && begin.elapsed() < Duration::from_secs(30) {
        visit_cpus_if_requested(fixture);
        event.emit(10);
        other.emit(999);
        std::thread::sleep(Duration::from_millis(20));
    }
    let discarded = recording.discards();
    let asked = || fixture.window.header().visits_asked.load(Ordering::Relaxed);
    let before = asked();
    for number in 0..100 {
        event.emit(number + 10);
        other.emit(number);
    }
    let recorded = recording.numbers().into_iter().filter(|&number| number < 100);
    assert_eq!(recorded.collect::<Vec<u64>>(), (0..100).collect::<Vec<u64>>());
    assert_eq!(recording.discards() - discarded, 100);
    let turns = asked() - before;
    assert!(turns <= 1, "{turns} parts were given up for it");
}

/// EXPECT that each record passes a filter of its time; and that each event that passes all filters
/// of its time is recorded or counted.
#[test]
fn threads_record_by_one_filter_or_the_next() {
    const THREADS: u64 = 3;
    const EVENTS: u64 = 30_000;
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let sizes = Sizes { sub_shift: 17, count_shift: 4, ..Sizes::default() };
    let recording = fixture.session("race:*", sizes, |_| {});
    let event = fixture.event(c"race", c"number");
    let mut filters = Filters::of(recording);
    let objects: Vec<Vec<u8>> =
        (0..8).map(|filter| compile_object(&format!("number % 8 == {filter}"))).collect();
    filters.set(&[("*", &objects[0])]);
    // Filter n passes the values that equal n modulo 8.
    let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let is_over = AtomicBool::new(false);
    let mut emitted: Vec<(u64, u32, u32)> = std::thread::scope(|scope| {
        let emit = |thread: u64| {
            let (begun, done) = (&begun, &done);
            move || {
                let numbers = (0..EVENTS).map(|number| number * THREADS + thread);
                let emitted: Vec<_> = numbers
                    .map(|number| {
                        let from = done.load(Ordering::SeqCst);
                        event.emit(number);
                        (number, from, begun.load(Ordering::SeqCst))
                    })
                    .collect();
                emitted
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(emit(thread))).collect();
        let changer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let next = begun.fetch_add(1, Ordering::SeqCst) + 1;
                filters.set(&[("*", &objects[next as usize % 8])]);
                done.store(next, Ordering::SeqCst);
                visit_cpus_if_requested(fixture);
            }
        });
        let emitted: Vec<_> =
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        is_over.store(true, Ordering::Relaxed);
        changer.join().expect("no panic");
        emitted
    });
    emitted.sort_unstable();
    let recorded = recording.numbers();
    let passes = |number: u64, filter: u32| number % 8 == u64::from(filter) % 8;
    let mut missing = 0;
    for &(number, from, to) in &emitted {
        let is_recorded = recorded.binary_search(&number).is_ok();
        let any = (from..=to).any(|filter| passes(number, filter));
        let all = (from..=to).all(|filter| passes(number, filter));
        assert!(any || !is_recorded, "{number} was recorded, with {from} to {to}");
        missing += u64::from(all && !is_recorded);
    }
    assert!(begun.load(Ordering::Relaxed) > 100, "filters changed");
    assert!(recorded.len() > 1000, "something was recorded");
    assert!(missing <= recording.discards(), "{missing} of {}", recording.discards());
}

/// RUN a flight recorder whose filters change as often as possible or a thousand times a second.
/// Threads emit values that each filter passes, and values that no possible filter passes.
#[test]
fn filters_that_change_all_the_time_decide_right_and_take_no_memory() {
    /// Flag of values that all filters pass.
    const ALWAYS: u64 = 1 << 63;
    let seconds = std::env::var("TRACKWAY_TORTURE_SECONDS").ok();
    let seconds: u64 = seconds.map_or(2, |text| text.parse().expect("a number of seconds"));
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("storm:*", Sizes::default(), |session| {
        session.flags.store(flag::OVERWRITE, Ordering::Relaxed);
    });
    recording.go_round();
    // Two events, so that their discards are counted separately.
    let (passing, others) =
        (fixture.event(c"storm", c"passing"), fixture.event(c"storm", c"others"));
    let mut filters = Filters::of(recording);
    let objects: Vec<Vec<u8>> = (0..256)
        .map(|filter| compile_object(&format!("number >= {ALWAYS} || number % 256 == {filter}")))
        .collect();
    filters.set(&[("*", &objects[0])]);
    // Blocks up to `done` are published; blocks up to `begun` may be.
    let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let is_over = AtomicBool::new(false);
    let emit = || {
        let (mut always, mut unclear) = (0_u64, 0_u64);
        while !is_over.load(Ordering::Relaxed) {
            passing.emit(ALWAYS + always);
            always += 1;
            let from = done.load(Ordering::SeqCst);
            // No filter among about the next hundred passes that value.
            others.emit(u64::from(from.wrapping_add(128) % 256));
            let to = begun.load(Ordering::SeqCst);
            unclear += u64::from(to.wrapping_sub(from) > 100);
        }
        (always, unclear)
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let (mut grown, mut visits) = (0, 0);
    let (always, unclear) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(emit)).collect();
        let mut resident = None;
        while std::time::Instant::now() < end {
            let next = begun.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
            filters.set(&[("*", &objects[next as usize % 256])]);
            done.store(next, Ordering::SeqCst);
            visits += u32::from(visit_cpus_if_requested(fixture));
            if next % 4000 >= 2000 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if next == 2000 {
                resident = Some(resident_bytes());
            }
        }
        is_over.store(true, Ordering::Relaxed);
        grown = resident_bytes().saturating_sub(resident.unwrap_or(u64::MAX));
        threads.into_iter().fold((0, 0), |(always, unclear), thread| {
            let (more, not_clear) = thread.join().expect("no panic");
            (always + more, unclear + not_clear)
        })
    });
    let (committed, discarded) = (recording.committed(), recording.discards_of(c"passing"));
    println!(
        "{} changes, {visits} visits, {always} to pass, {committed} committed, {discarded} \
         discarded, {unclear} unclear, {grown} bytes more",
        begun.load(Ordering::Relaxed)
    );
    let all = committed + discarded;
    assert!((always..=always + unclear).contains(&all), "{all} of {always} and {unclear}");
    assert!(committed > always / 2, "most were recorded");
    // All parts of plans and their code have 2.5 MiB.
    assert!(grown < 4 << 20, "{grown} bytes more");
}

/// EXPECT each event that is emitted while a session's generation changes to be recorded or
/// counted.
#[test]
fn what_is_emitted_while_sessions_change_is_recorded_or_counted() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("change:*", Sizes::default(), |session| {
        session.flags.store(flag::OVERWRITE, Ordering::Relaxed);
    });
    recording.go_round();
    let event = fixture.event(c"change", c"number");
    Filters::of(recording).set(&[("*", &compile_object("number >= 1"))]);
    let is_over = AtomicBool::new(false);
    let emit = || {
        let mut emitted = 0;
        while !is_over.load(Ordering::Relaxed) {
            emitted += 1;
            event.emit(emitted);
        }
        emitted
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(1);
    let emitted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(emit)).collect();
        while std::time::Instant::now() < end {
            recording.raise_generation();
            // A thread that finds the lane occupied in eight waits in a row gives up.
            (0..1000).for_each(|_| std::hint::spin_loop());
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let (committed, discarded) = (recording.committed(), recording.discards());
    assert_eq!(committed + discarded, emitted, "{committed} and {discarded}");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let text = line.expect("a line").trim().trim_end_matches(" kB");
    1024 * text.parse::<u64>().expect("a number")
}

/// EXPECT a fork child to void its parent's links, and to interpret, not run its parent's code.
#[test]
fn fork_children_filter_for_themselves() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("fork:*", Sizes::default(), |_| {});
    let event = fixture.event(c"fork", c"number");
    let mut filters = Filters::of(recording);
    filters.set(&[("*", &compile_object("number % 2 == 0 && count() >= 2"))]);
    emit_all(&event, 0..8); // 4 6
    let interpreters = || recording.session().interpreters.load(Ordering::Relaxed);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(interpreters(), 0);
    }
    run_in_child(|| emit_all(&event, 10..18)); // the child counts from the beginning: 14 16
    assert_eq!(interpreters(), u32::from(cfg!(target_arch = "x86_64")) + interpreters() / 2);
    emit_all(&event, 20..24); // 20 22
    filters.set(&[("*", &compile_object("number == 31"))]);
    run_in_child(|| emit_all(&event, 30..33));
    run_in_child(|| run_in_child(|| emit_all(&event, 31..34)));
    assert_eq!(recording.numbers(), [4, 6, 14, 16, 20, 22, 31, 31]);
    assert_eq!(recording.discards(), 0);
}

/// RUN a handler that emits while the interrupted code detects that it is a fork child, whose state
/// is still its parent's. (A system call of that code raises the signal.)
#[cfg(target_arch = "x86_64")]
#[test]
fn handlers_emit_while_a_fork_child_finds_out_what_it_is() {
    extern "C" fn emit_on_trap(
        _: libc::c_int,
        _: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        HANDLED_TRAPS.fetch_add(1, Ordering::Relaxed);
        if let Some(event) = TRAPS_EVENT.get() {
            event.emit(1);
        }
        // SAFETY: the kernel's arguments of a handler; the register has the system call's result.
        unsafe {
            let context: *mut libc::ucontext_t = context.cast();
            (*context).uc_mcontext.gregs[libc::REG_RAX as usize] = 1;
        }
    }
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("trap:*", Sizes::default(), |_| {});
    let (linked, not_linked) =
        (fixture.event(c"trap", c"number"), fixture.event(c"trap", c"other"));
    TRAPS_EVENT.set(not_linked).unwrap_or_default();
    Filters::of(recording).set(&[("*", &compile_object("number < 100"))]);
    linked.emit(2);
    run_in_child(|| {
        trap_getppid(emit_on_trap);
        linked.emit(3);
        assert_eq!(HANDLED_TRAPS.load(Ordering::Relaxed), 1, "getppid was asked for");
        not_linked.emit(4);
    });
    assert_eq!(recording.numbers(), [2, 3, 4]);
    assert_eq!(recording.discards(), 1, "what was emitted in the middle");
}

#[cfg(target_arch = "x86_64")]
static HANDLED_TRAPS: AtomicU32 = AtomicU32::new(0);
#[cfg(target_arch = "x86_64")]
static TRAPS_EVENT: std::sync::OnceLock<fixture::Event> = std::sync::OnceLock::new();

/// Sends the calling process a signal at each getppid(2).
#[cfg(target_arch = "x86_64")]
fn trap_getppid(handle: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)) {
    let insn = |code: u32, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    // The number of the system call is at the beginning of the data.
    let mut program = [
        insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_getppid as u32),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_TRAP),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: all fields that are read are filled in; the handler is a function.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

fn run_in_child(body: impl FnOnce()) {
    // SAFETY: the child emits, and ends without running the test's code.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            body();
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "the child's end");
    }
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static CHILDREN: AtomicU64 = AtomicU64::new(0);
static IS_CHILD: AtomicBool = AtomicBool::new(false);
static HANDLERS_EVENT: std::sync::OnceLock<fixture::Event> = std::sync::OnceLock::new();

/// Emits, and forks now and then, wherever the thread has been interrupted.
extern "C" fn emit_and_fork(_signal: libc::c_int) {
    let handled = HANDLED.fetch_add(1, Ordering::Relaxed);
    if let Some(event) = HANDLERS_EVENT.get() {
        event.emit(1_000_000 + handled);
    }
    if handled.is_multiple_of(10) && !IS_CHILD.load(Ordering::Relaxed) {
        // SAFETY: the child continues in the interrupted code, and recognizes itself by the flag.
        match unsafe { libc::fork() } {
            0 => IS_CHILD.store(true, Ordering::Relaxed),
            child if child > 0 => {
                CHILDREN.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// RUN signal handlers that emit and fork, even in the middle of a filter; both processes continue
/// there. Runs in a process that is no fork child, because fork children have no machine code.
#[test]
fn handlers_interrupt_filters_and_fork_in_them() {
    const NAME: &str = "handlers_interrupt_filters_and_fork_in_them";
    const VARIABLE: &str = "TRACKWAY_TEST_HANDLERS";
    if std::env::var_os(VARIABLE).is_some() {
        return interrupt_filters_by_handlers();
    }
    let mut own = std::process::Command::new(std::env::current_exe().expect("this program"));
    own.args(["--exact", NAME, "--nocapture"]).env(VARIABLE, "1");
    let output = own.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

fn interrupt_filters_by_handlers() {
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let sizes = Sizes { sub_shift: 18, count_shift: 5, ..Sizes::default() };
    let recording = fixture.session("signal:*", sizes, |_| {});
    let event = fixture.event(c"signal", c"number");
    let mut filters = Filters::of(recording);
    filters.set(&[("*", &compile_object("number < 0"))]);
    event.emit(0);
    let interpreters = recording.session().interpreters.load(Ordering::Relaxed);
    assert_eq!(interpreters, u32::from(cfg!(not(target_arch = "x86_64"))));
    HANDLERS_EVENT.set(event).unwrap_or_default();
    let signals = start_signal_timer(100, emit_and_fork as *const () as usize);
    for round in 0..200_u64 {
        // fork(2) waits for threads that allocate: for its own thread, if a handler interrupted an
        // allocation.
        block_signals(true);
        filters.set(&[("*", &compile_object(&format!("number % 8 == {}", round % 4)))]);
        block_signals(false);
        for number in 0..500 {
            event.emit(1000 * round + number);
            if IS_CHILD.load(Ordering::Relaxed) {
                event.emit(5_000_000);
                // SAFETY: as in `run_in_child`.
                unsafe { libc::_exit(0) };
            }
        }
        visit_cpus_if_requested(fixture);
    }
    drop(signals);
    for _ in 0..CHILDREN.load(Ordering::Relaxed) {
        let mut status = 0;
        // SAFETY: waits for a child of this test.
        let ended = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        assert!(ended > 0 && status == 0, "a child ended by {status}");
    }
    assert!(CHILDREN.load(Ordering::Relaxed) > 10, "handlers forked");
    let recorded = recording.numbers();
    assert!(recorded.len() > 1000);
    // Children may continue after the filter has changed.
    assert!(recorded.iter().all(|number| number % 8 < 4));
}

/// Number of handlers that ran where sequences are aborted.
static ABORTED: AtomicU32 = AtomicU32::new(0);

/// EXPECT that a filter which a signal interrupts in its sequence runs again.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_a_signal_ends_is_judged_anew() {
    extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel's argument of a handler with SA_SIGINFO.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        let before = std::ptr::with_exposed_provenance::<u32>(at.wrapping_sub(4));
        // SAFETY: the bytes before the interrupted instruction are code, too.
        let is_aborted = unsafe { before.read_unaligned() } == 0x5305_3053;
        ABORTED.fetch_add(u32::from(is_aborted), Ordering::Relaxed);
    }
    let (_alone, fixture) = (serialize_tests(), shared_fixture());
    let recording = fixture.session("ended:*", Sizes::default(), |_| {});
    let event = fixture.event(c"ended", c"number");
    // A long filter, so that many signals interrupt it.
    let predicates = (0..1000).map(|number| format!("number != {} && ", 7 * number + 1_000_000));
    let text = format!("{}number < 64", predicates.collect::<String>());
    Filters::of(recording).set(&[("*", &compile_object(&text))]);
    emit_all(&event, 1000..1100);
    assert!(event.is_filtered());
    let signals = start_signal_timer(20, on_signal as *const () as usize);
    let mut emitted = 0;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while ABORTED.load(Ordering::Relaxed) < 100 && std::time::Instant::now() < end {
        emit_all(&event, 1000..2000);
        emit_all(&event, 0..2);
        emitted += 1;
    }
    drop(signals);
    assert!(ABORTED.load(Ordering::Relaxed) >= 100, "sequences were interrupted");
    let passing = recording.numbers();
    assert_eq!(passing.len() as u64 + recording.discards(), 2 * emitted);
    assert!(passing.iter().all(|&number| number < 2));
}

fn block_signals(block: bool) {
    let how = if block { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the test's own set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Signals for the calling thread, until this guard is dropped.
struct SignalTimer(libc::timer_t);

fn start_signal_timer(microseconds: i64, handler: usize) -> SignalTimer {
    // SAFETY: all fields that are read are filled in; the handler is a function.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGUSR1;
        event.sigev_notify_thread_id = trackway_sys::thread::current_tid().cast_signed();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        let created = libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
        assert_eq!(created, 0);
        let every = libc::timespec { tv_sec: 0, tv_nsec: 1000 * microseconds };
        let times = libc::itimerspec { it_interval: every, it_value: every };
        assert_eq!(libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()), 0);
        SignalTimer(timer)
    }
}

impl Drop for SignalTimer {
    fn drop(&mut self) {
        // SAFETY: the test's own timer, and a signal that is ignored.
        unsafe {
            libc::timer_delete(self.0);
            libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        }
    }
}
