//! The buffers of a recording: one kernel map with an element for each CPU, mapped into the
//! recorder.
//!
//! BPF programs write the map; the recorder reads the map and sets the limits. No other process has
//! access. The map has no name, so the kernel frees it when the recorder ends.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use trackway_abi::region::PAGE_SHIFT;
use trackway_ring::{Damage, Memory, Region};

use super::layout::{
    BUFFERS_BYTES_MAX, BufferLayout, EXCLUDED, LEVELS, OFF, RECORDING_STOPPED, STOPPED, TOO_DEEP,
    UNFILTERED,
};
use super::layout::{CONTROL_MASK, CONTROL_RING};
use crate::bpf_sys::mapped::MappedArray;

/// The behaviour of programs when a buffer is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferMode {
    /// Programs discard new events until the recorder raises the limit of the [`Buffers::region`].
    Discard,
    /// Programs overwrite the oldest events.
    Overwrite,
}

impl BufferMode {
    /// Returns [`Self::Overwrite`] if `overwrite` is true, else [`Self::Discard`].
    pub const fn from_overwrite(overwrite: bool) -> Self {
        if overwrite { Self::Overwrite } else { Self::Discard }
    }
}

/// The buffers of all CPUs.
#[derive(Debug)]
pub struct Buffers {
    map: MappedArray,
    layout: BufferLayout,
    cpus: usize,
    mode: BufferMode,
}

impl Buffers {
    /// Creates buffers for CPUs 0 to `cpus` − 1.
    ///
    /// # Errors
    ///
    /// If BPF is not available to this process, or the kernel has too little memory.
    pub fn new(layout: BufferLayout, cpus: usize, mode: BufferMode) -> io::Result<Self> {
        let bytes = layout.cpu_bytes().checked_mul(cpus);
        if !bytes.is_some_and(|bytes| (1..=BUFFERS_BYTES_MAX).contains(&bytes)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let map = MappedArray::new(layout.cpu_bytes(), cpus)?;
        let buffers = Self { map, layout, cpus, mode };
        buffers.init_regions();
        Ok(buffers)
    }

    /// Writes the positions and limits of all rings, before any program runs.
    fn init_regions(&self) {
        for (cpu, level) in
            (0..self.cpus).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)))
        {
            let Some(region) = self.region(cpu, level) else { continue };
            let ring = self.layout.cpu_bytes() * cpu + self.layout.ring_offset(level);
            let geometry = region.geometry;
            for index in 0..geometry.sub_count() {
                region.back(index, ring as u64 + index * geometry.sub_bytes());
            }
            let control = self.layout.cpu_bytes() * cpu + self.layout.control_offset(level);
            for (at, value) in [
                (CONTROL_MASK, geometry.ring_bytes() - 1),
                (CONTROL_RING, self.layout.ring_offset(level) as u64),
            ] {
                let word = self.map.word(control + usize::from(at.unsigned_abs()));
                word.into_iter().for_each(|word| word.store(value, Ordering::Relaxed));
            }
            region.raise_limit(match self.mode {
                BufferMode::Overwrite => u64::MAX,
                BufferMode::Discard => geometry.ring_bytes(),
            });
        }
    }

    /// Returns the map's descriptor.
    pub fn map_fd(&self) -> RawFd {
        self.map.fd()
    }

    /// Returns the layout of a CPU area.
    pub const fn layout(&self) -> &BufferLayout {
        &self.layout
    }

    /// Returns the number of CPUs with an area.
    pub const fn cpus(&self) -> usize {
        self.cpus
    }

    /// Returns the region of a CPU and level. [`Buffers`] is the [`Memory`] with the region's
    /// sub-buffers.
    pub fn region(&self, cpu: usize, level: usize) -> Option<Region<'_>> {
        if cpu >= self.cpus || level >= LEVELS {
            return None;
        }
        let geometry = self.layout.geometry(level);
        let at = self.layout.cpu_bytes() * cpu + self.layout.control_offset(level);
        self.map.region(at, geometry)
    }

    /// Stops recording until [`Self::start`], except in programs already running. Detaching
    /// programs would take long.
    pub fn stop(&self) {
        for word in self.cpu_words(STOPPED) {
            word.fetch_or(RECORDING_STOPPED, Ordering::Relaxed);
        }
    }

    /// Continues recording after [`Self::stop`].
    pub fn start(&self) {
        for word in self.cpu_words(STOPPED) {
            word.fetch_and(!RECORDING_STOPPED, Ordering::Relaxed);
        }
    }

    /// Returns true if recording is stopped.
    pub fn is_stopped(&self) -> bool {
        self.cpu_words(STOPPED).any(|word| word.load(Ordering::Relaxed) & RECORDING_STOPPED != 0)
    }

    /// Permanently excludes a CPU from recording.
    pub fn exclude_cpu(&self, cpu: usize) {
        if let Some(word) = self.cpu_words(STOPPED).nth(cpu) {
            word.fetch_or(EXCLUDED, Ordering::Relaxed);
        }
    }

    /// Selects the version of an event's program that records; other versions on the event's
    /// tracepoint stop recording. `None`: no version records. The first version has number 0.
    ///
    /// During the change, two programs on one tracepoint may both record an event, or neither. If
    /// there are two programs, use [`Self::set_version_on`].
    pub fn set_version(&self, event: usize, version: Option<u32>) {
        for cpu in 0..self.cpus {
            self.set_version_on(cpu, event, version);
        }
    }

    /// Selects the version for one CPU. If the calling thread is on that CPU, no event on the CPU
    /// passes both versions: the kernel does not preempt the programs of a tracepoint, and an
    /// interrupt runs all of them before this thread continues. (From Linux 7.0 on, the kernel may
    /// preempt between two programs of a raw tracepoint: both may record such an event, or
    /// neither.)
    pub fn set_version_on(&self, cpu: usize, event: usize, version: Option<u32>) {
        if cpu >= self.cpus || event >= self.layout.events() {
            return;
        }
        let word = self.map.word(self.layout.cpu_bytes() * cpu + self.layout.version_offset(event));
        if let Some(word) = word {
            word.store(version.map_or(OFF, u64::from), Ordering::Relaxed);
        }
    }

    /// Returns the number of an event's records that did not fit the buffers, on all CPUs.
    pub fn lost(&self, event: usize) -> u64 {
        if event >= self.layout.events() {
            return 0;
        }
        self.sum_cpus(self.layout.lost_offset(event))
    }

    /// Returns how often filters of an event read a field that was not in memory, on all CPUs.
    pub fn unread(&self, event: usize) -> u64 {
        if event >= self.layout.events() {
            return 0;
        }
        self.sum_cpus(self.layout.unread_offset(event))
    }

    /// Returns the number of an event's kernel texts and sequences that were cut, on all CPUs.
    pub fn cut(&self, event: usize) -> u64 {
        if event >= self.layout.events() {
            return 0;
        }
        self.sum_cpus(self.layout.cut_offset(event))
    }

    /// Returns the number of events whose filters could not run because all levels were in use.
    pub fn unfiltered_too_deep(&self) -> u64 {
        self.sum_cpus(UNFILTERED)
    }

    /// Returns the number of events without filters that were discarded because all levels were in
    /// use.
    pub fn too_deep(&self) -> u64 {
        self.sum_cpus(TOO_DEEP)
    }

    /// Returns the number of events without filters on one CPU for which all levels were in use.
    pub fn too_deep_on(&self, cpu: usize) -> u64 {
        if cpu >= self.cpus {
            return 0;
        }
        let word = self.map.word(self.layout.cpu_bytes() * cpu + TOO_DEEP);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Returns the word at offset `at` of each CPU area, in the order of CPUs.
    fn cpu_words(&self, at: usize) -> impl Iterator<Item = &AtomicU64> {
        (0..self.cpus).filter_map(move |cpu| self.map.word(self.layout.cpu_bytes() * cpu + at))
    }

    /// Returns the sum of the words at offset `at` of all CPU areas.
    fn sum_cpus(&self, at: usize) -> u64 {
        self.cpu_words(at).fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
    }
}

impl Memory for Buffers {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        let is_there = usize::try_from(at).is_ok_and(|at| self.map.copy(at, into));
        if is_there { Ok(()) } else { Err(Damage::Table(at >> PAGE_SHIFT)) }
    }
}

#[cfg(test)]
mod tests {
    use trackway_filter::layout::{Layout as Kinds, Member, Type};
    use trackway_testkit::report_skipped;

    use super::*;
    use crate::bpf_program::attach::LoadedProgram;
    use crate::bpf_program::codegen::{
        EventNumber, ProgramMaps, generate_filtered_program, generate_program,
    };
    use crate::bpf_program::contexts::FilterContexts;
    use crate::bpf_program::filter::{Filter, FilterMaps};
    use crate::bpf_program::layout::DEPTH;
    use crate::bpf_program::plan::EventPlan;
    use crate::catalogue::Catalogue;
    use crate::catalogue::select::Selection;

    /// RUN calls with all levels marked as in use, with a filter on the call's entry or exit.
    /// EXPECT a separate counter for the filtered event, because its filter's verdict is unknown.
    #[test]
    fn unfiltered_deep_events_have_their_own_counter() {
        const CALLS: u64 = 100;
        let Ok(catalogue) = Catalogue::open() else {
            return report_skipped("no events can be seen");
        };
        let sides = ["syscalls:sys_enter_lchown", "syscalls:sys_exit_lchown"];
        let events = catalogue.select(&Selection::new(&sides).expect("patterns"));
        let events = events.expect("they are there").events;
        let layout = BufferLayout::new(16, 2, events.len()).expect("a layout");
        let asked = FilterContexts::find(catalogue.btf(), |_| true);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from).max(64);
        let made = Buffers::new(layout, cpus, BufferMode::Discard)
            .and_then(|buffers| Ok((buffers, FilterMaps::new(cpus, 1, asked)?)));
        let Ok((buffers, mut memory)) = made else {
            return report_skipped("the kernel gives no BPF");
        };
        let [enter, exit] = [0, 1].map(|at| EventPlan::from_record(&events[at], 3000));
        let kinds = Kinds {
            fields: vec![Member {
                name: "user".into(),
                of: Type::from(trackway_schema::Scalar::U32),
            }],
            ..Kinds::default()
        };
        let compiled =
            trackway_filter::compile::compile("user == 5", &kinds).expect("it makes sense");
        let object = compiled.into_object().encode().expect("an object");
        let filter = Filter::new(&object, 0, &enter, &mut memory).expect("it can be asked");
        let maps = ProgramMaps { buffers_fd: buffers.map_fd(), scope: None };
        let filters = [filter.expect("it has all")];
        let enter = generate_filtered_program(
            &enter,
            &layout,
            maps,
            EventNumber { id: 0, index: 0 },
            &filters,
        )
        .expect("it fits")
        .bytes;
        let exit = generate_program(&exit, &layout, maps, EventNumber { id: 1, index: 1 })
            .expect("it fits");
        buffers.cpu_words(DEPTH).for_each(|depth| depth.store(LEVELS as u64, Ordering::Relaxed));
        let attached: Vec<_> = [enter, exit]
            .iter()
            .zip(&events)
            .map(|(code, event)| {
                let loaded = LoadedProgram::load(code).expect("the kernel takes it");
                loaded.attach(event.id.expect("a number")).expect("it is there")
            })
            .collect();
        for _ in 0..CALLS {
            let chowned = std::os::unix::fs::lchown("/nowhere/at/all", Some(7), None);
            assert!(chowned.is_err());
        }
        drop(attached);
        assert!(
            (CALLS..2 * CALLS).contains(&buffers.unfiltered_too_deep()),
            "{}",
            buffers.unfiltered_too_deep()
        );
        assert!((CALLS..2 * CALLS).contains(&buffers.too_deep()), "{}", buffers.too_deep());
    }
}
