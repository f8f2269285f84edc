//! The bpf(2) system call: maps with values, programs, and single runs of programs.
//!
//! BPF objects are reachable through their descriptors only, and nothing is pinned: the kernel
//! frees an object when its descriptors are closed.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use crate::bpf_sys::btf::INFO_BYTES;
use trackway_console::IoError;
use trackway_jit::insn::INSN_BYTES;

pub(crate) const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
pub(crate) const MAP_UPDATE: i32 = 2;
pub(crate) const MAP_DELETE: i32 = 3;
const PROG_LOAD: i32 = 5;
const PROG_RUN: i32 = 10;
const BTF_LOAD: i32 = 18;
pub(crate) const MAP_TYPE_ARRAY: u32 = 2;
pub(crate) const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

#[repr(C)]
#[derive(Default)]
pub(crate) struct MapCreate {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) map_flags: u32,
}

#[repr(C)]
pub(crate) struct MapElement {
    pub(crate) map_fd: u32,
    pub(crate) zero: u32,
    pub(crate) key: *const u32,
    pub(crate) value: *mut u8,
    pub(crate) flags: u64,
}

#[repr(C)]
struct BtfLoad {
    btf: *const u8,
    log: *mut u8,
    size: u32,
    log_size: u32,
    log_level: u32,
    /// Explicit padding, because the kernel reads it.
    log_true_size: u32,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_count: u32,
    insns: *const u8,
    license: *const u8,
    log_level: u32,
    log_size: u32,
    log: *mut u8,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
    btf_fd: u32,
    func_info_size: u32,
    func_info: *const u8,
    func_info_count: u32,
    line_info_size: u32,
    line_info: *const u8,
    line_info_count: u32,
    attach_btf_id: u32,
    attach_prog_fd: u32,
    /// Explicit padding, because the kernel reads these bytes.
    core_relo_count: u32,
}

#[repr(C)]
#[derive(Default)]
struct ProgRun {
    prog_fd: u32,
    result: u32,
    /// Data and context of the run: none.
    nothing: [u64; 8],
}

/// Calls bpf(2).
///
/// # Safety
///
/// All addresses in `attribute` must be valid for the kernel's use of them by this command.
pub(crate) unsafe fn bpf<T>(command: i32, attribute: &mut T) -> io::Result<i32> {
    let size = size_of::<T>();
    // SAFETY: `attribute` has this size; its addresses are the caller's obligation.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attribute, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

pub(crate) fn own_fd(fd: i32) -> OwnedFd {
    // SAFETY: bpf(2) has just opened the descriptor, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A kernel array of objects that descriptors identify.
#[derive(Debug)]
pub(crate) struct DescriptorArray(OwnedFd);

impl DescriptorArray {
    /// Creates a map of this type.
    pub(crate) fn new(map_type: u32, max_entries: u32) -> io::Result<Self> {
        let (key_size, value_size) = (4, 4);
        let mut create =
            MapCreate { map_type, key_size, value_size, max_entries, ..MapCreate::default() };
        // SAFETY: the attribute contains no addresses.
        unsafe { bpf(MAP_CREATE, &mut create) }.map(|map| Self(own_fd(map)))
    }

    /// Sets an entry of the array.
    pub(crate) fn set(&self, index: u32, what: BorrowedFd<'_>) -> io::Result<()> {
        let mut value = what.as_raw_fd().cast_unsigned();
        let mut element = MapElement {
            map_fd: self.0.as_raw_fd().cast_unsigned(),
            zero: 0,
            key: &raw const index,
            value: (&raw mut value).cast(),
            flags: 0,
        };
        // SAFETY: key and value have the map's sizes.
        unsafe { bpf(MAP_UPDATE, &mut element) }.map(drop)
    }

    /// Returns the map's descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The reason why the kernel did not load a program.
#[derive(Debug)]
pub enum LoadError {
    /// BPF is not available at all, or not to this process.
    Unavailable(IoError),
    /// The verifier refuses the program; its log has the reason.
    Refused(IoError, String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unavailable(error) => write!(f, "BPF is not available: {error}"),
            Self::Refused(error, log) => {
                write!(f, "the kernel rejects the program: {error}\n{log}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// A kernel array of values of equal size.
#[derive(Debug)]
pub(crate) struct ArrayMap {
    map: OwnedFd,
    value_bytes: usize,
}

impl ArrayMap {
    /// Creates `count` values of `value_bytes` bytes, all zero.
    pub(crate) fn new(value_bytes: usize, count: u32) -> io::Result<Self> {
        let value_size = u32::try_from(value_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map_type = MAP_TYPE_ARRAY;
        let mut create =
            MapCreate { map_type, key_size: 4, value_size, max_entries: count, map_flags: 0 };
        // SAFETY: the attribute contains no addresses.
        let map = own_fd(unsafe { bpf(MAP_CREATE, &mut create) }?);
        Ok(Self { map, value_bytes })
    }

    /// Returns the map's descriptor.
    pub(crate) fn fd(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Writes the value at index `number`.
    pub(crate) fn set(&self, number: u32, value: &mut [u8]) -> io::Result<()> {
        self.access_element(MAP_UPDATE, number, value)
    }

    /// Reads the value at index `number`.
    pub(crate) fn get(&self, number: u32, value: &mut [u8]) -> io::Result<()> {
        self.access_element(MAP_LOOKUP, number, value)
    }

    fn access_element(&self, command: i32, key: u32, value: &mut [u8]) -> io::Result<()> {
        if value.len() != self.value_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let value = value.as_mut_ptr();
        let mut element =
            MapElement { map_fd: raw_fd(&self.map), zero: 0, key: &raw const key, value, flags: 0 };
        // SAFETY: the key has the map's size, and the value has the map's value size (checked
        // above).
        unsafe { bpf(command, &mut element) }.map(drop)
    }
}

const _: () = assert!(size_of::<BtfLoad>() == 32 && size_of::<ProgLoad>() == 120);

fn raw_fd(of: &OwnedFd) -> u32 {
    of.as_raw_fd().cast_unsigned()
}

pub(crate) fn load_btf(types: &[u8]) -> io::Result<OwnedFd> {
    let mut load = BtfLoad {
        btf: types.as_ptr(),
        log: std::ptr::null_mut(),
        size: types.len() as u32,
        log_size: 0,
        log_level: 0,
        log_true_size: 0,
    };
    // SAFETY: the types have this size and are only read; there is no log.
    unsafe { bpf(BTF_LOAD, &mut load) }.map(own_fd)
}

/// Creates a map with `value` as its only value; `None`: the value is empty.
pub(crate) fn create_constant_map(value: &[u8]) -> io::Result<Option<ArrayMap>> {
    if value.is_empty() {
        return Ok(None);
    }
    let map = ArrayMap::new(value.len(), 1)?;
    map.set(0, &mut value.to_vec())?;
    Ok(Some(map))
}

/// Runs a program once without data; returns its result.
pub(crate) fn run_program(program: &OwnedFd) -> io::Result<u32> {
    let mut run = ProgRun { prog_fd: raw_fd(program), ..ProgRun::default() };
    // SAFETY: the attribute contains no addresses.
    unsafe { bpf(PROG_RUN, &mut run) }?;
    Ok(run.result)
}

/// The type of a program.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProgramKind {
    pub(crate) prog_type: u32,
    pub(crate) attach_type: u32,
    /// The BTF type that describes the program's context; 0: none.
    pub(crate) attach_btf_id: u32,
}

/// The BTF types and function records of a program.
pub(crate) struct Functions<'a> {
    btf_fd: u32,
    infos: &'a [u8],
}

impl<'a> Functions<'a> {
    /// Creates the reference to a program's function records and to the BTF types that the kernel
    /// has loaded for them.
    pub(crate) fn new(btf: &OwnedFd, infos: &'a [u8]) -> Self {
        Self { btf_fd: raw_fd(btf), infos }
    }
}

/// Loads a program; `license` ends in a NUL. The verifier writes its log to `log`, unless `log` is
/// empty.
pub(crate) fn load_program(
    kind: ProgramKind,
    bytes: &[u8],
    license: &[u8],
    functions: Option<&Functions<'_>>,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let infos = functions.map_or(&[][..], |functions| functions.infos);
    let mut load = ProgLoad {
        prog_type: kind.prog_type,
        insn_count: (bytes.len() / INSN_BYTES) as u32,
        insns: bytes.as_ptr(),
        license: license.as_ptr(),
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log: if log.is_empty() { std::ptr::null_mut() } else { log.as_mut_ptr() },
        kern_version: 0,
        prog_flags: 0,
        name: *b"trackway\0\0\0\0\0\0\0\0",
        ifindex: 0,
        expected_attach_type: kind.attach_type,
        btf_fd: functions.map_or(0, |functions| functions.btf_fd),
        func_info_size: if infos.is_empty() { 0 } else { INFO_BYTES },
        func_info: infos.as_ptr(),
        func_info_count: infos.len() as u32 / INFO_BYTES,
        line_info_size: 0,
        line_info: std::ptr::null(),
        line_info_count: 0,
        attach_btf_id: kind.attach_btf_id,
        attach_prog_fd: 0,
        core_relo_count: 0,
    };
    /// Most attempts to load a program. The verifier gives up at a signal, even at one that only
    /// stops or continues the process; several signals may follow one another.
    const TRIES: u32 = 200;
    for _ in 1..TRIES {
        // SAFETY: instructions, licence and records have these sizes and are only read; the log has
        // room for its size.
        match unsafe { bpf(PROG_LOAD, &mut load) } {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            done => return done.map(own_fd),
        }
    }
    // SAFETY: instructions, licence and records are only read; these buffers and the log have the
    // given sizes.
    unsafe { bpf(PROG_LOAD, &mut load) }.map(own_fd)
}
