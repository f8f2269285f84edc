//! Programs on tracepoints: there as long as their descriptors are, so gone with whoever is killed.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use trackway_jit::insn::INSN_BYTES;

use super::program::Code;
use crate::bpf_sys::bpf::{
    Functions, LoadError, MAP_CREATE, MAP_DELETE, MAP_UPDATE, MapCreate, MapElement, ProgramKind,
};
use crate::bpf_sys::bpf::{bpf, load_btf, load_program, owned};
use crate::bpf_sys::btf::Btf;
use crate::bpf_sys::mapped::MappedArray;

const PROG_TYPE_TRACEPOINT: u32 = 5;
const PROG_TYPE_TRACING: u32 = 26;
/// A raw tracepoint, with arguments that BTF describes.
const TRACE_RAW_TP: u32 = 23;
const MAP_TYPE_PROG_ARRAY: u32 = 3;
const RAW_TRACEPOINT_OPEN: i32 = 17;
/// Reading the kernel's memory is for programs that the GPL allows; our sources are under MIT,
/// which it does ("Dual MIT/GPL", include/linux/license.h).
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
/// Numbers of calls whose events can be named, and where in a word an event's number is.
pub(super) const EVENTS: usize = 1024;
pub(super) const EVENT_SHIFT: u32 = 32;
/// Bytes for what the kernel's verifier says.
const LOG_BYTES: usize = 1 << 20;
const OBJ_GET_INFO_BY_FD: i32 = 15;

/// linux/perf_event.h.
const PERF_TYPE_TRACEPOINT: u32 = 2;
/// `disabled`, the first bit.
const PERF_ATTR_DISABLED: u64 = 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// `struct perf_event_attr`, as long as its first version.
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

/// `struct bpf_prog_info`, as far as we ask; all zero but what the kernel fills in.
#[repr(C)]
struct ProgramInfo {
    words: [u64; 28],
}

/// Where it says these there, in words of eight bytes: `xlated_prog_len`, the higher half,
/// `recursion_misses`, and `verified_insns`, the lower half.
const TRANSLATED_BYTES: usize = 2;
const RECURSION_MISSES: usize = 26;
const LOOKED_AT: usize = 27;

#[repr(C)]
struct GetInfo {
    fd: u32,
    bytes: u32,
    info: *mut ProgramInfo,
}

/// Of bpf(2), to attach to what a program was loaded for.
#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    zero: u32,
    cookie: u64,
}

fn fd(of: &OwnedFd) -> u32 {
    of.as_raw_fd().cast_unsigned()
}

/// Programs by number, which another one goes on with by a tail call. They are there as long as
/// this is.
#[derive(Debug)]
pub struct Programs {
    map: OwnedFd,
    /// How often that one went on with none.
    unknown: MappedArray,
    /// Of each number, which event it is: for programs that several have.
    events: MappedArray,
}

impl Programs {
    /// Room for those with numbers below `count`.
    ///
    /// # Errors
    ///
    /// If there is no BPF for us.
    pub fn new(count: u32) -> io::Result<Self> {
        let mut create = MapCreate {
            map_type: MAP_TYPE_PROG_ARRAY,
            key_size: 4,
            value_size: 4,
            max_entries: count,
            map_flags: 0,
        };
        // SAFETY: there are no addresses in it.
        let map = owned(unsafe { bpf(MAP_CREATE, &mut create) }?);
        let events = MappedArray::new(8 * EVENTS, 1)?;
        Ok(Self { map, unknown: MappedArray::new(8, 1)?, events })
    }

    /// Says which event a call is, by its id in the trace and its number among those that losses
    /// are counted of, for a program that records several ([`super::program::shared`]).
    pub fn name_event(&self, number: u32, (id, event): (u16, usize)) {
        if let Some(word) = self.events.word(8 * (number as usize % EVENTS)) {
            word.store(u64::from(id) | (event as u64) << EVENT_SHIFT, Ordering::Relaxed);
        }
    }

    /// The map where that is said.
    pub fn events_fd(&self) -> i32 {
        self.events.fd()
    }

    /// How many calls had numbers that no program is for, where that is counted.
    pub fn unknown(&self) -> u64 {
        self.unknown.word(0).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The map where they are counted.
    pub(super) fn unknown_fd(&self) -> i32 {
        self.unknown.fd()
    }

    /// The map, for the program that goes on with one of them.
    pub fn map_fd(&self) -> i32 {
        self.map.as_raw_fd()
    }

    /// Puts one there.
    ///
    /// # Errors
    ///
    /// If there is no room for the number, or the program is of another kind.
    pub fn set(&self, number: u32, program: &Loaded) -> io::Result<()> {
        let mut value = fd(&program.0);
        let mut element = MapElement {
            map_fd: fd(&self.map),
            zero: 0,
            key: &raw const number,
            value: (&raw mut value).cast(),
            flags: 0,
        };
        // SAFETY: key and value have the map's sizes.
        unsafe { bpf(MAP_UPDATE, &mut element) }.map(drop)
    }

    /// Takes the one of this number away, if there is one.
    pub fn remove(&self, number: u32) {
        let mut element = MapElement {
            map_fd: fd(&self.map),
            zero: 0,
            key: &raw const number,
            value: core::ptr::null_mut(),
            flags: 0,
        };
        // It fails where there is none.
        // SAFETY: the key has the map's size, and there is no value.
        let _ = unsafe { bpf(MAP_DELETE, &mut element) };
    }
}

/// A program that is to be loaded.
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

impl<'a> From<&'a Code> for CodeView<'a> {
    fn from(code: &'a Code) -> Self {
        Self { bytes: &code.bytes, types: code.types.as_ref() }
    }
}

/// A program that the kernel has taken, on no tracepoint yet.
#[derive(Debug)]
pub struct Loaded(OwnedFd);

impl Loaded {
    /// Loads a program that [`super::program::program`] made of an event with a tracepoint.
    ///
    /// # Errors
    ///
    /// If there is no BPF for us, or the program is refused.
    pub fn new<'a>(program: impl Into<CodeView<'a>>) -> Result<Self, LoadError> {
        let prog_type = PROG_TYPE_TRACEPOINT;
        Self::of(ProgramKind { prog_type, ..ProgramKind::default() }, program.into())
    }

    /// Loads a program for the raw tracepoint with this type in BTF (`btf_trace_NAME`).
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn raw<'a>(
        program: impl Into<CodeView<'a>>,
        attach_btf_id: u32,
    ) -> Result<Self, LoadError> {
        let (prog_type, attach_type) = (PROG_TYPE_TRACING, TRACE_RAW_TP);
        Self::of(ProgramKind { prog_type, attach_type, attach_btf_id }, program.into())
    }

    fn of(kind: ProgramKind, program: CodeView<'_>) -> Result<Self, LoadError> {
        let loaded = program.types.map(|types| Ok((load_btf(&types.types)?, &types.infos)));
        let types =
            loaded.transpose().map_err(|error: io::Error| LoadError::Unavailable(error.into()))?;
        let functions = types.as_ref().map(|(btf, infos)| Functions::new(btf, infos));
        let load =
            |log: &mut [u8]| load_program(kind, program.bytes, LICENSE, functions.as_ref(), log);
        match load(&mut []) {
            Ok(program) => Ok(Self(program)),
            // What its verifier refuses has other words.
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

    /// How many instructions it has, and how many the kernel's verifier looked at: the same ones
    /// again for each way that leads there with something else in a register. (Since Linux 5.16.)
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn looked_at(&self) -> io::Result<(u32, u32)> {
        let words = information(&self.0)?.words;
        let translated_bytes = (words[TRANSLATED_BYTES] >> 32) as u32;
        Ok((translated_bytes / INSN_BYTES as u32, words[LOOKED_AT] as u32))
    }

    /// Attaches it to its raw tracepoint.
    ///
    /// # Errors
    ///
    /// If the kernel does not let us.
    pub fn attach_raw(self) -> io::Result<Attached> {
        let Self(program) = self;
        let mut open = RawTracepoint { name: 0, program: fd(&program), zero: 0, cookie: 0 };
        // SAFETY: there are no addresses in it.
        let event = owned(unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut open) }?);
        Ok(Attached { program, event })
    }

    /// Attaches it to the tracepoint with this number: events are recorded from here on.
    ///
    /// # Errors
    ///
    /// If there is no perf_event_open(2) for us, or no such tracepoint.
    pub fn attach(self, tracepoint: u16) -> io::Result<Attached> {
        let Self(program) = self;
        let event = open(tracepoint.into())?;
        control(&event, PERF_EVENT_IOC_SET_BPF, program.as_raw_fd())?;
        Ok(Attached { program, event })
    }
}

/// A program on a tracepoint.
#[derive(Debug)]
pub struct Attached {
    program: OwnedFd,
    /// What holds it there.
    event: OwnedFd,
}

/// A program that was on a tracepoint.
#[derive(Debug)]
pub struct Detached(OwnedFd);

impl Attached {
    /// Takes it off. The kernel waits for all programs that are under way: some 80 ms for each
    /// tracepoint, next to nothing for raw ones.
    pub fn detach(self) -> Detached {
        let Self { program, event } = self;
        drop(event);
        Detached(program)
    }

    /// The descriptor of what holds it on its tracepoint.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// What holds it on its tracepoint: it goes when that is closed, as [`Self::detach`] does it.
    pub fn into_descriptor(self) -> OwnedFd {
        self.event
    }

    /// See [`Detached::missed`]: so far.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn missed(&self) -> io::Result<u64> {
        missed(&self.program)
    }
}

impl Detached {
    /// How often the kernel has passed over it, in any process, because another program was under
    /// way on that CPU. (Of tracepoints, since Linux 6.7.)
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn missed(&self) -> io::Result<u64> {
        missed(&self.0)
    }
}

fn missed(program: &OwnedFd) -> io::Result<u64> {
    Ok(information(program)?.words[RECURSION_MISSES])
}

fn information(program: &OwnedFd) -> io::Result<ProgramInfo> {
    let mut info = ProgramInfo { words: [0; 28] };
    let mut get =
        GetInfo { fd: fd(program), bytes: size_of::<ProgramInfo>() as u32, info: &raw mut info };
    // SAFETY: the information has room for as many bytes as is said.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut get) }?;
    Ok(info)
}

/// Whether an error of loading is about the program.
fn is_refusal(error: &io::Error) -> bool {
    let others = [libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    !error.raw_os_error().is_some_and(|code| others.contains(&code))
}

/// Whether we may open tracepoints, with what they say of the kernel.
///
/// # Errors
///
/// If we may not.
pub fn may_open_events() -> io::Result<()> {
    /// Of no tracepoint: rights are looked at before the number is.
    const NOBODY: u64 = u32::MAX as u64;
    match open(NOBODY) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => result.map(drop),
    }
}

/// Opens a tracepoint. Of one CPU, as perf_event_open(2) wants it; a program on it runs on all, and
/// whether the event itself is enabled does not matter: it counts nothing.
fn open(tracepoint: u64) -> io::Result<OwnedFd> {
    let attribute = PerfEvent {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfEvent>() as u32,
        config: tracepoint,
        flags: PERF_ATTR_DISABLED,
        ..PerfEvent::default()
    };
    let (any_process, first_cpu, no_group) = (-1, 0, -1);
    // SAFETY: the attribute is as long as it says.
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
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(owned(fd as i32)) }
}

fn control(event: &OwnedFd, request: libc::c_ulong, argument: i32) -> io::Result<()> {
    // SAFETY: both requests take a number.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
