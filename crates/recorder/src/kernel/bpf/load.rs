//! Loading of the BPF programs of many events by several threads. Most of the start time is spent
//! in the kernel's verifier, which checks several programs at once for privileged processes.
//!
//! The programs are attached one after the other, in the order of events.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use trackway_kernel::bpf_program::arguments::raw_tracepoint_type;
use trackway_kernel::bpf_program::attach::LoadedProgram;
use trackway_kernel::bpf_program::codegen::ProgramCode;
use trackway_kernel::bpf_program::plan::{DataSource, EventPlan};
use trackway_kernel::bpf_sys::bpf::LoadError;
use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::model::{Event, Source};

use super::calls::CallSlot;
use super::{PreparedBpf, load_failure, unexpected_event_error};
use crate::common::numbers::Grouped;
use crate::error::RecordError;
use crate::kernel::error::kernel_error;
use crate::notices::Notices;

/// Number of programs that are loaded before they are attached, each with an open file.
const LOAD_BATCH: usize = 64;
/// Highest number of loading threads.
const THREADS_MAX: usize = 8;
/// Open files of an event with its own tracepoint: one for the program, one for the tracepoint.
const FILES_PER_EVENT: u64 = 2;
/// Number of other open files: maps, programs that serve all events, programs of filters, loaded
/// programs that are not yet attached, and files of the recorder.
const OTHER_FILES: u64 = LOAD_BATCH as u64 + 256;
/// Delay until the progress is first shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
/// Period at which the progress is shown again.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

/// A loaded program, with the place where it must be attached.
pub(super) enum LoadedEventProgram {
    /// No program, since the filters pass no record.
    None,
    /// Program of a system call, perhaps shared by several calls.
    Call(Arc<LoadedProgram>, CallSlot),
    /// Program of a raw tracepoint.
    Raw(LoadedProgram),
    /// Program of the tracepoint with this number.
    Tracepoint(LoadedProgram, u16),
}

/// A loaded program that records an event and is not attached yet.
pub(super) struct LoadedEvent {
    pub(super) staged: EventPlan,
    pub(super) program: LoadedEventProgram,
}

/// Loads a program for an event's tracepoint.
pub(super) fn load_tracepoint_program(
    code: &ProgramCode,
    event: &Event,
) -> Result<LoadedEventProgram, RecordError> {
    let id = event.id.ok_or_else(|| unexpected_event_error(event))?;
    let loaded = LoadedProgram::load(code).map_err(|error| load_failure(event, error))?;
    Ok(LoadedEventProgram::Tracepoint(loaded, id))
}

/// Fails early if `events` need more open files than the limit allows.
pub(super) fn check_open_files_limit<T>(
    events: impl Iterator<Item = T>,
) -> Result<(), RecordError> {
    let events = events.count() as u64;
    let Ok(limit) = trackway_sys::process::descriptor_limit() else { return Ok(()) };
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let needed = open + FILES_PER_EVENT * events + OTHER_FILES;
    // A few events are tried in any case: mostly fewer other files are open.
    if needed <= limit || events < LOAD_BATCH as u64 {
        return Ok(());
    }
    let why = format!(
        "to record {} events of the kernel takes {} open files, and {} are allowed",
        Grouped(events),
        Grouped(needed),
        Grouped(limit)
    );
    let hint = format!(
        "raise the limit first (as root: ulimit -n {needed}; in a service: LimitNOFILE={needed}), \
         or record fewer events"
    );
    Err(RecordError::Kernel(why, Some(hint)))
}

impl PreparedBpf {
    /// Loads the program of an event: a known event with this number, or the next new one.
    pub(super) fn load_event(
        &self,
        number: usize,
        event: &Event,
        btf: Option<&Btf>,
    ) -> Result<LoadedEvent, RecordError> {
        let mut staged = self.plan_event(event, btf, self.filters.has(number));
        staged.version = self.version(number);
        let made = match (
            self.generate_code(number, event, &staged)?,
            staged.data_source,
            &event.source,
        ) {
            (None, ..) => LoadedEvent { staged, program: LoadedEventProgram::None },
            (
                Some(code),
                DataSource::Registers,
                &Source::Syscall { number: Some(number), phase, is_compat },
            ) => {
                let calls = self.calls.as_ref().ok_or_else(|| unexpected_event_error(event))?;
                let loaded = self.load_call(&code, calls.of(phase).btf_id, is_compat);
                let slot = CallSlot { number, phase, is_compat };
                let loaded = loaded.map_err(|error| load_failure(event, error))?;
                LoadedEvent { staged, program: LoadedEventProgram::Call(loaded, slot) }
            }
            (Some(code), DataSource::Arguments, _) => {
                let btf_id = btf.and_then(|btf| raw_tracepoint_type(event, btf));
                match btf_id.and_then(|btf_id| LoadedProgram::load_raw(&code, btf_id).ok()) {
                    Some(loaded) => {
                        LoadedEvent { staged, program: LoadedEventProgram::Raw(loaded) }
                    }
                    None => self.load_otherwise(number, event)?,
                }
            }
            (Some(code), ..) => {
                LoadedEvent { staged, program: load_tracepoint_program(&code, event)? }
            }
        };
        // Readers decode all records of the event by its first declaration.
        let declared = self.events.get(number).map(|known| &known.description);
        match declared.is_none_or(|declared| *declared == made.staged.description) {
            true => Ok(made),
            false => Err(unexpected_event_error(event)),
        }
    }

    /// Loads the program of a system call. Calls by 32-bit numbers with equal code share one
    /// program.
    fn load_call(
        &self,
        code: &ProgramCode,
        btf_id: u32,
        is_compat: bool,
    ) -> Result<Arc<LoadedProgram>, LoadError> {
        let key = code.comparable_bytes().filter(|_| is_compat);
        let made = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = key.and_then(|key| made().get(key).map(Arc::clone)) {
            return Ok(loaded);
        }
        let loaded = Arc::new(LoadedProgram::load_raw(code, btf_id)?);
        if let Some(key) = key {
            made().insert(key.to_vec(), Arc::clone(&loaded));
        }
        Ok(loaded)
    }

    /// Starts recording these events, when none is recorded yet.
    pub(super) fn record_all(
        &mut self,
        events: &[Event],
        btf: Option<&Btf>,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let (begun, mut shown) = (Instant::now(), None);
        let mut number = 0;
        for some in events.chunks(LOAD_BATCH) {
            for (event, made) in some.iter().zip(self.load_events(number, some, btf)) {
                if is_end_requested() {
                    return Err(kernel_error("cannot record kernel events", "a signal came"));
                }
                self.attach_event(number, event, made?)?;
                number += 1;
                let since = shown.map_or(begun.elapsed() >= PROGRESS_DELAY, |shown: Instant| {
                    shown.elapsed() >= PROGRESS_PERIOD
                });
                if since && notices.shows_status() {
                    notices.show_status_line(format_args!(
                        "attaching {} of {} events of the kernel",
                        Grouped(number as u64),
                        Grouped(events.len() as u64)
                    ));
                    shown = Some(Instant::now());
                }
            }
        }
        notices.clear_status();
        Ok(())
    }

    /// Loads the programs of some events; `first` is the number of the first event.
    fn load_events(
        &self,
        first: usize,
        events: &[Event],
        btf: Option<&Btf>,
    ) -> Vec<Result<LoadedEvent, RecordError>> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(THREADS_MAX).min(events.len());
        if threads < 2 {
            let each = (first..).zip(events);
            return each.map(|(number, event)| self.load_event(number, event, btf)).collect();
        }
        let made: Vec<_> = events.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((at, event, place)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                events.get(at).zip(made.get(at)).map(|(event, place)| (at, event, place))
            } {
                if let Ok(mut place) = place.lock() {
                    *place = Some(self.load_event(first + at, event, btf));
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                let loader = thread::Builder::new().name("trackway-load".into());
                // If no thread can be created, the current thread does all the work.
                drop(loader.spawn_scoped(scope, work));
            }
            work();
        });
        let lost = || Err(kernel_error("cannot record kernel events", ErrorKind::Interrupted));
        let made = made.into_iter().map(|place| place.into_inner().ok().flatten());
        made.map(|made| made.unwrap_or_else(lost)).collect()
    }
}

/// Returns true if a signal requests the end; only valid in a recorder that reads signals.
fn is_end_requested() -> bool {
    trackway_sys::signal::is_pending(&[libc::SIGINT, libc::SIGTERM])
}
