//! The decisions of a session's recorder: a state machine.
//!
//! Requests come in by [`Machine::submit`]. [`Machine::next_effect`] returns what is to be done,
//! one effect at a time; the driver reports the outcome by [`Machine::complete`], before it calls
//! anything else. The machine has no clock, no files, no window: so histories of any kind can be
//! played through in tests.
//!
//! Invariants: every request is answered exactly once, in the order of requests; what was refused
//! has changed nothing (a session that could not be stopped or ended whole is stopped or ended all
//! the same); what the machine says of its channels is what the effects that succeeded made of
//! them; after [`Effect::Exit`] there is nothing more.
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

/// The number of a client, given out by the driver.
pub type Client = u64;

/// The client that learns how the session's beginning went.
pub const CREATOR: Client = 0;

/// Least time between two snapshots that programs requested, and between two for crashes, in
/// ns: dozens of them would fill the disk.
const AUTOMATIC_PERIOD_NS: u64 = 1_000_000_000;

/// A channel that is to be, and the class of its streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChannel {
    /// Number of its stream class: never used before in this session.
    pub class: u32,
    /// The specification.
    pub spec: ChannelSpec,
}

/// An action that the driver is to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make the trace and its channels, and let writers in if it is to `record`. Not done: there
    /// is nothing.
    Begin {
        /// One at least.
        channels: Vec<PlannedChannel>,
        /// True if writers are let in.
        record: bool,
    },
    /// Make one more. Not done: there is nothing of it.
    Add {
        /// It.
        channel: PlannedChannel,
        /// True if writers are let in.
        record: bool,
    },
    /// Make a channel, and let it take the place of the one of class `old` for all that comes; that
    /// one is ended by an effect of its own. Not done: the old one goes on.
    Replace {
        /// The class of the one that ends.
        old: u32,
        /// The new one.
        channel: PlannedChannel,
        /// True if writers are let in.
        record: bool,
    },
    /// End a channel: what is in its buffers goes into the trace. Not done: that is left for
    /// `trackway recover`, and the channel is gone all the same.
    End {
        /// Its class.
        class: u32,
    },
    /// Record these events.
    SetRules {
        /// Class of the channel.
        class: u32,
        /// The rules, as `trackway_schema::Rules` reads them.
        rules: String,
    },
    /// Record of the events those of which these filters are true. Not done: those that were stay.
    SetFilters {
        /// Class of the channel.
        class: u32,
        /// All of them.
        filters: Vec<FilterSpec>,
    },
    /// Record these processes, as the channel says.
    SetProcesses {
        /// Class of the channel.
        class: u32,
        /// The channel.
        spec: ChannelSpec,
    },
    /// Let programs that allow it wait for so long.
    SetBlocking {
        /// Class of the channel.
        class: u32,
        /// None: they do not wait.
        time: Option<Duration>,
    },
    /// Record these events of the kernel, and no others of its. Not done: those that were stay.
    SetKernel(Box<KernelSpec>),
    /// Let writers in, in all channels.
    Start,
    /// Keep writers out, in all channels; what they wrote goes into the trace. Not done: they are
    /// out, and what they wrote is in the buffers until it can be written.
    Stop,
    /// Forget what was recorded.
    Clear,
    /// Write what is in flight recorders.
    Snapshot(Snapshot),
    /// End all channels, and with them the trace. Not done: what is left is for `trackway recover`.
    Finish,
    /// Tell a client.
    Answer(Client, Answer),
    /// Tell a client how it goes.
    ReportStatus(Client),
    /// Write to the traces at once until the client goes, and tell it where they are.
    Follow(Client),
    /// Nothing more is to be done.
    Exit,
}

/// A snapshot that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The place of the snapshot.
    pub output: Output,
    /// Only what is newer than so many nanoseconds.
    pub last_ns: Option<u64>,
    /// Why.
    pub reason: Reason,
}

/// The place of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Into the session's folder `snapshot-N`, N from 1.
    Numbered(u32),
    /// Into this folder.
    Folder(PathBuf),
}

/// Why there is a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A user requested it.
    Requested,
    /// A program requested it.
    Program,
    /// A traced process died of a signal.
    Crash {
        /// Process id, as the recorder sees it.
        pid: u32,
        /// Number of the signal.
        signal: i32,
    },
}

/// The outcome of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// A snapshot was written.
    Snapshot(SnapshotFacts),
    /// The session has ended.
    Ended(Box<Counts>),
    /// It is not done.
    Failed(Refusal),
}

/// A session's decisions.
#[derive(Debug)]
pub struct Machine {
    spec: SessionSpec,
    phase: Phase,
    is_recording: bool,
    /// True if records from before the stop could not all be written then.
    is_unwritten: bool,
    /// Classes of the channels, in the order of `spec.channels`.
    classes: Vec<u32>,
    next_class: u32,
    /// Snapshots so far.
    snapshots: u32,
    /// The part of them that went into folders of the session's.
    numbered: u32,
    automatic: AutomaticSnapshots,
    queue: VecDeque<QueuedRequest>,
    job: Option<Job>,
    /// The effect that is being carried out.
    doing: Option<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Beginning,
    Begun,
    Over,
    /// [`Effect::Exit`] was given out.
    Exited,
}

#[derive(Debug)]
enum QueuedRequest {
    Client(Client, Box<Request>),
    Automatic(Reason),
}

/// Snapshots that no command requested. A reason that comes too soon is kept, so that a snapshot
/// follows every reason.
#[derive(Debug, Default)]
struct AutomaticSnapshots {
    /// The first process that died since the last snapshot for such a reason.
    crash: Option<Reason>,
    /// True if a program has requested one since.
    program: bool,
    /// Earliest time of the next one for each reason: frequent requests of programs must not delay
    /// the snapshot of a crash.
    crash_due_ns: u64,
    program_due_ns: u64,
}

/// One request on its way.
#[derive(Debug)]
struct Job {
    client: Option<Client>,
    steps: VecDeque<Step>,
    /// The change of state once all is done.
    then: StateChange,
    /// The effects that undo the steps that are done, the last one last.
    undo: Vec<Effect>,
    warnings: Vec<String>,
    answer: Option<Answer>,
    /// A step answers.
    is_answered: bool,
}

#[derive(Debug, Clone)]
struct Step {
    effect: Effect,
    /// The rest is done whether or not this is.
    is_optional: bool,
    /// The effect that undoes it, should a later one fail.
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
    /// A session that begins as `spec` says: first of all, [`CREATOR`] gets the outcome.
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

    /// Returns the session as it is now.
    pub fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// The channels with the classes of their streams.
    pub fn channels(&self) -> impl Iterator<Item = (&ChannelSpec, u32)> {
        self.spec.channels.iter().zip(self.classes.iter().copied())
    }

    /// Returns true if writers are let in.
    pub fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Snapshots so far.
    pub fn snapshots(&self) -> u32 {
        self.snapshots
    }

    /// Queues a request. After [`Effect::Exit`] it gets no answer.
    pub fn submit(&mut self, client: Client, request: Request) {
        if request == Request::Destroy {
            // There is no later time: snapshots that are due later are made before.
            self.queue.extend(self.automatic.take().map(QueuedRequest::Automatic));
        }
        self.queue.push_back(QueuedRequest::Client(client, Box::new(request)));
    }

    /// Notes that a program requested a snapshot, at `now_ns` of any clock that only goes forward.
    pub fn note_snapshot_request(&mut self, now_ns: u64) {
        self.request_automatic_snapshot(Reason::Program, now_ns);
    }

    /// A traced process died of a signal.
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

    /// Lets time go on: a snapshot that came too soon after another one is made when it is time.
    /// To be called every now and then, with the same clock.
    pub fn tick(&mut self, now_ns: u64) {
        self.queue.extend(self.automatic.due(now_ns).map(QueuedRequest::Automatic));
    }

    /// Ends the session for an outside reason: the window is gone, or another recorder took it
    /// over. All clients that wait get an answer; then the session is over. An effect that is being
    /// carried out is still answered by [`Self::complete`].
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

    /// Returns the next effect; none until there is a request.
    ///
    /// # Panics
    ///
    /// If the effect before has not been answered by [`Self::complete`].
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

    /// Takes the outcome of the effect that [`Self::next_effect`] returned last, if it has one
    /// ([`Effect::has_outcome`]).
    pub fn complete(&mut self, outcome: Outcome) {
        let (Some(step), Some(job)) = (self.doing.take(), &mut self.job) else { return };
        match outcome {
            Outcome::Done => job.undo.extend(step.undo),
            Outcome::Snapshot(facts) => job.answer = Some(Answer::Snapshot(facts)),
            Outcome::Ended(counts) => job.answer = Some(Answer::Ended(counts)),
            Outcome::Failed(refusal) if step.is_optional => job.warnings.push(refusal.why),
            Outcome::Failed(refusal) => {
                // A refused request changes nothing: the last change is undone first.
                let undo = job.undo.drain(..).rev();
                job.steps = undo.map(Step::optional).collect();
                let refusal = match job.then {
                    // A request to end it ends it: the rest is left for recovery.
                    StateChange::Over => refusal,
                    // Writers are out, and what they wrote is not where the answer would have it. A
                    // refusal that knows more has a hint of its own.
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

    /// Plans a request: steps, and the change of state after them.
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
        // One that could not write everything does so when it is stopped again.
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
            // First what can always be undone: of the processes that were there, some may be gone.
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
        // No channel can have more, and to find that out takes long.
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
                // Exclusions alone mean all but those.
                let is_none = rules.is_empty() || including().next().is_some();
                spec.on = is_none.then(Vec::new);
                let names: Vec<String> = including().map(RuleSpec::full_pattern).collect();
                // With rules that go go their filters.
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

    /// Checks that the exclusions that are to be taken back are there.
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

    /// Why there is no channel of this name, where there are `names`.
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

    /// The channel of this name, or the only one: its place, and its class.
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

    /// A class that no stream has had.
    fn take_class(&mut self) -> u32 {
        let class = self.next_class;
        self.next_class += 1;
        class
    }

    /// Applies the changes of a completed job; returns the answer for its client.
    fn end_job(&mut self, job: Job) -> Option<Effect> {
        match job.then {
            StateChange::Nothing => {}
            // It may have been lost since.
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

/// From rules and filters that are in force to others: meanwhile filters of before and of then are
/// both, so that no event passes which neither lets pass.
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

/// Checks the total size of a request's patterns. Each pattern is compared with all others, which
/// could take minutes for the largest requests. The limit is that of a channel.
fn check_patterns_size(bytes: usize) -> Result<(), Refusal> {
    let refused = || Refusal::new(OptionError::TooManyPatterns.to_string());
    (bytes <= RULES_BYTES_MAX + 1).then_some(()).ok_or_else(refused)
}

impl Effect {
    /// Returns true if [`Machine::complete`] is to get the outcome: of all but answers to clients,
    /// and the end.
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

    /// Returns the reason for a snapshot now.
    fn due(&mut self, now_ns: u64) -> Option<Reason> {
        let next_ns = now_ns.saturating_add(AUTOMATIC_PERIOD_NS);
        if self.crash.is_some() && now_ns >= self.crash_due_ns {
            // It serves a program's request, too.
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

    /// Removes and returns the reason for a snapshot, now or later.
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

    /// One whose only step is an answer.
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
