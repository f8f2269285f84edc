//! The decisions of a session's recorder: a state machine.
//!
//! [`Machine::submit`] takes requests. [`Machine::next_effect`] returns one action at a time; the
//! driver reports the outcome to [`Machine::complete`] before it calls any other function. The
//! machine has no clock, no files, no window, so tests can simulate any history.
//!
//! Invariants: every request gets exactly one answer, in the order of requests. A refused request
//! has changed nothing, except that a failed stop or end still stops or ends the session. The
//! machine's channels are the result of all successful effects. After [`Effect::Exit`], there are
//! no more effects.
//!
//! Longer than 600 lines: one state machine, whose steps are read together.

use core::time::Duration;
use std::collections::VecDeque;
use std::path::PathBuf;

use trackway_abi::session::RULES_BYTES_MAX;

use crate::control::protocol::{Answer, ChannelChange, Counts, Refusal, Request, SnapshotFacts};
use crate::{
    ChannelSpec, FILTERS_BYTES_MAX, FILTERS_MAX, FilterSource, FilterSpec, KernelSpec, OptionError,
    RuleSpec, SessionSpec,
};

/// The number of a client, which the driver assigns.
pub type Client = u64;

/// The client that receives the outcome of the session's beginning.
pub const CREATOR: Client = 0;

/// Least time between two snapshots that programs requested, and between two snapshots for crashes,
/// in ns: dozens of snapshots would fill the disk.
const AUTOMATIC_PERIOD_NS: u64 = 1_000_000_000;

/// A channel to create, with the class of its streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChannel {
    /// Number of the channel's stream class, which this session has never used before.
    pub class: u32,
    /// The channel's specification.
    pub spec: ChannelSpec,
}

/// An action that the driver must carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Create the trace and its channels, and admit writers if `record` is true. On failure,
    /// nothing exists.
    Begin {
        /// The channels to create, at least one.
        channels: Vec<PlannedChannel>,
        /// True to admit writers.
        record: bool,
    },
    /// Create a channel. On failure, no part of the channel exists.
    Add {
        /// The channel to create.
        channel: PlannedChannel,
        /// True to admit writers.
        record: bool,
    },
    /// Create a channel that replaces the channel of class `old` for all future records; a separate
    /// effect ends the old channel. On failure, the old channel continues.
    Replace {
        /// The class of the replaced channel.
        old: u32,
        /// The new channel.
        channel: PlannedChannel,
        /// True to admit writers.
        record: bool,
    },
    /// End a channel and write its buffers to the trace. On failure, the buffers are left for
    /// `trackway recover`, and the channel is gone.
    End {
        /// The class of the channel.
        class: u32,
    },
    /// Record the events that these rules select.
    SetRules {
        /// The class of the channel.
        class: u32,
        /// The rules, in the form that `trackway_schema::Rules` parses.
        rules: String,
    },
    /// Record only events that pass these filters. On failure, the previous filters stay.
    SetFilters {
        /// The class of the channel.
        class: u32,
        /// All filters of the channel.
        filters: Vec<FilterSpec>,
    },
    /// Record the processes in the channel's specification.
    SetProcesses {
        /// The class of the channel.
        class: u32,
        /// The channel's specification.
        spec: ChannelSpec,
    },
    /// Let programs that allow blocking wait for this time.
    SetBlocking {
        /// The class of the channel.
        class: u32,
        /// The longest wait; `None`: programs do not wait.
        time: Option<Duration>,
    },
    /// Record exactly these kernel events. On failure, the previous kernel events stay.
    SetKernel(Box<KernelSpec>),
    /// Admit writers in all channels.
    Start,
    /// Exclude writers from all channels, and write their records to the trace. On failure, writers
    /// are excluded, and their records stay in the buffers until they can be written.
    Stop,
    /// Discard all recorded events.
    Clear,
    /// Write the contents of flight recorders.
    Snapshot(Snapshot),
    /// End all channels and the trace. On failure, the rest is left for `trackway recover`.
    Finish,
    /// Send an answer to a client.
    Answer(Client, Answer),
    /// Send the session's status to a client.
    ReportStatus(Client),
    /// Write to the traces immediately until the client disconnects; send it the traces' folders.
    Follow(Client),
    /// End: no more effects follow.
    Exit,
}

/// A snapshot to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The destination of the snapshot.
    pub output: Output,
    /// The maximum age of the snapshot's records, in ns; `None`: all records.
    pub last_ns: Option<u64>,
    /// The reason for the snapshot.
    pub reason: Reason,
}

/// The destination of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The folder `snapshot-N` in the session's folder; N begins at 1.
    Numbered(u32),
    /// This folder.
    Folder(PathBuf),
}

/// The reason for a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A user requested it.
    Requested,
    /// A program requested it.
    Program,
    /// A traced process died of a signal.
    Crash {
        /// The process id, in the recorder's namespace.
        pid: u32,
        /// The number of the signal.
        signal: i32,
    },
}

/// The outcome of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The effect succeeded.
    Done,
    /// A snapshot was written.
    Snapshot(SnapshotFacts),
    /// The session has ended.
    Ended(Box<Counts>),
    /// The effect failed.
    Failed(Refusal),
}

/// The state machine of a session.
#[derive(Debug)]
pub struct Machine {
    spec: SessionSpec,
    phase: Phase,
    is_recording: bool,
    /// True if the last stop could not write all records.
    is_unwritten: bool,
    /// Classes of the channels' streams, in the order of `spec.channels`.
    classes: Vec<u32>,
    next_class: u32,
    /// Number of snapshots so far.
    snapshots: u32,
    /// Number of snapshots in numbered folders of the session.
    numbered: u32,
    automatic: AutomaticSnapshots,
    queue: VecDeque<QueuedRequest>,
    job: Option<Job>,
    /// The effect that the driver is carrying out.
    doing: Option<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Beginning,
    Begun,
    Over,
    /// The machine has returned [`Effect::Exit`].
    Exited,
}

#[derive(Debug)]
enum QueuedRequest {
    Client(Client, Box<Request>),
    Automatic(Reason),
}

/// Snapshots that no command requested. The machine keeps a reason that comes too soon, so that a
/// snapshot follows every reason.
#[derive(Debug, Default)]
struct AutomaticSnapshots {
    /// The first crash since the last snapshot for a crash.
    crash: Option<Reason>,
    /// True if a program has requested a snapshot since the last one.
    program: bool,
    /// Earliest time of the next snapshot, for each kind of reason: frequent requests of programs
    /// must not delay the snapshot of a crash.
    crash_due_ns: u64,
    program_due_ns: u64,
}

/// A request that is being processed.
#[derive(Debug)]
struct Job {
    client: Option<Client>,
    steps: VecDeque<Step>,
    /// The change of state after all steps have succeeded.
    then: StateChange,
    /// The effects that undo the completed steps, in the order of the steps.
    undo: Vec<Effect>,
    warnings: Vec<String>,
    answer: Option<Answer>,
    /// True if a step sends the answer.
    is_answered: bool,
}

#[derive(Debug, Clone)]
struct Step {
    effect: Effect,
    /// True if the next steps follow even if this step fails.
    is_optional: bool,
    /// The effect that undoes this step if a later step fails.
    undo: Option<Effect>,
}

#[derive(Debug)]
enum StateChange {
    Nothing,
    Recording(bool),
    Channels(Vec<(ChannelSpec, u32)>),
    Kernel(Box<KernelSpec>),
    Snapshot { is_numbered: bool },
    Over,
}

impl Machine {
    /// Creates a session with specification `spec`; [`CREATOR`] gets the outcome of its beginning.
    pub fn new(spec: SessionSpec) -> Self {
        let channels: Vec<(ChannelSpec, u32)> = spec.channels.iter().cloned().zip(0..).collect();
        let planned = |(spec, class): &(ChannelSpec, u32)| PlannedChannel {
            class: *class,
            spec: spec.clone(),
        };
        let begin =
            Effect::Begin { channels: channels.iter().map(planned).collect(), record: spec.start };
        let mut job = Job::new(Some(CREATOR), StateChange::Nothing);
        job.steps.push_back(Step::new(begin));
        Self {
            is_recording: spec.start,
            is_unwritten: false,
            next_class: channels.len() as u32,
            classes: channels.iter().map(|(_, class)| *class).collect(),
            spec,
            phase: Phase::Beginning,
            snapshots: 0,
            numbered: 0,
            automatic: AutomaticSnapshots::default(),
            queue: VecDeque::new(),
            job: Some(job),
            doing: None,
        }
    }

    /// Returns the session's current specification.
    pub fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// Returns the channels with the classes of their streams.
    pub fn channels(&self) -> impl Iterator<Item = (&ChannelSpec, u32)> {
        self.spec.channels.iter().zip(self.classes.iter().copied())
    }

    /// Returns true if writers are admitted.
    pub fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Returns the number of snapshots so far.
    pub fn snapshots(&self) -> u32 {
        self.snapshots
    }

    /// Queues a request. After [`Effect::Exit`], the request gets no answer.
    pub fn submit(&mut self, client: Client, request: Request) {
        if request == Request::Destroy {
            // Snapshots that are due later must precede the session's end.
            self.queue.extend(self.automatic.take().map(QueuedRequest::Automatic));
        }
        self.queue.push_back(QueuedRequest::Client(client, Box::new(request)));
    }

    /// Notes that a program requested a snapshot, at `now_ns` of any clock that only goes forward.
    pub fn note_snapshot_request(&mut self, now_ns: u64) {
        self.request_automatic_snapshot(Reason::Program, now_ns);
    }

    /// Notes that a traced process died of a signal.
    pub fn note_crash(&mut self, pid: u32, signal: i32, now_ns: u64) {
        if self.spec.snapshot_on_crash {
            self.request_automatic_snapshot(Reason::Crash { pid, signal }, now_ns);
        }
    }

    fn request_automatic_snapshot(&mut self, reason: Reason, now_ns: u64) {
        if self.spec.has_flight_recorder() {
            self.automatic.add(reason);
            self.tick(now_ns);
        }
    }

    /// Advances the time: requests a delayed snapshot when it is due. The driver must call this
    /// regularly, with times of the same clock.
    pub fn tick(&mut self, now_ns: u64) {
        self.queue.extend(self.automatic.due(now_ns).map(QueuedRequest::Automatic));
    }

    /// Ends the session for an external reason: the window is gone, or another recorder owns the
    /// session. All waiting clients get an answer; then the session is over. The driver still
    /// reports the outcome of a current effect to [`Self::complete`].
    pub fn abort(&mut self, why: &Refusal) {
        if self.phase == Phase::Exited {
            return;
        }
        self.phase = Phase::Over;
        self.is_recording = false;
        let Some(job) = &mut self.job else { return };
        // A client whose request is complete gets its own answer.
        if self.doing.is_some() || !job.steps.is_empty() {
            job.steps.clear();
            job.undo.clear();
            job.answer = Some(Answer::Refused(why.clone()));
            job.then = StateChange::Nothing;
        }
    }

    /// Returns the next effect; `None` until there is a request.
    ///
    /// # Panics
    ///
    /// If [`Self::complete`] has not received the outcome of the previous effect.
    pub fn next_effect(&mut self) -> Option<Effect> {
        assert!(self.doing.is_none(), "one effect at a time");
        if self.phase == Phase::Exited {
            return None;
        }
        loop {
            let Some(job) = &mut self.job else {
                match self.queue.pop_front() {
                    Some(ask) => self.begin_job(ask),
                    None if self.phase == Phase::Over => {
                        self.phase = Phase::Exited;
                        return Some(Effect::Exit);
                    }
                    None => return None,
                }
                continue;
            };
            if let Some(step) = job.steps.pop_front() {
                let effect = step.effect.clone();
                if effect.has_outcome() {
                    self.doing = Some(step);
                }
                return Some(effect);
            }
            let Some(job) = self.job.take() else { continue };
            if let Some(answer) = self.end_job(job) {
                return Some(answer);
            }
        }
    }

    /// Processes the outcome of the effect that [`Self::next_effect`] returned last, if that effect
    /// has an outcome ([`Effect::has_outcome`]).
    pub fn complete(&mut self, outcome: Outcome) {
        let (Some(step), Some(job)) = (self.doing.take(), &mut self.job) else { return };
        match outcome {
            Outcome::Done => job.undo.extend(step.undo),
            Outcome::Snapshot(facts) => job.answer = Some(Answer::Snapshot(facts)),
            Outcome::Ended(counts) => job.answer = Some(Answer::Ended(counts)),
            Outcome::Failed(refusal) if step.is_optional => job.warnings.push(refusal.why),
            Outcome::Failed(refusal) => {
                // A refused request changes nothing: undo completed changes, the last one first.
                let undo = job.undo.drain(..).rev();
                job.steps = undo.map(Step::optional).collect();
                let refusal = match job.then {
                    // A request to end the session ends it: recovery completes the trace.
                    StateChange::Over => refusal,
                    // Writers are excluded, but some of their records are not in the trace. A
                    // refusal with more information has its own hint.
                    StateChange::Recording(false) if refusal.hint.is_none() => refusal
                        .with_hint("it is stopped; stop it again once its trace can be written"),
                    StateChange::Recording(false) => refusal,
                    _ => {
                        job.then = StateChange::Nothing;
                        refusal
                    }
                };
                job.answer = Some(Answer::Refused(refusal));
            }
        }
    }

    fn begin_job(&mut self, ask: QueuedRequest) {
        let (client, planned) = match ask {
            QueuedRequest::Client(client, request) => (Some(client), self.plan(client, *request)),
            QueuedRequest::Automatic(reason) => {
                let planned = self.check_not_ended();
                (None, planned.and_then(|()| self.plan_snapshot(None, None, reason)))
            }
        };
        self.job = Some(match planned {
            Ok(job) => Job { client, ..job },
            Err(refusal) => {
                let answer = Some(Answer::Refused(refusal));
                Job { answer, ..Job::new(client, StateChange::Nothing) }
            }
        });
    }

    /// Plans a request: its steps, and the change of state after them.
    fn plan(&mut self, client: Client, request: Request) -> Result<Job, Refusal> {
        self.check_not_ended()?;
        match request {
            Request::Status => Ok(Job::of_answer(Effect::ReportStatus(client))),
            Request::Follow => Ok(Job::of_answer(Effect::Follow(client))),
            Request::Spec => {
                let answer = Answer::Spec(Box::new(self.spec.clone()));
                Ok(Job { answer: Some(answer), ..Job::new(None, StateChange::Nothing) })
            }
            Request::Start => Ok(self.plan_recording(true)),
            Request::Stop => Ok(self.plan_recording(false)),
            Request::Clear => Ok(Job::of_one(Effect::Clear, StateChange::Nothing)),
            Request::Destroy => Ok(Job::of_one(Effect::Finish, StateChange::Over)),
            Request::Snapshot { output, last_ns } => {
                self.plan_snapshot(output, last_ns, Reason::Requested)
            }
            Request::AddChannel { channel } => self.plan_addition(channel),
            Request::SetChannel { channel, change } => self.plan_change(&channel, change),
            Request::RemoveChannel { channel } => self.plan_removal(&channel),
            Request::EventsOn { channel, rules, only, filter } => {
                self.plan_more_events(channel.as_deref(), &rules, only, filter.as_ref())
            }
            Request::EventsOff { channel, patterns } => {
                let bytes = patterns.iter().map(|pattern| pattern.len() + 1).sum();
                check_patterns_size(bytes)?;
                self.check_excluded(channel.as_deref(), &patterns)?;
                self.plan_events(channel.as_deref(), bytes, |spec| spec.switch_off(&patterns))
            }
            Request::KernelOn { patterns, filter: None } => {
                self.plan_kernel(|spec| spec.switch_on(&patterns))
            }
            Request::KernelOn { patterns, filter: Some(filter) } => {
                if filter.size_bytes() > FILTERS_BYTES_MAX || patterns.len() > FILTERS_MAX {
                    return Err(Refusal::new(OptionError::TooManyFilters.to_string()));
                }
                self.plan_kernel(|spec| {
                    spec.switch_on(&patterns);
                    spec.set_filter(&patterns, &filter);
                })
            }
            Request::KernelOff { patterns } => {
                let spec = self.spec.kernel.as_ref();
                match spec.and_then(|spec| spec.not_excluded(&patterns)) {
                    Some(pattern) => Err(self.missing_exclusion_refusal(pattern, " --kernel")),
                    None => self.plan_kernel(|spec| spec.switch_off(&patterns)),
                }
            }
        }
    }

    fn check_not_ended(&self) -> Result<(), Refusal> {
        let ended = || Refusal::new(format!("session '{}' has ended", self.spec.name));
        (self.phase == Phase::Begun).then_some(()).ok_or_else(ended)
    }

    fn plan_recording(&self, record: bool) -> Job {
        // If a stop could not write all records, another stop writes them.
        if self.is_recording == record && (record || !self.is_unwritten) {
            let state = if record { "records already" } else { "is stopped already" };
            return Job::new(None, StateChange::Nothing).with_warning(format!("it {state}"));
        }
        let effect = if record { Effect::Start } else { Effect::Stop };
        Job::of_one(effect, StateChange::Recording(record))
    }

    fn plan_snapshot(
        &self,
        output: Option<PathBuf>,
        last_ns: Option<u64>,
        reason: Reason,
    ) -> Result<Job, Refusal> {
        if !self.spec.has_flight_recorder() {
            let why = format!("session '{}' has no flight recorder", self.spec.name);
            return Err(Refusal::new(why).with_hint(
                "trackway session create --flight-recorder, or trackway channel add --overwrite, \
                 makes one",
            ));
        }
        let output = output.map_or(Output::Numbered(self.numbered + 1), Output::Folder);
        let then = StateChange::Snapshot { is_numbered: matches!(output, Output::Numbered(_)) };
        let snapshot = Snapshot { output, last_ns, reason };
        Ok(Job::of_one(Effect::Snapshot(snapshot), then))
    }

    fn plan_addition(&mut self, channel: ChannelSpec) -> Result<Job, Refusal> {
        let mut spec = self.spec.clone();
        spec.channels.push(channel.clone());
        spec.check().map_err(|error| Refusal::new(error.to_string()))?;
        let planned = PlannedChannel { class: self.take_class(), spec: channel.clone() };
        let mut channels = self.channels_by_class();
        channels.push((channel, planned.class));
        let effect = Effect::Add { channel: planned, record: self.is_recording };
        Ok(Job::of_one(effect, StateChange::Channels(channels)))
    }

    fn plan_removal(&self, name: &str) -> Result<Job, Refusal> {
        let (place, class) = self.find_channel(Some(name))?;
        if self.classes.len() == 1 {
            let why = format!("'{name}' is the only channel of session '{}'", self.spec.name);
            return Err(Refusal::new(why).with_hint("trackway session destroy ends the session"));
        }
        let mut channels = self.channels_by_class();
        channels.remove(place);
        let step = Step::optional(Effect::End { class });
        Ok(Job { steps: [step].into(), ..Job::new(None, StateChange::Channels(channels)) })
    }

    fn plan_change(&mut self, name: &str, change: ChannelChange) -> Result<Job, Refusal> {
        let (place, class) = self.find_channel(Some(name))?;
        let before = &self.spec.channels[place];
        let spec = change.apply_to(before);
        spec.check().map_err(|error| Refusal::new(error.to_string()))?;
        if spec == *before {
            return Ok(
                Job::new(None, StateChange::Nothing).with_warning("nothing has changed".into())
            );
        }
        let mut channels = self.channels_by_class();
        let mut steps = VecDeque::new();
        if spec.has_buffers_of(before) {
            let processes = |spec: &ChannelSpec| {
                (spec.pids.clone(), spec.executables.clone(), spec.pid_namespaces.clone())
            };
            // The reversible step comes first: processes of the old rules may be gone.
            if spec.blocking_timeout != before.blocking_timeout {
                let set =
                    |spec: &ChannelSpec| Effect::SetBlocking { class, time: spec.blocking_timeout };
                let undo = Some(set(before));
                steps.push_back(Step { undo, ..Step::new(set(&spec)) });
            }
            if processes(&spec) != processes(before) {
                steps.push_back(Step::new(Effect::SetProcesses { class, spec: spec.clone() }));
            }
            channels[place] = (spec, class);
        } else {
            let record = self.is_recording;
            let channel = PlannedChannel { class: self.take_class(), spec: spec.clone() };
            channels[place] = (spec, channel.class);
            steps.push_back(Step::new(Effect::Replace { old: class, channel, record }));
            steps.push_back(Step::optional(Effect::End { class }));
        }
        Ok(Job { steps, ..Job::new(None, StateChange::Channels(channels)) })
    }

    fn plan_more_events(
        &self,
        channel: Option<&str>,
        rules: &[RuleSpec],
        only: bool,
        filter: Option<&FilterSource>,
    ) -> Result<Job, Refusal> {
        let mut excluded = Vec::new();
        let bytes = rules.iter().map(|rule| rule.pattern.len() + 1).sum();
        let including = || rules.iter().filter(|rule| !rule.excludes());
        // No channel can have more filters, and a full check takes long.
        let is_too_much = |filter: &FilterSource| {
            filter.size_bytes() > FILTERS_BYTES_MAX || including().count() > FILTERS_MAX
        };
        if filter.is_some_and(is_too_much) {
            return Err(Refusal::new(OptionError::TooManyFilters.to_string()));
        }
        if filter.is_some() && including().next().is_none() {
            return Err(Refusal::new("a filter is for events that are switched on"));
        }
        let job = self.plan_events(channel, bytes, |spec| {
            if only {
                // Exclusions alone select all other events.
                let is_none = rules.is_empty() || including().next().is_some();
                spec.on = is_none.then(Vec::new);
                let names: Vec<String> = including().map(RuleSpec::full_pattern).collect();
                // Filters of removed rules are removed, too.
                spec.filters.retain(|one| one.pattern.is_none() || names.contains(&one.rules()));
            }
            let before = spec.filters.clone();
            if let Some(filter) = filter {
                including().for_each(|rule| spec.set_filter(&rule.pattern, filter));
            }
            let has_changed = spec.switch_on(rules.to_vec());
            excluded = spec.excluded_of(rules);
            has_changed || only || spec.filters != before
        })?;
        let warn = |job: Job, it| job.with_warning(format!("what '{it}' excludes stays off"));
        Ok(excluded.into_iter().fold(job, warn))
    }

    fn plan_events(
        &self,
        channel: Option<&str>,
        bytes: usize,
        change: impl FnOnce(&mut ChannelSpec) -> bool,
    ) -> Result<Job, Refusal> {
        let (place, class) = self.find_channel(channel)?;
        check_patterns_size(bytes)?;
        let mut channels = self.channels_by_class();
        let spec = &mut channels[place].0;
        let before = &self.spec.channels[place];
        let was_all = spec.on.is_none();
        if !change(spec) {
            let why = if was_all { "all events are on" } else { "nothing has changed" };
            return Ok(Job::new(None, StateChange::Nothing).with_warning(why.into()));
        }
        let refused = |error: OptionError| Refusal::new(error.to_string());
        spec.check_filters().map_err(refused)?;
        let rules = [before.rules_text().map_err(refused)?, spec.rules_text().map_err(refused)?];
        let steps = filter_change_steps(class, rules, [&before.filters, &spec.filters]);
        Ok(Job { steps, ..Job::new(None, StateChange::Channels(channels)) })
    }

    fn plan_kernel(&self, change: impl FnOnce(&mut KernelSpec)) -> Result<Job, Refusal> {
        let before = self.spec.kernel.clone().ok_or_else(|| {
            let session = &self.spec.name;
            Refusal::new(format!("session '{session}' records no events of the kernel"))
                .with_hint("trackway session create NAME --kernel LIST makes one that does")
        })?;
        let before = before.split_lists();
        let mut spec = before.clone();
        change(&mut spec);
        if spec == before {
            return Ok(
                Job::new(None, StateChange::Nothing).with_warning("nothing has changed".into())
            );
        }
        spec.check().map_err(|error| Refusal::new(error.to_string()))?;
        let spec = Box::new(spec);
        Ok(Job::of_one(Effect::SetKernel(spec.clone()), StateChange::Kernel(spec)))
    }

    /// Checks that the exclusions to remove exist.
    fn check_excluded(&self, channel: Option<&str>, patterns: &[String]) -> Result<(), Refusal> {
        let (place, _) = self.find_channel(channel)?;
        let Some(pattern) = self.spec.channels[place].not_excluded(patterns) else {
            return Ok(());
        };
        Err(self.missing_exclusion_refusal(pattern, ""))
    }

    fn missing_exclusion_refusal(&self, pattern: &str, option: &str) -> Refusal {
        let (name, session) = (pattern.trim_start_matches('!'), &self.spec.name);
        Refusal::new(format!("nothing excludes '{name}': there is no rule '{pattern}'")).with_hint(
            format!(
                "trackway event off {session}{option} '{name}' excludes it; trackway session \
                 status {session} shows the rules"
            ),
        )
    }

    /// Returns the refusal for a missing channel `name`; `names` are the existing channels.
    fn missing_channel_refusal(&self, name: &str, names: &str) -> Refusal {
        let session = &self.spec.name;
        let refusal = Refusal::new(format!("session '{session}' has no channel '{name}'"));
        let is_kernels = self.spec.is_kernel_only();
        if is_kernels || (name == "kernel" && self.spec.kernel.is_some()) {
            refusal.with_hint(
                "the kernel's events are in none: event on and off take --kernel for them, and \
                 for other contexts or buffers another session can begin beside this one, which \
                 is destroyed then",
            )
        } else {
            refusal.with_hint(format!("it has {names}"))
        }
    }

    /// Returns the index and class of the channel with this name, or of the only channel.
    fn find_channel(&self, name: Option<&str>) -> Result<(usize, u32), Refusal> {
        let names = || {
            let names: Vec<&str> =
                self.spec.channels.iter().map(|channel| channel.name.as_str()).collect();
            names.join(", ")
        };
        let place = match name {
            Some(name) => {
                let place = self.spec.channels.iter().position(|channel| channel.name == name);
                place.ok_or_else(|| self.missing_channel_refusal(name, &names()))?
            }
            None if self.classes.len() == 1 => 0,
            None if self.spec.is_kernel_only() => {
                let session = &self.spec.name;
                let why = format!("session '{session}' records the kernel's events alone");
                return Err(Refusal::new(why).with_hint("event on and off take --kernel there"));
            }
            None => {
                return Err(Refusal::new("which channel?")
                    .with_hint(format!("--channel, and one of {}", names())));
            }
        };
        Ok((place, self.classes[place]))
    }

    fn channels_by_class(&self) -> Vec<(ChannelSpec, u32)> {
        self.channels().map(|(spec, class)| (spec.clone(), class)).collect()
    }

    /// Returns a class that no stream has had.
    fn take_class(&mut self) -> u32 {
        let class = self.next_class;
        self.next_class += 1;
        class
    }

    /// Applies the changes of a completed job; returns the answer for its client.
    fn end_job(&mut self, job: Job) -> Option<Effect> {
        match job.then {
            StateChange::Nothing => {}
            // The session may have been aborted meanwhile.
            StateChange::Recording(record) => {
                self.is_recording = record && self.phase == Phase::Begun;
                self.is_unwritten = !record && matches!(job.answer, Some(Answer::Refused(_)));
            }
            StateChange::Channels(channels) => {
                (self.spec.channels, self.classes) = channels.into_iter().unzip();
            }
            StateChange::Kernel(spec) => self.spec.kernel = Some(*spec),
            StateChange::Snapshot { is_numbered } => {
                self.snapshots += 1;
                self.numbered += u32::from(is_numbered);
            }
            StateChange::Over => {
                self.phase = Phase::Over;
                self.is_recording = false;
            }
        }
        if self.phase == Phase::Beginning {
            let is_refused = matches!(job.answer, Some(Answer::Refused(_)));
            self.phase = if is_refused { Phase::Over } else { Phase::Begun };
            self.is_recording &= !is_refused;
        }
        if job.is_answered && job.answer.is_none() {
            return None;
        }
        let done = Answer::Done { warnings: job.warnings };
        Some(Effect::Answer(job.client?, job.answer.unwrap_or(done)))
    }
}

/// Plans the change of a channel's rules and filters. Meanwhile, old and new filters are active, so
/// that no event passes that neither would accept.
fn filter_change_steps(
    class: u32,
    [rules_before, rules]: [String; 2],
    [before, then]: [&[FilterSpec]; 2],
) -> VecDeque<Step> {
    let mut meanwhile = before.to_vec();
    meanwhile.extend(then.iter().filter(|filter| !before.contains(filter)).cloned());
    let set = |filters: &[FilterSpec]| Effect::SetFilters { class, filters: filters.to_vec() };
    let mut steps = VecDeque::new();
    if meanwhile != before {
        steps.push_back(Step { undo: Some(set(before)), ..Step::new(set(&meanwhile)) });
    }
    if rules != rules_before || before == then {
        let undo = Some(Effect::SetRules { class, rules: rules_before });
        steps.push_back(Step { undo, ..Step::new(Effect::SetRules { class, rules }) });
    }
    if meanwhile != then {
        steps.push_back(Step::new(set(then)));
    }
    steps
}

/// Checks the total size of a request's patterns: each pattern is compared with all others, which
/// could take minutes for the largest requests. The limit is that of a channel.
fn check_patterns_size(bytes: usize) -> Result<(), Refusal> {
    let refused = || Refusal::new(OptionError::TooManyPatterns.to_string());
    (bytes <= RULES_BYTES_MAX + 1).then_some(()).ok_or_else(refused)
}

impl Effect {
    /// Returns true if [`Machine::complete`] must receive the outcome. Answers to clients and the
    /// exit have none.
    pub fn has_outcome(&self) -> bool {
        !matches!(self, Self::Answer(..) | Self::ReportStatus(_) | Self::Follow(_) | Self::Exit)
    }
}

impl Step {
    fn new(effect: Effect) -> Self {
        Self { effect, is_optional: false, undo: None }
    }

    fn optional(effect: Effect) -> Self {
        Self { is_optional: true, ..Self::new(effect) }
    }
}

impl AutomaticSnapshots {
    fn add(&mut self, reason: Reason) {
        match reason {
            Reason::Crash { .. } => _ = self.crash.get_or_insert(reason),
            Reason::Program | Reason::Requested => self.program = true,
        }
    }

    /// Returns the reason for a snapshot that is due now.
    fn due(&mut self, now_ns: u64) -> Option<Reason> {
        let next_ns = now_ns.saturating_add(AUTOMATIC_PERIOD_NS);
        if self.crash.is_some() && now_ns >= self.crash_due_ns {
            // The snapshot serves a program's request, too.
            (self.crash_due_ns, self.program_due_ns) = (next_ns, next_ns);
            self.take()
        } else if self.program && now_ns >= self.program_due_ns {
            self.program_due_ns = next_ns;
            self.program = false;
            Some(Reason::Program)
        } else {
            None
        }
    }

    /// Removes and returns the pending reason for a snapshot, due now or later.
    fn take(&mut self) -> Option<Reason> {
        let program = core::mem::take(&mut self.program).then_some(Reason::Program);
        self.crash.take().or(program)
    }
}

impl Job {
    fn new(client: Option<Client>, then: StateChange) -> Self {
        Self {
            client,
            steps: VecDeque::new(),
            then,
            undo: Vec::new(),
            warnings: Vec::new(),
            answer: None,
            is_answered: false,
        }
    }

    /// Creates a job whose only step is an answer.
    fn of_answer(effect: Effect) -> Self {
        Self { is_answered: true, ..Self::of_one(effect, StateChange::Nothing) }
    }

    fn of_one(effect: Effect, then: StateChange) -> Self {
        Self { steps: [Step::new(effect)].into(), ..Self::new(None, then) }
    }

    fn with_warning(mut self, warning: String) -> Self {
        self.warnings.push(warning);
        self
    }
}

#[cfg(test)]
mod tests;
