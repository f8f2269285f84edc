//! Where a session is asked: takes what clients want to the machine that decides, does in the
//! session's parts what that comes to, and answers.
//!
//! The same for a recorder in the background ([`serve`]) and for one that follows a command
//! ([`record`]); how a session begins and ends is theirs, and [`Desk::next_effect`] leaves it to
//! them.
//!
//! [`serve`]: mod@crate::session::background
//! [`record`]: mod@crate::session::foreground

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use trackway_session::machine::{CREATOR, Effect, Machine, Outcome, Output, Snapshot};
use trackway_session::protocol::{Answer, ChannelStatus, Counts, Notice, Refusal, Status};
use trackway_session::{ChannelSpec, KernelSpec, Reserve, SessionSpec};
use trackway_sys::wait::Awaited;

use crate::common::numbers::Counted;
use crate::control::server::Server;
use crate::error::RecordError;
use crate::kernel::backend::Draining;
use crate::kernel::filters::routing::user_filters;
use crate::notices::Notices;
use crate::session::windows::Parts;
use crate::summary::Summary;
use crate::trace::folder::Place;
use crate::trace::layout;
use crate::trace::prepare::{self, Room};
use crate::window::processes;
use crate::window::settings::{ChannelSettings, SessionSettings};

/// What the recorder says of a channel that it makes; all else is said by whoever wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Making {
    /// See [`ChannelSettings::thrifty`].
    pub(crate) thrifty: bool,
    /// See [`ChannelSettings::reserve`].
    pub(crate) reserve: Reserve,
}

impl Making {
    /// A channel as this recorder makes it, beside these kernel events; writers are let in if it
    /// is to `record`.
    ///
    /// # Errors
    ///
    /// If there can be none such, or a process that it names is not there.
    pub(crate) fn settings(
        self,
        spec: &ChannelSpec,
        kernel: Option<&KernelSpec>,
        record: bool,
    ) -> Result<ChannelSettings, RecordError> {
        let Self { thrifty, reserve } = self;
        let settings = ChannelSettings::of(spec, record)?;
        let buffers = settings.buffers.reserved_by(reserve);
        let filters = user_filters(&spec.filters, kernel);
        Ok(ChannelSettings { buffers, thrifty, reserve, filters, ..settings })
    }
}

/// A session's desk.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) machine: Machine,
    /// None: nobody can ask, or not any more.
    server: Option<Server>,
    /// What the session is in its user's window.
    pub(crate) session: SessionSettings,
    /// The folder of its trace, absolute, as the user named it.
    pub(crate) folder: PathBuf,
    /// The same, wherever it is moved.
    place: Arc<Place>,
    making: Making,
    began: Instant,
    /// See [`Status::is_foreground`].
    pub(crate) is_foreground: bool,
    /// The kernel's events, while they are recorded.
    pub(crate) kernel: Option<Draining>,
}

impl Desk {
    /// Of a session in the background that begins now, as `spec` says.
    pub(crate) fn new(
        spec: SessionSpec,
        server: Option<Server>,
        session: SessionSettings,
        (folder, place): (PathBuf, Arc<Place>),
        making: Making,
    ) -> Self {
        let (machine, began) = (Machine::new(spec), Instant::now());
        let (is_foreground, kernel) = (false, None);
        Self { machine, server, session, folder, place, making, began, is_foreground, kernel }
    }

    /// Where the trace is now: what is at the path that the user named may be another one.
    pub(crate) fn folder_now(&self) -> Result<PathBuf, RecordError> {
        self.place.name(&self.folder).map_err(RecordError::io("use", &self.folder))
    }

    /// What to wait for.
    pub(crate) fn awaited(&self) -> Vec<Awaited> {
        self.server.as_ref().map(Server::awaited).unwrap_or_default()
    }

    /// Whether [`Self::take_requests`] has some without waiting for more to come.
    pub(crate) fn has_requests(&mut self) -> bool {
        self.server.as_mut().is_some_and(Server::has_requests)
    }

    /// Whether somebody wants events at once.
    pub(crate) fn is_followed(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_followed)
    }

    /// Says what happened to the kernel's events, and has them written at once while somebody
    /// follows.
    pub(crate) fn attend_kernel(&self, notices: &Notices) {
        let Some(kernel) = &self.kernel else { return };
        kernel.set_followed(self.is_followed());
        kernel.say_news(notices);
    }

    /// Takes what has come to the machine. Whether something has.
    pub(crate) fn take_requests(&mut self) -> bool {
        let requests = self.server.as_mut().map(Server::turn).unwrap_or_default();
        let is_asked = !requests.is_empty();
        requests.into_iter().for_each(|(client, request)| self.machine.submit(client, request));
        is_asked
    }

    /// Does what the machine says, until nobody has asked for more, or it says what is not done
    /// here: how the session begins and ends, and what its creator is told of that.
    /// [`Self::done`] is to be told what came of it.
    pub(crate) fn next_effect(
        &mut self,
        parts: &mut Option<Parts>,
        notices: &Notices,
    ) -> Option<Effect> {
        while let Some(effect) = self.machine.next_effect() {
            match effect {
                Effect::Begin { .. }
                | Effect::Finish
                | Effect::Answer(CREATOR, _)
                | Effect::Exit => return Some(effect),
                Effect::Answer(client, answer) => self.answer(client, &answer),
                Effect::ReportStatus(client) => {
                    let status = self.status(parts.as_mut(), notices);
                    self.answer(client, &Answer::Status(Box::new(status)));
                }
                Effect::Follow(client) => {
                    if let Some(server) = &mut self.server {
                        server.follow(client);
                    }
                    let folders = vec![self.session.path.clone()];
                    self.answer(client, &Answer::Following { folders });
                }
                effect => {
                    // Whoever asks for what cannot be is told so, and nobody else: nothing has
                    // happened to the session.
                    let is_change = matches!(
                        effect,
                        Effect::Add { .. }
                            | Effect::SetRules { .. }
                            | Effect::SetFilters { .. }
                            | Effect::SetProcesses { .. }
                            | Effect::SetKernel(_)
                    );
                    let outcome = self.attempt(effect, parts.as_mut(), notices);
                    match outcome {
                        Err(error) if is_change => {
                            self.machine.complete(Outcome::Failed(Refusal::from(&error)));
                        }
                        outcome => self.done(outcome, notices),
                    }
                }
            }
        }
        None
    }

    /// Tells the machine what came of an effect; what has failed is said, too.
    pub(crate) fn done(&mut self, outcome: Result<Outcome, RecordError>, notices: &Notices) {
        self.machine.complete(outcome.unwrap_or_else(|error| {
            let refusal = Refusal::from(&error);
            notices.say(format_args!("{}", refusal.why));
            Outcome::Failed(refusal)
        }));
    }

    /// Answers whoever has asked and was not heard, and lets clients read what waits for them, at
    /// the end.
    pub(crate) fn flush(&mut self) {
        if let Some(server) = &mut self.server {
            let why = format!("session '{}' has ended", self.machine.spec().name);
            server.refuse_the_rest(&Refusal::new(why));
            server.flush();
        }
    }

    /// Ends: the name is free from now on.
    pub(crate) fn close(&mut self) {
        self.flush();
        self.server = None;
    }

    fn answer(&mut self, client: u64, answer: &Answer) {
        if let Some(server) = &mut self.server {
            server.answer(client, answer);
        }
    }

    fn attempt(
        &mut self,
        effect: Effect,
        parts: Option<&mut Parts>,
        notices: &Notices,
    ) -> Result<Outcome, RecordError> {
        let parts = parts.ok_or(RecordError::Lost("it has ended"))?;
        let kernel = self.machine.spec().kernel.as_ref();
        match effect {
            Effect::Add { channel, record } => {
                let settings = self.making.settings(&channel.spec, kernel, record)?;
                parts.add_channel(&settings, channel.class, notices)?;
            }
            Effect::Replace { old, channel, record } => {
                let settings = self.making.settings(&channel.spec, kernel, record)?;
                parts.replace_channel(old, &settings, channel.class, notices)?;
            }
            Effect::End { class } => parts.end_channel(class, notices)?,
            Effect::SetRules { class, rules } => parts.set_rules(class, &rules, notices)?,
            Effect::SetFilters { class, filters } => {
                parts.set_filters(class, &user_filters(&filters, kernel), notices)?;
            }
            Effect::SetProcesses { class, spec } => {
                parts.set_processes(class, &processes::rules_text(&spec)?, notices)?;
            }
            Effect::SetBlocking { class, time } => {
                parts.set_blocking(class, ns_of(time), notices)?;
            }
            Effect::SetKernel(spec) => self.select_kernel(&spec, parts, notices)?,
            Effect::Start => {
                self.kernel.as_mut().map_or(Ok(()), Draining::start)?;
                parts.start();
            }
            Effect::Stop => {
                self.kernel.iter_mut().for_each(Draining::stop);
                parts.stop(notices)?;
                self.kernel.as_mut().map_or(Ok(()), Draining::stop_and_write)?;
            }
            Effect::Clear => {
                // Nothing is to stay of what was before that moment.
                self.kernel.as_mut().map_or(Ok(()), Draining::clear)?;
                parts.clear(self.machine.is_recording(), notices)?;
            }
            Effect::Snapshot(snapshot) => return self.snapshot(&snapshot, parts, notices),
            Effect::Begin { .. }
            | Effect::Finish
            | Effect::Answer(..)
            | Effect::ReportStatus(_)
            | Effect::Follow(_)
            | Effect::Exit => {}
        }
        Ok(Outcome::Done)
    }

    /// Records these of the kernel's events, and no others.
    fn select_kernel(
        &mut self,
        spec: &KernelSpec,
        parts: &mut Parts,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let before = self.machine.spec().kernel.as_ref().map(|before| &before.filters);
        let filters = (before != Some(&spec.filters)).then_some(&spec.filters[..]);
        let kernel = self.kernel.as_mut();
        let kernel = kernel.ok_or(RecordError::Lost("it records no events of the kernel"))?;
        let (more, fewer) =
            kernel.select(&spec.on, filters, &mut || parts.keep_alive(), notices)?;
        notices.say(format_args!(
            "{more} more of the kernel's events are recorded, {fewer} are not any more{}",
            if filters.is_some() { "; what they are asked has changed" } else { "" }
        ));
        Ok(())
    }

    fn snapshot(
        &self,
        snapshot: &Snapshot,
        parts: &mut Parts,
        notices: &Notices,
    ) -> Result<Outcome, RecordError> {
        if let Output::Folder(folder) = &snapshot.output {
            self.check_outside_others(folder)?;
        }
        let prepare = || match &snapshot.output {
            Output::Folder(folder) => prepare::prepare(folder),
            Output::Numbered(number) => self.snapshot_room(*number),
        };
        // First from where on, then what takes long.
        let kernel = self.kernel.as_ref();
        let seen = kernel.map(|kernel| kernel.look_beside(snapshot.last_ns)).transpose()?;
        // Its folder stays open until all is there: what is at its path may be another one by then.
        let (mut facts, mut room) = parts.snapshot(prepare, snapshot, notices)?;
        if let (Some(kernel), Some(seen)) = (kernel, seen.flatten()) {
            let place = room.place();
            match kernel.write_snapshot(seen, &place, &mut || parts.keep_alive()) {
                Ok(kernel) => {
                    facts.events += kernel.events;
                    facts.bytes += kernel.bytes;
                    facts.missing.extend(kernel.missing);
                }
                Err(error) => {
                    // Half of it would keep the rest from being read. What cannot be removed stays.
                    let _ = place.remove_below(&[layout::KERNEL]);
                    if parts.is_nobodys() {
                        return Err(error);
                    }
                    facts.missing.push(format!("the kernel's events are not in it: {error}"));
                }
            }
        }
        room.settle();
        notices.say(format_args!(
            "{} in {}",
            Counted(facts.events, "event"),
            facts.folder.display()
        ));
        Ok(Outcome::Snapshot(facts))
    }

    /// Whether a new trace there would lie in no trace but our own, where snapshots do.
    fn check_outside_others(&self, folder: &Path) -> Result<(), RecordError> {
        match prepare::check_outside(folder) {
            Err(RecordError::FolderInside(inner, outer)) => {
                let own = self.folder_now()?.canonicalize().ok();
                let is_own = own.is_some_and(|own| own == outer);
                if is_own { Ok(()) } else { Err(RecordError::FolderInside(inner, outer)) }
            }
            checked => checked,
        }
    }

    /// Where a snapshot goes if nobody says where: into the session's folder. Where flight
    /// recorders are in the trace at the end, beside it: who reads the trace has each event once.
    fn snapshot_room(&self, number: u32) -> Result<Room, RecordError> {
        let (trace, name) = (self.folder_now()?, layout::snapshot_name(number));
        let (above, path) = match trace.file_name().filter(|_| self.is_foreground) {
            None => (self.place.again(), trace.join(name)),
            Some(folder) => {
                let mut beside = folder.to_owned();
                beside.push(".");
                beside.push(name);
                (self.place.above(), trace.with_file_name(beside))
            }
        };
        prepare::prepare_below(above.map_err(RecordError::io("use", trace))?, path)
    }

    /// How the session goes, whose parts these are. What was recorded before somebody asked is
    /// counted.
    pub(crate) fn status(&mut self, parts: Option<&mut Parts>, notices: &Notices) -> Status {
        let mut status = Status {
            name: self.machine.spec().name.clone(),
            pid: std::process::id(),
            is_recording: self.machine.is_recording(),
            is_foreground: self.is_foreground,
            folder: self.folder.clone(),
            users_wanted: self.machine.spec().users.clone(),
            seconds: self.began.elapsed().as_secs(),
            snapshots: self.machine.snapshots(),
            notices: notices.all(),
            ..Status::default()
        };
        let spec = self.machine.spec().kernel.clone();
        if let (Some(kernel), Some(spec)) = (&mut self.kernel, spec) {
            status.kernel = kernel.status(spec);
            status.memory_bytes += kernel.memory_bytes();
        }
        let Some(parts) = parts else { return status };
        parts.look();
        status.counts = counts_of(&parts.summary());
        status.counts.recorded = parts.recorded();
        (status.users, status.users_beyond) = (parts.users(), parts.users_beyond());
        for (spec, class) in self.machine.channels() {
            let mut channel = ChannelStatus { spec: spec.clone(), ..ChannelStatus::default() };
            parts.describe(class, &mut channel);
            status.memory_bytes += channel.memory_bytes;
            status.channels.push(channel);
        }
        status
    }
}

/// Returns how a session ended, with what was reported of it.
pub(crate) fn ended(summary: &Summary, notices: Vec<Notice>) -> Outcome {
    Outcome::Ended(Box::new(Counts { notices, ..counts_of(summary) }))
}

/// Why a session did not end whole.
pub(crate) fn unfinished(error: &RecordError) -> Refusal {
    if error.says_removed() {
        let hint = "what was recorded there is gone: there is nothing to recover";
        return Refusal::from(error).with_hint(hint);
    }
    // As far as the disk is full: what is in memory stays there.
    let hint =
        "trackway recover completes the trace with what is in memory, once it can be written";
    Refusal::from(error).with_hint(hint)
}

fn ns_of(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn counts_of(summary: &Summary) -> Counts {
    Counts {
        recorded: summary.recorded,
        lost: summary.lost,
        overwritten: summary.overwritten,
        deleted: summary.deleted,
        bytes: summary.bytes,
        processes: summary.processes,
        notices: Vec::new(),
    }
}
