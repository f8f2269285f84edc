//! The lockless buffer of the 2012 paper, stepped through like the other writer paths: its hole is
//! found and counted.
//!
//! Such a buffer has no restartable sequence to abort and no claim to free. A producer that is
//! killed between reserve and commit leaves a hole. A producer that is killed after it committed a
//! sub-buffer's last slot, and before it updated the commit sequence, leaves a complete but
//! undelivered sub-buffer, which is read at the end. [`Buffer::holes`] finds both, and the test
//! counts points of both kinds. All records outside a hole must be complete, in order and read.
//!
//! First the buffer alone is tested: other producers run in the harness, on copies of the memory,
//! with the library's code. Then the library is tested, in a session, with a real recorder.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use trackway_abi::record::{EXTENDED_BYTES, TAILROOM_BYTES};
use trackway_abi::region::{PAGE_SHIFT, SUB_HEADER_BYTES};
use trackway_ring::lockless::{
    Buffer, Counters, LossReason, Mode, Store, SubBuffer, TryAgain, header,
};
use trackway_ring::{Damage, Geometry, write_header};
use trackway_testkit::Records;

use crate::stage::{Stage, StageSettings, StageWriterPath};
use crate::stepping::{self, ClockRelation, Scenario, WriterPair};
use crate::tracee::{Tracee, ptrace_obstacle};

const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
const SUB_BUFFERS: usize = 2;
/// Size of the memory: counters, then all sub-buffers and one more.
const MEMORY_BYTES: usize = PAGE_BYTES * (2 + SUB_BUFFERS);
/// Offsets of tables in the first page.
const SUB_BUFFERS_OFFSET: usize = 512;
const PLACES_OFFSET: usize = 1024;
const CLOCK_OFFSET: usize = 2048;
/// Words of a record that other producers emit; and the number of records, which exceeds the
/// buffer.
const OTHER_EVENT_WORDS: u32 = 5;
const LATER_EVENTS_COUNT: u64 = 300;
/// Number and words of the event that is stepped through.
const STEPPED_EVENT: u64 = 500;
const STEPPED_EVENT_WORDS: u32 = 11;
/// First number of the other producers' events.
const LATER_EVENTS_FIRST: u64 = 1000;
/// Number of events that other producers emit in between.
const EVENTS_IN_BETWEEN: u64 = 3;
/// Number of steps that exceeds those of an event in an unoptimised library.
const STEPS_MAX: usize = 200_000;

/// Memory of a buffer, shared with child processes.
struct SharedMemory(*mut u8);

impl Store for SharedMemory {
    unsafe fn store(&self, at: u64, source: &[u8]) {
        // SAFETY: the caller reserved the bytes, which lie in a place of this memory.
        unsafe {
            let place = self.0.add(at as usize);
            std::ptr::copy_nonoverlapping(source.as_ptr(), place, source.len());
        }
    }
}

impl trackway_ring::Memory for SharedMemory {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        into.copy_from_slice(self.at::<u8>(at as usize, into.len()));
        Ok(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `new`, and nothing refers to it any more.
        unsafe { libc::munmap(self.0.cast(), MEMORY_BYTES) };
    }
}

impl SharedMemory {
    fn new() -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), MEMORY_BYTES, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self(base.cast())
    }

    /// Resets the buffer to its empty state.
    fn reset(&self, mode: Mode) {
        // SAFETY: the memory is ours, and no producer is alive.
        unsafe { std::ptr::write_bytes(self.0, 0, MEMORY_BYTES) };
        let buffer = self.buffer(mode);
        for (page, place) in (1..).zip(buffer.places) {
            place.store(page, Ordering::Relaxed);
        }
        buffer.reset(0);
        self.clock().store(1 << 40, Ordering::Relaxed);
    }

    fn at<T>(&self, at: usize, count: usize) -> &[T] {
        assert!(at + count * size_of::<T>() <= MEMORY_BYTES);
        // SAFETY: in bounds, aligned, and of atomics, for which any bytes are good.
        unsafe { std::slice::from_raw_parts(self.0.add(at).cast(), count) }
    }

    fn clock(&self) -> &AtomicU64 {
        &self.at(CLOCK_OFFSET, 1)[0]
    }

    fn buffer(&self, mode: Mode) -> Buffer<'_> {
        Buffer {
            counters: &self.at::<Counters>(0, 1)[0],
            sub_buffers: self.at::<SubBuffer>(SUB_BUFFERS_OFFSET, SUB_BUFFERS),
            places: self.at::<AtomicU32>(PLACES_OFFSET, SUB_BUFFERS + 1),
            geometry: Geometry::new(PAGE_SHIFT, SUB_BUFFERS.ilog2()).expect("sizes"),
            mode,
        }
    }

    /// Emits event `number` with `words` words, each of which is the number.
    fn emit(&self, mode: Mode, words: u32, number: u64) -> Result<(), LossReason> {
        let now = || self.clock().fetch_add(3, Ordering::Relaxed);
        let slot = self.buffer(mode).reserve(self, now, || true, (words, 8 * words as usize, 7))?;
        let mut bytes = [0; EXTENDED_BYTES + 8 * 29 + TAILROOM_BYTES];
        // SAFETY: there is room for the longest header before.
        unsafe {
            let end = bytes.as_mut_ptr().add(EXTENDED_BYTES);
            write_header(end, words, slot.timestamp, slot.header_bytes);
        }
        for word in 0..words as usize {
            bytes[EXTENDED_BYTES + 8 * word..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let from = EXTENDED_BYTES - slot.header_bytes;
        // SAFETY: the slot is reserved.
        unsafe { self.store(slot.at, &bytes[from..from + slot.bytes as usize]) };
        self.buffer(mode).commit(self, &slot);
        Ok(())
    }

    fn force_switch(&self, mode: Mode) {
        self.buffer(mode).force_switch(self, || self.clock().fetch_add(3, Ordering::Relaxed));
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the memory is ours, and producers stand still.
        unsafe { std::slice::from_raw_parts(self.0, MEMORY_BYTES).to_vec() }
    }

    fn set(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), MEMORY_BYTES);
        // SAFETY: as in `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, MEMORY_BYTES) };
    }

    /// Reads the complete records; returns the numbers of their events.
    fn drain(&self, mode: Mode, own: &mut u32) -> Result<Vec<u64>, String> {
        let buffer = self.buffer(mode);
        let mut numbers = Vec::new();
        // Reads like the recorder at its end.
        let mut next = || match buffer.get(own) {
            Ok(got) => Some((got, None)),
            Err(TryAgain) => {
                let (got, records) = buffer.get_undelivered(self)?;
                Some((got, Some(records)))
            }
        };
        while let Some((got, in_it)) = next() {
            let bytes = self.at::<u8>(got.at as usize, PAGE_BYTES);
            let field =
                |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
            let content = field(header::CONTENT).wrapping_sub(field(header::POSITION)) as usize;
            let body = bytes.get(SUB_HEADER_BYTES..content).ok_or("a content beyond its end")?;
            let mut last = field(header::BEGIN);
            let mut records = Records::new(body, last, |words, _| Some(8 * words as usize));
            let before = numbers.len();
            for record in records.by_ref() {
                let mut words = record.body.chunks_exact(8);
                let first = words.next().ok_or("an empty record")?;
                let is_torn = words.any(|word| word != first);
                if is_torn || record.header.timestamp_ns < last {
                    return Err(format!("torn or out of order: {record:?}"));
                }
                last = record.header.timestamp_ns;
                numbers.push(u64::from_le_bytes(first.try_into().expect("a word")));
            }
            let read = (numbers.len() - before) as u64;
            let says = in_it.unwrap_or_else(|| field(header::RECORDS));
            let is_right =
                records.is_whole() && (field(header::POSITION), says) == (got.position, read);
            if !is_right {
                return Err(format!("{read} records at {}", got.position));
            }
            buffer.put(got);
        }
        Ok(numbers)
    }
}

/// State in which a suspended writer leaves the buffer, by its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leftover {
    /// The buffer is unchanged or complete.
    Nothing,
    /// A slot that is not committed.
    Hole,
    /// A complete, undelivered sub-buffer; perhaps with a hole in the next one.
    Undelivered,
}

fn find_leftover(buffer: &Buffer<'_>) -> Leftover {
    let holes: Vec<_> = buffer.holes().collect();
    match holes.iter().map(|hole| hole.bytes).min() {
        Some(0) => Leftover::Undelivered,
        Some(_) => Leftover::Hole,
        None => Leftover::Nothing,
    }
}

/// Kills the writer and runs other producers until the buffer has wrapped. All records that are
/// read must be complete, and all events must be read, lost or in a sub-buffer with a hole.
fn check_others_after_kill(copy: &SharedMemory, mode: Mode, before: u64) -> Result<(), String> {
    let buffer = copy.buffer(mode);
    let found = find_leftover(&buffer);
    for number in 0..LATER_EVENTS_COUNT {
        let _ = copy.emit(mode, OTHER_EVENT_WORDS, LATER_EVENTS_FIRST + number);
    }
    copy.force_switch(mode);
    let read = copy.drain(mode, &mut { SUB_BUFFERS as u32 })?;
    if !read.windows(2).all(|pair| pair[0] < pair[1] || pair[0] == STEPPED_EVENT) {
        return Err(format!("out of order: {read:?}"));
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let lost = count(&buffer.counters.lost_full) + count(&buffer.counters.lost_nested);
    let in_holes: u64 = buffer.holes().filter(|hole| hole.bytes > 0).map(|hole| hole.records).sum();
    let records = buffer.records();
    // Later events all lie after a hole and cannot be read.
    let is_right = match found {
        Leftover::Hole => read.iter().all(|number| *number < LATER_EVENTS_FIRST),
        Leftover::Nothing | Leftover::Undelivered => read.len() as u64 + in_holes == records,
    };
    if mode == Mode::Discard && !is_right {
        return Err(format!("{} read, {in_holes} in holes of {records}, {found:?}", read.len()));
    }
    if found == Leftover::Nothing && find_leftover(&buffer) != Leftover::Nothing {
        return Err("others left something, and they are alive".into());
    }
    // The sum may include the killed writer's event.
    let (all, emitted) = (records + lost, before + LATER_EVENTS_COUNT);
    if (emitted..=emitted + 1).contains(&all) {
        return Ok(());
    }
    Err(format!("{all} counted of {emitted}, {found:?}: {lost} lost, {in_holes} in holes"))
}

/// Fit of the event in the open sub-buffer.
#[derive(Debug, Clone, Copy)]
enum Fit {
    /// The sub-buffer has room to spare.
    Spare,
    /// The event ends exactly at the end of its sub-buffer.
    Exact,
    /// The event needs the next sub-buffer.
    Switch,
}

/// Emits events until the open sub-buffer has this fit for the event; returns their number.
fn fill_to_fit(memory: &SharedMemory, mode: Mode, fit: Fit) -> u64 {
    let buffer = memory.buffer(mode);
    let within = || {
        PAGE_BYTES
            - buffer.geometry.within(buffer.counters.write_count.load(Ordering::Relaxed)) as usize
    };
    let mut emitted = 0;
    let mut emit = |words| {
        memory.emit(mode, words, emitted).expect("there is room");
        emitted += 1;
    };
    emit(OTHER_EVENT_WORDS);
    let record = |words: usize| 4 + 8 * words;
    let event = record(STEPPED_EVENT_WORDS as usize);
    let wanted = match fit {
        Fit::Spare => return emitted,
        Fit::Exact => event,
        Fit::Switch => event - 4,
    };
    while within() > wanted {
        let missing = within() - wanted;
        let words = (1..=29).rev().find(|words| {
            let rest = missing.wrapping_sub(record(*words));
            rest == 0 || (rest >= record(1) && rest <= PAGE_BYTES)
        });
        emit(words.expect("a size") as u32);
    }
    assert!(within() <= wanted, "{} {wanted}", within());
    emitted
}

/// Forks a child process that stops before it emits the event.
fn fork_writer(memory: &SharedMemory, mode: Mode) -> Tracee {
    // SAFETY: no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    // SAFETY: the child allocates nothing and takes no lock.
    let child = unsafe {
        Tracee::fork(usize::try_from(cpu).unwrap_or(0), || {
            std::arch::asm!("int3");
            let _ = memory.emit(mode, STEPPED_EVENT_WORDS, STEPPED_EVENT);
            std::arch::asm!("int3");
        })
    };
    let mut child = child.expect("a child");
    child.run(0).expect("its first breakpoint");
    child
}

/// Steps through one event; returns the number of points that led to each [`Left`].
fn step_through_event(mode: Mode, fit: Fit) -> [usize; 3] {
    let (memory, copy) = (SharedMemory::new(), SharedMemory::new());
    memory.reset(mode);
    let before = fill_to_fit(&memory, mode, fit);
    let mut child = fork_writer(&memory, mode);
    let mut points = [0; 3];
    let mut last = Vec::new();
    for number in 0..STEPS_MAX {
        let bytes = memory.bytes();
        copy.set(&bytes);
        points[find_leftover(&copy.buffer(mode)) as usize] += 1;
        let is_at_its_end = number > 0 && child.is_at_breakpoint();
        if bytes != last {
            let fail = |wrong| -> ! { panic!("{mode:?}, {fit:?}, after {number}: {wrong}") };
            check_others_after_kill(&copy, mode, before).unwrap_or_else(|wrong| fail(wrong));
            let checkpoint = child.checkpoint();
            let came = emit_in_between(&memory, mode, before, &mut child, is_at_its_end);
            came.unwrap_or_else(|wrong| fail(wrong));
            child.restore(&checkpoint);
            memory.set(&bytes);
        }
        last = bytes;
        if is_at_its_end {
            return points;
        }
        child.step();
    }
    panic!("not at its end after {STEPS_MAX} instructions");
}

/// Lets other producers emit in between, then continues the writer, if it has not ended: everything
/// must be read.
fn emit_in_between(
    memory: &SharedMemory,
    mode: Mode,
    before: u64,
    child: &mut Tracee,
    is_at_its_end: bool,
) -> Result<(), String> {
    for number in 0..EVENTS_IN_BETWEEN {
        memory
            .emit(mode, OTHER_EVENT_WORDS, LATER_EVENTS_FIRST + number)
            .map_err(|lost| format!("{lost:?}"))?;
    }
    if !is_at_its_end {
        child.run(0)?;
    }
    memory.force_switch(mode);
    let left = find_leftover(&memory.buffer(mode));
    let mut read = memory.drain(mode, &mut { SUB_BUFFERS as u32 })?;
    read.sort_unstable();
    let expected = (0..before)
        .chain([STEPPED_EVENT])
        .chain(LATER_EVENTS_FIRST..LATER_EVENTS_FIRST + EVENTS_IN_BETWEEN);
    if left == Leftover::Nothing && read.iter().copied().eq(expected) {
        return Ok(());
    }
    Err(format!("others came in between, then: {left:?}, {read:?}"))
}

#[test]
fn the_paper_s_hole_is_found_and_counted_and_nothing_else_is_torn() {
    if let Some(reason) = ptrace_obstacle() {
        return trackway_tests::report_skipped(&reason);
    }
    for mode in [Mode::Discard, Mode::FlightRecorder] {
        for fit in [Fit::Spare, Fit::Exact, Fit::Switch] {
            let points = step_through_event(mode, fit);
            println!("{mode:?}, {fit:?}: {points:?}");
            let [nothing, hole, undelivered] = points;
            assert!(nothing > 50 && hole > 50, "{points:?}");
            // Only the producer that commits the last slot of a sub-buffer can leave it
            // undelivered.
            assert_eq!(undelivered > 0, !matches!(fit, Fit::Spare), "{points:?}");
        }
    }
}

/// Steps through an event of the library, with a real recorder, which counts the losses of a hole.
#[test]
fn a_recorder_counts_the_hole_of_a_dead_writer() {
    let settings = StageSettings {
        overwrite: false,
        contexts: false,
        wide_ids: false,
        by: StageWriterPath::Lockless,
    };
    let Some(stage) = Stage::new(settings) else { return };
    let mut players = WriterPair::new(&stage);
    for fit in [stepping::Fit::Spare(4), stepping::Fit::Exact, stepping::Fit::Switch] {
        let scenario = Scenario { fit, time: ClockRelation::Near, text: Some(30), is_cold: false };
        players.set(&scenario);
        let (mut emitted, mut seen) = (None, [0; 3]);
        let walked = players.walk(|players, point, is_new| {
            if !is_new {
                return Ok(());
            }
            let buffer = stage.lockless(stage.live()).ok_or("no buffer")?;
            let left = find_leftover(&buffer);
            seen[left as usize] += 1;
            let (lines, lost) = players.stage.recover()?;
            let all = lines.len() as u64 + lost;
            let before = *emitted.get_or_insert(all);
            if (before..=before + 1).contains(&all) {
                return Ok(());
            }
            Err(format!("{all} of {before} after {}: {lost} lost, {left:?}", point.number))
        });
        let steps = walked.unwrap_or_else(|wrong| panic!("{scenario:?}: {wrong}"));
        println!("{fit:?}: {seen:?} states, {steps:?}");
        assert!(
            steps.instructions > 50 && seen[Leftover::Hole as usize] > 3,
            "{steps:?}, {seen:?}"
        );
        let is_last = !matches!(fit, stepping::Fit::Spare(_));
        assert_eq!(seen[Leftover::Undelivered as usize] > 2, is_last, "{seen:?}");
    }
}
