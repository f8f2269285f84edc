//! `trackway record -- CMD`, from start to end.
//!
//! It is asked and told as sessions in the background are ([`Desk`]), where it can be; what nobody
//! asks of it is as it would be without.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use trackway_session::machine::{Effect, Outcome};
use trackway_session::protocol::Refusal;
use trackway_session::{FilterSpec, KernelSpec, Mode, SessionSpec, Tracefiles};
use trackway_sys::file::Fd;
use trackway_sys::signal::{SignalReader, SignalSet};
use trackway_sys::wait::Awaited;
use trackway_sys::{signal, wait};
use trackway_window::Window;

use crate::command::descendants::{self, Watch};
use crate::command::launch::{self, AsBefore, CommandEnd, Found, Received};
use crate::control::server::Server;
use crate::control::{Identity, RunFolder};
use crate::diagnosis::{Reason, unmatched_patterns};
use crate::elf;
use crate::error::{RecordError, io_error};
use crate::filters::check;
use crate::filters::publish::known;
use crate::filters::unmatched::{self, Stray};
use crate::kernel::backend::{Draining, Kernel};
use crate::kernel::filter_routing::{route_filters, stray_filters};
use crate::kernel::filters::TakenFilters;
use crate::notices::Notices;
use crate::recording::Recording;
use crate::recovery::in_passing;
use crate::session::controller::{self, Desk, Making};
use crate::session::end_signals::{Ending, Verdict};
use crate::session::run_as::Account;
use crate::session::run_options::RunOptions;
use crate::session::silence_watch::Silence;
use crate::session::status_line::Progress;
use crate::session::summary_file::RunResult;
use crate::session::suspend_check::Pause;
use crate::session::windows::Parts;
use crate::summary::shortfall::SizeSource;
use crate::summary::{self, Summary};
use crate::trace::folder::Place;
use crate::trace::layout;
use crate::trace::prepare::{self, Older};
use crate::window::handle::Home;
use crate::window::slot::{ChannelSettings, SessionSettings};

/// How often it is looked what happens once nothing is recorded any more, in ns.
const UNRECORDED_PERIOD_NS: u64 = 500_000_000;

/// Checks the sizes of a specification's channels.
fn check_sizes(spec: &SessionSpec) -> Result<(), RecordError> {
    for channel in &spec.channels {
        channel.tracefiles().check(&channel.plan()?, channel.mode)?;
    }
    Ok(())
}

/// Rejects a specification that names processes whose kernel events are recorded: those of the
/// command are.
fn check_kernel_scope(kernel: &KernelSpec) -> Result<(), RecordError> {
    if kernel.pids.is_empty() {
        return Ok(());
    }
    let why = "the file has processes whose kernel events are recorded (pids), not CMD's";
    let hint = "trackway session load records them, in the background".to_owned();
    Err(RecordError::Kernel(why.into(), Some(hint)))
}

/// Returns true if a channel has a filter that kernel events do not share.
fn has_user_filters(spec: &SessionSpec) -> bool {
    let of_kernel = spec.kernel.as_ref().map_or(&[][..], |kernel| &kernel.filters);
    let mut filters = spec.channels.iter().flat_map(|channel| &channel.filters);
    filters.any(|filter| !of_kernel.contains(filter))
}

/// Returns true if everything that is recorded overwrites what is older.
fn is_overwriting(spec: &SessionSpec) -> bool {
    spec.channels.iter().all(|channel| channel.mode == Mode::Overwrite)
}

/// The rules of all channels.
fn rules_of(channels: &[(ChannelSettings, u32)]) -> String {
    let rules: Vec<&str> = channels.iter().map(|(channel, _)| channel.rules.as_str()).collect();
    if rules.contains(&"*") { "*".into() } else { rules.join("\n") }
}

/// Records a command from its start to its end. Errors of the recording itself, once the command
/// runs, are said and do not change how the command ends.
pub fn record(
    mut spec: SessionSpec,
    options: &RunOptions,
    notices: &Notices,
) -> Result<CommandEnd, RecordError> {
    check_sizes(&spec)?;
    route_filters(&mut spec)?;
    spec.kernel.as_ref().map_or(Ok(()), check_kernel_scope)?;
    let strays = if options.is_from_file { Vec::new() } else { stray_filters(&spec)? };
    let (mut kernel, account) = options.acquire_privileged(&spec, notices)?;
    let ignores_size_limit = signal::ignore_size_limit();
    let summary_file = options.summary_file()?;
    let making = Making { thrifty: false, reserve: options.reserve };
    let settings =
        spec.channels.iter().map(|channel| making.settings(channel, spec.kernel.as_ref(), true));
    let channels: Vec<_> = settings.collect::<Result<_, RecordError>>()?;
    let mut channels: Vec<_> = channels.into_iter().zip(0..).collect();
    let rules = rules_of(&channels);
    let mut found = Found::look_up(&options.command)?;
    found.environment = account.map(Account::environment).unwrap_or_default();
    let programs = match spec.is_kernels_alone() {
        true => None,
        false => Some((Home::open_or_make(notices)?, launch::libraries(&options.helpers)?)),
    };
    let window = programs.as_ref().map(|(home, _)| (*home.window(), home.path.clone()));
    let asked = (strays, kernel.as_ref().map(Kernel::filters));
    if let Some((home, libraries)) = &programs {
        check_filters(&mut channels, asked, (&found, libraries), home.window(), notices)?;
    }
    kernel.iter().for_each(|kernel| kernel.filters().say(notices));
    in_passing::settle(notices);
    let warned = programs.as_ref().is_some_and(|(home, libraries)| {
        warn_of_the_static(&found, kernel.is_some(), notices);
        warn_of_rules(&rules, &found, libraries, home, notices)
    });

    let (output, mut room) = match &spec.output {
        Some(output) => (output.clone(), prepare::prepare_session(output, Older::Goes)?),
        None => prepare::prepare_new("")?,
    };
    let (path, place) = (room.path.clone(), room.place());
    let token = u64::from_le_bytes(crate::random::random()?).max(1);
    let name = format!("record-{}", std::process::id());
    let mut server = open_server(&name);
    let session = SessionSettings {
        name: if server.is_some() { name.clone() } else { String::new() },
        token: Some(token),
        uuid: crate::random::random_uuid()?,
        path: path.clone(),
    };
    if let Some(server) = &mut server {
        // Without it, who finds the name of a dead recorder does not know its trace.
        let _ = server.keep(Identity { uuid: session.uuid, folder: path.clone() });
    }
    let refused_before = window.as_ref().map_or(0, |(window, _)| refused(window));
    let (home, libraries) = programs.unzip();
    let what = Command {
        found: &found,
        libraries: libraries.as_deref(),
        ignores_size_limit,
        tracefiles: spec.kernel.as_ref().map(KernelSpec::tracefiles).unwrap_or_default(),
    };
    let started = start(home, (&session, &place, channels), &what, &mut kernel);
    let Started { reader, before, parts, child, pause, kernel } = started.inspect_err(|_| {
        // Whoever had a folder keeps an empty one; ours goes. First the kernel's part: its open
        // files may be those that there are too many of.
        drop(kernel.take());
        ["ust", layout::KERNEL].iter().for_each(|ours| drop(place.remove_below(&[ours])));
        room.remove_new();
    })?;
    parts.tell_given_up(notices);
    if let Some(moved) = room.settle() {
        notices.say(format_args!("the earlier trace is now {}", moved.display()));
    }
    let folder = std::path::absolute(&output).unwrap_or_else(|_| path.clone());
    let spec = SessionSpec { name, output: Some(folder.clone()), ..spec };
    let mut desk = Desk::new(spec.clone(), server, session, (folder.clone(), place), making);
    desk.is_foreground = true;
    desk.kernel = kernel;
    let live = Live {
        notices,
        reader,
        output: &output,
        spec: &spec,
        options,
        rules: &rules,
        warned,
        asks_programs: has_user_filters(&spec),
        token,
        window,
        refused_before,
        result: RefCell::new(RunResult::new(folder)),
    };
    let descendants = Watch::begin(child.id());
    let end = live.run(Traced {
        desk,
        parts: Some(parts),
        child,
        descendants,
        pause,
        ending: Ending::default(),
    });
    // What came last must not end us now.
    while Received::next(&live.reader).is_some() {}
    before.make_current();
    drop(room);
    if let Some(file) = summary_file {
        file.write(&live.result.borrow(), notices);
    }
    end
}

/// What is there once the command runs.
struct Started {
    reader: SignalReader,
    /// Signals that were blocked before.
    before: SignalSet,
    parts: Parts,
    child: Child,
    pause: Pause,
    kernel: Option<Draining>,
}

/// A command that is to be started.
struct Command<'a> {
    found: &'a Found,
    /// None: it is run as without us.
    libraries: Option<&'a [PathBuf]>,
    ignores_size_limit: bool,
    /// Of the kernel's streams.
    tracefiles: Tracefiles,
}

impl Command<'_> {
    /// Starts it; its process enters the scope of the kernel's events.
    fn start(
        &self,
        token: u64,
        signals: SignalSet,
        kernel: Option<&Draining>,
    ) -> Result<Child, RecordError> {
        let as_before = AsBefore {
            signals,
            ignores_size_limit: self.ignores_size_limit,
            files_limit: kernel.and_then(Draining::files_limit),
        };
        let entrance = kernel.and_then(Draining::entrance);
        self.found.start(token, self.libraries, as_before, entrance)
    }
}

/// Where it is asked and told by this name; none if it cannot be, which is no reason not to record.
fn open_server(name: &str) -> Option<Server> {
    Server::open(RunFolder::new().claim(name).ok()?).ok()
}

/// Whether a session is called as those of `trackway record` are.
pub fn is_name_of_record(name: &str) -> bool {
    let pid = name.strip_prefix("record-");
    pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
}

/// Begins to record, then starts the command. Without a window, nothing of programs is recorded.
fn start(
    home: Option<Home>,
    (session, place, channels): (&SessionSettings, &Arc<Place>, Vec<(ChannelSettings, u32)>),
    command: &Command<'_>,
    kernel: &mut Option<Kernel>,
) -> Result<Started, RecordError> {
    let signals = Received::all();
    let before = signals.block();
    let token = session.token.unwrap_or_default();
    let started = SignalReader::new(&signals)
        .map_err(|errno| RecordError::Io("read", "signals".into(), io_error(errno).into()))
        .and_then(|reader| {
            let session = (session.clone(), Arc::clone(place));
            let parts = match home {
                Some(home) => Parts::begin_own(home, session, channels, false)?,
                None => Parts::begin_without(session)?,
            };
            Ok((reader, parts))
        })
        .and_then(|(reader, mut parts)| {
            parts.keep_flight_recorders();
            let pause = Pause::new();
            let begin = |kernel: Kernel| {
                kernel.begin(place, parts.realtime_offset_ns(), command.tracefiles)
            };
            let started = kernel.take().map(begin).transpose().and_then(|kernel| {
                let child = command.start(token, before, kernel.as_ref())?;
                Ok((child, kernel))
            });
            match started {
                Ok((child, kernel)) => Ok(Started { reader, before, parts, child, pause, kernel }),
                Err(error) => {
                    parts.finish(&Notices::new(true), &|| false)?;
                    Err(error)
                }
            }
        });
    if started.is_err() {
        before.make_current();
    }
    started
}

fn warn_of_the_static(found: &Found, has_kernel: bool, notices: &Notices) {
    if elf::read(&found.file).is_some_and(|module| module.is_static) {
        let what = match has_kernel {
            true => "of what it does, the kernel's events alone are recorded",
            false => "it cannot be traced",
        };
        notices.say(format_args!("{} is a static program: {what}", found.file.display()));
    }
}

/// Whether the channels' filters can be meant for what the command's program has, as far as that is
/// known. They are made good for it before it runs.
fn check_filters(
    channels: &mut [(ChannelSettings, u32)],
    (strays, of_kernel): (Vec<Stray>, Option<&TakenFilters>),
    (found, libraries): (&Found, &[PathBuf]),
    window: &Window,
    notices: &Notices,
) -> Result<(), RecordError> {
    let has_none = |(channel, _): &(ChannelSettings, u32)| channel.filters.is_empty();
    if strays.is_empty() && channels.iter().all(has_none) {
        return Ok(());
    }
    let files: Vec<PathBuf> = std::iter::once(&found.file).chain(libraries).cloned().collect();
    let program = elf::reach(&files);
    let of_window = known(window, "*");
    let events: Vec<_> = program.events.iter().chain(&of_window).cloned().collect();
    let is_taken = |filter: &FilterSpec| of_kernel.is_some_and(|filters| filters.takes(filter));
    let is_stray: Vec<FilterSpec> = strays.iter().map(|stray| stray.filter.clone()).collect();
    for hint in unmatched::refuse(strays, &events)? {
        notices.say(format_args!("{hint}"));
    }
    of_kernel.map_or(Ok(()), |filters| filters.refuse_unmet(&events))?;
    for (channel, _) in channels.iter_mut() {
        let named = channel.filters.iter().filter(|filter| !is_stray.contains(filter));
        let are_own = program.registers && !program.hides_events;
        for said in named.filter_map(|filter| unmatched::said(filter, &events, are_own)) {
            notices.say(format_args!("{said}"));
        }
        for hint in check::check(channel, window, &program, is_taken)? {
            notices.say(format_args!("{hint}"));
        }
        channel.expected.clone_from(&program.events);
    }
    Ok(())
}

/// Warns of patterns that nothing in reach matches, if there is something in reach: a wrapper
/// (env, a shell, an interpreter) has no events, what it starts may. Whether it warned.
fn warn_of_rules(
    rules: &str,
    found: &Found,
    libraries: &[PathBuf],
    home: &Home,
    notices: &Notices,
) -> bool {
    // Events of the library itself: trackway_printf and trackway_log.
    const BUILT_IN: [&str; 2] = ["lttng_ust_tracef", "lttng_ust_tracelog"];
    if rules == "*" || !elf::HAS_POINTS {
        return false;
    }
    let elf::Reach { points: mut names, registers, .. } =
        elf::reach(std::slice::from_ref(&found.file));
    if !registers {
        return false;
    }
    names.extend(elf::reach(libraries).points);
    let events = (0..trackway_abi::window::EVENTS_MAX).filter_map(|event| {
        let bytes = home.window().description(event)?;
        trackway_schema::EventDescription::decode(bytes.as_slice()).ok()
    });
    names.extend(events.map(|event| event.full_name()));
    let patterns =
        patterns_of(rules).filter(|pattern| !BUILT_IN.iter().any(|name| pattern.contains(name)));
    let unmatched: Vec<Reason> = unmatched_patterns(patterns, &names).collect();
    for reason in &unmatched {
        let Reason::UnmatchedRule { pattern, near, .. } = reason else { continue };
        let near = near.as_ref().map(|near| format!("; did you mean '{near}'?"));
        notices.say(format_args!(
            "'{pattern}' matches no event in {} or its libraries{}",
            found.file.display(),
            near.unwrap_or_default()
        ));
    }
    !unmatched.is_empty()
}

/// Patterns of rules that include.
fn patterns_of(rules: &str) -> impl Iterator<Item = String> {
    rules.lines().filter(|line| !line.starts_with('!')).map(str::to_owned)
}

/// Events that found no place in the window, since it was made.
fn refused(window: &Window) -> u32 {
    window.header().events_refused.load(Ordering::Relaxed)
}

/// A recording whose command runs.
struct Live<'a> {
    notices: &'a Notices,
    reader: SignalReader,
    output: &'a PathBuf,
    spec: &'a SessionSpec,
    options: &'a RunOptions,
    rules: &'a str,
    warned: bool,
    /// Whether there are filters that are not about the kernel's events.
    asks_programs: bool,
    token: u64,
    /// Where programs are recorded, and its path.
    window: Option<(Window, PathBuf)>,
    /// Of the window, before the command could register its events.
    refused_before: u32,
    /// How it went.
    result: RefCell<RunResult>,
}

/// The command, and what is recorded of it.
struct Traced {
    desk: Desk,
    /// None once somebody has ended the recording before the command.
    parts: Option<Parts>,
    child: Child,
    descendants: Watch,
    pause: Pause,
    /// What signals have asked for.
    ending: Ending,
}

/// What ended while it was watched.
enum Watched {
    Command,
    /// The recording, by this signal: the command goes on.
    Signal(i32),
}

impl Live<'_> {
    fn run(&self, mut traced: Traced) -> Result<CommandEnd, RecordError> {
        let watched = self.watch(&mut traced);
        self.notices.clear_status();
        match watched {
            Ok(Watched::Command) => {}
            Ok(Watched::Signal(signal)) => {
                self.finish_without(signal, &mut traced);
                return Ok(CommandEnd::Exited(launch::status_of_signal(signal)));
            }
            Err(error) => {
                self.notices.say(format_args!("{error}"));
                // Nobody looks at the desk any more.
                traced.desk.lose(&Refusal::from(&error), self.notices);
            }
        }
        // Known to have ended, unless recording ended first: then the command goes on without us.
        let status = traced.child.wait().map_err(RecordError::io("wait for", "the command"))?;
        let end = launch::end_of(status);
        self.result.borrow_mut().command = Some(end);
        let mut kernel = traced.desk.kernel.take();
        kernel.iter_mut().for_each(Draining::stop);
        if let Some(parts) = traced.parts.take() {
            self.say_alive();
            self.finish(parts, &mut traced.descendants, kernel);
        } else {
            self.finish_kernel(kernel, false);
        }
        traced.desk.lose(&Refusal::new("the command has ended"), self.notices);
        traced.pause.say(self.notices);
        if let Some((window, path)) = &self.window {
            let refused = refused(window).saturating_sub(self.refused_before);
            summary::say_refused(self.notices, refused, path);
        }
        Ok(end)
    }

    /// Ends the recording because this signal has asked for it, and the command does not end: it
    /// is left alone, because a tracer does not end what it traces.
    fn finish_without(&self, signal: i32, traced: &mut Traced) {
        let mut kernel = traced.desk.kernel.take();
        kernel.iter_mut().for_each(Draining::stop);
        match traced.parts.take() {
            Some(parts) => self.finish(parts, &mut traced.descendants, kernel),
            None => self.finish_kernel(kernel, false),
        }
        let why = format!("{} has ended the recording", Received::name_of(signal));
        traced.desk.lose(&Refusal::new(why.as_str()), self.notices);
        traced.pause.say(self.notices);
        self.notices.say(format_args!(
            "{why}: the command (process {}) goes on, and is not recorded",
            traced.child.id()
        ));
    }

    fn say_alive(&self) {
        let alive = descendants::holding(self.token);
        if alive > 0 {
            self.notices.say(format_args!(
                "{alive} process{} of the command still run{}; recording ends with the command",
                if alive == 1 { "" } else { "es" },
                if alive == 1 { "s" } else { "" },
            ));
        }
    }

    /// Ends the recording of the kernel's events. What is left of them is nowhere else: there is
    /// nothing to recover.
    fn finish_kernel(&self, kernel: Option<Draining>, is_alone: bool) {
        let Some(kernel) = kernel else { return };
        kernel.say_news(self.notices);
        let folder = is_alone.then_some(self.output.as_path());
        let summary = kernel.finish();
        summary.say(folder, self.notices);
        self.result.borrow_mut().note_kernel(&summary);
    }

    /// Whether there is nothing to say of programs' events: nobody asked for some, and there are
    /// none.
    fn is_kernels_alone(&self, summary: &Summary) -> bool {
        let is_asked = self.spec.channels.iter().any(|channel| channel.on.is_some())
            || self.asks_programs
            || self.options.is_from_file
            || !self.options.helpers.is_empty();
        self.spec.kernel.is_some() && !is_asked && summary.is_nothing()
    }

    /// Ends the recording when the command has ended.
    fn finish(&self, parts: Parts, descendants: &mut Watch, kernel: Option<Draining>) {
        let names = parts.own().map(Recording::event_names).unwrap_or_default();
        let again = Cell::new(false);
        let interrupted = || {
            while let Some(received) = Received::next(&self.reader) {
                again.set(again.get() | received.interrupts());
            }
            again.get()
        };
        while Received::next(&self.reader).is_some() {}
        let in_table = self.in_table();
        let is_alone = match parts.finish(self.notices, &interrupted) {
            Ok(summary) => {
                self.note(&summary);
                self.say(&summary, &names, (descendants, &in_table), again.get());
                self.is_kernels_alone(&summary)
            }
            Err(error) => {
                self.say_unfinished(&error);
                false
            }
        };
        self.finish_kernel(kernel, is_alone);
    }

    /// Keeps how the recording of programs went.
    fn note(&self, summary: &Summary) {
        self.result.borrow_mut().programs = Some(summary.clone());
    }

    /// Processes that have the library, or had it: before anybody gives up their places.
    fn in_table(&self) -> HashSet<u32> {
        self.window.as_ref().map(|(window, _)| descendants::in_table(window)).unwrap_or_default()
    }

    /// Says why the trace is not complete, and what helps.
    fn say_unfinished(&self, error: &RecordError) -> Refusal {
        let refusal = controller::unfinished(error);
        self.notices.say(format_args!("the trace is not complete: {error}"));
        if let Some(hint) = &refusal.hint {
            self.notices.hint(format_args!("{hint}"));
        }
        refusal
    }

    /// Ends the recording because somebody wants it to: a tracer does not end what it traces. What
    /// signals are for is the command's.
    fn finish_early(&self, traced: &mut Traced, has_ended: bool) -> Outcome {
        let Some(parts) = traced.parts.take() else {
            return Outcome::Failed(Refusal::new("it has ended"));
        };
        let mut kernel = traced.desk.kernel.take();
        kernel.iter_mut().for_each(Draining::stop);
        self.notices.clear_status();
        let names = parts.own().map(Recording::event_names).unwrap_or_default();
        let in_table = self.in_table();
        let outcome = match parts.finish(self.notices, &|| false) {
            Ok(summary) => {
                self.note(&summary);
                self.say(&summary, &names, (&mut traced.descendants, &in_table), false);
                let said = Notices::kept();
                if !self.is_kernels_alone(&summary) {
                    summary.say(&said, self.output, is_overwriting(self.spec));
                }
                controller::ended(&summary, &said)
            }
            Err(error) => Outcome::Failed(self.say_unfinished(&error)),
        };
        self.finish_kernel(kernel, false);
        if !has_ended {
            let name = &traced.desk.machine.spec().name;
            self.notices.say(format_args!(
                "session {name} was destroyed: the command goes on, and is not recorded"
            ));
        }
        outcome
    }

    /// Records until the command has ended, or the recording is to end without it; does what is
    /// asked for meanwhile.
    fn watch(&self, traced: &mut Traced) -> Result<Watched, RecordError> {
        let process = wait::process_fd(traced.child.id()).map_err(cannot_watch)?;
        let mut status = Progress::new();
        let mut silence = self.silence();
        self.attend(traced, false);
        loop {
            let has_ended = self.wait(traced, &process)?;
            if traced.parts.is_some() {
                traced.pause.look(self.notices);
            }
            traced.desk.attend_kernel(self.notices);
            while let Some(received) = Received::next(&self.reader) {
                if let Some(forwarded) = received.forwarded() {
                    // The command may have ended; it is waited for only later.
                    let _ = signal::send(traced.child.id(), forwarded);
                }
                traced.ending.receive(received, Instant::now());
            }
            if traced.desk.take_requests() {
                self.attend(traced, has_ended);
                // What takes long of it keeps the lease.
                traced.pause.look_away();
            }
            if has_ended {
                return Ok(Watched::Command);
            }
            match traced.ending.verdict(Instant::now()) {
                Verdict::GoOn => {}
                Verdict::Warn(signal, left) => self.notices.say(format_args!(
                    "the command still runs after {}: the recording ends without it in {} s, or \
                     at the next such signal",
                    Received::name_of(signal),
                    left.as_secs_f64().ceil()
                )),
                Verdict::End(signal) => return Ok(Watched::Signal(signal)),
            }
            let Some(recording) = traced.parts.as_ref().and_then(Parts::own) else { continue };
            let channels = &traced.desk.machine.spec().channels[..];
            silence.explain((&recording.totals(), channels), traced.child.id(), self.notices);
            if self.notices.wants_status() {
                status.show(self.notices, recording);
            }
        }
    }

    fn silence(&self) -> Silence {
        let window = self.window.as_ref().map(|(window, _)| *window);
        // Who wants the kernel's events may want no others.
        Silence::new(window).only_if(self.spec.kernel.is_none())
    }

    /// One look at what is recorded, and a wait until the next. Whether the command has ended.
    fn wait(&self, traced: &mut Traced, process: &Fd) -> Result<bool, RecordError> {
        let desk = &mut traced.desk;
        let period_ns = match &mut traced.parts {
            Some(parts) => {
                parts.set_followed(desk.is_followed());
                parts.tick(self.notices)?
            }
            None => UNRECORDED_PERIOD_NS,
        };
        let period_ns = if desk.has_requests() { 0 } else { period_ns };
        let period_ns = period_ns.min(traced.ending.due_in_ns(Instant::now()));
        let own = [process.raw(), self.reader.fd().raw()].map(Awaited::readable);
        let mut awaited: Vec<Awaited> = own.into_iter().chain(desk.awaited()).collect();
        wait::any(&mut awaited, period_ns).map_err(cannot_watch)?;
        Ok(awaited[0].is_ready())
    }

    /// Does what was asked for.
    fn attend(&self, traced: &mut Traced, has_ended: bool) {
        while let Some(effect) = traced.desk.next_effect(&mut traced.parts, self.notices) {
            match effect {
                // It has begun before anybody could ask.
                Effect::Begin { .. } => traced.desk.machine.done(Outcome::Done),
                Effect::Finish => {
                    let outcome = self.finish_early(traced, has_ended);
                    traced.desk.machine.done(outcome);
                }
                Effect::Exit => traced.desk.close(),
                // Nobody waits to be told that it has begun.
                _ => {}
            }
        }
    }

    fn say(
        &self,
        summary: &Summary,
        names: &[String],
        (descendants, in_table): (&mut Watch, &HashSet<u32>),
        interrupted: bool,
    ) {
        let notices = self.notices;
        if !self.is_kernels_alone(summary) {
            summary.say(notices, self.output, is_overwriting(self.spec));
        }
        descendants.finish().say(in_table, notices);
        if interrupted {
            notices.say(format_args!("interrupted: not everything was written"));
            notices.hint(format_args!("trackway recover completes it"));
        }
        if self.rules != "*" && !self.warned {
            let names = names.iter().cloned().collect();
            for reason in unmatched_patterns(patterns_of(self.rules), &names) {
                reason.report(notices);
            }
        }
        // Who wants the kernel's events may want no others.
        let is_meant = self.spec.kernel.is_none();
        // (A writer may be killed in its first event.)
        let is_empty = summary.recorded == 0 && summary.lost == 0 && summary.holes == 0 && is_meant;
        if is_empty && self.asks_programs {
            Reason::NothingPassedFilters(Vec::new()).report(notices);
        } else if is_empty {
            Reason::CommandWithoutEvents.report(notices);
        } else if summary.lost > 0 {
            let known = self.window.as_ref().map(|(window, _)| known(window, "*"));
            let filters = self.spec.channels.iter().flat_map(|channel| &channel.filters);
            let lost = &summary.lost_by_event;
            let senseless = check::senseless(filters, &known.unwrap_or_default(), lost);
            let (count, hint) = senseless.unzip();
            hint.iter().for_each(|hint| notices.hint(format_args!("{hint}")));
            if summary.lost > count.unwrap_or(0) {
                let source = match self.options.is_from_file {
                    false => SizeSource::Option,
                    true => SizeSource::Config,
                };
                summary.hint_what_keeps(source, notices);
            }
        }
    }
}

fn cannot_watch(errno: trackway_sys::Errno) -> RecordError {
    RecordError::Io("watch", "the command".into(), io_error(errno).into())
}
