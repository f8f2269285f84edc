//! Recorder of `trackway record -- CMD`: records a command from its start to its end.
//!
//! It takes requests like a background session if its control socket can be opened.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::Instant;

use trackway_session::SessionSpec;
use trackway_session::machine::PlannedChannel;
use trackway_session::protocol::Refusal;
use trackway_sys::file::Fd;
use trackway_sys::signal::{SignalReader, SignalSet};
use trackway_sys::wait::PollEntry;
use trackway_sys::{signal, wait};
use trackway_window::Window;

use crate::command::descendants::{self, DescendantSampler};
use crate::command::launch::{self, CommandEnd, Executable, ForwardedSignal, InheritedState};
use crate::control::server::Server;
use crate::control::{RunFolder, SessionIdentity};
use crate::diagnosis::{Reason, unmatched_patterns};
use crate::error::{RecordError, io_error};
use crate::kernel::backend::{KernelRecording, PreparedKernel};
use crate::kernel::filters::routing::{find_unmatched_filters, route_filters};
use crate::notices::Notices;
use crate::recording::Recording;
use crate::recovery::in_passing;
use crate::session::background::record_kernel;
use crate::session::command_checks::{
    check_filters, check_kernel_scope, check_sizes, is_overwriting, patterns_of, warn_if_static,
    warn_of_rules,
};
use crate::session::controller::{ChannelDefaults, SessionController};
use crate::session::driver::{Driver, Host, SessionEnd, user_only_filters};
use crate::session::end_signals::{EndSignals, Verdict};
use crate::session::run_as::Account;
use crate::session::run_options::RunOptions;
use crate::session::silence_watch::SilenceWatch;
use crate::session::status_line::StatusLine;
use crate::session::windows::SessionWindows;
use crate::summary;
use crate::summary::shortfall::SizeSource;
use crate::trace::layout;
use crate::trace::prepare::{self, ExistingTrace};
use crate::window::handle::WindowHandle;
use crate::window::settings::{ChannelSettings, SessionSettings};

/// Period between two checks of a command that is no longer recorded, in ns.
const UNRECORDED_PERIOD_NS: u64 = 500_000_000;

/// Returns the rules of all channels.
fn rules_of(channels: &[(ChannelSettings, u32)]) -> String {
    let rules: Vec<&str> = channels.iter().map(|(channel, _)| channel.rules.as_str()).collect();
    if rules.contains(&"*") { "*".into() } else { rules.join("\n") }
}

/// Records a command from its start to its end; without a command, kernel events until a signal.
/// Returns how the command ended. Recording errors after the command's start are reported, and do
/// not change that result.
///
/// # Errors
///
/// If the recording cannot begin, or the command cannot be started.
pub fn record(
    spec: SessionSpec,
    options: &RunOptions,
    quiet: bool,
) -> Result<CommandEnd, RecordError> {
    if options.command.is_empty() {
        return record_kernel(spec, options, quiet).map(|()| CommandEnd::Exited(0));
    }
    record_command(spec, options, Notices::new(quiet))
}

// Longer than 70 lines: the steps must come in this order, before the command starts.
fn record_command(
    mut spec: SessionSpec,
    options: &RunOptions,
    notices: Notices,
) -> Result<CommandEnd, RecordError> {
    check_sizes(&spec)?;
    route_filters(&mut spec)?;
    spec.kernel.as_ref().map_or(Ok(()), check_kernel_scope)?;
    let unmatched_filters =
        if options.is_from_file { Vec::new() } else { find_unmatched_filters(&spec)? };
    let (kernel, account) = options.acquire_privileged(&spec, &notices)?;
    let ignores_size_limit = signal::ignore_size_limit();
    let summary_file = options.summary_file()?;
    let defaults = ChannelDefaults { starts_small: false, reserve: options.reserve };
    let of_kernel = spec.kernel.as_ref();
    let settings =
        spec.channels.iter().map(|channel| defaults.channel_settings(channel, of_kernel, true));
    let channels: Vec<_> = settings.collect::<Result<_, RecordError>>()?;
    let mut channels: Vec<_> = channels.into_iter().zip(0..).collect();
    let rules = rules_of(&channels);
    let mut found = Executable::find(&options.command)?;
    found.environment = account.map(Account::environment).unwrap_or_default();
    let (handle, libraries) = match spec.is_kernel_only() {
        true => (None, None),
        false => {
            let handle = WindowHandle::open_or_make(&notices)?;
            (Some(handle), Some(launch::find_preload_libraries(&options.helpers)?))
        }
    };
    let window = handle.as_ref().map(|handle| (*handle.window(), handle.path.clone()));
    let mut has_warned = false;
    if let (Some(handle), Some(libraries)) = (&handle, &libraries) {
        let filters = (unmatched_filters, kernel.as_ref().map(PreparedKernel::filters));
        check_filters(&mut channels, filters, (&found, libraries), handle.window(), &notices)?;
    }
    kernel.iter().for_each(|kernel| kernel.filters().report(&notices));
    in_passing::recover_others(&notices);
    if let (Some(handle), Some(libraries)) = (&handle, &libraries) {
        warn_if_static(&found, kernel.is_some(), &notices);
        has_warned = warn_of_rules(&rules, &found, libraries, handle, &notices);
    }
    let token = u64::from_le_bytes(crate::random::random_bytes()?).max(1);
    let (mut driver, output) = prepare_driver(spec, defaults, token, notices)?;
    let blocked = ForwardedSignal::all().block();
    let reader = SignalReader::new(&ForwardedSignal::all())
        .map_err(|errno| RecordError::Io("read", "signals".into(), io_error(errno).into()));
    let mut recorder = ForegroundRecorder {
        options,
        output,
        rules,
        has_warned,
        token,
        reader: reader.inspect_err(|_| blocked.make_current())?,
        blocked,
        refused_before: window.as_ref().map_or(0, |(window, _)| refused_event_count(window)),
        window,
        start: Some(CommandStart {
            handle,
            channels,
            kernel,
            found,
            libraries,
            ignores_size_limit,
        }),
        command: None,
        cause: None,
        is_interrupted: Cell::new(false),
        names: Vec::new(),
        in_table: HashSet::new(),
    };
    let recorded = driver.run(&mut recorder);
    let ended = recorder.end_command(recorded, &mut driver);
    // Signals that arrived last must not end this process now.
    while ForwardedSignal::next(&recorder.reader).is_some() {}
    recorder.blocked.make_current();
    if let (Some(file), Ok(_)) = (summary_file, &ended) {
        file.write(&driver.result, &driver.notices);
    }
    ended
}

/// Prepares the trace's folder and the control socket. Also returns the folder's path as the user
/// named it.
fn prepare_driver(
    spec: SessionSpec,
    defaults: ChannelDefaults,
    token: u64,
    notices: Notices,
) -> Result<(Driver, PathBuf), RecordError> {
    let (output, prepared_folder) = match &spec.output {
        Some(output) => (output.clone(), prepare::prepare_session(output, ExistingTrace::Remove)?),
        None => prepare::prepare_new("")?,
    };
    let name = format!("record-{}", std::process::id());
    let mut server = open_server(&name);
    let session = SessionSettings {
        name: if server.is_some() { name.clone() } else { String::new() },
        token: Some(token),
        uuid: crate::random::random_uuid()?,
        path: prepared_folder.path.clone(),
    };
    if let Some(server) = &mut server {
        // Without the identity, a user with the name of a dead recorder cannot find its trace.
        let _ = server.write_identity(SessionIdentity {
            uuid: session.uuid,
            folder: prepared_folder.path.clone(),
        });
    }
    let folder = std::path::absolute(&output).unwrap_or_else(|_| prepared_folder.path.clone());
    let spec = SessionSpec { name, output: Some(folder.clone()), ..spec };
    let mut controller = SessionController::new(
        spec,
        server,
        session,
        (folder, prepared_folder.trace_folder()),
        defaults,
    );
    controller.is_foreground = true;
    Ok((Driver::new(controller, notices, prepared_folder), output))
}

/// Opens the control socket of this name; `None` if that fails. Recording works without it.
fn open_server(name: &str) -> Option<Server> {
    Server::open(RunFolder::new().claim(name).ok()?).ok()
}

/// Returns true if `name` has the form of a name that `trackway record` assigns.
pub fn is_name_of_record(name: &str) -> bool {
    let pid = name.strip_prefix("record-");
    pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
}

/// Returns the number of events that found no entry in the window since the window was created.
fn refused_event_count(window: &Window) -> u32 {
    window.header().events_refused.load(Ordering::Relaxed)
}

/// State for starting the command and recording it from its start.
struct CommandStart {
    /// Handle of the window; `None` if no user events are recorded.
    handle: Option<WindowHandle>,
    channels: Vec<(ChannelSettings, u32)>,
    kernel: Option<PreparedKernel>,
    found: Executable,
    /// Libraries to preload; `None` if the command runs without the library.
    libraries: Option<Vec<PathBuf>>,
    ignores_size_limit: bool,
}

impl CommandStart {
    /// Starts the command; its process enters the scope of the kernel events.
    fn start_command(
        &self,
        token: u64,
        signals: SignalSet,
        kernel: Option<&KernelRecording>,
    ) -> Result<Child, RecordError> {
        let inherited = InheritedState {
            signals,
            ignores_size_limit: self.ignores_size_limit,
            files_limit: kernel.and_then(KernelRecording::files_limit),
        };
        let pre_exec_hook = kernel.and_then(KernelRecording::pre_exec_hook);
        self.found.start(token, self.libraries.as_deref(), inherited, pre_exec_hook)
    }
}

/// Traced command, while it runs.
struct TracedCommand {
    child: Child,
    /// Process descriptor, readable when the command ends; `None` if none was left.
    process: Option<Fd>,
    descendants: DescendantSampler,
    /// Signals that request an end.
    ending: EndSignals,
    status: StatusLine,
    silence: SilenceWatch,
}

impl TracedCommand {
    fn new(child: Child, window: Option<Window>, has_kernel: bool) -> Self {
        Self {
            process: wait::open_process_fd(child.id()).ok(),
            descendants: DescendantSampler::start(child.id()),
            child,
            ending: EndSignals::default(),
            status: StatusLine::new(),
            // A user who records kernel events may need no user events.
            silence: SilenceWatch::new(window).enabled_if(!has_kernel),
        }
    }

    /// Forwards signals to the command, and notes signals that request an end.
    fn forward(&mut self, reader: &SignalReader) {
        while let Some(received) = ForwardedSignal::next(reader) {
            if let Some(forwarded) = received.forwarded() {
                // The command may have ended; it is waited for only later.
                let _ = signal::send(self.child.id(), forwarded);
            }
            self.ending.receive(received, Instant::now());
        }
    }

    /// Returns true if the command has ended; `process` has been waited for.
    fn has_ended(&mut self, process: Option<&PollEntry>) -> bool {
        match process {
            Some(process) => process.is_ready(),
            None => self.child.try_wait().is_ok_and(|status| status.is_some()),
        }
    }
}

/// Cause of the recording's end, other than a request or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndCause {
    /// The command has ended.
    Command,
    /// This signal arrived; the command continues.
    Signal(i32),
}

/// Host of a session with a command.
struct ForegroundRecorder<'a> {
    options: &'a RunOptions,
    /// Path of the trace's folder, as the user named it.
    output: PathBuf,
    rules: String,
    /// True if a warning about the rules was reported.
    has_warned: bool,
    token: u64,
    reader: SignalReader,
    /// Signals that were blocked before the recording.
    blocked: SignalSet,
    /// Window where user events are recorded, with its path.
    window: Option<(Window, PathBuf)>,
    /// Number of events that the window had refused before the command started.
    refused_before: u32,
    start: Option<CommandStart>,
    command: Option<TracedCommand>,
    cause: Option<EndCause>,
    /// True if a signal has interrupted the end of the recording.
    is_interrupted: Cell<bool>,
    /// Names of the session's events, saved before the window was left.
    names: Vec<String>,
    /// Ids of processes that have or had the library, saved before the window was left.
    in_table: HashSet<u32>,
}

impl Host for ForegroundRecorder<'_> {
    fn begin(
        &mut self,
        driver: &mut Driver,
        _: &[PlannedChannel],
        _: bool,
    ) -> Result<(), RecordError> {
        let Some(mut start) = self.start.take() else { return Err(RecordError::Lost("it began")) };
        let session = (driver.controller.session.clone(), driver.prepared_folder.trace_folder());
        let mut windows = match start.handle.take() {
            Some(handle) => SessionWindows::begin_own(
                handle,
                session,
                std::mem::take(&mut start.channels),
                false,
            )?,
            None => SessionWindows::begin_without_users(session)?,
        };
        windows.keep_flight_recorders();
        let (token, blocked) = (self.token, self.blocked);
        let window = self.window.as_ref().map(|(window, _)| *window);
        let command = &mut self.command;
        let kernel = start.kernel.take();
        driver.begin_recording(windows, kernel, |kernel| {
            let child = start.start_command(token, blocked, kernel)?;
            *command = Some(TracedCommand::new(child, window, kernel.is_some()));
            Ok(())
        })
    }

    fn report_begin(&mut self, driver: &mut Driver, begun: Result<(), &Refusal>) {
        if begun.is_err() {
            // A folder that existed before stays, empty.
            let place = driver.prepared_folder.trace_folder();
            ["ust", layout::KERNEL_FOLDER]
                .iter()
                .for_each(|ours| drop(place.remove_below(&[ours])));
            driver.prepared_folder.remove_new();
        }
    }

    fn poll(&mut self, driver: &mut Driver) -> u64 {
        let (notices, is_followed) = (&driver.notices, driver.controller.is_followed());
        driver.controller.poll_kernel(notices);
        let (Some(windows), Some(command)) = (&mut driver.windows, &mut self.command) else {
            return UNRECORDED_PERIOD_NS;
        };
        windows.set_followed(is_followed);
        let drained = driver.drain();
        let notices = &driver.notices;
        let period_ns = match drained {
            Ok(period_ns) => period_ns,
            Err(error) => {
                notices.clear_status();
                notices.report(format_args!("{error}"));
                driver.end();
                return 0;
            }
        };
        if let Some(recording) = driver.windows.as_ref().and_then(SessionWindows::own_recording) {
            let channels = &driver.controller.machine.spec().channels[..];
            command.silence.report_silence(
                (&recording.totals(), channels),
                command.child.id(),
                notices,
            );
            if notices.shows_status() {
                command.status.show(notices, recording);
            }
        }
        let period_ns =
            if command.process.is_none() { period_ns.min(UNRECORDED_PERIOD_NS) } else { period_ns };
        period_ns.min(command.ending.due_in_ns(Instant::now()))
    }

    fn awaited(&self) -> Vec<PollEntry> {
        let process = self.command.iter().filter_map(|command| command.process.as_ref());
        let files = std::iter::once(self.reader.fd().raw()).chain(process.map(Fd::raw));
        files.map(PollEntry::readable).collect()
    }

    fn receive(&mut self, driver: &mut Driver, awaited: &[PollEntry]) -> bool {
        let Some(command) = &mut self.command else { return false };
        command.forward(&self.reader);
        if command.has_ended(awaited.get(1)) {
            self.cause = Some(EndCause::Command);
            return true;
        }
        match command.ending.verdict(Instant::now()) {
            Verdict::GoOn => false,
            Verdict::Warn(signal, left) => {
                driver.notices.report(format_args!(
                    "the command still runs after {}: the recording ends without it in {} s, or \
                     at the next such signal",
                    ForwardedSignal::name_of(signal),
                    left.as_secs_f64().ceil()
                ));
                false
            }
            Verdict::End(signal) => {
                self.cause = Some(EndCause::Signal(signal));
                true
            }
        }
    }

    fn prepare_end(&mut self, driver: &Driver, windows: &SessionWindows) {
        if self.cause == Some(EndCause::Command) {
            self.report_alive(&driver.notices);
        }
        if self.cause.is_some() {
            // Only signals from now on interrupt the end.
            while ForwardedSignal::next(&self.reader).is_some() {}
            // Writing the trace's end may need the descriptor.
            self.command.iter_mut().for_each(|command| command.process = None);
        }
        self.names = windows.own_recording().map(Recording::event_names).unwrap_or_default();
        let window = self.window.as_ref().map(|(window, _)| window);
        self.in_table = window.map(descendants::registered_pids).unwrap_or_default();
    }

    fn is_interrupted(&self) -> bool {
        // Without a cause of the end, signals are for the command, which continues.
        while self.cause.is_some()
            && let Some(received) = ForwardedSignal::next(&self.reader)
        {
            self.is_interrupted.set(self.is_interrupted.get() | received.interrupts());
        }
        self.is_interrupted.get()
    }

    fn report_end(&mut self, driver: &Driver, end: &SessionEnd) {
        let (spec, notices) = (driver.spec(), &driver.notices);
        let is_kernel_only = end.is_kernel_only(spec)
            && !self.options.is_from_file
            && self.options.helpers.is_empty();
        if !is_kernel_only {
            end.user.report(notices, &self.output, is_overwriting(spec));
        }
        if let Some(command) = &mut self.command {
            command.descendants.finish().report(&self.in_table, notices);
        }
        if self.is_interrupted.get() {
            notices.report(format_args!("interrupted: not everything was written"));
            notices.hint(format_args!("trackway recover completes it"));
        }
        self.report_unmatched(notices);
        self.report_user_events(spec, end, notices);
        end.report_kernel(is_kernel_only.then_some(self.output.as_path()), notices);
        driver.pause.report(notices);
        if let Some((window, path)) = &self.window {
            let refused = refused_event_count(window).saturating_sub(self.refused_before);
            summary::report_refused(notices, refused, path);
        }
    }
}

impl ForegroundRecorder<'_> {
    fn report_alive(&self, notices: &Notices) {
        let alive = descendants::count_token_holders(self.token);
        if alive > 0 {
            notices.report(format_args!(
                "{alive} process{} of the command still run{}; recording ends with the command",
                if alive == 1 { "" } else { "es" },
                if alive == 1 { "s" } else { "" },
            ));
        }
    }

    /// Reports patterns that matched no event.
    fn report_unmatched(&self, notices: &Notices) {
        if self.rules != "*" && !self.has_warned {
            let names = self.names.iter().cloned().collect();
            for reason in unmatched_patterns(patterns_of(&self.rules), &names) {
                reason.report(notices);
            }
        }
    }

    /// Reports why there are no user events, or the settings that would have avoided the losses of
    /// user events.
    fn report_user_events(&self, spec: &SessionSpec, end: &SessionEnd, notices: &Notices) {
        let user = &end.user;
        // A writer may be killed in its first event. A user who records kernel events may need no
        // user events.
        let is_empty = user.recorded == 0 && user.lost == 0 && user.holes == 0;
        if is_empty && spec.kernel.is_none() {
            let reason = match user_only_filters(spec).next() {
                Some(_) => Reason::NothingPassedFilters(Vec::new()),
                None => Reason::CommandWithoutEvents,
            };
            reason.report(notices);
        } else if user.lost > 0 {
            let source = match self.options.is_from_file {
                true => SizeSource::Config,
                false => SizeSource::Option,
            };
            end.report_losses(spec, source, notices);
        }
    }

    /// Waits for the command, which may outlive the recording; returns how the command ended.
    ///
    /// # Errors
    ///
    /// If the recording could not begin, so that no command was started.
    fn end_command(
        &mut self,
        recorded: Result<(), RecordError>,
        driver: &mut Driver,
    ) -> Result<CommandEnd, RecordError> {
        let Some(mut command) = self.command.take() else {
            return Err(recorded.err().unwrap_or(RecordError::Lost("it has not begun")));
        };
        let notices = &driver.notices;
        if let Err(error) = recorded {
            notices.report(format_args!("{error}"));
        } else if self.cause.is_none() {
            let name = &driver.spec().name;
            notices.report(format_args!(
                "session {name} was destroyed: the command goes on, and is not recorded"
            ));
        }
        let ended_by = match self.cause {
            Some(EndCause::Command) => None,
            Some(EndCause::Signal(signal)) => Some(signal),
            None => self.wait_unrecorded(&mut command)?,
        };
        if let Some(signal) = ended_by {
            notices.report(format_args!(
                "{} has ended the recording: the command (process {}) goes on, and is not recorded",
                ForwardedSignal::name_of(signal),
                command.child.id()
            ));
            return Ok(CommandEnd::Exited(launch::status_of_signal(signal)));
        }
        let status = command.child.wait().map_err(RecordError::io("wait for", "the command"))?;
        let end = launch::command_end_from(status);
        driver.result.command = Some(end);
        Ok(end)
    }

    /// Forwards signals to the command until it has ended, or until a signal ends the wait; returns
    /// that signal.
    fn wait_unrecorded(&self, command: &mut TracedCommand) -> Result<Option<i32>, RecordError> {
        loop {
            if let Verdict::End(signal) = command.ending.verdict(Instant::now()) {
                return Ok(Some(signal));
            }
            let files = std::iter::once(self.reader.fd().raw());
            let files = files.chain(command.process.iter().map(Fd::raw));
            let mut awaited: Vec<PollEntry> = files.map(PollEntry::readable).collect();
            let period_ns = command.ending.due_in_ns(Instant::now()).min(UNRECORDED_PERIOD_NS);
            wait::wait_for_any(&mut awaited, period_ns).map_err(|errno| {
                RecordError::Io("watch", "the command".into(), io_error(errno).into())
            })?;
            command.forward(&self.reader);
            if command.has_ended(awaited.get(1)) {
                return Ok(None);
            }
        }
    }
}
