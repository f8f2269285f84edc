//! Main loop of a recorder: applies the decisions of the session's state machine, drains buffers,
//! and waits for requests, signals and processes.
//!
//! The same driver serves recorders in the foreground and in the background. Their [`Host`]
//! implements the differences: the beginning, the causes of the end, and the final reports.

use std::path::Path;

use trackway_schema::EventDescription;
use trackway_session::machine::{Client, Effect, Outcome, PlannedChannel};
use trackway_session::protocol::{Answer, Refusal, Request};
use trackway_session::{FilterSpec, KernelSpec, SessionSpec};
use trackway_sys::wait::{self, PollEntry};

use crate::error::{RecordError, io_error};
use crate::filters::check;
use crate::kernel::backend::{self, KernelRecording, PreparedKernel};
use crate::notices::Notices;
use crate::session::controller::{self, SessionController};
use crate::session::summary_file::RunResult;
use crate::session::suspend_check::SuspendCheck;
use crate::session::windows::SessionWindows;
use crate::session::write_stall::{STALL_NS, WriteStall};
use crate::summary::Summary;
use crate::summary::shortfall::SizeSource;
use crate::trace::prepare::PreparedFolder;

/// Client of the requests that a signal or the end of a process causes: it gets no reply.
const SIGNAL_CLIENT: Client = u64::MAX;

/// Part of a recorder that differs between foreground and background.
pub(crate) trait Host {
    /// Begins the recording; admits writers if the session must `record`.
    ///
    /// # Errors
    ///
    /// If the recording cannot begin; nothing of it remains then.
    fn begin(
        &mut self,
        driver: &mut Driver,
        channels: &[PlannedChannel],
        record: bool,
    ) -> Result<(), RecordError>;

    /// Reports once that the session has begun, or the reason why it has not.
    fn report_begin(&mut self, driver: &mut Driver, begun: Result<(), &Refusal>);

    /// Drains the buffers once; returns the time until the next call, in ns.
    fn poll(&mut self, driver: &mut Driver) -> u64;

    /// Returns the files to wait for, in addition to the session's files.
    fn awaited(&self) -> Vec<PollEntry>;

    /// Handles signals and ends of processes, after a wait for the files of [`Self::awaited`].
    /// Returns true if they end the session.
    fn receive(&mut self, driver: &mut Driver, awaited: &[PollEntry]) -> bool;

    /// Prepares for the end, while the windows are still held.
    fn prepare_end(&mut self, driver: &Driver, windows: &SessionWindows);

    /// Returns true if the user interrupts the writing of the remaining buffers.
    fn is_interrupted(&self) -> bool;

    /// Reports how the session ended.
    fn report_end(&mut self, driver: &Driver, end: &SessionEnd);
}

/// Recorder of a session.
pub(crate) struct Driver {
    pub(crate) controller: SessionController,
    pub(crate) notices: Notices,
    /// Locked folder of the trace.
    pub(crate) prepared_folder: PreparedFolder,
    /// Session in the windows of its users; `None` before its beginning and after its end.
    pub(crate) windows: Option<SessionWindows>,
    pub(crate) pause: SuspendCheck,
    /// Results of the recording.
    pub(crate) result: RunResult,
    stall: WriteStall,
    failure: Option<RecordError>,
}

impl Driver {
    /// Creates the driver of a session that has not begun.
    pub(crate) fn new(
        controller: SessionController,
        notices: Notices,
        prepared_folder: PreparedFolder,
    ) -> Self {
        let result = RunResult::new(controller.folder.clone());
        Self {
            controller,
            notices,
            prepared_folder,
            windows: None,
            pause: SuspendCheck::new(),
            result,
            stall: WriteStall::default(),
            failure: None,
        }
    }

    /// Returns the present specification of the session.
    pub(crate) fn spec(&self) -> &SessionSpec {
        self.controller.machine.spec()
    }

    /// Records until the session has ended.
    ///
    /// # Errors
    ///
    /// If the session cannot begin, or anything but a request, a signal or a process ends it.
    pub(crate) fn run(&mut self, host: &mut dyn Host) -> Result<(), RecordError> {
        loop {
            let mut has_finished = false;
            while let Some(effect) = self.controller.next_effect(&mut self.windows, &self.notices) {
                if effect == Effect::Exit {
                    return self.close_session();
                }
                has_finished |= effect == Effect::Finish;
                self.carry_out(effect, host);
            }
            if has_finished {
                // The end may take long, and renews the lease itself.
                self.pause.restart();
            }
            let period_ns = host.poll(self);
            if let Err(error) = self.wait(host, period_ns) {
                self.failure = Some(error);
                self.end();
            }
            // Check before the effects: one of them may be the end of the session.
            self.pause.check(&self.notices);
        }
    }

    /// Drains the buffers once; returns the time until the next call, in ns.
    ///
    /// While the trace cannot be written, events stay in the buffers, where recovery finds them.
    /// Events that find no space in the buffers are counted.
    ///
    /// # Errors
    ///
    /// If the windows are lost.
    pub(crate) fn drain(&mut self) -> Result<u64, RecordError> {
        let Some(windows) = &mut self.windows else { return Ok(STALL_NS) };
        match windows.tick(&self.notices) {
            Ok(period_ns) => {
                self.stall.note_success(windows.bytes(), "", &self.notices);
                Ok(period_ns)
            }
            Err(error @ RecordError::Lost(_)) => Err(error),
            Err(error) => {
                // The disk is full or was removed; it may become usable again.
                windows.keep_alive();
                self.notices.clear_status();
                self.stall.note_error(&error, windows.bytes(), "", &self.notices);
                Ok(STALL_NS)
            }
        }
    }

    /// Returns false while the trace cannot be written.
    pub(crate) const fn is_writing(&self) -> bool {
        self.stall.is_over()
    }

    /// Requests the end of the session.
    pub(crate) fn end(&mut self) {
        self.controller.machine.submit(SIGNAL_CLIENT, Request::Destroy);
    }

    /// Notes that the session cannot continue, because of `error`.
    pub(crate) fn fail(&mut self, error: RecordError) {
        let refusal = Refusal::from(&error);
        self.notices.report(format_args!("{}", refusal.why));
        self.controller.machine.abort(&refusal);
        self.failure = Some(error);
    }

    /// Begins to record kernel events beside user events; `start` starts the command.
    ///
    /// # Errors
    ///
    /// If kernel events or the command cannot begin.
    pub(crate) fn begin_recording(
        &mut self,
        windows: SessionWindows,
        kernel: Option<PreparedKernel>,
        start: impl FnOnce(Option<&KernelRecording>) -> Result<(), RecordError>,
    ) -> Result<(), RecordError> {
        let pause = &mut self.pause;
        let root = self.prepared_folder.trace_folder();
        let tracefiles = self.controller.machine.spec().kernel.as_ref().map(KernelSpec::tracefiles);
        let begin = |kernel: PreparedKernel| {
            kernel.begin(&root, windows.realtime_offset_ns(), tracefiles.unwrap_or_default())
        };
        let begun = kernel.map(begin).transpose().and_then(|kernel| {
            // BPF programs take long to load; from here on, a stop loses events.
            pause.restart();
            start(kernel.as_ref())?;
            Ok(kernel)
        });
        match begun {
            Ok(kernel) => self.controller.kernel = kernel,
            Err(error) => {
                windows.finish(&Notices::new(true), &|| false)?;
                return Err(error);
            }
        }
        windows.report_given_up(&self.notices);
        self.windows = Some(windows);
        if let Some(moved) = self.prepared_folder.commit() {
            self.notices.report(format_args!("the earlier trace is now {}", moved.display()));
        }
        Ok(())
    }

    fn close_session(&mut self) -> Result<(), RecordError> {
        // If the session ended in another way than by a request.
        if let Some(kernel) = self.controller.kernel.take() {
            kernel.finish().report(None, &self.notices);
        }
        self.controller.close();
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Applies an effect that [`SessionController::next_effect`] leaves to the driver.
    fn carry_out(&mut self, effect: Effect, host: &mut dyn Host) {
        match effect {
            Effect::Begin { channels, record } => {
                let begun = host.begin(self, &channels, record);
                let outcome = begun.map_or_else(
                    |error| {
                        let refusal = Refusal::from(&error);
                        self.failure = Some(error);
                        Outcome::Failed(refusal)
                    },
                    |()| Outcome::Done,
                );
                self.controller.machine.complete(outcome);
            }
            Effect::Finish => {
                let outcome = self.finish(host);
                self.controller.machine.complete(outcome);
            }
            Effect::Answer(_, Answer::Refused(refusal)) => host.report_begin(self, Err(&refusal)),
            _ => host.report_begin(self, Ok(())),
        }
    }

    /// Waits for requests, and for the files of the host and of the windows.
    fn wait(&mut self, host: &mut dyn Host, period_ns: u64) -> Result<(), RecordError> {
        let period_ns = if self.controller.has_requests() { 0 } else { period_ns };
        let mut awaited = self.controller.awaited();
        awaited.extend(self.windows.iter().flat_map(SessionWindows::awaited));
        let others = awaited.len();
        awaited.extend(host.awaited());
        wait::wait_for_any(&mut awaited, period_ns).map_err(|errno| {
            RecordError::Io("wait for", "requests".into(), io_error(errno).into())
        })?;
        self.controller.take_requests();
        if host.receive(self, &awaited[others..]) {
            self.end();
        }
        Ok(())
    }

    /// Ends the recording: writes the buffers to the trace.
    fn finish(&mut self, host: &mut dyn Host) -> Outcome {
        self.controller.kernel.iter_mut().for_each(KernelRecording::stop);
        let Some(windows) = self.windows.take() else {
            return Outcome::Failed(Refusal::from(&RecordError::Lost("it has ended")));
        };
        self.notices.clear_status();
        host.prepare_end(self, &windows);
        let known_events = windows.known_events();
        let finished = windows.finish(&self.notices, &|| host.is_interrupted());
        let kernel = self.controller.kernel.take().map(|kernel| {
            kernel.report_changes(&self.notices);
            kernel.finish()
        });
        kernel.iter().for_each(|kernel| self.result.note_kernel(kernel));
        match finished {
            Ok(user) => {
                self.result.programs = Some(user.clone());
                let end = SessionEnd { user, kernel, known_events };
                let first = self.notices.count();
                host.report_end(self, &end);
                controller::end_outcome(&end.user, self.notices.since(first))
            }
            Err(error) => {
                let refusal = controller::incomplete_end_refusal(&error);
                self.notices.report(format_args!("the trace is not complete: {error}"));
                if let Some(hint) = &refusal.hint {
                    self.notices.hint(format_args!("{hint}"));
                }
                kernel.iter().for_each(|kernel| kernel.report(None, &self.notices));
                Outcome::Failed(refusal)
            }
        }
    }
}

/// Returns the session's filters that apply to user events only.
pub(crate) fn user_only_filters(spec: &SessionSpec) -> impl Iterator<Item = &FilterSpec> {
    let of_kernel = spec.kernel.as_ref().map_or(&[][..], |kernel| &kernel.filters);
    let filters = spec.channels.iter().flat_map(|channel| &channel.filters);
    filters.filter(|filter| !of_kernel.contains(filter))
}

/// Results at the end of a session.
#[derive(Debug)]
pub(crate) struct SessionEnd {
    /// Summary of user events.
    pub(crate) user: Summary,
    /// Summary of kernel events, if they were recorded.
    kernel: Option<backend::Summary>,
    /// Events that were registered in the windows.
    known_events: Vec<EventDescription>,
}

impl SessionEnd {
    /// Returns true if only kernel events need a report: there are no user events, and the session
    /// requests none.
    pub(crate) fn is_kernel_only(&self, spec: &SessionSpec) -> bool {
        let requests_events = spec.channels.iter().any(|channel| channel.on.is_some())
            || user_only_filters(spec).next().is_some();
        self.kernel.is_some() && self.user.is_nothing() && !requests_events
    }

    /// Reports the settings that would have avoided the losses of user events.
    pub(crate) fn report_losses(&self, spec: &SessionSpec, source: SizeSource, notices: &Notices) {
        let filters = spec.channels.iter().flat_map(|channel| &channel.filters);
        let explain_losses =
            check::explain_losses(filters, &self.known_events, &self.user.lost_by_event);
        let (count, hint) = explain_losses.unzip();
        hint.iter().for_each(|hint| notices.hint(format_args!("{hint}")));
        if self.user.lost > count.unwrap_or(0) {
            self.user.hint_what_keeps(source, notices);
        }
    }

    /// Reports the kernel events, with the trace's `folder` unless another line names it.
    pub(crate) fn report_kernel(&self, folder: Option<&Path>, notices: &Notices) {
        self.kernel.iter().for_each(|kernel| kernel.report(folder, notices));
    }
}
