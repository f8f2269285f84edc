//! `trackway record -- CMD`, from start to end.

use std::cell::Cell;
use std::ffi::{CString, OsString};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use trackway_schema::Rules;
use trackway_session::BufferOptions;
use trackway_sys::signal::{SignalReader, SignalSet};
use trackway_sys::{signal, wait};

use crate::command::{self, Found};
use crate::descendants::{self, Descendants};
use crate::error::io_error;
use crate::report::{Grouped, Notices};
use crate::trace;
use crate::{Home, RecordError, Recording, SessionSettings, Summary, elf, recover};

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
    become_invoking_user()?;
    let ignores_size_limit = signal::ignore_size_limit();
    let rules = trackway_session::rules_text(&options.patterns)?;
    let plan = options.buffers.plan()?;
    let found = Found::look_up(&options.command)?;
    let libraries = command::libraries(&options.helpers)?;
    let home = Home::open_or_make(notices)?;
    let window = *home.window();
    signal::guard_mapping(window.base(), window.mapped_bytes())
        .map_err(|errno| RecordError::Io("watch", home.path.clone(), io_error(errno)))?;
    recover_the_dead(notices);
    warn_of_the_static(&found, notices);
    let warned = warn_of_rules(&rules, &found, &libraries, &home, notices);

    let output = options.output.clone().unwrap_or_else(trace::default_root);
    let (path, moved) = trace::prepare(&output)?;
    if let Some(moved) = moved {
        notices.say(format_args!("the earlier trace is now {}", moved.display()));
    }
    let token = u64::from_le_bytes(trace::random()?).max(1);
    let settings = SessionSettings {
        buffers: plan,
        overwrite: options.buffers.overwrite,
        contexts: options.contexts,
        rules: rules.clone(),
        token: Some(token),
        uuid: trace::random_uuid()?,
        path: path.clone(),
    };
    let signals = SignalSet::of(&[libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP]);
    let before = signals.block();
    let started = SignalReader::new(&signals)
        .map_err(|errno| RecordError::Io("read", "signals".into(), io_error(errno)))
        .and_then(|reader| Ok((reader, Recording::build(home, &settings)?)))
        .and_then(|(reader, mut recording)| {
            recording.activate();
            match found.start(token, &libraries, before, ignores_size_limit) {
                Ok(child) => Ok((reader, recording, child)),
                Err(error) => {
                    recording.finish(&|| false)?;
                    Err(error)
                }
            }
        });
    let (reader, recording, child) = match started {
        Ok(started) => started,
        Err(error) => {
            before.make_current();
            // Whoever asked for a folder keeps an empty one; ours goes.
            let ours = if options.output.is_none() { path } else { path.join("ust") };
            let _ = std::fs::remove_dir_all(ours);
            return Err(error);
        }
    };
    let live = Live { notices, reader, output: &output, options, rules: &rules, warned, token };
    let end = live.run(recording, child);
    before.make_current();
    end
}

/// Under sudo(8) nothing here needs root: the command runs as, and the trace belongs to, the user
/// who called it, and so the recorder serves that user's window.
fn become_invoking_user() -> Result<(), RecordError> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (Some(uid), Some(gid)) = (number("SUDO_UID"), number("SUDO_GID")) else { return Ok(()) };
    if uid == 0 || crate::home::user() != 0 {
        return Ok(());
    }
    let name = CString::new(std::env::var("SUDO_USER").unwrap_or_default()).unwrap_or_default();
    trackway_sys::process::become_user(uid, gid, &name).map_err(RecordError::User)
}

fn recover_the_dead(notices: &Notices) {
    match recover(notices, None) {
        Ok(recovered) => {
            for one in recovered {
                match one.result {
                    Ok(_) => notices.say(format_args!(
                        "recovered {}, whose recorder was killed",
                        one.folder.display()
                    )),
                    Err(error) => notices
                        .say(format_args!("cannot recover {}: {error}", one.folder.display())),
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

/// Warns of patterns that nothing in reach matches; whether there were some.
fn warn_of_rules(
    rules: &str,
    found: &Found,
    libraries: &[PathBuf],
    home: &Home,
    notices: &Notices,
) -> bool {
    // Events of the library itself: trackway_printf and trackway_log.
    const BUILT_IN: [&str; 2] = ["lttng_ust_tracef", "lttng_ust_tracelog"];
    if rules == "*" {
        return false;
    }
    let mut files = libraries.to_vec();
    files.push(found.file.clone());
    files.extend(elf::interpreter(&found.file));
    let mut names = elf::points_in_reach(&files);
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

/// Patterns that include, and match none of these names.
fn unmatched<'rules, 'names>(
    rules: &'rules str,
    names: impl Iterator<Item = &'names str> + Clone,
) -> Vec<&'rules str> {
    rules
        .lines()
        .filter(|line| !line.starts_with('!'))
        .filter(|line| {
            !names.clone().any(|name| {
                let (provider, event) = name.split_once(':').unwrap_or((name, ""));
                Rules::new(line.as_bytes()).selects(provider.as_bytes(), event.as_bytes())
            })
        })
        .collect()
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
}

impl Live<'_> {
    fn run(&self, mut recording: Recording, mut child: Child) -> Result<CommandEnd, RecordError> {
        let pid = child.id();
        let mut descendants = Descendants::of(pid);
        let watched = self.watch(&mut recording, &mut child, &mut descendants);
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
            again.set(again.get() | self.reader.next().is_some());
            again.get()
        };
        while self.reader.next().is_some() {}
        match recording.finish(&interrupted) {
            Ok(summary) => self.say(&summary, &names, &descendants, again.get()),
            Err(error) => self.notices.say(format_args!("the trace is not complete: {error}")),
        }
        Ok(command::end_of(status))
    }

    /// Records until the command has ended.
    fn watch(
        &self,
        recording: &mut Recording,
        child: &mut Child,
        descendants: &mut Descendants,
    ) -> Result<(), RecordError> {
        let process = wait::process_fd(child.id())
            .map_err(|errno| RecordError::Io("watch", "the command".into(), io_error(errno)))?;
        let mut status = Status::new();
        loop {
            let period_ns = recording.tick(self.notices)?;
            let ready = wait::readable([Some(&process), Some(self.reader.fd())], period_ns)
                .map_err(|errno| RecordError::Io("watch", "the command".into(), io_error(errno)))?;
            while let Some(received) = self.reader.next() {
                if matches!(received, libc::SIGTERM | libc::SIGHUP) {
                    // The terminal's own signals have reached the command already.
                    let _ = signal::send(child.id(), received);
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
            "{} events, {}/s, {} lost, {}, {} processes",
            Grouped(totals.events),
            Grouped(rate as u64),
            Grouped(totals.lost),
            trackway_session::ByteCount(totals.bytes),
            totals.processes
        ));
        self.shown = Instant::now();
        self.events = totals.events;
    }
}
