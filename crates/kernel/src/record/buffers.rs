//! The buffers: one map of the kernel's, an element for each CPU, mapped here.
//!
//! The kernel's programs write it, we read it and say how far they may go; nobody else has it. It
//! is gone when we are: nothing of it has a name.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use trackway_abi::region::PAGE_SHIFT;
use trackway_ring::{Damage, Memory, Region};

use super::layout::{
    BUFFERS_BYTES_MAX, LEFT_OUT, LEVELS, Layout, NOW, OFF, STOPPED, TOO_DEEP, UNASKED,
};
use super::layout::{CONTROL_MASK, CONTROL_RING};
use crate::bpf_sys::mapped::MappedArray;

/// The buffers of all CPUs.
#[derive(Debug)]
pub struct Buffers {
    map: MappedArray,
    layout: Layout,
    cpus: usize,
    overwrite: bool,
}

impl Buffers {
    /// Makes buffers for CPUs 0 to `cpus` − 1. With `overwrite`, programs go round the rings; else
    /// each may be filled once, until [`Self::region`]s are given more room.
    ///
    /// # Errors
    ///
    /// If the kernel has no BPF, lets us have none, or has not as much memory.
    pub fn new(layout: Layout, cpus: usize, overwrite: bool) -> io::Result<Self> {
        let bytes = layout.cpu_bytes().checked_mul(cpus);
        if !bytes.is_some_and(|bytes| (1..=BUFFERS_BYTES_MAX).contains(&bytes)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let map = MappedArray::new(layout.cpu_bytes(), cpus)?;
        let buffers = Self { map, layout, cpus, overwrite };
        buffers.prepare();
        Ok(buffers)
    }

    /// Says where rings are, and how far they may be written: before any program runs.
    fn prepare(&self) {
        for (cpu, level) in
            (0..self.cpus).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)))
        {
            let Some(region) = self.region(cpu, level) else { continue };
            let ring = self.layout.cpu_bytes() * cpu + self.layout.ring(level);
            let geometry = region.geometry;
            for index in 0..geometry.sub_count() {
                region.back(index, ring as u64 + index * geometry.sub_bytes());
            }
            let control = self.layout.cpu_bytes() * cpu + self.layout.control(level);
            for (at, value) in [
                (CONTROL_MASK, geometry.ring_bytes() - 1),
                (CONTROL_RING, self.layout.ring(level) as u64),
            ] {
                let word = self.map.word(control + usize::from(at.unsigned_abs()));
                word.into_iter().for_each(|word| word.store(value, Ordering::Relaxed));
            }
            region.raise_limit(if self.overwrite { u64::MAX } else { geometry.ring_bytes() });
        }
    }

    /// The map, for programs.
    pub fn map_fd(&self) -> RawFd {
        self.map.fd()
    }

    /// The layout of each CPU's part.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many CPUs have a part.
    pub const fn cpus(&self) -> usize {
        self.cpus
    }

    /// The region of a CPU and level. Its sub-buffers lie in [`Memory`] that this is.
    pub fn region(&self, cpu: usize, level: usize) -> Option<Region<'_>> {
        if cpu >= self.cpus || level >= LEVELS {
            return None;
        }
        let geometry = self.layout.geometry(level);
        let at = self.layout.cpu_bytes() * cpu + self.layout.control(level);
        self.map.region(at, geometry)
    }

    /// Records nothing any more, but for what is under way, until [`Self::start`]. To detach
    /// programs takes long.
    pub fn stop(&self) {
        for word in self.words(STOPPED) {
            word.fetch_or(NOW, Ordering::Relaxed);
        }
    }

    /// Records again.
    pub fn start(&self) {
        for word in self.words(STOPPED) {
            word.fetch_and(!NOW, Ordering::Relaxed);
        }
    }

    /// Whether nothing is recorded.
    pub fn is_stopped(&self) -> bool {
        self.words(STOPPED).any(|word| word.load(Ordering::Relaxed) & NOW != 0)
    }

    /// Records nothing of a CPU, ever.
    pub fn leave_out(&self, cpu: usize) {
        if let Some(word) = self.words(STOPPED).nth(cpu) {
            word.fetch_or(LEFT_OUT, Ordering::Relaxed);
        }
    }

    /// Has an event recorded by this version of its program from now on, and by no other one that
    /// may be on its tracepoint still; `None`: by none. The first version has number 0.
    ///
    /// Of what happens meanwhile, two programs on one tracepoint may record the same, or neither:
    /// where there are two, [`Self::set_version_on`] is for it.
    pub fn set_version(&self, event: usize, version: Option<u32>) {
        for cpu in 0..self.cpus {
            self.set_version_on(cpu, event, version);
        }
    }

    /// The same for what happens on one CPU. If the calling thread is on it, no event there sees
    /// both: the kernel does not take a CPU from who goes through a tracepoint's programs, and who
    /// interrupts us goes through all of them before we go on. (From Linux 7.0 on it may, between
    /// two programs of a raw tracepoint: then such an event may be recorded by both, or by none.)
    pub fn set_version_on(&self, cpu: usize, event: usize, version: Option<u32>) {
        if cpu >= self.cpus || event >= self.layout.events() {
            return;
        }
        let word = self.map.word(self.layout.cpu_bytes() * cpu + self.layout.version(event));
        if let Some(word) = word {
            word.store(version.map_or(OFF, u64::from), Ordering::Relaxed);
        }
    }

    /// Records of an event that found no room, on all CPUs.
    pub fn lost(&self, event: usize) -> u64 {
        if event >= self.layout.events() {
            return 0;
        }
        self.sum(self.layout.lost(event))
    }

    /// How often filters asked for something of an event that was not in memory, on all CPUs.
    pub fn unread(&self, event: usize) -> u64 {
        if event >= self.layout.events() {
            return 0;
        }
        self.sum(self.layout.unread(event))
    }

    /// Texts and sequences of the kernel's that were cut, of an event, on all CPUs.
    pub fn cut(&self, event: usize) -> u64 {
        if event >= self.layout.events() {
            return 0;
        }
        self.sum(self.layout.cut(event))
    }

    /// Events that found all levels of their CPU taken before their filters could be asked.
    pub fn unasked(&self) -> u64 {
        self.sum(UNASKED)
    }

    /// Records of any event without filters that found all levels of their CPU taken.
    pub fn too_deep(&self) -> u64 {
        self.sum(TOO_DEEP)
    }

    /// The same, of one CPU.
    pub fn too_deep_on(&self, cpu: usize) -> u64 {
        if cpu >= self.cpus {
            return 0;
        }
        let word = self.map.word(self.layout.cpu_bytes() * cpu + TOO_DEEP);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// A word in each CPU's part, in their order.
    fn words(&self, at: usize) -> impl Iterator<Item = &AtomicU64> {
        (0..self.cpus).filter_map(move |cpu| self.map.word(self.layout.cpu_bytes() * cpu + at))
    }

    /// The sum of a word in all CPUs' parts.
    fn sum(&self, at: usize) -> u64 {
        self.words(at).fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
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
    use trackway_testkit::skipped;

    use super::*;
    use crate::catalogue::Catalogue;
    use crate::catalogue::select::Selection;
    use crate::record::attach::Loaded;
    use crate::record::context::Asked;
    use crate::record::filter::{Filter, Memory as Asking};
    use crate::record::layout::DEPTH;
    use crate::record::program::{filtered, program};
    use crate::record::staging::Staged;

    /// RUN calls where all levels seem taken, with a filter on one side of them. EXPECT that side's
    /// to be counted by themselves: nobody knows what the filter would have said.
    #[test]
    fn what_is_too_deep_to_be_asked_is_counted_by_itself() {
        const CALLS: u64 = 100;
        let Ok(catalogue) = Catalogue::open() else { return skipped("no events can be seen") };
        let sides = ["syscalls:sys_enter_lchown", "syscalls:sys_exit_lchown"];
        let events = catalogue.select(&Selection::new(&sides).expect("patterns"));
        let events = events.expect("they are there").events;
        let layout = Layout::new(16, 2, events.len()).expect("a layout");
        let asked = Asked::find(catalogue.btf(), |_| true);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from).max(64);
        let made = Buffers::new(layout, cpus, false)
            .and_then(|buffers| Ok((buffers, Asking::new(cpus, 1, asked)?)));
        let Ok((buffers, mut memory)) = made else { return skipped("the kernel gives no BPF") };
        let [enter, exit] = [0, 1].map(|at| Staged::new(&events[at], 3000));
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
        let fds = (buffers.map_fd(), None);
        let filters = [filter.expect("it has all")];
        let enter = filtered(&enter, &layout, fds, (0, 0), &filters).expect("it fits").bytes;
        let exit = program(&exit, &layout, fds, (1, 1)).expect("it fits");
        buffers.words(DEPTH).for_each(|depth| depth.store(LEVELS as u64, Ordering::Relaxed));
        let attached: Vec<_> = [enter, exit]
            .iter()
            .zip(&events)
            .map(|(code, event)| {
                let loaded = Loaded::new(code).expect("the kernel takes it");
                loaded.attach(event.id.expect("a number")).expect("it is there")
            })
            .collect();
        for _ in 0..CALLS {
            let chowned = std::os::unix::fs::lchown("/nowhere/at/all", Some(7), None);
            assert!(chowned.is_err());
        }
        drop(attached);
        assert!((CALLS..2 * CALLS).contains(&buffers.unasked()), "{}", buffers.unasked());
        assert!((CALLS..2 * CALLS).contains(&buffers.too_deep()), "{}", buffers.too_deep());
    }
}
