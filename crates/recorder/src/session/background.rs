//! The recorder of a session that is told what to do: drives [`trackway_session::machine`].

use std::path::Path;
use std::sync::atomic::Ordering;

use trackway_session::machine::{Client, Effect, Outcome, Planned};
use trackway_session::protocol::{Answer, ChannelStatus, Refusal, Request, Status};
use trackway_session::{ChannelSpec, FilterSpec, KernelSpec, Mode, Reserve, SessionSpec};
use trackway_sys::clock::monotonic_ns;
use trackway_sys::file::Fd;
use trackway_sys::process::{can_tell_exits, raise_descriptor_limit};
use trackway_sys::signal::{self, SignalReader, SignalSet};
use trackway_sys::wait::{self, Awaited};

use crate::control::server::Server;
use crate::control::{Claimed, Identity, RunFolder};
use crate::error::{RecordError, io_error};
use crate::filters::publish::known_here;
use crate::filters::{check, unmatched};
use crate::kernel;
use crate::kernel::backend::{Draining, Kernel};
use crate::kernel::filter_routing::{route_filters, shared_filters, stray_filters};
use crate::kernel::request::KernelRequest;
use crate::notices::Notices;
use crate::recording::Recording;
use crate::recovery::in_passing;
use crate::session::controller::{self, Desk, Making};
use crate::session::crash_watch::Crash;
use crate::session::foreground;
use crate::session::run_options::RunOptions;
use crate::session::summary_file::{RunResult, SummaryFile};
use crate::session::suspend_check::Pause;
use crate::session::window_watch::Scope;
use crate::session::windows::Parts;
use crate::session::write_stall::{STALL_NS, Stall};
use crate::summary::shortfall::SizeSource;
use crate::trace::layout;
use crate::trace::prepare::{self, Older, Room};
use crate::window::slot::{self, SessionSettings};

/// Who asks when a signal does; nobody is told.
const SIGNALLED: Client = u64::MAX;
/// How often the table of processes is looked at where crashes are waited for, in ns.
const CRASH_PERIOD_NS: u64 = 10_000_000;

/// What is not said of a channel in the background: it may be idle for long.
const MAKING: Making = Making { thrifty: true, reserve: Reserve::Rseq };

/// How a session that is told what to do begins.
#[derive(Debug)]
pub enum Begun {
    /// It is there; this is how.
    There(Box<Status>),
    /// It cannot begin.
    Refused(Refusal),
}

/// Where a session's recorder says what it has to say, besides `session status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// In the session's log: it is in the background.
    Logged,
    /// On stderr.
    Printed,
    /// Nowhere: it is not to be heard.
    Kept,
}

/// Records a session in this process until somebody ends it: by a request, or by SIGTERM or
/// SIGINT. `begun` is told once how it began.
///
/// # Errors
///
/// If it cannot begin, which `begun` is told, too.
pub fn serve(
    spec: SessionSpec,
    talk: Talk,
    begun: &mut dyn FnMut(&Begun),
) -> Result<(), RecordError> {
    let ready = Served::new(spec, talk);
    let mut served = match ready {
        Ok(served) => served,
        Err(error) => {
            begun(&Begun::Refused(Refusal::from(&error)));
            return Err(error);
        }
    };
    served.run(begun)
}

/// Records the kernel's events, and those of the user's programs, until SIGINT or SIGTERM, or until
/// the processes that they are of have ended: what `trackway record --kernel` does without a
/// command.
///
/// # Errors
///
/// If it cannot begin, or is ended by something else.
pub fn record_kernel(
    mut spec: SessionSpec,
    options: &RunOptions,
    quiet: bool,
) -> Result<(), RecordError> {
    let talk = if quiet { Talk::Kept } else { Talk::Printed };
    if spec.kernel.as_ref().is_some_and(|kernel| kernel.mode == Mode::Overwrite) {
        let why = "a flight recorder without a command is a session's";
        let hint = "trackway session create NAME --kernel LIST --flight-recorder makes one";
        return Err(RecordError::Refused(Refusal::new(why).with_hint(hint)));
    }
    let notices = Notices::new(quiet);
    route_filters(&mut spec)?;
    let of_programs = known_here()?;
    if !options.is_from_file {
        for hint in unmatched::refuse(stray_filters(&spec)?, &of_programs)? {
            notices.say(format_args!("{hint}"));
        }
    }
    let (kernel, _) = options.acquire_privileged(&spec, &notices)?;
    let summary_file = options.summary_file()?;
    if let Some(kernel) = &kernel {
        kernel.filters().refuse_unmet(&of_programs)?;
        kernel.filters().say(&notices);
    }
    let pids: Vec<u32> = spec.kernel.iter().flat_map(|kernel| kernel.pids.clone()).collect();
    let until = if pids.is_empty() { "Ctrl-C" } else { "Ctrl-C, or the end of what is recorded" };
    spec.name = format!("kernel-{}", std::process::id());
    spec.channels.iter_mut().for_each(|channel| channel.pids.clone_from(&pids));
    let mut served = Served::new(spec, talk)?;
    served.prepared = kernel;
    served.summary_file = summary_file;
    // Who cannot be had has ended.
    let living = || pids.iter().filter_map(|&pid| wait::process_fd(pid).ok()).collect();
    served.processes = (!pids.is_empty()).then(living);
    served.run(&mut |begun| {
        if let Begun::There(status) = begun {
            notices.say(format_args!(
                "recording into {} until {until}; trackway session status {} says how it goes",
                status.folder.display(),
                status.name
            ));
        }
    })
}

/// A session being served.
struct Served {
    desk: Desk,
    notices: Notices,
    signals: SignalReader,
    /// Whose windows it records.
    scope: Scope,
    /// The folder of its trace is locked.
    room: Room,
    parts: Option<Parts>,
    /// What records the kernel's events, where it was made before.
    prepared: Option<Kernel>,
    /// Where how it went is written as JSON.
    summary_file: Option<SummaryFile>,
    /// Those processes that have not ended yet, with the last of which it ends.
    processes: Option<Vec<Fd>>,
    /// Whether a process that crashes leaves a snapshot.
    watches_crashes: bool,
    /// What keeps the session's own user's trace from being written, if anything does.
    stall: Stall,
    pause: Pause,
    failure: Option<Refusal>,
}

impl Served {
    fn new(mut spec: SessionSpec, talk: Talk) -> Result<Self, RecordError> {
        spec.check()?;
        route_filters(&mut spec)?;
        check_name(&spec.name)?;
        check_folder(spec.output.as_deref())?;
        let scope = match spec.is_kernels_alone() {
            true => Scope::Nobody,
            false => Scope::of(&spec.users)?,
        };
        if !matches!(scope, Scope::Own | Scope::Nobody) {
            // Each user's streams are files of their own. What there is must do, if need be.
            let _ = raise_descriptor_limit();
        }
        let name = RunFolder::new().claim(&spec.name)?;
        let of_the_dead = name.folder_of_the_dead();
        let notices = notices_of(&name, talk)?;
        let signals = block_signals()?;
        signal::ignore_size_limit();
        // Before anything that would stay behind. Who connects meanwhile is answered later.
        let mut server = Server::open(name)?;
        in_passing::settle(&notices);
        if let Some(folder) = of_the_dead {
            let _ = kernel::recover::settle(&folder, &notices);
            kernel::recover::settle(&folder, &notices);
        }
        let (folder, room) = match &spec.output {
            Some(output) => (output.clone(), prepare::prepare_session(output, Older::Stays)?),
            None => prepare::prepare_new(&spec.name)?,
        };
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let session = SessionSettings {
            name: spec.name.clone(),
            token: None,
            uuid: crate::random::random_uuid()?,
            path: room.path.clone(),
        };
        server.keep(Identity { uuid: session.uuid, folder: session.path.clone() })?;
        let spec = SessionSpec { output: Some(folder.clone()), ..spec };
        let watches_crashes = spec.snapshot_on_crash;
        if watches_crashes && !can_tell_exits() {
            notices.say(format_args!(
                "no snapshot on crash: this kernel does not say how processes end (Linux 6.15 does)"
            ));
        }
        Ok(Self {
            desk: Desk::new(spec, Some(server), session, (folder, room.place()), MAKING),
            notices,
            signals,
            scope,
            room,
            parts: None,
            prepared: None,
            summary_file: None,
            processes: None,
            watches_crashes,
            stall: Stall::default(),
            pause: Pause::new(),
            failure: None,
        })
    }

    fn run(&mut self, begun: &mut dyn FnMut(&Begun)) -> Result<(), RecordError> {
        loop {
            let mut is_told = false;
            while let Some(effect) = self.desk.next_effect(&mut self.parts, &self.notices) {
                if effect == Effect::Exit {
                    // Where it ended in another way than by its own request.
                    if let Some(kernel) = self.desk.kernel.take() {
                        kernel.finish().say(None, &self.notices);
                    }
                    self.desk.flush();
                    let failure = self.failure.take().map(RecordError::Refused);
                    return failure.map_or(Ok(()), Err);
                }
                self.carry_out(effect, begun);
                is_told = true;
            }
            // What it was told to do may take long, and renews the lease meanwhile.
            match is_told {
                true => self.pause.look_away(),
                false => self.pause.look(&self.notices),
            }
            let period_ns = self.look();
            self.wait(period_ns)?;
            self.take_requests();
        }
    }

    /// Does what the machine says that is not done at every desk, and tells it what came of it.
    fn carry_out(&mut self, effect: Effect, begun: &mut dyn FnMut(&Begun)) {
        let outcome = match effect {
            Effect::Begin { channels, record } => self.begin(&channels, record),
            Effect::Finish => self.finish(),
            Effect::Answer(_, Answer::Refused(refusal)) => {
                self.remove_empty_folders();
                begun(&Begun::Refused(refusal.clone()));
                self.failure = Some(refusal);
                return;
            }
            // To the creator.
            _ => {
                let status = self.desk.status(self.parts.as_mut(), &self.notices);
                return begun(&Begun::There(Box::new(status)));
            }
        };
        self.desk.done(outcome, &self.notices);
    }

    fn begin(&mut self, channels: &[Planned], record: bool) -> Result<Outcome, RecordError> {
        let of_kernel = self.desk.machine.spec().kernel.clone();
        let settings = |channel: &Planned| {
            let settings = MAKING.settings(&channel.spec, of_kernel.as_ref(), record)?;
            Ok((settings, channel.class))
        };
        let channels = channels.iter().map(settings).collect::<Result<_, RecordError>>()?;
        let (scope, session) = (self.scope.clone(), (self.desk.session.clone(), self.room.place()));
        // First, because it is what may be refused.
        let kernel = self.prepare_kernel(record)?;
        let asked = kernel.as_ref().map(Kernel::filters);
        let is_taken = |filter: &FilterSpec| {
            of_kernel.as_ref().is_some_and(|kernel| kernel.filters.contains(filter))
                && asked.is_some_and(|asked| asked.takes(filter))
        };
        let watches_crashes = self.watches_crashes;
        let parts =
            Parts::begin(scope, session, (channels, &is_taken), watches_crashes, &self.notices)?;
        let root = self.room.place();
        let tracefiles = of_kernel.as_ref().map(KernelSpec::tracefiles).unwrap_or_default();
        let begin = |kernel: Kernel| kernel.begin(&root, parts.realtime_offset_ns(), tracefiles);
        match kernel.map(begin).transpose() {
            Ok(kernel) => self.desk.kernel = kernel,
            Err(error) => {
                parts.finish(&Notices::new(true), &|| false)?;
                return Err(error);
            }
        }
        self.desk.kernel.iter_mut().for_each(Draining::drop_flight_recorder);
        parts.tell_given_up(&self.notices);
        self.parts = Some(parts);
        if let Some(moved) = self.room.settle() {
            self.notices.say(format_args!("the earlier trace is now {}", moved.display()));
        }
        Ok(Outcome::Done)
    }

    /// Makes what records the kernel's events, if there are to be such.
    fn prepare_kernel(&mut self, record: bool) -> Result<Option<Kernel>, RecordError> {
        if let Some(prepared) = self.prepared.take() {
            return Ok(Some(prepared));
        }
        let session = self.desk.machine.spec();
        let Some(spec) = &session.kernel else { return Ok(None) };
        let request = KernelRequest {
            spec,
            shared_filters: &shared_filters(spec, &session.channels),
            follows_command: false,
            is_stopped: !record,
        };
        let kernel = Kernel::prepare(&request, &self.notices)?;
        // What others' programs have is not known here.
        if matches!(self.scope, Scope::Own) {
            kernel.filters().refuse_unmet(&known_here()?)?;
        }
        kernel.filters().say(&self.notices);
        Ok(Some(kernel))
    }

    fn finish(&mut self) -> Result<Outcome, RecordError> {
        self.desk.kernel.iter_mut().for_each(Draining::stop);
        let Some(parts) = self.parts.take() else {
            return Err(RecordError::Lost("it has ended"));
        };
        let known_events = parts.known();
        let finished = parts.finish(&self.notices, &|| false);
        let kernel = self.desk.kernel.take().map(Draining::finish);
        let summary = finished.map_err(|error| {
            kernel.iter().for_each(|kernel| kernel.say(None, &self.notices));
            RecordError::Refused(controller::unfinished(&error))
        })?;
        // As `trackway record` says it at its end.
        let said = Notices::kept();
        if self.desk.machine.spec().is_flight_recorder() {
            self.remove_empty_folders();
        } else {
            // Who asked for the kernel's events may have asked for no others.
            let spec = self.desk.machine.spec();
            let of_kernel = spec.kernel.as_ref().map_or(&[][..], |kernel| &kernel.filters);
            let is_asked = |one: &ChannelSpec| {
                one.on.is_some() || one.filters.iter().any(|filter| !of_kernel.contains(filter))
            };
            let is_alone =
                kernel.is_some() && summary.is_nothing() && !spec.channels.iter().any(is_asked);
            let folder = is_alone.then_some(self.desk.folder.as_path());
            if !is_alone {
                summary.say(&said, &self.desk.folder, false);
                let filters = spec.channels.iter().flat_map(|channel| &channel.filters);
                let senseless = check::senseless(filters, &known_events, &summary.lost_by_event);
                senseless.iter().for_each(|(_, hint)| said.hint(format_args!("{hint}")));
                if summary.lost > senseless.map_or(0, |(count, _)| count) {
                    let source = match &spec.channels[..] {
                        [one] if one.name == ChannelSpec::DEFAULT_NAME => SizeSource::Option,
                        _ => SizeSource::Channel,
                    };
                    summary.hint_what_keeps(source, &said);
                }
            }
            kernel.iter().for_each(|kernel| kernel.say(folder, &said));
        }
        self.pause.say(&said);
        if self.notices.are_printed() {
            // In the foreground: for the terminal or the service manager's log.
            said.all().iter().for_each(|line| self.notices.say_again(line));
        }
        if let Some(file) = self.summary_file.take() {
            let mut result = RunResult::new(self.desk.folder.clone());
            kernel.iter().for_each(|kernel| result.note_kernel(kernel));
            result.programs = Some(summary.clone());
            file.write(&result, &said);
        }
        Ok(controller::ended(&summary, &said))
    }

    /// Removes the trace of a session that has written nothing but snapshots, and the folder, if
    /// it was not there before and nothing is there.
    fn remove_empty_folders(&self) {
        // What is at its path may be another's by now.
        let place = self.room.place();
        let Ok(now) = place.now() else { return };
        if layout::has_no_stream(&now) {
            layout::remove_unwritten(&place);
            self.room.remove_new();
        }
    }

    /// One look at what is recorded; how long until the next, in ns.
    fn look(&mut self) -> u64 {
        let is_followed = self.desk.is_followed();
        self.desk.attend_kernel(&self.notices);
        let Some(parts) = &mut self.parts else { return STALL_NS };
        parts.tell_given_up(&self.notices);
        parts.look_for_windows(&self.notices);
        parts.set_followed(is_followed);
        let reasons = parts.take_reasons();
        if reasons.is_asked {
            self.desk.machine.program_asks_for_snapshot(monotonic_ns());
        }
        for Crash { pid, signal } in reasons.crashes {
            self.notices.say(format_args!("process {pid} died of signal {signal}"));
            self.desk.machine.process_crashed(pid, signal, monotonic_ns());
        }
        self.desk.machine.tick(monotonic_ns());
        match parts.tick(&self.notices) {
            // Who is to be seen crash must be seen start.
            Ok(period_ns) if self.watches_crashes && self.stall.is_over() => {
                period_ns.min(CRASH_PERIOD_NS)
            }
            Ok(period_ns) => {
                self.stall.look(parts.bytes(), "", &self.notices);
                period_ns
            }
            Err(error @ RecordError::Lost(_)) => {
                let refusal = Refusal::from(&error);
                self.notices.say(format_args!("{}", refusal.why));
                self.desk.machine.lose(&refusal);
                self.failure = Some(refusal);
                0
            }
            Err(error) => {
                // The disk is full, or gone: it may come back. What finds no room in the buffers
                // meanwhile is counted.
                parts.keep_alive();
                self.stall.begin(&error, parts.bytes(), "", &self.notices);
                STALL_NS
            }
        }
    }

    fn wait(&mut self, period_ns: u64) -> Result<(), RecordError> {
        let period_ns = if self.desk.has_requests() { 0 } else { period_ns };
        let mut awaited = self.desk.awaited();
        awaited.push(Awaited::readable(self.signals.fd().raw()));
        awaited.extend(self.parts.iter().flat_map(Parts::awaited));
        let others = awaited.len();
        let processes = self.processes.iter().flatten();
        awaited.extend(processes.map(|process| Awaited::readable(process.raw())));
        wait::any(&mut awaited, period_ns).map_err(|errno| {
            RecordError::Io("wait for", "requests".into(), io_error(errno).into())
        })?;
        if let Some(processes) = &mut self.processes {
            let mut have_ended = awaited[others..].iter().map(Awaited::is_ready);
            processes.retain(|_| !have_ended.next().unwrap_or(false));
            if processes.is_empty() {
                self.processes = None;
                self.desk.machine.ask(SIGNALLED, Request::Destroy);
            }
        }
        Ok(())
    }

    fn take_requests(&mut self) {
        self.desk.take_requests();
        while let Some((signal, _)) = self.signals.next() {
            if signal != libc::SIGHUP {
                self.desk.machine.ask(SIGNALLED, Request::Destroy);
            }
        }
    }
}

impl Recording {
    /// Whether it has a channel of class `class`.
    pub(crate) fn has_channel(&self, class: u32) -> bool {
        self.channels.iter().any(|channel| channel.names.class == class)
    }

    /// Adds how the channel of class `class` goes.
    pub(crate) fn describe(&self, class: u32, status: &mut ChannelStatus) {
        let found = self.channels.iter().find(|channel| channel.names.class == class);
        let Some(channel) = found else { return };
        status.memory_bytes += channel.memory_bytes(&self.home);
        // Anybody may write there: it says what it likes, and adds up to no more than fits.
        let interpreters = channel.session().interpreters.load(Ordering::Relaxed);
        status.interpreters = status.interpreters.saturating_add(interpreters.into());
        for work in &channel.regions {
            status.recorded = status.recorded.saturating_add(work.committed());
            status.lost = status.lost.saturating_add(work.discarded());
        }
    }

    /// Rules for processes of the channels that are flight recorders.
    pub(crate) fn process_rules(&self) -> Vec<String> {
        let flight = self.channels.iter().filter(|channel| channel.is_overwriting());
        flight.map(|channel| slot::process_rules(channel.session())).collect()
    }

    /// How often programs have asked for a snapshot.
    pub(crate) fn snapshot_requests(&self) -> u32 {
        let requests = |session: &trackway_abi::session::Session| {
            session.snapshot_requests.load(Ordering::Relaxed)
        };
        let of_all = self.channels.iter().map(|channel| requests(channel.session()));
        of_all.fold(0, u32::wrapping_add)
    }
}

/// Refuses a folder for traces that could not be told to anybody: what sessions are asked, and what
/// they answer, is JSON.
///
/// # Errors
///
/// If its path, or that of the current folder, where a new one is made, is not UTF-8.
pub fn check_folder(output: Option<&Path>) -> Result<(), RecordError> {
    let folder = match output {
        Some(output) => std::path::absolute(output),
        None => std::env::current_dir(),
    };
    // What cannot be known of it is said by whoever makes it.
    let Some(odd) = folder.ok().filter(|folder| folder.to_str().is_none()) else { return Ok(()) };
    let why = format!("the path {} is not UTF-8", odd.display());
    let hint = "sessions need a folder that is: name one with -o";
    Err(RecordError::Refused(Refusal::new(why).with_hint(hint)))
}

/// Refuses names that `trackway record` gives: two sessions would be in each other's way.
fn check_name(name: &str) -> Result<(), RecordError> {
    if !foreground::is_name_of_record(name) {
        return Ok(());
    }
    let why = format!("'{name}' is a name that trackway record gives: record-PID");
    let hint = "choose another: trackway session create NAME, trackway session load FILE NAME";
    Err(RecordError::Refused(Refusal::new(why).with_hint(hint)))
}

fn notices_of(name: &Claimed, talk: Talk) -> Result<Notices, RecordError> {
    Ok(match talk {
        Talk::Logged => Notices::logged(name.open_log()?),
        Talk::Printed | Talk::Kept => Notices::new(talk == Talk::Kept),
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
        let served = serve(spec, Talk::Kept, &mut |begun| {
            if let Begun::Refused(refusal) = begun {
                refused = Some(refusal.why.clone());
            }
        });
        assert!(served.is_err() && refused.is_some_and(|why| why.contains("is not UTF-8")));
    }
}
