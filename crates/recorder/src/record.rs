//! `trackway record -- CMD`, from start to end.

use std::cell::Cell;
use std::ffi::{CString, OsString};
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trackway_schema::Rules;
use trackway_session::{BufferOptions, Reserve};
use trackway_sys::signal::{SignalReader, SignalSet};
use trackway_sys::{signal, wait};
use trackway_window::Window;

use crate::command::{self, Found, Received};
use crate::descendants::{self, Descendants};
use crate::error::io_error;
use crate::recover::recover_in_passing;
use crate::report::{self, Grouped, Notices};
use crate::slot::LEASE_NS;
use crate::trace;
use crate::{Home, RecordError, Recording, SessionSettings, Summary, elf};

/// The lease, less the time after which it is renewed at the latest.
const STANDSTILL_MIN: Duration = Duration::from_millis(LEASE_NS / 1_000_000 - 500);

/// How often the status line is shown.
const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// What is to be recorded, and how.
#[derive(Debug, Clone, Default)]
pub struct RecordOptions {
    /// Trace folder; `None`: a new one.
    pub output: Option<PathBuf>,
    /// Event patterns, as the user wrote them.
    pub patterns: Vec<String>,
    /// Contexts: bits of `trackway_abi::record::context`.
    pub contexts: u32,
    /// Preload helpers, as names of files.
    pub helpers: Vec<&'static str>,
    /// Sizes.
    pub buffers: BufferOptions,
    /// How writers get exclusive access.
    pub reserve: Reserve,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// How the traced command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// With this status.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

/// Records a command from its start to its end. Errors of the recording itself, once the command
/// runs, are said and do not change how the command ends.
pub fn record(options: &RecordOptions, notices: &Notices) -> Result<CommandEnd, RecordError> {
    become_invoking_user(notices)?;
    let ignores_size_limit = signal::ignore_size_limit();
    let rules = trackway_session::rules_text(&options.patterns)?;
    let plan = options.buffers.plan()?.reserved_by(options.reserve);
    let found = Found::look_up(&options.command)?;
    let libraries = command::libraries(&options.helpers)?;
    let home = Home::open_or_make(notices)?;
    let window = *home.window();
    signal::guard_mapping(window.base(), window.mapped_bytes())
        .map_err(|errno| RecordError::Io("watch", home.path.clone(), io_error(errno)))?;
    recover_the_dead(notices);
    warn_of_the_static(&found, notices);
    let warned = warn_of_rules(&rules, &found, &libraries, &home, notices);

    let (output, room) = match &options.output {
        Some(output) => (output.clone(), trace::prepare(output)?),
        None => trace::prepare_new()?,
    };
    let path = room.path.clone();
    if let Some(moved) = &room.moved {
        notices.say(format_args!("the earlier trace is now {}", moved.display()));
    }
    let token = u64::from_le_bytes(trace::random()?).max(1);
    let settings = SessionSettings {
        buffers: plan,
        overwrite: options.buffers.overwrite,
        reserve: options.reserve,
        contexts: options.contexts,
        rules: rules.clone(),
        token: Some(token),
        uuid: trace::random_uuid()?,
        path: path.clone(),
    };
    let refused_before = refused(&window);
    let started = start(home, &settings, &found, &libraries, ignores_size_limit);
    let Started { reader, before, recording, child, pause } = started.inspect_err(|_| {
        // Whoever asked for a folder keeps an empty one; ours goes.
        let ours = if options.output.is_none() { path.clone() } else { path.join("ust") };
        let _ = std::fs::remove_dir_all(ours);
    })?;
    let live = Live {
        notices,
        reader,
        output: &output,
        options,
        rules: &rules,
        warned,
        token,
        refused_before,
    };
    let end = live.run(recording, child, pause);
    // What came last must not end us now.
    while Received::next(&live.reader).is_some() {}
    before.make_current();
    drop(room);
    end
}

/// What is there once the command runs.
struct Started {
    reader: SignalReader,
    /// Signals that were blocked before.
    before: SignalSet,
    recording: Recording,
    child: Child,
    pause: Pause,
}

/// Begins to record, then starts the command.
fn start(
    home: Home,
    settings: &SessionSettings,
    found: &Found,
    libraries: &[PathBuf],
    ignores_size_limit: bool,
) -> Result<Started, RecordError> {
    let signals = Received::all();
    let before = signals.block();
    let token = settings.token.unwrap_or_default();
    let started = SignalReader::new(&signals)
        .map_err(|errno| RecordError::Io("read", "signals".into(), io_error(errno)))
        .and_then(|reader| Ok((reader, Recording::build(home, settings)?)))
        .and_then(|(reader, mut recording)| {
            recording.activate();
            let pause = Pause::new();
            match found.start(token, libraries, before, ignores_size_limit) {
                Ok(child) => Ok(Started { reader, before, recording, child, pause }),
                Err(error) => {
                    recording.finish(&|| false)?;
                    Err(error)
                }
            }
        });
    if started.is_err() {
        before.make_current();
    }
    started
}

/// Under sudo(8) nothing here needs root: the command runs as, and the trace belongs to, the user
/// who called it, and so the recorder serves that user's window.
fn become_invoking_user(notices: &Notices) -> Result<(), RecordError> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (Some(uid), Some(gid)) = (number("SUDO_UID"), number("SUDO_GID")) else { return Ok(()) };
    if uid == 0 || crate::home::user() != 0 {
        return Ok(());
    }
    let name = std::env::var("SUDO_USER").unwrap_or_default();
    let c_name = CString::new(name.as_str()).unwrap_or_default();
    trackway_sys::process::become_user(uid, gid, &c_name).map_err(RecordError::User)?;
    let name = if name.is_empty() { format!("user {uid}") } else { name };
    notices.say(format_args!("recording as {name} (sudo)"));
    Ok(())
}

fn recover_the_dead(notices: &Notices) {
    match recover_in_passing(notices) {
        Ok(recovered) => {
            for one in recovered {
                match one.result {
                    Ok(_) => notices.say(format_args!(
                        "recovered {}, whose recorder was killed",
                        one.folder.display()
                    )),
                    Err(error) => {
                        notices
                            .say(format_args!("cannot recover {}: {error}", one.folder.display()));
                        if let Some(hint) = error.hint() {
                            notices.hint(format_args!("{hint}"));
                        }
                    }
                }
            }
        }
        Err(error) => notices.say(format_args!("cannot recover earlier recordings: {error}")),
    }
}

fn warn_of_the_static(found: &Found, notices: &Notices) {
    if elf::read(&found.file).is_some_and(|module| module.is_static) {
        notices
            .say(format_args!("{} is a static program: it cannot be traced", found.file.display()));
    }
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
    let elf::Reach { points: mut names, registers } = elf::reach(std::slice::from_ref(&found.file));
    if !registers {
        return false;
    }
    names.extend(elf::reach(libraries).points);
    let events = (0..trackway_abi::window::EVENTS_MAX).filter_map(|event| {
        let bytes = home.window().description(event)?;
        trackway_schema::EventDescription::decode(bytes.as_slice()).ok()
    });
    names.extend(events.map(|event| event.full_name()));
    let unmatched = unmatched(rules, names.iter().map(String::as_str));
    let unmatched: Vec<_> = unmatched
        .into_iter()
        .filter(|pattern| !BUILT_IN.iter().any(|name| pattern.contains(name)))
        .collect();
    for pattern in &unmatched {
        notices.say(format_args!(
            "'{pattern}' matches no event in {} or its libraries",
            found.file.display()
        ));
    }
    !unmatched.is_empty()
}

/// Patterns that include, and match none of these names. `*` is nothing that a user would miss.
fn unmatched<'rules, 'names>(
    rules: &'rules str,
    names: impl Iterator<Item = &'names str> + Clone,
) -> Vec<&'rules str> {
    rules
        .lines()
        .filter(|line| !line.starts_with('!') && *line != "*")
        .filter(|line| {
            !names.clone().any(|name| {
                let (provider, event) = name.split_once(':').unwrap_or((name, ""));
                Rules::new(line.as_bytes()).selects(provider.as_bytes(), event.as_bytes())
            })
        })
        .collect()
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
    token: u64,
    /// Of the window, before the command could register its events.
    refused_before: u32,
}

impl Live<'_> {
    fn run(
        &self,
        mut recording: Recording,
        mut child: Child,
        mut pause: Pause,
    ) -> Result<CommandEnd, RecordError> {
        let pid = child.id();
        let mut descendants = Descendants::of(pid);
        let window = *recording.home.window();
        let window_path = recording.home.path.clone();
        let watched = self.watch(&mut recording, &mut child, &mut descendants, &mut pause);
        self.notices.clear_status();
        if let Err(error) = watched {
            self.notices.say(format_args!("{error}"));
        }
        // Known to have ended, unless recording ended first: then the command goes on without us.
        let status = child.wait().map_err(RecordError::io("wait for", "the command"))?;
        let alive = descendants::holding(self.token);
        if alive > 0 {
            self.notices.say(format_args!(
                "{alive} process{} of the command still run{}; recording ends with the command",
                if alive == 1 { "" } else { "es" },
                if alive == 1 { "s" } else { "" },
            ));
        }
        let names = recording.event_names();
        let again = Cell::new(false);
        let interrupted = || {
            while let Some(received) = Received::next(&self.reader) {
                again.set(again.get() | received.asks_to_end());
            }
            again.get()
        };
        while Received::next(&self.reader).is_some() {}
        match recording.finish(&interrupted) {
            Ok(summary) => self.say(&summary, &names, &descendants, again.get()),
            Err(error) => self.notices.say(format_args!("the trace is not complete: {error}")),
        }
        pause.say(self.notices);
        let refused = refused(&window).saturating_sub(self.refused_before);
        report::say_refused(self.notices, refused, &window_path);
        Ok(command::end_of(status))
    }

    /// Records until the command has ended.
    fn watch(
        &self,
        recording: &mut Recording,
        child: &mut Child,
        descendants: &mut Descendants,
        pause: &mut Pause,
    ) -> Result<(), RecordError> {
        let process = wait::process_fd(child.id())
            .map_err(|errno| RecordError::Io("watch", "the command".into(), io_error(errno)))?;
        let mut status = Status::new();
        loop {
            let period_ns = recording.tick(self.notices)?;
            let ready = wait::readable([Some(&process), Some(self.reader.fd())], period_ns)
                .map_err(|errno| RecordError::Io("watch", "the command".into(), io_error(errno)))?;
            pause.look(self.notices);
            while let Some(received) = Received::next(&self.reader) {
                if let Some(forwarded) = received.forwarded() {
                    // The command may have ended; it is waited for only later.
                    let _ = signal::send(child.id(), forwarded);
                }
            }
            if ready[0] {
                return Ok(());
            }
            descendants.sample();
            if self.notices.wants_status() {
                status.show(self.notices, recording);
            }
        }
    }

    fn say(
        &self,
        summary: &Summary,
        names: &[String],
        descendants: &Descendants,
        interrupted: bool,
    ) {
        let notices = self.notices;
        summary.say(notices, self.output, self.options.buffers.overwrite);
        descendants.say(notices);
        if interrupted {
            notices.say(format_args!("interrupted: not everything was written"));
            notices.hint(format_args!("trackway recover completes it"));
        }
        if self.rules != "*" && !self.warned {
            for pattern in unmatched(self.rules, names.iter().map(String::as_str)) {
                notices.say(format_args!("'{pattern}' matched no event"));
            }
        }
        if summary.recorded == 0 && summary.lost == 0 {
            notices.hint(format_args!(
                "nothing was recorded: does the program have events? trackway list shows those \
                 of running programs; --preload libc,pthread traces any program"
            ));
        } else if summary.lost > 0 {
            notices.hint(format_args!(
                "use a larger --buffer-size, or fewer events with --on, to lose none"
            ));
        }
    }
}

/// Notices when this process stood still (SIGSTOP, a stuck disk) so long that the lease may have
/// run out: writers take the recorder for dead then, and what they do is nobody's and uncounted.
struct Pause {
    looked: Instant,
    longest: Duration,
}

impl Pause {
    fn new() -> Self {
        Self { looked: Instant::now(), longest: Duration::ZERO }
    }

    /// One look, in each round of the loop that also renews the lease.
    fn look(&mut self, notices: &Notices) {
        let stood = self.looked.elapsed();
        self.looked = Instant::now();
        if stood >= STANDSTILL_MIN {
            self.longest = self.longest.max(stood);
            Self::say_one(notices, stood);
        }
    }

    /// Says the longest again, at the end.
    fn say(&self, notices: &Notices) {
        if self.longest > Duration::ZERO {
            Self::say_one(notices, self.longest);
        }
    }

    fn say_one(notices: &Notices, stood: Duration) {
        notices.say(format_args!(
            "the recorder was stopped for {} s: events of that time may be missing, uncounted",
            stood.as_secs()
        ));
    }
}

/// The line that shows how it goes.
struct Status {
    shown: Instant,
    events: u64,
}

impl Status {
    fn new() -> Self {
        Self { shown: Instant::now(), events: 0 }
    }

    fn show(&mut self, notices: &Notices, recording: &Recording) {
        let elapsed = self.shown.elapsed();
        if elapsed < STATUS_PERIOD {
            return;
        }
        let totals = recording.totals();
        let rate =
            totals.events.saturating_sub(self.events) as u128 * 1000 / elapsed.as_millis().max(1);
        notices.status(format_args!(
            "{} events, {}/s, {} lost, {}, {} process{}",
            Grouped(totals.events),
            Grouped(rate as u64),
            Grouped(totals.lost),
            trackway_session::ByteCount(totals.bytes),
            totals.processes,
            if totals.processes == 1 { "" } else { "es" },
        ));
        self.shown = Instant::now();
        self.events = totals.events;
    }
}
