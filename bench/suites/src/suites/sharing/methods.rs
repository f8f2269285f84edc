//! Methods to read and update a thousand elements; a pass reads or updates each element once.
//!
//! Main invariant: the values of each sample differ from the previous sample's, and the sum of
//! every reading pass is checked; updated values are read back by another method.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use trackway_bench_engine::error::{Error, Result};
use trackway_console::IoError;
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::layout::BufferLayout;

use super::bpf::{Map, Mapped, Program, set_first};

/// Number of elements that are read and updated, as in the paper.
pub(super) const ELEMENTS: u32 = 1000;
/// Number of elements of the map: a multiple of the elements of a page.
const MAP_ELEMENTS: u32 = 1024;
/// Index of the element that contains the first value for the writing program.
const SEED: u32 = MAP_ELEMENTS - 1;
/// Difference between each value and the previous one.
const STRIDE: i32 = 7919;
/// Number of program runs in one call.
const RUNS: u32 = 20;
/// Size and number of sub-buffers of the recorder's map, as powers of two: as small as possible,
/// since no event is recorded.
const SUB_SHIFT: u32 = 12;
const COUNT_SHIFT: u32 = 1;

/// The kernel's internal error number for operations that a map does not support.
const ENOTSUPP: i32 = 524;

/// A method to read and update elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessMethod {
    /// An array in private memory: the baseline.
    Memory,
    /// The map, mapped into memory.
    Mmap,
    /// bpf(2), one element per call.
    Syscall,
    /// bpf(2), all elements in one call.
    Batch,
    /// A BPF program.
    Program,
    /// The recorder's code that reads the counters of its programs.
    Recorder,
}

impl AccessMethod {
    /// All methods.
    pub(super) const ALL: [Self; 6] =
        [Self::Memory, Self::Mmap, Self::Recorder, Self::Program, Self::Batch, Self::Syscall];

    /// Returns the name of the method's row.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Mmap => "mmap",
            Self::Syscall => "bpf-syscall",
            Self::Batch => "bpf-batch",
            Self::Program => "bpf-program",
            Self::Recorder => "trackway-recorder",
        }
    }

    /// Returns true if the method writes: the recorder only reads, since its programs count.
    pub(super) const fn can_update(self) -> bool {
        !matches!(self, Self::Recorder)
    }
}

/// The reason why a method is not available.
#[derive(Debug, Clone)]
pub(super) struct Unavailability {
    pub(super) words: String,
    /// True if the method should have worked.
    pub(super) is_failure: bool,
}

impl Unavailability {
    /// Classifies an error: a missing privilege or kernel feature is an absence; any other error is
    /// a failure.
    fn of(what: &str, error: &io::Error) -> Self {
        let words = format!("{what}: {}", IoError::text(error));
        let code = error.raw_os_error();
        let is_absent = matches!(code, Some(libc::EPERM | libc::ENOSYS | libc::EINVAL | ENOTSUPP));
        Self { words, is_failure: !is_absent }
    }

    /// Makes the reason for a program: a rejection by the verifier is a failure, too.
    fn of_program(error: &io::Error) -> Self {
        let unavailability = Self::of("the kernel takes no program of ours", error);
        Self {
            is_failure: unavailability.is_failure || error.raw_os_error() == Some(libc::EINVAL),
            ..unavailability
        }
    }
}

/// A value, or the reason for its absence.
type Attempt<T> = std::result::Result<T, Unavailability>;

fn to_attempt<T>(what: &str, tried: io::Result<T>) -> Attempt<T> {
    tried.map_err(|error| Unavailability::of(what, &error))
}

/// The timer of passes: runs a pass repeatedly, and returns ns per element.
pub(super) type Timing<'t> =
    &'t mut dyn FnMut(&mut dyn FnMut() -> Result<Option<f64>>) -> Result<Vec<f64>>;

/// The memory, maps and programs with the elements.
pub(super) struct SharedElements {
    memory: Vec<AtomicU64>,
    map: Attempt<Map>,
    mapped: Attempt<Mapped>,
    adding: Attempt<Program>,
    filling: Attempt<Program>,
    batch: Attempt<()>,
    buffers: Attempt<Buffers>,
    /// First value of the elements in the latest sample.
    first: u64,
}

impl SharedElements {
    /// Makes the maps and programs that are possible on this machine.
    pub(super) fn new() -> Self {
        let map = to_attempt("the kernel gives no map that can be mapped", Map::new(MAP_ELEMENTS));
        let with = |map: &Attempt<Map>| map.as_ref().map(|_| ()).map_err(Clone::clone);
        let unavailability = with(&map);
        let program = |make: &dyn Fn(&Map) -> io::Result<Program>| match &map {
            Ok(map) => make(map).map_err(|error| Unavailability::of_program(&error)),
            Err(unavailability) => Err(unavailability.clone()),
        };
        let adding = program(&|map| Program::new_summing(map, ELEMENTS));
        let filling = program(&|map| Program::new_filling(map, ELEMENTS, SEED, STRIDE));
        let mapped = match &map {
            Ok(map) => to_attempt("the map cannot be mapped", map.map_memory()),
            Err(unavailability) => Err(unavailability.clone()),
        };
        let batch = match &map {
            Ok(map) => {
                let (mut keys, mut values) = ([0; 2], [0; 2]);
                to_attempt("there are no batches", map.get_many(&mut keys, &mut values).map(drop))
            }
            Err(_) => unavailability,
        };
        let memory = (0..ELEMENTS).map(|_| AtomicU64::new(0)).collect();
        Self {
            memory,
            map,
            mapped,
            adding,
            filling,
            batch,
            buffers: make_recorder_buffers(),
            first: 0,
        }
    }

    /// Returns the reason if a method is not available.
    pub(super) fn unavailability(&self, method: AccessMethod) -> Option<&Unavailability> {
        match method {
            AccessMethod::Memory => None,
            AccessMethod::Mmap => self.mapped.as_ref().err(),
            AccessMethod::Syscall => self.map.as_ref().err(),
            AccessMethod::Batch => self.batch.as_ref().err(),
            AccessMethod::Program => self.adding.as_ref().err().or(self.filling.as_ref().err()),
            AccessMethod::Recorder => self.buffers.as_ref().err(),
        }
    }

    /// Returns the current values.
    fn values(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.first;
        (0..u64::from(ELEMENTS)).map(move |at| element_value(first, at))
    }

    /// Writes new values to the elements that `method` will read, by another method.
    pub(super) fn write_values(&mut self, method: AccessMethod, sample: u64) -> Result<()> {
        self.first = first_value(sample);
        if method == AccessMethod::Memory {
            self.values().zip(&self.memory).for_each(|(value, word)| {
                word.store(value, Ordering::Relaxed);
            });
            return Ok(());
        }
        if method == AccessMethod::Recorder {
            return self.write_counters();
        }
        let map = self.map.as_ref().map_err(unavailability_error)?;
        // A BPF program writes the elements in every second sample, and single calls write them in
        // the others.
        match &self.filling {
            Ok(filling) if method != AccessMethod::Program && sample.is_multiple_of(2) => {
                map.set(SEED, self.first).map_err(bpf_error)?;
                filling.run(1).map_err(bpf_error).map(drop)
            }
            _ => (0..ELEMENTS)
                .zip(self.values())
                .try_for_each(|(key, value)| map.set(key, value).map_err(bpf_error)),
        }
    }

    fn write_counters(&self) -> Result<()> {
        let buffers = self.buffers.as_ref().map_err(unavailability_error)?;
        let layout = buffers.layout();
        let mut bytes = vec![0; layout.cpu_bytes()];
        for (event, value) in self.values().enumerate() {
            let at = layout.lost_offset(event);
            let word =
                bytes.get_mut(at..at + 8).ok_or_else(|| sharing_error("a counter is not there"))?;
            word.copy_from_slice(&value.to_ne_bytes());
        }
        set_first(buffers.map_fd(), &mut bytes).map_err(bpf_error)
    }

    /// Reads all elements by `method`, timed by `timing`.
    pub(super) fn read_elements(
        &mut self,
        method: AccessMethod,
        timing: Timing<'_>,
    ) -> Result<Vec<f64>> {
        let expected = self.values().fold(0, u64::wrapping_add);
        let check = |sum: u64| {
            let is_right = sum == expected;
            if is_right { Ok(None) } else { Err(sharing_error("what is read was not written")) }
        };
        match method {
            AccessMethod::Memory => timing(&mut || check(sum_words(black_box(&self.memory)))),
            AccessMethod::Mmap => {
                let words = self.mapped.as_ref().map_err(unavailability_error)?.words();
                let words = &words[..ELEMENTS as usize];
                timing(&mut || check(sum_words(black_box(words))))
            }
            AccessMethod::Syscall => {
                let map = self.map.as_ref().map_err(unavailability_error)?;
                timing(&mut || {
                    let mut sum = 0_u64;
                    for key in 0..ELEMENTS {
                        sum = sum.wrapping_add(map.get(key).map_err(bpf_error)?);
                    }
                    check(sum)
                })
            }
            AccessMethod::Batch => {
                let map = self.map.as_ref().map_err(unavailability_error)?;
                let mut keys = vec![0; ELEMENTS as usize];
                let mut values = vec![0; ELEMENTS as usize];
                timing(&mut || {
                    if !map.get_many(&mut keys, &mut values).map_err(bpf_error)? {
                        return Err(sharing_error("not all elements were read"));
                    }
                    check(values.iter().copied().fold(0, u64::wrapping_add))
                })
            }
            AccessMethod::Program => {
                let adding = self.adding.as_ref().map_err(unavailability_error)?;
                timing(&mut || {
                    let ran = adding.run(RUNS).map_err(bpf_error)?;
                    if ran.answer != expected as u32 {
                        return Err(sharing_error("what is read was not written"));
                    }
                    Ok(Some(f64::from(ran.ns) / f64::from(ELEMENTS)))
                })
            }
            AccessMethod::Recorder => {
                let buffers = self.buffers.as_ref().map_err(unavailability_error)?;
                timing(&mut || {
                    let events = 0..ELEMENTS as usize;
                    check(events.fold(0, |sum, event| {
                        u64::wrapping_add(sum, buffers.lost(black_box(event)))
                    }))
                })
            }
        }
    }

    /// Updates all elements by `method` with new values in each sample; `timing` times the passes.
    pub(super) fn update_elements(
        &mut self,
        method: AccessMethod,
        sample: u64,
        timing: Timing<'_>,
    ) -> Result<Vec<f64>> {
        let first = first_value(sample);
        self.first = first;
        let fill = |words: &[AtomicU64]| {
            for (at, word) in words.iter().enumerate() {
                word.store(element_value(first, at as u64), Ordering::Relaxed);
            }
            Ok(None)
        };
        match method {
            AccessMethod::Memory => timing(&mut || fill(black_box(&self.memory))),
            AccessMethod::Mmap => {
                let words = self.mapped.as_ref().map_err(unavailability_error)?.words();
                let words = &words[..ELEMENTS as usize];
                timing(&mut || fill(black_box(words)))
            }
            AccessMethod::Syscall => {
                let map = self.map.as_ref().map_err(unavailability_error)?;
                timing(&mut || {
                    let all = (0..ELEMENTS).zip(self.values());
                    for (key, value) in all {
                        map.set(key, value).map_err(bpf_error)?;
                    }
                    Ok(None)
                })
            }
            AccessMethod::Batch => {
                let map = self.map.as_ref().map_err(unavailability_error)?;
                let mut keys: Vec<u32> = (0..ELEMENTS).collect();
                let mut values: Vec<u64> = self.values().collect();
                timing(&mut || match map.set_many(&mut keys, &mut values).map_err(bpf_error)? {
                    true => Ok(None),
                    false => Err(sharing_error("not all elements were updated")),
                })
            }
            AccessMethod::Program => {
                let filling = self.filling.as_ref().map_err(unavailability_error)?;
                self.map
                    .as_ref()
                    .map_err(unavailability_error)?
                    .set(SEED, first)
                    .map_err(bpf_error)?;
                timing(&mut || {
                    let ran = filling.run(RUNS).map_err(bpf_error)?;
                    Ok(Some(f64::from(ran.ns) / f64::from(ELEMENTS)))
                })
            }
            AccessMethod::Recorder => Err(sharing_error("the recorder only reads")),
        }
    }

    /// Checks the values that `method` has just written by reading them with another method.
    pub(super) fn check_updated(&self, method: AccessMethod) -> Result<()> {
        let of = |words: &[AtomicU64]| -> Vec<u64> {
            words.iter().take(ELEMENTS as usize).map(|word| word.load(Ordering::Relaxed)).collect()
        };
        let found = match (method, &self.map, &self.mapped) {
            (AccessMethod::Memory, ..) => of(&self.memory),
            (
                AccessMethod::Syscall | AccessMethod::Batch | AccessMethod::Program,
                _,
                Ok(mapped),
            ) => of(mapped.words()),
            (_, Ok(map), _) => {
                (0..ELEMENTS).map(|key| map.get(key).map_err(bpf_error)).collect::<Result<_>>()?
            }
            (_, Err(unavailability), _) => return Err(unavailability_error(unavailability)),
        };
        let is_right = found.into_iter().eq(self.values());
        if is_right { Ok(()) } else { Err(sharing_error("what was updated is not there")) }
    }
}

/// Returns the first value of a sample: it was not used before, and has more than 32 bits.
const fn first_value(sample: u64) -> u64 {
    sample.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the value of an element.
const fn element_value(first: u64, at: u64) -> u64 {
    first.wrapping_add(at * STRIDE as u64)
}

/// Adds the words, with one load for each: they are atomics, which no compiler combines.
#[inline(never)]
fn sum_words(words: &[AtomicU64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Relaxed)))
}

/// Makes the recorder's map of one CPU, with a counter for each element.
fn make_recorder_buffers() -> Attempt<Buffers> {
    let layout = BufferLayout::new(SUB_SHIFT, COUNT_SHIFT, ELEMENTS as usize);
    let layout = layout.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
    to_attempt(
        "the kernel gives no map for events",
        layout.and_then(|it| Buffers::new(it, 1, BufferMode::Overwrite)),
    )
}

fn unavailability_error(unavailability: &Unavailability) -> Error {
    sharing_error(&unavailability.words)
}

fn bpf_error(error: io::Error) -> Error {
    Error::io("bpf(2)")(error)
}

fn sharing_error(message: &str) -> Error {
    Error::output("sharing", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_pass_once(pass: &mut dyn FnMut() -> Result<Option<f64>>) -> Result<Vec<f64>> {
        pass().map(|said| vec![said.unwrap_or(1.0)])
    }

    #[test]
    fn every_way_reads_what_others_wrote_and_others_find_what_it_writes() {
        let mut shared = SharedElements::new();
        for (number, method) in AccessMethod::ALL.into_iter().enumerate() {
            if let Some(unavailability) = shared.unavailability(method) {
                assert!(!unavailability.is_failure, "{unavailability:?}");
                eprintln!("skipped, because {}: {}", unavailability.words, method.name());
                continue;
            }
            let sample = 2 * number as u64;
            for sample in [sample, sample + 1] {
                shared.write_values(method, sample).expect("written");
                shared.read_elements(method, &mut run_pass_once).expect("what was written");
            }
            if method.can_update() {
                shared.update_elements(method, sample + 100, &mut run_pass_once).expect("updated");
                shared.check_updated(method).expect("what was updated");
            }
        }
    }

    #[test]
    fn wrong_values_are_found() {
        let mut shared = SharedElements::new();
        shared.write_values(AccessMethod::Memory, 1).expect("written");
        shared.memory[999].fetch_add(1, Ordering::Relaxed);
        shared
            .read_elements(AccessMethod::Memory, &mut run_pass_once)
            .expect_err("one value is another");
        shared.update_elements(AccessMethod::Memory, 2, &mut run_pass_once).expect("updated");
        shared.memory[0].fetch_add(1, Ordering::Relaxed);
        shared.check_updated(AccessMethod::Memory).expect_err("one value is another");
    }
}
