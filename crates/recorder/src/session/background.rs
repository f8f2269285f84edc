//! Recorder of a session without a command, in the background or on a terminal: it waits for
//! requests.

use std::path::Path;

use trackway_session::machine::PlannedChannel;
use trackway_session::protocol::{Refusal, Status};
use trackway_session::{ChannelSpec, Mode, Reserve, SessionSpec};
use trackway_sys::clock::monotonic_ns;
use trackway_sys::file::Fd;
use trackway_sys::process::{can_query_exits, raise_descriptor_limit};
use trackway_sys::signal::{self, SignalReader, SignalSet};
use trackway_sys::wait::{self, PollEntry};

use crate::control::server::Server;
use crate::control::{ClaimedName, RunFolder, SessionIdentity};
use crate::error::{RecordError, io_error};
use crate::filters::publish::own_registered_events;
use crate::filters::unmatched;
use crate::kernel;
use crate::kernel::backend::{KernelRecording, PreparedKernel};
use crate::kernel::filters::routing::{find_unmatched_filters, route_filters, shared_filters};
use crate::kernel::request::KernelRequest;
use crate::notices::Notices;
use crate::recovery::in_passing;
use crate::session::controller::{ChannelDefaults, SessionController};
use crate::session::crash_watch::Crash;
use crate::session::driver::{Driver, Host, SessionEnd};
use crate::session::foreground;
use crate::session::run_options::RunOptions;
use crate::session::window_watch::Scope;
use crate::session::windows::SessionWindows;
use crate::session::write_stall::STALL_NS;
use crate::summary::shortfall::SizeSource;
use crate::trace::layout;
use crate::trace::prepare::{self, ExistingTrace};
use crate::window::settings::SessionSettings;

/// Period between two checks of the process table while crashes are watched, in ns.
const CRASH_PERIOD_NS: u64 = 10_000_000;

/// Defaults of channels in the background. Channels start small, since they may be idle for long.
const CHANNEL_DEFAULTS: ChannelDefaults =
    ChannelDefaults { starts_small: true, reserve: Reserve::Rseq };

/// Outcome of starting a session.
#[derive(Debug)]
pub enum StartOutcome {
    /// The session records, or waits for a start request; its status.
    Running(Box<Status>),
    /// The session cannot begin.
    Refused(Refusal),
}

/// Destination of a recorder's notices, in addition to `session status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeTarget {
    /// The session's log, for a session in the background.
    Log,
    /// Standard error.
    Stderr,
    /// No destination: notices are only kept in memory.
    Memory,
}

/// Records a session in this process until a request, SIGTERM or SIGINT ends it. Calls `begun`
/// once, with the outcome of the start.
///
/// # Errors
///
/// If the session cannot begin; `begun` receives that error, too.
pub fn serve_session(
    spec: SessionSpec,
    target: NoticeTarget,
    begun: &mut dyn FnMut(&StartOutcome),
) -> Result<(), RecordError> {
    match BackgroundRecorder::new(spec, target) {
        Ok((mut driver, mut recorder)) => {
            recorder.begun = Some(begun);
            driver.run(&mut recorder)
        }
        Err(error) => {
            begun(&StartOutcome::Refused(Refusal::from(&error)));
            Err(error)
        }
    }
}

/// Records kernel events, and user events of this user's programs, for `trackway record --kernel`
/// without a command. Ends at SIGINT or SIGTERM, or when the recorded processes have ended.
///
/// # Errors
///
/// If the recording cannot begin, or an error ends it.
pub(crate) fn record_kernel(
    mut spec: SessionSpec,
    options: &RunOptions,
    quiet: bool,
) -> Result<(), RecordError> {
    let target = if quiet { NoticeTarget::Memory } else { NoticeTarget::Stderr };
    if spec.kernel.as_ref().is_some_and(|kernel| kernel.mode == Mode::Overwrite) {
        let why = "a flight recorder without a command is a session's";
        let hint = "trackway session create NAME --kernel LIST --flight-recorder makes one";
        return Err(RecordError::Refused(Refusal::new(why).with_hint(hint)));
    }
    let notices = Notices::new(quiet);
    route_filters(&mut spec)?;
    let known_events = own_registered_events()?;
    if !options.is_from_file {
        for hint in unmatched::reject_kernel_misses(find_unmatched_filters(&spec)?, &known_events)?
        {
            notices.report(format_args!("{hint}"));
        }
    }
    let (kernel, _) = options.acquire_privileged(&spec, &notices)?;
    let summary_file = options.summary_file()?;
    if let Some(kernel) = &kernel {
        kernel.filters().refuse_unmet(&known_events)?;
        kernel.filters().report(&notices);
    }
    let pids: Vec<u32> = spec.kernel.iter().flat_map(|kernel| kernel.pids.clone()).collect();
    let until = if pids.is_empty() { "Ctrl-C" } else { "Ctrl-C, or the end of what is recorded" };
    spec.name = format!("kernel-{}", std::process::id());
    spec.channels.iter_mut().for_each(|channel| channel.pids.clone_from(&pids));
    let mut begun = |begun: &StartOutcome| {
        if let StartOutcome::Running(status) = begun {
            notices.report(format_args!(
                "recording into {} until {until}; trackway session status {} says how it goes",
                status.folder.display(),
                status.name
            ));
        }
    };
    let (mut driver, mut recorder) = BackgroundRecorder::new(spec, target)?;
    recorder.begun = Some(&mut begun);
    recorder.prepared = kernel;
    // A process without a process descriptor has already ended.
    let living = || pids.iter().filter_map(|&pid| wait::open_process_fd(pid).ok()).collect();
    recorder.processes = (!pids.is_empty()).then(living);
    let ended = driver.run(&mut recorder);
    if let Some(file) = summary_file.filter(|_| ended.is_ok()) {
        file.write(&driver.result, &driver.notices);
    }
    ended
}

/// Host of a session without a command.
struct BackgroundRecorder<'a> {
    begun: Option<&'a mut dyn FnMut(&StartOutcome)>,
    signals: SignalReader,
    /// Users whose windows are recorded.
    scope: Scope,
    /// Kernel events, if they were prepared before this recorder was created.
    prepared: Option<PreparedKernel>,
    /// Recorded processes that have not ended; the session ends with the last of them.
    processes: Option<Vec<Fd>>,
    /// True if the crash of a process triggers a snapshot.
    watches_crashes: bool,
}

impl<'a> BackgroundRecorder<'a> {
    fn new(mut spec: SessionSpec, target: NoticeTarget) -> Result<(Driver, Self), RecordError> {
        spec.check()?;
        route_filters(&mut spec)?;
        check_name(&spec.name)?;
        check_folder(spec.output.as_deref())?;
        let scope = match spec.is_kernel_only() {
            true => Scope::NoUser,
            false => Scope::of(&spec.users)?,
        };
        if !matches!(scope, Scope::Own | Scope::NoUser) {
            // Each user's streams need own files. If the limit cannot be raised, go on.
            let _ = raise_descriptor_limit();
        }
        let name = RunFolder::new().claim(&spec.name)?;
        let of_the_dead = name.dead_session_folder();
        let notices = open_notices(&name, target)?;
        let signals = block_signals()?;
        signal::ignore_size_limit();
        // Open the socket before any step that leaves files. Clients that connect meanwhile wait.
        let mut server = Server::open(name)?;
        in_passing::recover_others(&notices);
        if let Some(folder) = of_the_dead {
            kernel::recover::complete_kernel_part(&folder, &notices);
        }
        let (folder, prepared_folder) = match &spec.output {
            Some(output) => {
                (output.clone(), prepare::prepare_session(output, ExistingTrace::Keep)?)
            }
            None => prepare::prepare_new(&spec.name)?,
        };
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let session = SessionSettings {
            name: spec.name.clone(),
            token: None,
            uuid: crate::random::random_uuid()?,
            path: prepared_folder.path.clone(),
        };
        server
            .write_identity(SessionIdentity { uuid: session.uuid, folder: session.path.clone() })?;
        let spec = SessionSpec { output: Some(folder.clone()), ..spec };
        let watches_crashes = spec.snapshot_on_crash;
        if watches_crashes && !can_query_exits() {
            notices.report(format_args!(
                "no snapshot on crash: this kernel does not say how processes end (Linux 6.15 does)"
            ));
        }
        let controller = SessionController::new(
            spec,
            Some(server),
            session,
            (folder, prepared_folder.trace_folder()),
            CHANNEL_DEFAULTS,
        );
        let recorder =
            Self { begun: None, signals, scope, prepared: None, processes: None, watches_crashes };
        Ok((Driver::new(controller, notices, prepared_folder), recorder))
    }

    /// Prepares the kernel events, if the session records any.
    fn prepare_kernel(
        &mut self,
        driver: &Driver,
        record: bool,
    ) -> Result<Option<PreparedKernel>, RecordError> {
        if let Some(prepared) = self.prepared.take() {
            return Ok(Some(prepared));
        }
        let session = driver.spec();
        let Some(spec) = &session.kernel else { return Ok(None) };
        let request = KernelRequest {
            spec,
            shared_filters: &shared_filters(spec, &session.channels),
            follows_command: false,
            is_stopped: !record,
        };
        let kernel = PreparedKernel::prepare(&request, &driver.notices)?;
        // This process does not know the events of other users' programs.
        if matches!(self.scope, Scope::Own) {
            kernel.filters().refuse_unmet(&own_registered_events()?)?;
        }
        kernel.filters().report(&driver.notices);
        Ok(Some(kernel))
    }

    fn try_begin(
        &mut self,
        driver: &mut Driver,
        channels: &[PlannedChannel],
        record: bool,
    ) -> Result<(), RecordError> {
        let of_kernel = driver.spec().kernel.clone();
        let settings = |channel: &PlannedChannel| {
            let settings =
                CHANNEL_DEFAULTS.channel_settings(&channel.spec, of_kernel.as_ref(), record)?;
            Ok((settings, channel.class))
        };
        let channels = channels.iter().map(settings).collect::<Result<_, RecordError>>()?;
        let session = (driver.controller.session.clone(), driver.prepared_folder.trace_folder());
        // Prepare the kernel events first, since the kernel may refuse them.
        let kernel = self.prepare_kernel(driver, record)?;
        let kernel_filters = kernel.as_ref().map(PreparedKernel::filters);
        let is_taken = |filter: &trackway_session::FilterSpec| {
            of_kernel.as_ref().is_some_and(|kernel| kernel.filters.contains(filter))
                && kernel_filters.is_some_and(|filters| filters.applies_to_kernel(filter))
        };
        let (scope, channels) = (self.scope.clone(), (channels, &is_taken as _));
        let windows =
            SessionWindows::begin(scope, session, channels, self.watches_crashes, &driver.notices)?;
        driver.begin_recording(windows, kernel, |_| Ok(()))?;
        driver.controller.kernel.iter_mut().for_each(KernelRecording::drop_flight_recorder);
        Ok(())
    }

    /// Passes snapshot requests of programs, and crashes, to the state machine.
    fn submit_snapshot_triggers(&self, driver: &mut Driver) {
        let Some(windows) = &mut driver.windows else { return };
        let reasons = windows.take_snapshot_triggers();
        if reasons.is_asked {
            driver.controller.machine.note_snapshot_request(monotonic_ns());
        }
        for Crash { pid, signal } in reasons.crashes {
            driver.notices.report(format_args!("process {pid} died of signal {signal}"));
            driver.controller.machine.note_crash(pid, signal, monotonic_ns());
        }
        driver.controller.machine.tick(monotonic_ns());
    }
}

impl Host for BackgroundRecorder<'_> {
    fn begin(
        &mut self,
        driver: &mut Driver,
        channels: &[PlannedChannel],
        record: bool,
    ) -> Result<(), RecordError> {
        self.try_begin(driver, channels, record)
    }

    fn report_begin(&mut self, driver: &mut Driver, begun: Result<(), &Refusal>) {
        let begun = match begun {
            Ok(()) => {
                let status = driver.controller.status(driver.windows.as_mut(), &driver.notices);
                StartOutcome::Running(Box::new(status))
            }
            Err(refusal) => {
                remove_empty_folders(driver);
                StartOutcome::Refused(refusal.clone())
            }
        };
        if let Some(report) = self.begun.take() {
            report(&begun);
        }
    }

    fn poll(&mut self, driver: &mut Driver) -> u64 {
        driver.controller.poll_kernel(&driver.notices);
        let is_followed = driver.controller.is_followed();
        let Some(windows) = &mut driver.windows else { return STALL_NS };
        windows.report_given_up(&driver.notices);
        windows.find_windows(&driver.notices);
        windows.set_followed(is_followed);
        self.submit_snapshot_triggers(driver);
        match driver.drain() {
            // A crash is detected only if the process was found soon after its start.
            Ok(period_ns) if self.watches_crashes && driver.is_writing() => {
                period_ns.min(CRASH_PERIOD_NS)
            }
            Ok(period_ns) => period_ns,
            Err(error) => {
                driver.fail(error);
                0
            }
        }
    }

    fn awaited(&self) -> Vec<PollEntry> {
        let processes = self.processes.iter().flatten().map(Fd::raw);
        let files = std::iter::once(self.signals.fd().raw()).chain(processes);
        files.map(PollEntry::readable).collect()
    }

    fn receive(&mut self, _: &mut Driver, awaited: &[PollEntry]) -> bool {
        let mut ends = false;
        if let Some(processes) = &mut self.processes {
            let mut have_ended = awaited[1..].iter().map(PollEntry::is_ready);
            processes.retain(|_| !have_ended.next().unwrap_or(false));
            ends = processes.is_empty();
        }
        if ends {
            self.processes = None;
        }
        while let Some((signal, _)) = self.signals.next() {
            ends |= signal != libc::SIGHUP;
        }
        ends
    }

    fn prepare_end(&mut self, _: &Driver, _: &SessionWindows) {}

    fn is_interrupted(&self) -> bool {
        false
    }

    fn report_end(&mut self, driver: &Driver, end: &SessionEnd) {
        let (spec, notices) = (driver.spec(), &driver.notices);
        if spec.is_flight_recorder() {
            remove_empty_folders(driver);
        } else if end.is_kernel_only(spec) {
            end.report_kernel(Some(&driver.controller.folder), notices);
        } else {
            end.user.report(notices, &driver.controller.folder, false);
            let source = match &spec.channels[..] {
                [one] if one.name == ChannelSpec::DEFAULT_NAME => SizeSource::Option,
                _ => SizeSource::Channel,
            };
            end.report_losses(spec, source, notices);
            end.report_kernel(None, notices);
        }
        driver.pause.report(notices);
    }
}

/// Removes the trace of a session that has written nothing but snapshots. Also removes the trace's
/// folder if the session created it and it is empty.
fn remove_empty_folders(driver: &Driver) {
    // Another trace may have the same path by now.
    let place = driver.prepared_folder.trace_folder();
    let Ok(now) = place.current_path() else { return };
    if layout::has_no_stream(&now) {
        layout::remove_unwritten(&place);
        driver.prepared_folder.remove_new();
    }
}

/// Checks that the path of a trace's folder is UTF-8, since requests to sessions and their answers
/// are JSON.
///
/// # Errors
///
/// If the path of `output` is not UTF-8; without `output`, the path of the current folder.
pub fn check_folder(output: Option<&Path>) -> Result<(), RecordError> {
    let folder = match output {
        Some(output) => std::path::absolute(output),
        None => std::env::current_dir(),
    };
    // An unknown current folder is reported by the step that creates the trace's folder.
    let Some(odd) = folder.ok().filter(|folder| folder.to_str().is_none()) else { return Ok(()) };
    let why = format!("the path {} is not UTF-8", odd.display());
    let hint = "sessions need a folder that is: name one with -o";
    Err(RecordError::Refused(Refusal::new(why).with_hint(hint)))
}

/// Rejects names that `trackway record` assigns: two sessions would conflict.
fn check_name(name: &str) -> Result<(), RecordError> {
    if !foreground::is_name_of_record(name) {
        return Ok(());
    }
    let why = format!("'{name}' is a name that trackway record gives: record-PID");
    let hint = "choose another: trackway session create NAME, trackway session load FILE NAME";
    Err(RecordError::Refused(Refusal::new(why).with_hint(hint)))
}

fn open_notices(name: &ClaimedName, target: NoticeTarget) -> Result<Notices, RecordError> {
    Ok(match target {
        NoticeTarget::Log => Notices::with_log(name.open_log()?),
        NoticeTarget::Stderr | NoticeTarget::Memory => Notices::new(target == NoticeTarget::Memory),
    })
}

fn block_signals() -> Result<SignalReader, RecordError> {
    let signals = SignalSet::of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]);
    signals.block();
    SignalReader::new(&signals)
        .map_err(|errno| RecordError::Io("read", "signals".into(), io_error(errno).into()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn a_session_that_cannot_be_told_of_does_not_begin() {
        let odd = Path::new(OsStr::from_bytes(b"/nowhere/\xff/trace"));
        let spec = SessionSpec {
            name: "web".into(),
            output: Some(odd.into()),
            channels: vec![trackway_session::ChannelSpec::default()],
            ..SessionSpec::default()
        };
        let mut refused = None;
        let served = serve_session(spec, NoticeTarget::Memory, &mut |begun| {
            if let StartOutcome::Refused(refusal) = begun {
                refused = Some(refusal.why.clone());
            }
        });
        assert!(served.is_err() && refused.is_some_and(|why| why.contains("is not UTF-8")));
    }
}
