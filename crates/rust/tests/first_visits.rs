//! Tests first visits of `tracing` callsites. A mock of libtrackway.so stops threads while they
//! describe events, and refuses descriptions.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::Duration;

use tracing::field::Empty;

/// Longest time that a stopped thread waits for the others, which may never come.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(1);

/// `struct trackway_abi_event`, without its fields.
#[repr(C)]
struct Event {
    enabled: AtomicPtr<AtomicU32>,
    emit: AtomicPtr<()>,
    off: AtomicU32,
    index: AtomicU32,
    version: u16,
    size: u16,
    level: u8,
    field_count: u8,
    reserved: u16,
    provider: *const c_char,
    name: *const c_char,
}

static ON: AtomicU32 = AtomicU32::new(1);

const EVENTS_MAX: usize = 256;
const BYTES_MAX: usize = 48;

/// A record: the event's name, and the first bytes of its payload.
#[derive(Clone, Copy)]
struct Recorded {
    name: &'static CStr,
    size: usize,
    bytes: [u8; BYTES_MAX],
}

impl Recorded {
    const NONE: Self = Self { name: c"", size: 0, bytes: [0; BYTES_MAX] };

    fn name(&self) -> &'static str {
        self.name.to_str().expect("ASCII")
    }

    fn numbers(&self) -> Vec<u64> {
        let words = self.bytes[..self.size.min(BYTES_MAX)].chunks_exact(8);
        words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect()
    }
}

/// The records of a thread. It has no destructor, and does not allocate.
struct Log {
    count: Cell<usize>,
    events: [Cell<Recorded>; EVENTS_MAX],
}

thread_local! {
    static LOG: Log = const {
        Log { count: Cell::new(0), events: [const { Cell::new(Recorded::NONE) }; EVENTS_MAX] }
    };
    /// The mock library's behaviour for the descriptions of this thread.
    static LIBRARY: Cell<Library> = const { Cell::new(Library::Registers) };
    /// True if this thread's allocations make spans.
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone, Copy)]
enum Library {
    Registers,
    /// The library refuses descriptions, as if its table were full.
    Refuses,
    /// The library stops descriptions whose names have this end until the gate is open.
    StopsAt(&'static str, &'static Gate),
}

/// A gate that stops threads until `count` of them wait, or until it is opened.
struct Gate {
    count: usize,
    arrived: AtomicUsize,
    is_open: AtomicBool,
}

impl Gate {
    const fn new(count: usize) -> Self {
        Self { count, arrived: AtomicUsize::new(0), is_open: AtomicBool::new(false) }
    }

    fn stop(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        wait_for(|| self.arrived() >= self.count || self.is_open.load(Ordering::SeqCst));
    }

    fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let mut waited = Duration::ZERO;
    while !condition() && waited < PATIENCE {
        thread::sleep(STEP);
        waited += STEP;
    }
}

/// Runs a function; returns the records of this thread during that time.
fn record_events(run: impl FnOnce()) -> Vec<Recorded> {
    let first = LOG.with(|log| log.count.get());
    run();
    LOG.with(|log| log.events[first..log.count.get()].iter().map(Cell::get).collect())
}

fn event_names(events: &[Recorded]) -> Vec<&'static str> {
    events.iter().map(Recorded::name).collect()
}

unsafe extern "C" fn log_event(event: *const Event, payload: *mut u8, size: usize) {
    let size = size & (usize::MAX >> 1);
    let mut bytes = [0; BYTES_MAX];
    let length = size.min(BYTES_MAX);
    // SAFETY: the crate promises `length` bytes of payload.
    bytes[..length].copy_from_slice(unsafe { std::slice::from_raw_parts(payload, length) });
    // SAFETY: the event is the crate's; its name is a C string that stays.
    let name = unsafe { CStr::from_ptr((*event).name) };
    LOG.with(|log| {
        let count = log.count.get();
        log.events[count].set(Recorded { name, size, bytes });
        log.count.set(count + 1);
    });
}

/// The register function, which the crate calls for each description. Events whose names begin with
/// `off` are off, except events for later values of spans.
///
/// # Safety
/// The range must contain pointers to events.
#[unsafe(no_mangle)]
unsafe extern "C" fn trackway_abi_register(begin: *const *const Event, _: *const *const Event) {
    // SAFETY: the range has one event, which stays; all writes are atomic.
    let event = unsafe { &**begin };
    // SAFETY: the event's name is a C string.
    let name = unsafe { CStr::from_ptr(event.name) }.to_str().expect("ASCII");
    match LIBRARY.get() {
        Library::Refuses => return,
        Library::StopsAt(suffix, gate) if name.ends_with(suffix) => gate.stop(),
        _ => {}
    }
    if !name.starts_with("off") || name.ends_with("_record") {
        event.emit.store(log_event as *mut (), Ordering::Relaxed);
        event.enabled.store((&raw const ON).cast_mut(), Ordering::Release);
    }
}

/// Makes a span for each allocation in threads that request it, without a guard against recursion.
struct SpanAllocator;

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for SpanAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_TRACED.get() {
            let _span = tracing::info_span!("allocation", bytes = layout.size() as u64).entered();
        }
        // SAFETY: the caller's promises hold for the system's allocator, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises hold for the system's allocator, too.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: SpanAllocator = SpanAllocator;

fn install_subscriber() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = trackway::subscriber().enters(true);
        tracing::subscriber::set_global_default(subscriber).expect("no other subscriber");
    });
}

/// RUN a thread that is stopped in the description of each part of a span, and a fork meanwhile.
/// EXPECT that the child, which lacks that thread, records at the same callsite.
#[test]
fn children_go_on_that_were_forked_in_another_thread_s_first_visit() {
    install_subscriber();
    let visits: [(&str, fn()); 5] = [
        ("_end", || visit_span(|| tracing::info_span!("in_end", value = Empty))),
        ("_begin", || visit_span(|| tracing::info_span!("in_begin", value = Empty))),
        ("_enter", || visit_span(|| tracing::info_span!("in_enter", value = Empty))),
        ("_record", || visit_span(|| tracing::info_span!("in_record", value = Empty))),
        ("_exit", || visit_span(|| tracing::info_span!("in_exit", value = Empty))),
    ];
    fn visit_span(span: fn() -> tracing::Span) {
        let span = span().entered();
        span.record("value", 1_u64);
    }
    for (suffix, visit) in visits {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new(usize::MAX)));
        let stopped = thread::spawn(move || {
            LIBRARY.set(Library::StopsAt(suffix, gate));
            event_names(&record_events(visit)).len()
        });
        wait_for(|| gate.arrived() > 0);
        assert!(gate.arrived() > 0, "nothing described {suffix}");
        // SAFETY: the child only makes spans, which neither lock nor allocate, and exits.
        let child = match unsafe { libc::fork() } {
            0 => {
                // SAFETY: the call ends, by a signal, a child that waits for ever.
                unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
                let before = LOG.with(|log| log.count.get());
                visit();
                let count = LOG.with(|log| log.count.get()) - before;
                // SAFETY: the call ends the child.
                unsafe { libc::_exit(if count == 5 { 0 } else { 1 }) }
            }
            child => child,
        };
        let mut status = 0;
        // SAFETY: the call waits for the child.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        gate.is_open.store(true, Ordering::SeqCst);
        assert_eq!((waited, status), (child, 0), "forked in {suffix}: {status:#x}");
        // The thread that was stopped in the parent has lost no record.
        assert_eq!(stopped.join().expect("it ends"), 5, "{suffix}");
    }
}

/// RUN 64 threads that bring the same set of types at once to a callsite, which has room for 16
/// sets. EXPECT that the set takes one place.
#[test]
fn a_set_of_types_that_many_threads_bring_at_once_takes_one_place() {
    const THREADS: usize = 64;
    static ALL: Gate = Gate::new(THREADS);
    static FIRST: Gate = Gate::new(THREADS);
    fn emit_values(first: usize, second: usize) -> usize {
        let values: [&dyn tracing::Value; 5] = [&1_u64, &-1_i64, &1.5, &true, &"text"];
        record_events(|| tracing::info!(name: "said", a = values[first], b = values[second])).len()
    }
    install_subscriber();
    // Values with the second set of types, then with the first set of a new callsite.
    assert_eq!(emit_values(0, 0), 1);
    let threads = (0..THREADS).map(|_| {
        thread::spawn(|| {
            LIBRARY.set(Library::StopsAt("said", &ALL));
            let said = emit_values(1, 1);
            LIBRARY.set(Library::StopsAt("first_end", &FIRST));
            said + record_events(|| drop(tracing::info_span!("first"))).len()
        })
    });
    let threads: Vec<_> = threads.collect();
    let counts: Vec<usize> = threads.into_iter().map(|it| it.join().expect("it ends")).collect();
    assert_eq!(counts, [3; THREADS], "an event, and a span's begin and end, of each");
    let sets = (0..5).flat_map(|first| (0..5).map(move |second| (first, second)));
    assert_eq!(sets.map(|(first, second)| emit_values(first, second)).sum::<usize>(), 16);
    assert_eq!((ALL.arrived(), FIRST.arrived()), (THREADS, THREADS), "all described at once");
}

#[test]
fn a_set_of_types_that_is_refused_leaves_the_others_on() {
    fn emit_value(value: &dyn tracing::Value) -> usize {
        record_events(|| tracing::info!(name: "partly", value)).len()
    }
    install_subscriber();
    assert_eq!(emit_value(&1_u64), 1);
    LIBRARY.set(Library::Refuses);
    assert_eq!(emit_value(&"text"), 0);
    LIBRARY.set(Library::Registers);
    assert_eq!(
        [emit_value(&2_u64), emit_value(&"text"), emit_value(&true), emit_value(&3_u64)],
        [1, 0, 1, 1]
    );
}

/// RUN a span whose other events are off, and whose first instance gets no later value. EXPECT
/// records of later values.
#[test]
fn values_that_spans_are_given_later_are_recorded_if_only_they_are_wanted() {
    install_subscriber();
    let events = record_events(|| {
        for number in 0..10_u64 {
            let span = tracing::info_span!("off_load", size = number, status = Empty);
            if number % 3 == 1 {
                span.record("status", number);
            }
        }
    });
    assert_eq!(event_names(&events), ["off_load_record"; 3]);
    let statuses: Vec<u64> = events.iter().map(|event| event.numbers()[1]).collect();
    assert_eq!(statuses, [1, 4, 7]);
    // A description with all values is not created again while no session records it.
    let is_made = || !tracing::info_span!("off_all", value = 1).is_disabled();
    assert_eq!([0; 3].map(|_| is_made()), [true, false, false]);
}

/// RUN values in various orders. EXPECT records with all values in the order of the fields.
#[test]
fn values_in_another_order_are_all_recorded() {
    install_subscriber();
    let span = tracing::info_span!("order", a = Empty, b = Empty, c = Empty);
    let events = record_events(|| {
        tracing::record_all!(span, b = 2_u64, a = 1_u64);
        tracing::record_all!(span, c = 3_u64, a = ?11_u8, b = 2_u64);
        tracing::record_all!(span, a = 1_u64, b = 2_u64);
    });
    let id = events[0].numbers()[0];
    assert_eq!(event_names(&events), ["order_record"; 3]);
    assert_eq!(events[0].numbers(), [id, 1, 2]);
    let mut disordered = id.to_le_bytes().to_vec();
    disordered.extend(b"11\0");
    disordered.extend([2_u64, 3].map(u64::to_le_bytes).concat());
    assert_eq!(events[1].bytes[..events[1].size], disordered);
    assert_eq!(events[2].numbers(), [id, 1, 2]);
}

/// RUN spans in the destructor of a thread-local value that exists before the thread's first span,
/// so that it is dropped after the subscriber's thread data. EXPECT records of these spans.
#[test]
fn spans_are_recorded_in_the_destructors_of_thread_local_values() {
    static RECORDED: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());
    struct Late(Vec<tracing::Span>);
    impl Drop for Late {
        fn drop(&mut self) {
            let events = record_events(|| {
                self.0.clear();
                let outer = tracing::info_span!("outer").entered();
                let inner = tracing::info_span!("inner").entered();
                tracing::info!(name: "inside", "told");
                drop(inner);
                drop(outer);
                tracing::info!(name: "outside", "told");
            });
            RECORDED.lock().expect("nobody panics").extend(events);
        }
    }
    thread_local! { static LATE: RefCell<Late> = const { RefCell::new(Late(Vec::new())) }; }
    install_subscriber();
    let thread = thread::spawn(|| {
        LATE.with_borrow_mut(|late| late.0.push(tracing::info_span!("held")));
    });
    thread.join().expect("it ends");
    let events = RECORDED.lock().expect("nobody panics");
    let expected = [
        "held_end",
        "outer_begin",
        "outer_enter",
        "inner_begin",
        "inner_enter",
        "inside",
        "inner_exit",
        "inner_end",
        "outer_exit",
        "outer_end",
        "outside",
    ];
    assert_eq!(event_names(&events), expected);
    let id = |place: usize| events[place].numbers()[0];
    assert!(id(1) != id(3) && id(1) != 0 && id(3) != 0);
    assert_eq!(events[3].numbers()[1], id(1), "the parent of the inner one");
    assert_eq!((id(5), id(10)), (id(3), 0), "the spans that the events are in");
}

#[test]
fn an_allocator_may_make_a_span_from_its_first_allocation_on() {
    install_subscriber();
    let thread = thread::spawn(|| {
        record_events(|| {
            IS_TRACED.set(true);
            drop(black_box(vec![1_u8; 4321]));
            // The thread's list of spans grows, and the allocator makes spans for that.
            let spans: [tracing::span::EnteredSpan; 20] =
                std::array::from_fn(|_| tracing::info_span!("work").entered());
            drop(spans);
            drop(black_box(vec![1_u8; 1234]));
            IS_TRACED.set(false);
        })
    });
    let events = thread.join().expect("it ends");
    let begins = events.iter().filter(|event| event.name() == "allocation_begin");
    let sizes: Vec<u64> = begins.map(|event| event.numbers()[2]).collect();
    assert!(sizes.contains(&4321) && sizes.contains(&1234) && sizes.len() > 2, "{sizes:?}");
    let ends = events.iter().filter(|event| event.name() == "allocation_end").count();
    assert_eq!(ends, sizes.len());
    assert_eq!(event_names(&events).iter().filter(|name| **name == "work_end").count(), 20);
}
