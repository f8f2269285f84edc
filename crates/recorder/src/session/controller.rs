//! Controller of a session: passes requests of clients to the state machine, applies the machine's
//! effects to the session's windows, and answers the clients.
//!
//! Background recorders ([`serve`]) and recorders of a command ([`record`]) share it. Each begins
//! and ends its session itself: [`SessionController::next_effect`] leaves that to the caller.
//!
//! [`serve`]: mod@crate::session::background
//! [`record`]: mod@crate::session::foreground

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use trackway_session::machine::{CREATOR, Effect, Machine, Outcome, Output, Snapshot};
use trackway_session::protocol::{Answer, ChannelStatus, Counts, Notice, Refusal, Status};
use trackway_session::{ChannelSpec, KernelSpec, Reserve, SessionSpec};
use trackway_sys::wait::PollEntry;

use crate::common::numbers::Counted;
use crate::control::server::Server;
use crate::error::RecordError;
use crate::kernel::backend::KernelRecording;
use crate::kernel::filters::routing::user_filters;
use crate::notices::Notices;
use crate::session::windows::SessionWindows;
use crate::summary::Summary;
use crate::trace::folder::TraceFolder;
use crate::trace::layout;
use crate::trace::prepare::{self, PreparedFolder};
use crate::window::processes;
use crate::window::settings::{ChannelSettings, SessionSettings};

/// Recorder's defaults for new channels; other settings come from the specification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelDefaults {
    /// Value of [`ChannelSettings::starts_small`].
    pub(crate) starts_small: bool,
    /// Value of [`ChannelSettings::reserve`].
    pub(crate) reserve: Reserve,
}

impl ChannelDefaults {
    /// Returns the settings of a channel, in a session with the kernel events `kernel`; admits
    /// writers if the channel must `record`.
    ///
    /// # Errors
    ///
    /// If the specification is invalid, or names a process that does not exist.
    pub(crate) fn channel_settings(
        self,
        spec: &ChannelSpec,
        kernel: Option<&KernelSpec>,
        record: bool,
    ) -> Result<ChannelSettings, RecordError> {
        let Self { starts_small, reserve } = self;
        let settings = ChannelSettings::of(spec, record)?;
        let buffers = settings.buffers.reserved_by(reserve);
        let filters = user_filters(&spec.filters, kernel);
        Ok(ChannelSettings { buffers, starts_small, reserve, filters, ..settings })
    }
}

/// Controller of a session, with its control socket and its state machine.
#[derive(Debug)]
pub(crate) struct SessionController {
    pub(crate) machine: Machine,
    /// Control socket; `None` if it could not be opened or is closed.
    server: Option<Server>,
    /// Settings of the session in its user's window.
    pub(crate) session: SessionSettings,
    /// Absolute path of the trace's folder, as the user named it.
    pub(crate) folder: PathBuf,
    /// Descriptor of the trace's folder, which stays valid if the folder is moved.
    trace_folder: Arc<TraceFolder>,
    defaults: ChannelDefaults,
    began: Instant,
    /// Value of [`Status::is_foreground`].
    pub(crate) is_foreground: bool,
    /// Recording of kernel events, while there is one.
    pub(crate) kernel: Option<KernelRecording>,
}

impl SessionController {
    /// Creates the controller of a background session with this specification.
    pub(crate) fn new(
        spec: SessionSpec,
        server: Option<Server>,
        session: SessionSettings,
        (folder, trace_folder): (PathBuf, Arc<TraceFolder>),
        defaults: ChannelDefaults,
    ) -> Self {
        let (machine, began) = (Machine::new(spec), Instant::now());
        let (is_foreground, kernel) = (false, None);
        Self {
            machine,
            server,
            session,
            folder,
            trace_folder,
            defaults,
            began,
            is_foreground,
            kernel,
        }
    }

    /// Returns the trace's current path: [`Self::folder`] may lead to another trace.
    pub(crate) fn folder_now(&self) -> Result<PathBuf, RecordError> {
        self.trace_folder.current_name(&self.folder).map_err(RecordError::io("use", &self.folder))
    }

    /// Returns the file descriptors of the control socket to wait for.
    pub(crate) fn awaited(&self) -> Vec<PollEntry> {
        self.server.as_ref().map(Server::awaited).unwrap_or_default()
    }

    /// Returns true if [`Self::take_requests`] has requests to handle without waiting.
    pub(crate) fn has_requests(&mut self) -> bool {
        self.server.as_mut().is_some_and(Server::has_requests)
    }

    /// Returns true if a client follows the trace, and so needs events without delay.
    pub(crate) fn is_followed(&self) -> bool {
        self.server.as_ref().is_some_and(Server::is_followed)
    }

    /// Reports changes in the recording of kernel events. Enables undelayed writing of kernel
    /// events while a client follows the trace.
    pub(crate) fn poll_kernel(&self, notices: &Notices) {
        let Some(kernel) = &self.kernel else { return };
        kernel.set_followed(self.is_followed());
        kernel.report_changes(notices);
    }

    /// Passes received requests to the machine. Returns true if there were any.
    pub(crate) fn take_requests(&mut self) -> bool {
        let requests = self.server.as_mut().map(Server::turn).unwrap_or_default();
        let is_asked = !requests.is_empty();
        requests.into_iter().for_each(|(client, request)| self.machine.submit(client, request));
        is_asked
    }

    /// Applies the machine's effects until none is left or the caller must handle one: the
    /// session's beginning or end, or a reply to its creator. The caller reports the outcome of
    /// that effect to [`Self::complete`].
    pub(crate) fn next_effect(
        &mut self,
        windows: &mut Option<SessionWindows>,
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
                    let status = self.status(windows.as_mut(), notices);
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
                    // An impossible request is refused to its client, without a notice: the session
                    // is unchanged.
                    let is_change = matches!(
                        effect,
                        Effect::Add { .. }
                            | Effect::SetRules { .. }
                            | Effect::SetFilters { .. }
                            | Effect::SetProcesses { .. }
                            | Effect::SetKernel(_)
                    );
                    let outcome = self.apply_effect(effect, windows.as_mut(), notices);
                    match outcome {
                        Err(error) if is_change => {
                            self.machine.complete(Outcome::Failed(Refusal::from(&error)));
                        }
                        outcome => self.complete(outcome, notices),
                    }
                }
            }
        }
        None
    }

    /// Passes the outcome of an effect to the machine; reports an error as a notice.
    pub(crate) fn complete(&mut self, outcome: Result<Outcome, RecordError>, notices: &Notices) {
        self.machine.complete(outcome.unwrap_or_else(|error| {
            let refusal = Refusal::from(&error);
            notices.report(format_args!("{}", refusal.why));
            Outcome::Failed(refusal)
        }));
    }

    /// At the end, refuses pending requests, and gives clients time to read their answers.
    pub(crate) fn flush(&mut self) {
        if let Some(server) = &mut self.server {
            let why = format!("session '{}' has ended", self.machine.spec().name);
            server.refuse_pending(&Refusal::new(why));
            server.flush();
        }
    }

    /// Closes the control socket, so that the session's name is free.
    pub(crate) fn close(&mut self) {
        self.flush();
        self.server = None;
    }

    fn answer(&mut self, client: u64, answer: &Answer) {
        if let Some(server) = &mut self.server {
            server.answer(client, answer);
        }
    }

    fn apply_effect(
        &mut self,
        effect: Effect,
        windows: Option<&mut SessionWindows>,
        notices: &Notices,
    ) -> Result<Outcome, RecordError> {
        let windows = windows.ok_or(RecordError::Lost("it has ended"))?;
        let kernel = self.machine.spec().kernel.as_ref();
        match effect {
            Effect::Add { channel, record } => {
                let settings = self.defaults.channel_settings(&channel.spec, kernel, record)?;
                windows.add_channel(&settings, channel.class, notices)?;
            }
            Effect::Replace { old, channel, record } => {
                let settings = self.defaults.channel_settings(&channel.spec, kernel, record)?;
                windows.replace_channel(old, &settings, channel.class, notices)?;
            }
            Effect::End { class } => windows.end_channel(class, notices)?,
            Effect::SetRules { class, rules } => windows.set_rules(class, &rules, notices)?,
            Effect::SetFilters { class, filters } => {
                windows.set_filters(class, &user_filters(&filters, kernel), notices)?;
            }
            Effect::SetProcesses { class, spec } => {
                windows.set_processes(class, &processes::rules_text(&spec)?, notices)?;
            }
            Effect::SetBlocking { class, time } => {
                windows.set_blocking(class, ns_of(time), notices)?;
            }
            Effect::SetKernel(spec) => self.select_kernel(&spec, windows, notices)?,
            Effect::Start => {
                self.kernel.as_mut().map_or(Ok(()), KernelRecording::start)?;
                windows.start();
            }
            Effect::Stop => {
                self.kernel.iter_mut().for_each(KernelRecording::stop);
                windows.stop(notices)?;
                self.kernel.as_mut().map_or(Ok(()), KernelRecording::stop_and_write)?;
            }
            Effect::Clear => {
                // Earlier events must not stay.
                self.kernel.as_mut().map_or(Ok(()), KernelRecording::clear)?;
                windows.clear(self.machine.is_recording(), notices)?;
            }
            Effect::Snapshot(snapshot) => return self.write_snapshot(&snapshot, windows, notices),
            Effect::Begin { .. }
            | Effect::Finish
            | Effect::Answer(..)
            | Effect::ReportStatus(_)
            | Effect::Follow(_)
            | Effect::Exit => {}
        }
        Ok(Outcome::Done)
    }

    /// Changes the recorded kernel events to those of `spec`.
    fn select_kernel(
        &mut self,
        spec: &KernelSpec,
        windows: &mut SessionWindows,
        notices: &Notices,
    ) -> Result<(), RecordError> {
        let before = self.machine.spec().kernel.as_ref().map(|before| &before.filters);
        let filters = (before != Some(&spec.filters)).then_some(&spec.filters[..]);
        let kernel = self.kernel.as_mut();
        let kernel = kernel.ok_or(RecordError::Lost("it records no events of the kernel"))?;
        let (more, fewer) =
            kernel.select(&spec.on, filters, &mut || windows.keep_alive(), notices)?;
        notices.report(format_args!(
            "{more} more of the kernel's events are recorded, {fewer} are not any more{}",
            if filters.is_some() { "; what they are asked has changed" } else { "" }
        ));
        Ok(())
    }

    fn write_snapshot(
        &self,
        snapshot: &Snapshot,
        windows: &mut SessionWindows,
        notices: &Notices,
    ) -> Result<Outcome, RecordError> {
        if let Output::Folder(folder) = &snapshot.output {
            self.check_outside_others(folder)?;
        }
        let prepare = || match &snapshot.output {
            Output::Folder(folder) => prepare::prepare_trace_folder(folder),
            Output::Numbered(number) => self.prepare_snapshot_folder(*number),
        };
        // First fix the moment of the snapshot, then do the long work.
        let kernel = self.kernel.as_ref();
        let seen = kernel.map(|kernel| kernel.begin_snapshot(snapshot.last_ns)).transpose()?;
        // The snapshot's folder stays open until everything is written: another folder may have the
        // same path by then.
        let (mut facts, mut prepared_folder) = windows.snapshot(prepare, snapshot, notices)?;
        if let (Some(kernel), Some(seen)) = (kernel, seen.flatten()) {
            let trace_folder = prepared_folder.trace_folder();
            match kernel.write_snapshot(seen, &trace_folder, &mut || windows.keep_alive()) {
                Ok(kernel) => {
                    facts.events += kernel.events;
                    facts.bytes += kernel.bytes;
                    facts.missing.extend(kernel.missing);
                }
                Err(error) => {
                    // A partial kernel part would make the whole snapshot unreadable. Files that
                    // cannot be removed stay.
                    let _ = trace_folder.remove_below(&[layout::KERNEL_FOLDER]);
                    if windows.has_no_users() {
                        return Err(error);
                    }
                    facts.missing.push(format!("the kernel's events are not in it: {error}"));
                }
            }
        }
        prepared_folder.commit();
        notices.report(format_args!(
            "{} in {}",
            Counted(facts.events, "event"),
            facts.folder.display()
        ));
        Ok(Outcome::Snapshot(facts))
    }

    /// Checks that `folder` lies in no existing trace, except in this session's own trace.
    fn check_outside_others(&self, folder: &Path) -> Result<(), RecordError> {
        match prepare::check_outside_traces(folder) {
            Err(RecordError::FolderInside(inner, outer)) => {
                let own = self.folder_now()?.canonicalize().ok();
                let is_own = own.is_some_and(|own| own == outer);
                if is_own { Ok(()) } else { Err(RecordError::FolderInside(inner, outer)) }
            }
            checked => checked,
        }
    }

    /// Returns the default folder of a snapshot: within the session's folder. It lies beside that
    /// folder if flight recorders are written to the trace at the end: readers then find each event
    /// once.
    fn prepare_snapshot_folder(&self, number: u32) -> Result<PreparedFolder, RecordError> {
        let (trace, name) = (self.folder_now()?, layout::snapshot_name(number));
        let (above, path) = match trace.file_name().filter(|_| self.is_foreground) {
            None => (self.trace_folder.reopen_folder(), trace.join(name)),
            Some(folder) => {
                let mut beside = folder.to_owned();
                beside.push(".");
                beside.push(name);
                (self.trace_folder.parent(), trace.with_file_name(beside))
            }
        };
        prepare::prepare_below(above.map_err(RecordError::io("use", trace))?, path)
    }

    /// Returns the status of the session in these windows. The status includes all events that were
    /// recorded before the request.
    pub(crate) fn status(
        &mut self,
        windows: Option<&mut SessionWindows>,
        notices: &Notices,
    ) -> Status {
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
        let Some(windows) = windows else { return status };
        windows.poll();
        status.counts = counts_of(&windows.summary());
        status.counts.recorded = windows.recorded();
        (status.users, status.users_beyond) = (windows.user_statuses(), windows.excess_users());
        for (spec, class) in self.machine.channels() {
            let mut channel = ChannelStatus { spec: spec.clone(), ..ChannelStatus::default() };
            windows.fill_status(class, &mut channel);
            status.memory_bytes += channel.memory_bytes;
            status.channels.push(channel);
        }
        status
    }
}

/// Returns the outcome of a session's end, with the notices about the end.
pub(crate) fn end_outcome(summary: &Summary, notices: Vec<Notice>) -> Outcome {
    Outcome::Ended(Box::new(Counts { notices, ..counts_of(summary) }))
}

/// Returns the reason why a session ended incompletely.
pub(crate) fn incomplete_end_refusal(error: &RecordError) -> Refusal {
    if error.reports_removal() {
        let hint = "what was recorded there is gone: there is nothing to recover";
        return Refusal::from(error).with_hint(hint);
    }
    // On a full disk: buffered events stay in memory.
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
