//! bpf(2) as its users call it: a kernel array that is read and written one element per call, many
//! elements per call, through a mapping, and by BPF programs (include/uapi/linux/bpf.h).
//!
//! All objects are known only by their file descriptors, and are removed when these are closed:
//! nothing is pinned or attached.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const PROG_LOAD: i32 = 5;
const PROG_RUN: i32 = 10;
const MAP_LOOKUP_BATCH: i32 = 24;
const MAP_UPDATE_BATCH: i32 = 26;
const MAP_TYPE_ARRAY: u32 = 2;
/// Flag of a map that can be mapped.
const F_MMAPABLE: u32 = 1 << 10;
/// The type of program that the kernel can run several times in one call.
const PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// The licence, which the kernel requires: no GPL-only function is used.
const LICENSE: &[u8] = b"MIT\0";
/// Bytes of the packet for a program run; the program does not read it. No Ethernet frame is
/// shorter.
const PACKET_BYTES: usize = 64;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct Element {
    map_fd: u32,
    zero: u32,
    key: *const u32,
    value: *mut u8,
    flags: u64,
}

#[repr(C)]
struct Batch {
    from: *const u32,
    next: *mut u32,
    keys: *mut u32,
    values: *mut u64,
    count: u32,
    map_fd: u32,
    element_flags: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_count: u32,
    insns: *const u64,
    license: *const u8,
}

#[repr(C)]
#[derive(Default)]
struct ProgRun {
    prog_fd: u32,
    answer: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
}

/// # Safety
/// All addresses in `attribute` must be valid for this command.
unsafe fn call_bpf<T>(command: i32, attribute: &mut T) -> io::Result<i32> {
    let size = size_of::<T>();
    // SAFETY: `attribute` has the stated length; its pointers are the caller's obligation.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn owned_fd(fd: i32) -> OwnedFd {
    // SAFETY: bpf(2) has just opened it, and nothing else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn fd_number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A BPF array of words.
#[derive(Debug)]
pub(super) struct Map {
    fd: OwnedFd,
    count: u32,
}

impl Map {
    /// Makes a map of `count` words, all zero, which can be mapped.
    pub(super) fn new(count: u32) -> io::Result<Self> {
        let mut create = MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 8,
            max_entries: count,
            map_flags: F_MMAPABLE,
        };
        // SAFETY: there are no addresses in it.
        let fd = owned_fd(unsafe { call_bpf(MAP_CREATE, &mut create) }?);
        Ok(Self { fd, count })
    }

    /// Reads an element.
    pub(super) fn get(&self, key: u32) -> io::Result<u64> {
        let mut value = 0;
        self.element(MAP_LOOKUP, key, &mut value).map(|()| value)
    }

    /// Writes an element.
    pub(super) fn set(&self, key: u32, mut value: u64) -> io::Result<()> {
        self.element(MAP_UPDATE, key, &mut value)
    }

    fn element(&self, command: i32, key: u32, value: &mut u64) -> io::Result<()> {
        let value = (&raw mut *value).cast();
        let map_fd = fd_number(&self.fd);
        let mut element = Element { map_fd, zero: 0, key: &raw const key, value, flags: 0 };
        // SAFETY: the key has the map's size, and the value that of its values.
        unsafe { call_bpf(command, &mut element) }.map(drop)
    }

    /// Reads as many elements as fit, from the first on; returns true if all were read.
    pub(super) fn get_many(&self, keys: &mut [u32], values: &mut [u64]) -> io::Result<bool> {
        self.batch(MAP_LOOKUP_BATCH, keys, values)
    }

    /// Writes these elements; returns true if all were written.
    pub(super) fn set_many(&self, keys: &mut [u32], values: &mut [u64]) -> io::Result<bool> {
        self.batch(MAP_UPDATE_BATCH, keys, values)
    }

    fn batch(&self, command: i32, keys: &mut [u32], values: &mut [u64]) -> io::Result<bool> {
        let wanted = keys.len().min(values.len()) as u32;
        let mut next = 0_u32;
        let is_lookup = command == MAP_LOOKUP_BATCH;
        let mut batch = Batch {
            from: std::ptr::null(),
            next: if is_lookup { &raw mut next } else { std::ptr::null_mut() },
            keys: keys.as_mut_ptr(),
            values: values.as_mut_ptr(),
            count: wanted,
            map_fd: fd_number(&self.fd),
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: there is room for `count` keys and values of the map's sizes, and for the next
        // key.
        unsafe { call_bpf(command, &mut batch) }?;
        Ok(batch.count == wanted)
    }

    /// Maps the array into this process.
    pub(super) fn map_memory(&self) -> io::Result<Mapped> {
        let count = self.count as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (any, fd) = (std::ptr::null_mut(), self.fd.as_raw_fd());
        // SAFETY: a new mapping, where the kernel finds room.
        let base = unsafe { libc::mmap(any, 8 * count, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapped { base, count })
    }
}

/// The words of a mapped array.
#[derive(Debug)]
pub(super) struct Mapped {
    base: NonNull<AtomicU64>,
    count: usize,
}

impl Mapped {
    /// Returns all words of the array.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is ours, of `count` words, and lives as long as this borrow; BPF
        // programs write it too, and all accesses are atomic.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our mapping; each reference into it borrows this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 8 * self.count) };
    }
}

/// Writes the whole first element of any map.
///
/// `value` must be as long as the map's values: the kernel reads that many bytes.
pub(super) fn set_first(map_fd: i32, value: &mut [u8]) -> io::Result<()> {
    let (key, map_fd) = (0_u32, map_fd.cast_unsigned());
    let value = value.as_mut_ptr();
    let mut element = Element { map_fd, zero: 0, key: &raw const key, value, flags: 0 };
    // SAFETY: the key has the map's size; the value is the caller's promise.
    unsafe { call_bpf(MAP_UPDATE, &mut element) }.map(drop)
}

/// A BPF program.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

/// The result of a program's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProgramRuns {
    /// Return value of the last run.
    pub(super) answer: u32,
    /// Mean duration of a run, in ns, as the kernel measures it.
    pub(super) ns: u32,
}

impl Program {
    /// Loads a program; the kernel verifies and compiles it.
    fn new(insns: &[u64]) -> io::Result<Self> {
        let mut load = ProgLoad {
            prog_type: PROG_TYPE_SOCKET_FILTER,
            insn_count: insns.len() as u32,
            insns: insns.as_ptr(),
            license: LICENSE.as_ptr(),
        };
        // SAFETY: there are as many instructions as stated, and the licence ends with a NUL.
        unsafe { call_bpf(PROG_LOAD, &mut load) }.map(|fd| Self(owned_fd(fd)))
    }

    /// Makes a program that adds up elements 0 to `count` − 1 of a map and returns the lower half
    /// of the sum.
    pub(super) fn new_summing(map: &Map, count: u32) -> io::Result<Self> {
        let load = [encode_instruction(LOAD, 3, 0, 0, 0), encode_instruction(ADD, 7, 3, 0, 0)];
        Self::new(&element_loop_instructions(map, count, &[], &load))
    }

    /// Makes a program that writes elements 0 to `count` − 1. The first element gets the value of
    /// element `seed`, each other one `stride` more than the previous element.
    pub(super) fn new_filling(map: &Map, count: u32, seed: u32, stride: i32) -> io::Result<Self> {
        let begin = lookup_instructions(
            map,
            encode_instruction(STORE_IMMEDIATE, FRAME, 0, -4, seed.cast_signed()),
        );
        let begin = [&begin[..], &[encode_instruction(LOAD, 7, 0, 0, 0)]].concat();
        let store = [
            encode_instruction(STORE, 0, 7, 0, 0),
            encode_instruction(ADD_IMMEDIATE, 7, 0, 0, stride),
        ];
        Self::new(&element_loop_instructions(map, count, &begin, &store))
    }

    /// Runs the program `times` times.
    pub(super) fn run(&self, times: u32) -> io::Result<ProgramRuns> {
        let packet = [0_u8; PACKET_BYTES];
        let mut run = ProgRun {
            prog_fd: fd_number(&self.0),
            data_size_in: PACKET_BYTES as u32,
            data_in: packet.as_ptr() as u64,
            repeat: times,
            ..ProgRun::default()
        };
        // SAFETY: the packet has the stated length, and nothing is written.
        unsafe { call_bpf(PROG_RUN, &mut run) }?;
        Ok(ProgramRuns { answer: run.answer, ns: run.duration_ns })
    }
}

/// Opcodes of instructions (RFC 9669).
const LOAD: u8 = 0x79;
const STORE: u8 = 0x7b;
const STORE_REGISTER_32: u8 = 0x63;
const STORE_IMMEDIATE: u8 = 0x62;
const ADD: u8 = 0x0f;
const ADD_IMMEDIATE: u8 = 0x07;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const LOAD_WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP_IF_NOT: u8 = 0x55;
const JUMP_IF_LESS: u8 = 0xa5;
/// Frame pointer: register of the end of the stack frame.
const FRAME: u8 = 10;
/// Source register value that marks a wide load as the address of a map.
const OF_MAP: u8 = 1;
/// Number of the helper that finds an element.
const MAP_LOOKUP_ELEMENT: i32 = 1;

const fn encode_instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    let registers = (from << 4 | to) as u64;
    let (offset, immediate) = (offset.cast_unsigned() as u64, immediate.cast_unsigned() as u64);
    code as u64 | registers << 8 | offset << 16 | immediate << 32
}

/// Returns the instructions that load the address of an element into register 0. `key` stores the
/// number of the element at the frame's end − 4. The program ends if the element does not exist.
fn lookup_instructions(map: &Map, key: u64) -> [u64; 8] {
    [
        key,
        encode_instruction(LOAD_WIDE, 1, OF_MAP, 0, map.fd.as_raw_fd()),
        0,
        encode_instruction(MOVE, 2, FRAME, 0, 0),
        encode_instruction(ADD_IMMEDIATE, 2, 0, 0, -4),
        encode_instruction(CALL, 0, 0, 0, MAP_LOOKUP_ELEMENT),
        encode_instruction(JUMP_IF_NOT, 0, 0, 1, 0),
        encode_instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// Makes a program that runs the instructions `what` for each of `count` elements, with its address
/// in register 0, and returns register 7.
fn element_loop_instructions(map: &Map, count: u32, begin: &[u64], what: &[u64]) -> Vec<u64> {
    let mut all = vec![
        encode_instruction(MOVE_IMMEDIATE, 6, 0, 0, 0),
        encode_instruction(MOVE_IMMEDIATE, 7, 0, 0, 0),
    ];
    all.extend_from_slice(begin);
    let again = all.len();
    all.extend(lookup_instructions(map, encode_instruction(STORE_REGISTER_32, FRAME, 6, -4, 0)));
    all.extend_from_slice(what);
    all.push(encode_instruction(ADD_IMMEDIATE, 6, 0, 0, 1));
    let back = again as i16 - all.len() as i16 - 1;
    all.push(encode_instruction(JUMP_IF_LESS, 6, 0, back, count.cast_signed()));
    all.push(encode_instruction(MOVE, 0, 7, 0, 0));
    all.push(encode_instruction(EXIT, 0, 0, 0, 0));
    all
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn all_ways_see_what_the_others_write() {
        let Ok(map) = Map::new(16) else {
            eprintln!("skipped, because the kernel gives us no map");
            return;
        };
        let mapped = map.map_memory().expect("a mapping");
        map.set(15, 1000).expect("the seed");
        let filling = Program::new_filling(&map, 10, 15, 7).expect("a program");
        filling.run(3).expect("it runs");
        let expected: Vec<u64> = (0..10).map(|at| 1000 + 7 * at).collect();
        let words = || mapped.words()[..10].iter().map(|word| word.load(Ordering::Relaxed));
        assert!(words().eq(expected.iter().copied()));
        assert!((0..10).map(|at| map.get(at).expect("it")).eq(expected.iter().copied()));
        let (mut keys, mut values) = ([0; 10], [0; 10]);
        assert!(map.get_many(&mut keys, &mut values).expect("all"));
        assert!(values[..] == expected[..] && keys[9] == 9);
        let sum =
            Program::new_summing(&map, 10).expect("a program").run(1).expect("it runs").answer;
        assert_eq!(u64::from(sum), expected.iter().sum::<u64>());
        values[9] = 1 << 40;
        assert!(map.set_many(&mut keys, &mut values).expect("all"));
        assert_eq!(words().last(), Some(1 << 40));
    }

    #[test]
    fn instructions_have_their_bytes() {
        assert_eq!(
            encode_instruction(STORE_REGISTER_32, FRAME, 6, -4, 0).to_le_bytes()[..4],
            [0x63, 0x6a, 252, 255]
        );
        assert_eq!(encode_instruction(EXIT, 0, 0, 0, 0), 0x95);
    }
}
