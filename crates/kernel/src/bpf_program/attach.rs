//! Loads BPF programs and attaches them to tracepoints. A program stays while its descriptors are
//! open, so the kernel removes the program when the recorder is killed.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use trackway_jit::insn::INSN_BYTES;

use super::codegen::{EventNumber, ProgramCode};
use crate::bpf_sys::bpf::{
    Functions, LoadError, MAP_CREATE, MAP_DELETE, MAP_UPDATE, MapCreate, MapElement, ProgramKind,
};
use crate::bpf_sys::bpf::{bpf, load_btf, load_program, own_fd};
use crate::bpf_sys::btf::Btf;
use crate::bpf_sys::mapped::MappedArray;

const PROG_TYPE_TRACEPOINT: u32 = 5;
const PROG_TYPE_TRACING: u32 = 26;
/// The attach type of a raw tracepoint with arguments that BTF describes.
const TRACE_RAW_TP: u32 = 23;
const MAP_TYPE_PROG_ARRAY: u32 = 3;
const RAW_TRACEPOINT_OPEN: i32 = 17;
/// The licence of all programs. Only programs under the GPL or a compatible licence may read kernel
/// memory. The sources are under MIT, which is compatible ("Dual MIT/GPL",
/// include/linux/license.h).
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
/// Limit of the system call numbers that [`ProgramTable::set_event`] accepts.
pub(super) const EVENTS_MAX: usize = 1024;
/// Shift of an event's index in a word of [`ProgramTable`]'s map of events.
pub(super) const EVENT_SHIFT: u32 = 32;
/// Size of the verifier's log in bytes.
const LOG_BYTES: usize = 1 << 20;
const OBJ_GET_INFO_BY_FD: i32 = 15;

/// The event type of tracepoints (linux/perf_event.h).
const PERF_TYPE_TRACEPOINT: u32 = 2;
/// The first flag of `struct perf_event_attr`, `disabled`.
const PERF_ATTR_DISABLED: u64 = 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// The first version of `struct perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct PerfEvent {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// The part of `struct bpf_prog_info` that the recorder reads; zero until the kernel fills it in.
#[repr(C)]
struct ProgramInfo {
    words: [u64; 28],
}

/// Indices of words in [`ProgramInfo`]: `xlated_prog_len` in the upper half, `recursion_misses`,
/// and `verified_insns` in the lower half.
const TRANSLATED_BYTES: usize = 2;
const RECURSION_MISSES: usize = 26;
const VERIFIED_INSNS: usize = 27;

#[repr(C)]
struct GetInfo {
    fd: u32,
    bytes: u32,
    info: *mut ProgramInfo,
}

/// The attribute of bpf(2) that attaches a raw tracepoint program.
#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    zero: u32,
    cookie: u64,
}

fn raw_fd(of: &OwnedFd) -> u32 {
    of.as_raw_fd().cast_unsigned()
}

/// A table of programs by system call number, for tail calls. Programs stay as long as the table.
#[derive(Debug)]
pub struct ProgramTable {
    map: OwnedFd,
    /// The number of tail calls that found no program.
    unknown: MappedArray,
    /// The event of each number, for programs that several events share.
    events: MappedArray,
}

impl ProgramTable {
    /// Creates a table for numbers below `count`.
    ///
    /// # Errors
    ///
    /// If BPF is not available to this process.
    pub fn new(count: u32) -> io::Result<Self> {
        let mut create = MapCreate {
            map_type: MAP_TYPE_PROG_ARRAY,
            key_size: 4,
            value_size: 4,
            max_entries: count,
            map_flags: 0,
        };
        // SAFETY: the attribute contains no addresses.
        let map = own_fd(unsafe { bpf(MAP_CREATE, &mut create) }?);
        let events = MappedArray::new(8 * EVENTS_MAX, 1)?;
        Ok(Self { map, unknown: MappedArray::new(8, 1)?, events })
    }

    /// Sets the event of a system call, for a shared program
    /// ([`super::codegen::generate_shared_program`]).
    pub fn set_event(&self, number: u32, event: EventNumber) {
        if let Some(word) = self.events.word(8 * (number as usize % EVENTS_MAX)) {
            word.store(
                u64::from(event.id) | (event.index as u64) << EVENT_SHIFT,
                Ordering::Relaxed,
            );
        }
    }

    /// Returns the descriptor of the map of events.
    pub fn events_fd(&self) -> i32 {
        self.events.fd()
    }

    /// Returns the number of system calls for which the table had no program.
    pub fn unknown_calls(&self) -> u64 {
        self.unknown.word(0).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns the descriptor of the map that counts system calls without a program.
    pub(super) fn unknown_fd(&self) -> i32 {
        self.unknown.fd()
    }

    /// Returns the descriptor of the program map, for the program that tail-calls.
    pub fn map_fd(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Sets the program of a system call number.
    ///
    /// # Errors
    ///
    /// If the number is too large, or the program has another type.
    pub fn set(&self, number: u32, program: &LoadedProgram) -> io::Result<()> {
        let mut value = raw_fd(&program.0);
        let mut element = MapElement {
            map_fd: raw_fd(&self.map),
            zero: 0,
            key: &raw const number,
            value: (&raw mut value).cast(),
            flags: 0,
        };
        // SAFETY: key and value have the map's sizes.
        unsafe { bpf(MAP_UPDATE, &mut element) }.map(drop)
    }

    /// Removes the program of a system call number, if there is one.
    pub fn remove(&self, number: u32) {
        let mut element = MapElement {
            map_fd: raw_fd(&self.map),
            zero: 0,
            key: &raw const number,
            value: core::ptr::null_mut(),
            flags: 0,
        };
        // Fails if the table has no program for the number.
        // SAFETY: the key has the map's size, and there is no value.
        let _ = unsafe { bpf(MAP_DELETE, &mut element) };
    }
}

/// A program to load.
#[derive(Debug, Clone, Copy)]
pub struct CodeView<'a> {
    bytes: &'a [u8],
    types: Option<&'a Btf>,
}

impl<'a, Bytes: AsRef<[u8]> + ?Sized> From<&'a Bytes> for CodeView<'a> {
    fn from(bytes: &'a Bytes) -> Self {
        Self { bytes: bytes.as_ref(), types: None }
    }
}

impl<'a> From<&'a ProgramCode> for CodeView<'a> {
    fn from(code: &'a ProgramCode) -> Self {
        Self { bytes: &code.bytes, types: code.types.as_ref() }
    }
}

/// Numbers of instructions of a loaded program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstructionCounts {
    /// Number of instructions in the program.
    pub program: u32,
    /// Number of instructions that the verifier has walked.
    pub verified: u32,
}

/// A program that the kernel has accepted, not attached yet.
#[derive(Debug)]
pub struct LoadedProgram(OwnedFd);

impl LoadedProgram {
    /// Loads a program for a tracepoint that [`super::codegen::generate_program`] has generated.
    ///
    /// # Errors
    ///
    /// If BPF is not available to this process, or the verifier refuses the program.
    pub fn load<'a>(program: impl Into<CodeView<'a>>) -> Result<Self, LoadError> {
        let prog_type = PROG_TYPE_TRACEPOINT;
        Self::load_as(ProgramKind { prog_type, ..ProgramKind::default() }, program.into())
    }

    /// Loads a program for the raw tracepoint with this BTF type (`btf_trace_NAME`).
    ///
    /// # Errors
    ///
    /// See [`Self::load`].
    pub fn load_raw<'a>(
        program: impl Into<CodeView<'a>>,
        attach_btf_id: u32,
    ) -> Result<Self, LoadError> {
        let (prog_type, attach_type) = (PROG_TYPE_TRACING, TRACE_RAW_TP);
        Self::load_as(ProgramKind { prog_type, attach_type, attach_btf_id }, program.into())
    }

    fn load_as(kind: ProgramKind, program: CodeView<'_>) -> Result<Self, LoadError> {
        let loaded = program.types.map(|types| Ok((load_btf(&types.types)?, &types.infos)));
        let types =
            loaded.transpose().map_err(|error: io::Error| LoadError::Unavailable(error.into()))?;
        let functions = types.as_ref().map(|(btf, infos)| Functions::new(btf, infos));
        let load =
            |log: &mut [u8]| load_program(kind, program.bytes, LICENSE, functions.as_ref(), log);
        match load(&mut []) {
            Ok(program) => Ok(Self(program)),
            // If the verifier rejects the program, the error number is another one.
            Err(error) if !is_refusal(&error) => Err(LoadError::Unavailable(error.into())),
            Err(error) => {
                let mut log = vec![0; LOG_BYTES];
                let _ = load(&mut log);
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
                let log = String::from_utf8_lossy(&log[..end]).into_owned();
                Err(LoadError::Refused(error.into(), log))
            }
        }
    }

    /// Returns how many instructions the program has and how many the verifier has walked. The
    /// verifier walks an instruction again for each path with different register contents. The
    /// kernel reports these numbers since Linux 5.16.
    ///
    /// # Errors
    ///
    /// If the kernel does not report the numbers.
    pub fn instruction_counts(&self) -> io::Result<InstructionCounts> {
        let words = read_program_info(&self.0)?.words;
        let translated_bytes = (words[TRANSLATED_BYTES] >> 32) as u32;
        let program = translated_bytes / INSN_BYTES as u32;
        Ok(InstructionCounts { program, verified: words[VERIFIED_INSNS] as u32 })
    }

    /// Attaches the program to its raw tracepoint.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn attach_raw(self) -> io::Result<AttachedProgram> {
        let Self(program) = self;
        let mut open = RawTracepoint { name: 0, program: raw_fd(&program), zero: 0, cookie: 0 };
        // SAFETY: the attribute contains no addresses.
        let event = own_fd(unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut open) }?);
        Ok(AttachedProgram { program, event })
    }

    /// Attaches the program to the tracepoint with this number. Recording begins with this call.
    ///
    /// # Errors
    ///
    /// If perf_event_open(2) is not available to this process, or the tracepoint does not exist.
    pub fn attach(self, tracepoint: u16) -> io::Result<AttachedProgram> {
        let Self(program) = self;
        let event = open_tracepoint(tracepoint.into())?;
        control_event(&event, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())?;
        Ok(AttachedProgram { program, event })
    }
}

/// A program attached to a tracepoint.
#[derive(Debug)]
pub struct AttachedProgram {
    program: OwnedFd,
    /// The descriptor that keeps the program attached.
    event: OwnedFd,
}

/// A program detached from its tracepoint.
#[derive(Debug)]
pub struct DetachedProgram(OwnedFd);

impl AttachedProgram {
    /// Detaches the program. The kernel waits for all running programs: about 80 ms for each
    /// tracepoint, almost no time for a raw tracepoint.
    pub fn detach(self) -> DetachedProgram {
        let Self { program, event } = self;
        drop(event);
        DetachedProgram(program)
    }

    /// Returns the descriptor that keeps the program attached.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Returns the descriptor that keeps the program attached. Closing it has the effect of
    /// [`Self::detach`].
    pub fn into_descriptor(self) -> OwnedFd {
        self.event
    }

    /// Returns the number of missed runs so far: see [`DetachedProgram::missed_runs`].
    ///
    /// # Errors
    ///
    /// See [`DetachedProgram::missed_runs`].
    pub fn missed_runs(&self) -> io::Result<u64> {
        read_missed_runs(&self.program)
    }
}

impl DetachedProgram {
    /// Returns how often the kernel skipped the program, in any process, because another program
    /// ran on that CPU. (For programs on tracepoints, since Linux 6.7.)
    ///
    /// # Errors
    ///
    /// If the kernel does not report the number.
    pub fn missed_runs(&self) -> io::Result<u64> {
        read_missed_runs(&self.0)
    }
}

fn read_missed_runs(program: &OwnedFd) -> io::Result<u64> {
    Ok(read_program_info(program)?.words[RECURSION_MISSES])
}

fn read_program_info(program: &OwnedFd) -> io::Result<ProgramInfo> {
    let mut info = ProgramInfo { words: [0; 28] };
    let mut get = GetInfo {
        fd: raw_fd(program),
        bytes: size_of::<ProgramInfo>() as u32,
        info: &raw mut info,
    };
    // SAFETY: the information has room for `bytes` bytes.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut get) }?;
    Ok(info)
}

/// Returns true if a load error concerns the program itself.
fn is_refusal(error: &io::Error) -> bool {
    let others = [libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    !error.raw_os_error().is_some_and(|code| others.contains(&code))
}

/// Checks that this process may open tracepoints.
///
/// # Errors
///
/// If this process may not open tracepoints: the kernel's error.
pub fn check_tracepoint_access() -> io::Result<()> {
    /// A number that no tracepoint has: the kernel checks permissions first.
    const NO_TRACEPOINT: u64 = u32::MAX as u64;
    match open_tracepoint(NO_TRACEPOINT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result.map(drop),
    }
}

/// Opens a tracepoint on one CPU, as perf_event_open(2) requires. A program on the tracepoint runs
/// on all CPUs. The perf event itself counts nothing, so it may be disabled.
fn open_tracepoint(tracepoint: u64) -> io::Result<OwnedFd> {
    let attribute = PerfEvent {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfEvent>() as u32,
        config: tracepoint,
        flags: PERF_ATTR_DISABLED,
        ..PerfEvent::default()
    };
    let (any_process, first_cpu, no_group) = (-1, 0, -1);
    // SAFETY: the attribute has the size that its `size` field contains.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attribute,
            any_process,
            first_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(own_fd(fd as i32)) }
}

fn control_event(event: &OwnedFd, request: libc::c_ulong, argument: i32) -> io::Result<()> {
    // SAFETY: both requests take a number.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
