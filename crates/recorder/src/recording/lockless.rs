//! Draining a lockless buffer: moves whole sub-buffers from its ring to its CPU's stream.
//!
//! The recorder is the consumer of the lockless algorithm. It writes a sub-buffer to the file, then
//! publishes its progress, then gives the sub-buffer back. The progress is in the control line of
//! the CPU's other region, which a lockless session does not use. So recovery finds and identifies
//! each sub-buffer in the file, in the buffer, or in both.

use std::io;
use std::sync::atomic::Ordering;

use trackway_abi::region::SUB_HEADER_BYTES;
use trackway_ctf::write::PACKET_HEADER_BYTES;
use trackway_ring::lockless::{Buffer, Got, Mode, Reference, SubBuffer, header};
use trackway_ring::{Memory, Snapshot};
use trackway_sys::clock::monotonic_ns;
use trackway_window::{SlotMemory, Window};

use crate::recording::region::{DrainContext, FUTURE_NS_MAX, RECORD_BYTES_MIN, RegionDrain};
use crate::trace::stream::Packet;

/// A lockless buffer, with the recorder's state for it.
pub(crate) struct Lockless {
    buffer: Buffer<'static>,
    window: Window,
    /// Place that the consumer owns.
    own: u32,
    /// Read count when the recorder opened the buffer.
    begun: u64,
    /// Number of records in sub-buffers that had a hole.
    lost: u64,
    /// Number of sub-buffers that had a hole.
    pub(crate) holes: u64,
}

impl core::fmt::Debug for Lockless {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Lockless")
    }
}

/// The header of a sub-buffer.
struct SubBufferHeader {
    begin: u64,
    lost: u64,
    end: u64,
    content: u64,
    records: u64,
}

impl Lockless {
    pub(crate) fn new(buffer: Buffer<'static>, window: Window) -> Self {
        // The place that no sub-buffer uses; a killed recorder may leave any place unused.
        let word = |one: &SubBuffer| one.reference.load(Ordering::Relaxed);
        let place = |one| Reference::from_word(word(one)).place;
        let used: Vec<u32> = buffer.sub_buffers.iter().map(place).collect();
        let places = 0..buffer.places.len() as u32;
        let own = places.clone().find(|place| !used.contains(place)).unwrap_or(places.end - 1);
        let begun = buffer.counters.read_count.load(Ordering::Relaxed);
        Self { buffer, window, own, begun, lost: 0, holes: 0 }
    }

    /// Returns the number of memory pieces that the buffer needs: one for each sub-buffer, and one
    /// for the consumer.
    pub(crate) fn memory_pieces(&self) -> u64 {
        self.buffer.places.len() as u64
    }

    /// Gives the memory at `offset` to the next place without memory. Returns the number of places
    /// with memory.
    pub(crate) fn back_next_piece(&self, offset: u64) -> u64 {
        self.buffer.give_memory(offset)
    }

    /// Returns the number of sub-buffers that have memory.
    pub(crate) fn backed_sub_buffers(&self) -> u64 {
        self.buffer.places.iter().filter(|place| place.load(Ordering::Relaxed) != 0).count() as u64
    }

    /// Returns the number of records counted as lost.
    pub(crate) fn lost(&self) -> u64 {
        let counters = self.buffer.counters;
        [&counters.lost_full, &counters.lost_nested]
            .into_iter()
            .fold(self.lost, |sum, count| sum.saturating_add(count.load(Ordering::Relaxed)))
    }

    /// Returns the number of records lost because the buffer was full.
    pub(crate) fn lost_full(&self) -> u64 {
        self.buffer.counters.lost_full.load(Ordering::Relaxed)
    }

    /// Returns the buffer's state in the form of a region's snapshot.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let counters = self.buffer.counters;
        Snapshot {
            head: counters.write_count.load(Ordering::Relaxed),
            last_ts: Some(counters.last_ts.load(Ordering::Relaxed)),
            events: Some(self.buffer.records()),
            discarded: self.lost(),
        }
    }

    /// Returns the share of the buffer that is not yet read, in 1/256.
    pub(crate) fn fill(&self) -> u64 {
        let counters = self.buffer.counters;
        let write = counters.write_count.load(Ordering::Relaxed);
        let waiting = write.wrapping_sub(counters.read_count.load(Ordering::Relaxed));
        (waiting.saturating_mul(256) / self.buffer.geometry.ring_bytes()).min(256)
    }

    /// Returns true if active or dead writers have reserved slots without committing them.
    pub(crate) fn has_holes(&self) -> bool {
        self.buffer.holes().next().is_some()
    }

    /// Returns the underlying ring buffer.
    pub(crate) fn buffer(&self) -> Buffer<'static> {
        self.buffer
    }

    /// Ends the open sub-buffer unless it is empty.
    pub(crate) fn switch(&self) {
        // SAFETY: the window's usable bytes are mapped and backed.
        let memory = unsafe { SlotMemory::new(self.window.base(), self.window.usable_bytes()) };
        self.buffer.force_switch(&memory, monotonic_ns);
    }

    /// Skips all buffered records. Returns the read count after them.
    pub(crate) fn skip_all(&mut self) -> u64 {
        self.switch();
        for _ in 0..2 * self.buffer.geometry.sub_count() {
            let Ok(got) = self.buffer.get(&mut self.own) else { break };
            self.buffer.put(got);
        }
        self.buffer.counters.read_count.load(Ordering::Relaxed)
    }

    /// Makes the sub-buffers taken since the buffer was opened readable again. Allowed only if all
    /// were taken in place and no writer is left, so that their records still exist.
    pub(crate) fn restore_taken(&self) {
        self.buffer.counters.read_count.store(self.begun, Ordering::Relaxed);
    }

    /// Returns the next complete sub-buffer. The last drain skips sub-buffers with a hole; for an
    /// undelivered sub-buffer it also returns the number of records.
    fn next(&mut self, with: &DrainContext<'_, impl Memory>) -> Option<(Got, Option<u64>)> {
        if !with.is_last {
            return self.buffer.get(&mut self.own).ok().map(|got| (got, None));
        }
        // The last drain passes at most the sub-buffers of one ring.
        for _ in 0..=self.buffer.geometry.sub_count() {
            if let Ok(got) = self.buffer.get_in_place() {
                return Some((got, None));
            }
            if let Some((got, records)) = self.buffer.get_undelivered(with.memory) {
                return Some((got, Some(records)));
            }
            self.skip_hole()?;
        }
        None
    }

    /// Skips the sub-buffer at the read count if it has a hole.
    fn skip_hole(&mut self) -> Option<()> {
        let read_count = self.buffer.counters.read_count.load(Ordering::Relaxed);
        let hole = self.buffer.holes().find(|hole| hole.position == read_count)?;
        self.holes += 1;
        self.lost = self.lost.saturating_add(hole.records);
        self.buffer.put(Got { position: read_count, at: 0, place: 0 });
        Some(())
    }

    fn read_header(memory: &impl Memory, got: &Got) -> Option<SubBufferHeader> {
        let mut bytes = [0; header::BYTES];
        memory.load(got.at, &mut bytes).ok()?;
        let field = |at: usize| {
            let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        (field(header::POSITION) == got.position).then(|| SubBufferHeader {
            begin: field(header::BEGIN),
            lost: field(header::LOST),
            end: field(header::END),
            content: field(header::CONTENT),
            records: field(header::RECORDS),
        })
    }
}

impl RegionDrain {
    /// Stores the position at which a lockless buffer begins, before any writer is active. Records
    /// after this position that were overwritten count as missing.
    pub(crate) fn begin_lockless(&mut self) {
        if let Some(lockless) = &self.lockless {
            self.drained.position = lockless.buffer.counters.read_count.load(Ordering::Relaxed);
            self.publish();
        }
    }

    /// Drains a lockless buffer, like [`RegionDrain::drain`] for a region.
    pub(crate) fn drain_lockless<M: Memory>(
        &mut self,
        with: &mut DrainContext<'_, M>,
    ) -> io::Result<()> {
        let Some(mut lockless) = self.lockless.take() else { return Ok(()) };
        if with.is_last {
            lockless.buffer.push_for_the_dead();
        }
        if with.partial {
            lockless.switch();
        }
        let mut result = Ok(());
        // Two rings are more than can be taken before the recorder reads the clock again.
        for _ in 0..2 * lockless.buffer.geometry.sub_count() {
            let Some((got, records)) = lockless.next(with) else { break };
            let end = got.position.wrapping_add(lockless.buffer.geometry.sub_bytes());
            // Otherwise the sub-buffer is already in the file: its recorder was killed before
            // giving it back.
            if self.drained.position != end {
                match self.take_sub_buffer(&lockless, (&got, records), with) {
                    Ok(true) => {}
                    Ok(false) => self.damaged += 1,
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
                self.drained.position = end;
                self.publish();
            }
            lockless.buffer.put(got);
        }
        if with.is_last {
            // Committed records that were not read: in holes, in damaged sub-buffers, and in
            // sub-buffers that an earlier recorder skipped.
            let unread = lockless.buffer.records().saturating_sub(self.drained.events);
            match lockless.buffer.mode {
                Mode::Discard => lockless.lost = unread,
                Mode::FlightRecorder => {
                    lockless.lost = lockless.lost.min(unread);
                    self.overwritten = unread - lockless.lost;
                }
            }
        }
        self.lockless = Some(lockless);
        result
    }

    /// Writes one sub-buffer as a packet; returns false if it was damaged.
    fn take_sub_buffer<M: Memory>(
        &mut self,
        lockless: &Lockless,
        (got, records): (&Got, Option<u64>),
        with: &mut DrainContext<'_, M>,
    ) -> io::Result<bool> {
        let Some(mut found) = Lockless::read_header(with.memory, got) else { return Ok(false) };
        found.records = records.unwrap_or(found.records);
        let sub_bytes = lockless.buffer.geometry.sub_bytes();
        let content = found.content.wrapping_sub(got.position);
        let end_before = self.stream.as_ref().map_or(0, |stream| stream.end_ts);
        // Times follow the order of slots only as far as the processors' clocks agree.
        found.begin = found.begin.max(end_before);
        found.end = found.end.max(found.begin);
        let sensible = (SUB_HEADER_BYTES as u64..=sub_bytes).contains(&content)
            && found.records <= content / RECORD_BYTES_MIN
            && found.end <= monotonic_ns().saturating_add(FUTURE_NS_MAX);
        if !sensible {
            return Ok(false);
        }
        let length = content as usize - SUB_HEADER_BYTES;
        with.buffer.clear();
        with.buffer.resize(PACKET_HEADER_BYTES + length, 0);
        let payload = with.buffer.get_mut(PACKET_HEADER_BYTES..).unwrap_or_default();
        if with.memory.load(got.at + SUB_HEADER_BYTES as u64, payload).is_err() {
            return Ok(false);
        }
        // Sub-buffers come in order, so a gap of overwritten ones appears as missing packets.
        let missing = got.position.wrapping_sub(self.drained.position) / sub_bytes;
        let discarded = found.lost.saturating_sub(self.forgotten.discarded);
        let packet = Packet {
            begin_ts: found.begin,
            end_ts: found.end,
            discarded,
            missing,
            events: found.records,
        };
        let first_ts = with.begin_ts.min(found.begin);
        self.open_stream(with.trace, first_ts)?.append(with.buffer, &packet)?;
        self.written += found.records;
        self.drained.last_ts = found.end;
        self.drained.events = self.drained.events.saturating_add(found.records);
        Ok(true)
    }
}
