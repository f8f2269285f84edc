//! `trackway record -- CMD`, from start to end.
//!
//! Accepts the requests of a background session ([`Desk`]) if its control socket can be opened;
//! without requests nothing changes.
//!
//! Longer than 600 lines: the order of the steps, from the command's start to the summary, is the
//! argument, and a reader follows it in one file.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use trackway_session::machine::{Effect, Outcome};
use trackway_session::protocol::Refusal;
use trackway_session::{SessionSpec, Tracefiles};
use trackway_sys::file::Fd;
use trackway_sys::signal::{self, SignalReader, SignalSet};
use trackway_sys::wait::{self, Awaited};
use trackway_window::Window;

use crate::command::descendants::{self, Watch};
use crate::command::launch::{self, AsBefore, CommandEnd, Found, Received};
use crate::control::server::Server;
use crate::control::{Identity, RunFolder};
use crate::diagnosis::{Reason, unmatched_patterns};
use crate::error::{RecordError, io_error};
use crate::filters::check;
use crate::filters::publish::known;
use crate::kernel::backend::{Draining, Kernel};
use crate::notices::Notices;
use crate::recording::Recording;
use crate::recovery::in_passing;
use crate::session::command_checks::{
    check_filters, patterns_of, warn_of_rules, warn_of_the_static,
};
use crate::session::controller::{self, Desk};
use crate::session::end_signals::{Ending, Verdict};
use crate::session::record_options::RecordOptions;
use crate::session::run_as::Account;
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
use crate::window::settings::{ChannelSettings, SessionSettings};

/// How often it is looked what happens once nothing is recorded any more, in ns.
const UNRECORDED_PERIOD_NS: u64 = 500_000_000;

/// The rules of all channels.
fn rules_of(channels: &[(ChannelSettings, u32)]) -> String {
    let rules: Vec<&str> = channels.iter().map(|(channel, _)| channel.rules.as_str()).collect();
    if rules.contains(&"*") { "*".into() } else { rules.join("\n") }
}

/// Records a command from its start to its end. Errors of the recording itself, once the command
/// runs, are said and do not change how the command ends.
pub fn record(options: &RecordOptions, notices: &Notices) -> Result<CommandEnd, RecordError> {
    let strays = options.strays()?;
    let (mut kernel, account) = options.begin_as_root(notices)?;
    let ignores_size_limit = signal::ignore_size_limit();
    let summary_file = options.summary_file()?;
    let of_kernel = options.kernel_spec(kernel.as_ref());
    let (specs, making) = (options.specs_beside(kernel.as_ref())?, options.making());
    let settings = specs.iter().map(|spec| making.settings(spec, true));
    let channels: Vec<_> = settings.collect::<Result<_, RecordError>>()?;
    let mut channels: Vec<_> = channels.into_iter().zip(0..).collect();
    let rules = rules_of(&channels);
    let asks_programs = specs.iter().flat_map(|spec| &spec.filters).any(|filter| {
        !kernel.as_ref().is_some_and(|kernel: &Kernel| kernel.filters().has_any(filter))
    });
    let mut found = Found::look_up(&options.command)?;
    found.environment = account.map(Account::environment).unwrap_or_default();
    let programs = match options.is_kernels_alone() {
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

    let (output, mut room) = match &options.output {
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
        tracefiles: options.tracefiles,
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
    let spec = SessionSpec {
        name,
        output: Some(folder.clone()),
        kernel: of_kernel,
        channels: specs,
        ..SessionSpec::default()
    };
    let mut desk = Desk::new(spec, server, session, (folder.clone(), place), making);
    desk.is_foreground = true;
    desk.kernel = kernel;
    let live = Live {
        notices,
        reader,
        output: &output,
        options,
        rules: &rules,
        warned,
        asks_programs,
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

/// Events that found no place in the window, since it was made.
fn refused(window: &Window) -> u32 {
    window.header().events_refused.load(Ordering::Relaxed)
}

/// A recording whose command runs.
struct Live<'a> {
    notices: &'a Notices,
    reader: SignalReader,
    output: &'a PathBuf,
    options: &'a RecordOptions,
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
        let is_asked = !self.options.patterns.is_empty()
            || self.asks_programs
            || !self.options.channels.is_empty()
            || !self.options.helpers.is_empty();
        self.options.kernel.is_some() && !is_asked && summary.is_nothing()
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
                    summary.say(&said, self.output, self.options.is_overwriting());
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
        Silence::new(window).only_if(self.options.kernel.is_none())
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
            summary.say(notices, self.output, self.options.is_overwriting());
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
        let is_meant = self.options.kernel.is_none();
        // (A writer may be killed in its first event.)
        let is_empty = summary.recorded == 0 && summary.lost == 0 && summary.holes == 0 && is_meant;
        if is_empty && self.asks_programs {
            Reason::NothingPassedFilters(Vec::new()).report(notices);
        } else if is_empty {
            Reason::CommandWithoutEvents.report(notices);
        } else if summary.lost > 0 {
            let known = self.window.as_ref().map(|(window, _)| known(window, "*"));
            let of_channels = self.options.channels.iter().flat_map(|channel| &channel.filters);
            let filters = self.options.filters.iter().chain(of_channels);
            let lost = &summary.lost_by_event;
            let senseless = check::senseless(filters, &known.unwrap_or_default(), lost);
            let (count, hint) = senseless.unzip();
            hint.iter().for_each(|hint| notices.hint(format_args!("{hint}")));
            if summary.lost > count.unwrap_or(0) {
                let source = match self.options.channels[..] {
                    [] => SizeSource::Option,
                    _ => SizeSource::Config,
                };
                summary.hint_what_keeps(source, notices);
            }
        }
    }
}

fn cannot_watch(errno: trackway_sys::Errno) -> RecordError {
    RecordError::Io("watch", "the command".into(), io_error(errno).into())
}
