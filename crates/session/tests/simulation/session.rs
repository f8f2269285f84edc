//! A session's recorder as a process: it requests effects from its machine, carries them out step
//! by step, and answers requests. The checks of answers are here.

use std::collections::{BTreeSet, VecDeque};

use trackway_session::machine::{CREATOR, Client, Effect, Machine, Outcome, PlannedChannel};
use trackway_session::protocol::{Answer, Counts, Refusal, Request, SnapshotFacts};
use trackway_session::{FilterSpec, Mode, SessionSpec};

use crate::mistakes::Mistake;
use crate::recorder::{self, Script, StepOutcome, processes_of};
use crate::simulation::{Simulation, TURN_NS};
use crate::window::{EVENTS, Processes, State};
use crate::writer::Writer;

/// The state of a recorder process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecorderState {
    Running,
    /// Another recorder took its session over.
    Lost,
    /// The recorder has ended regularly.
    Exited,
    Killed,
}

/// A client and its request: `None` is the session's beginning.
type PendingRequest = (Client, Option<Request>);

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) machine: Machine,
    pub(crate) standing: RecorderState,
    /// The session's channels: class and slot.
    pub(crate) channels: Vec<(u32, usize)>,
    pub(crate) pending: VecDeque<PendingRequest>,
    /// The current effect; a drain of a channel has none.
    effect: Option<Effect>,
    pub(crate) script: Option<Script>,
    /// Value of `Window::news` when the recorder checked events last.
    news: u64,
    before: SessionImage,
    classes: BTreeSet<u32>,
}

/// The state that a refused request must not change.
#[derive(Debug, PartialEq, Eq)]
struct SessionImage {
    spec: SessionSpec,
    is_recording: bool,
    channels: Vec<Channel>,
}

impl SessionImage {
    /// Changes the image as a stop does in any case.
    fn stop(&mut self) {
        self.is_recording = false;
        self.channels.iter_mut().for_each(|channel| channel.is_open = false);
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Channel {
    class: u32,
    slot: usize,
    is_open: bool,
    rules: String,
    processes: Processes,
    overwrites: bool,
    blocking: Option<core::time::Duration>,
    filters: Vec<FilterSpec>,
}

impl Session {
    pub(crate) fn new(spec: SessionSpec) -> Self {
        let machine = Machine::new(spec);
        let spec = machine.spec().clone();
        Self {
            before: SessionImage {
                spec,
                is_recording: machine.is_recording(),
                channels: Vec::new(),
            },
            machine,
            standing: RecorderState::Running,
            channels: Vec::new(),
            pending: [(CREATOR, None)].into(),
            effect: None,
            script: None,
            news: 0,
            classes: BTreeSet::new(),
        }
    }

    /// Returns true if the session has no requests and no steps.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.script.is_none()
    }

    pub(crate) fn is_at_work(&self) -> bool {
        matches!(self.standing, RecorderState::Running | RecorderState::Lost)
    }

    pub(crate) fn submit(&mut self, client: Client, request: Request) {
        self.pending.push_back((client, Some(request.clone())));
        self.machine.submit(client, request);
    }
}

impl Simulation {
    /// Takes one step of a recorder.
    pub(crate) fn step_recorder(&mut self, number: usize) -> Result<(), String> {
        if !self.sessions[number].is_at_work() {
            // A session that has exited must not request more effects.
            let session = &mut self.sessions[number];
            let more = (session.standing == RecorderState::Exited)
                .then(|| session.machine.next_effect())
                .flatten();
            return more.map_or(Ok(()), |effect| Err(format!("after the end comes {effect:?}")));
        }
        self.at_work = Some(number);
        let script = self.sessions[number].script.take();
        let result = match script {
            Some(mut script) => {
                let is_over = self.run(&mut script)?;
                if !is_over {
                    self.sessions[number].script = Some(script);
                    Ok(())
                } else {
                    self.end_script(number, &script)
                }
            }
            None => self.begin_script(number),
        };
        self.at_work = None;
        result
    }

    /// Takes a step of a script; returns true if none is left.
    pub(crate) fn run(&mut self, script: &mut Script) -> Result<bool, String> {
        let Some(op) = script.ops.pop_front() else { return Ok(true) };
        match self.carry_out(&op, script)? {
            StepOutcome::Done => self.log_step(|| format!("recorder: {op:?}")),
            StepOutcome::Wait => script.ops.push_front(op),
            StepOutcome::Failed(why) => {
                self.log_step(|| format!("recorder: {op:?} fails: {why}"));
                script.fail(&op, why);
            }
        }
        Ok(false)
    }

    fn begin_script(&mut self, number: usize) -> Result<(), String> {
        let session = &self.sessions[number];
        if self.random.once_in(3) && session.standing == RecorderState::Running {
            let news = self.window.news;
            if session.news != news {
                let looks = self.mistake != Some(Mistake::NewsUnseen);
                let classes = session.channels.iter().filter(|_| looks).map(|of| of.0);
                let script = recorder::script_of_rules(&classes.collect::<Vec<_>>());
                let session = &mut self.sessions[number];
                (session.script, session.news) = (Some(script), news);
            } else if !session.channels.is_empty() {
                let class = self.random.pick(&session.channels).0;
                self.sessions[number].script = Some(recorder::script_of_drain(class));
            }
            return Ok(());
        }
        let now_ns = self.now * TURN_NS;
        self.sessions[number].machine.tick(now_ns);
        match self.sessions[number].machine.next_effect() {
            Some(effect) => self.take_effect(number, effect),
            None => self.check_session(number),
        }
    }

    fn take_effect(&mut self, number: usize, mut effect: Effect) -> Result<(), String> {
        self.log_step(|| format!("session {number}: {effect:?}"));
        let session = &mut self.sessions[number];
        if session.standing == RecorderState::Exited {
            return Err(format!("after the end comes {effect:?}"));
        }
        if session.standing == RecorderState::Lost && effect.has_outcome() {
            return Err(format!("in a session that is lost comes {effect:?}"));
        }
        let has_ended = matches!(effect, Effect::Snapshot(_)) && session.channels.is_empty();
        if has_ended {
            return Err(format!("where no channel is left comes {effect:?}"));
        }
        match &mut effect {
            Effect::Begin { channels, .. } => {
                for planned in channels {
                    session.note_class(planned)?;
                }
            }
            Effect::Add { channel, .. } | Effect::Replace { channel, .. } => {
                if self.mistake == Some(Mistake::ClassTwice) {
                    channel.class = 0;
                }
                session.note_class(channel)?;
            }
            Effect::Start => {
                for slot in session.channels.iter().map(|channel| channel.1) {
                    if let Some(life) = self.window.slots[slot].life {
                        self.ledger.lives[life].is_stopped = false;
                    }
                }
            }
            Effect::Answer(client, answer) => {
                if self.mistake == Some(Mistake::OtherAnswered) {
                    *client += 1;
                }
                let (client, is_refused) = (*client, matches!(answer, Answer::Refused(_)));
                return self.check_answer(number, client, &effect, is_refused);
            }
            Effect::ReportStatus(client) | Effect::Follow(client) => {
                let client = *client;
                return self.check_answer(number, client, &effect, false);
            }
            Effect::Exit => return self.check_exit(number),
            _ => {}
        }
        let classes: Vec<u32> = session.channels.iter().map(|channel| channel.0).collect();
        let records = session.machine.is_recording();
        let script = recorder::script_of_effect(&effect, &classes, records, self);
        let session = &mut self.sessions[number];
        (session.effect, session.script) = (Some(effect), Some(script));
        Ok(())
    }

    fn end_script(&mut self, number: usize, script: &Script) -> Result<(), String> {
        let Some(effect) = self.sessions[number].effect.take() else { return Ok(()) };
        let outcome = match (script.failed, &effect) {
            (Some(_), _) if self.mistake == Some(Mistake::RefusedIsApplied) => Outcome::Done,
            (Some(why), _) => Outcome::Failed(Refusal::new(why)),
            (None, _) if self.mistake == Some(Mistake::DoneIsRefused) => {
                Outcome::Failed(Refusal::new("by mistake"))
            }
            (None, Effect::Snapshot(_)) => {
                let facts = SnapshotFacts { events: script.events, ..SnapshotFacts::default() };
                Outcome::Snapshot(facts)
            }
            (None, Effect::Finish) => Outcome::Ended(Box::<Counts>::default()),
            (None, _) => Outcome::Done,
        };
        self.log_step(|| format!("session {number}: it is {outcome:?}"));
        self.facts.effects += 1;
        self.sessions[number].machine.complete(outcome);
        Ok(())
    }

    /// Checks that every request gets one suitable answer, in order, and that a refused request has
    /// changed nothing. Exception: a session whose buffers could not be written is stopped (the
    /// machine's invariants).
    fn check_answer(
        &mut self,
        number: usize,
        client: Client,
        effect: &Effect,
        is_refused: bool,
    ) -> Result<(), String> {
        if self.mistake == Some(Mistake::Unanswered) && self.random.once_in(4) {
            return Ok(());
        }
        let Some((asker, request)) = self.sessions[number].pending.pop_front() else {
            return Err(format!("nobody asked, and {client} is answered"));
        };
        if asker != client {
            return Err(format!("{asker} asked, and {client} is answered"));
        }
        let fits = match (effect, &request) {
            (Effect::ReportStatus(_), request) => *request == Some(Request::Status),
            (Effect::Follow(_), request) => *request == Some(Request::Follow),
            (Effect::Answer(_, answer), request) => answers_request(answer, request.as_ref()),
            _ => false,
        };
        if !fits {
            return Err(format!("{request:?} is answered by {effect:?}"));
        }
        self.facts.answers += 1;
        self.facts.refusals += u64::from(is_refused);
        let image = self.image(number);
        let session = &mut self.sessions[number];
        let is_end = matches!(request, None | Some(Request::Destroy));
        let is_checked = is_refused && !is_end && session.standing == RecorderState::Running;
        if is_checked && request == Some(Request::Stop) {
            session.before.stop();
        }
        if is_checked && image != session.before && !self.ledger.is_tainted(number) {
            let before = &session.before;
            return Err(format!("{request:?} is refused, and {before:?} is now {image:?}"));
        }
        session.before = image;
        if !session.machine.is_recording() {
            for slot in session.channels.iter().map(|channel| channel.1) {
                if let Some(life) = self.window.slots[slot].life {
                    self.ledger.lives[life].is_stopped = true;
                }
            }
        }
        if self.mistake == Some(Mistake::AnsweredTwice) {
            self.mistake = None;
            return self.check_answer(number, client, effect, is_refused);
        }
        self.check_session(number)
    }

    fn check_exit(&mut self, number: usize) -> Result<(), String> {
        let session = &mut self.sessions[number];
        session.standing = RecorderState::Exited;
        if !session.pending.is_empty() {
            return Err(format!("nobody will answer {:?}", session.pending));
        }
        if !session.channels.is_empty() {
            return Err(format!("it is over, and has channels: {:?}", session.channels));
        }
        if self.mistake == Some(Mistake::GoesOnAfterExit) {
            return self.take_effect(number, Effect::Stop);
        }
        Ok(())
    }

    fn image(&self, number: usize) -> SessionImage {
        let session = &self.sessions[number];
        let channels = session.channels.iter().map(|&(class, index)| {
            let slot = &self.window.slots[index];
            Channel {
                class,
                slot: index,
                is_open: slot.is_open(),
                rules: slot.rules.clone(),
                processes: slot.processes.clone(),
                overwrites: slot.overwrites,
                blocking: slot.blocking,
                filters: slot.filters.clone(),
            }
        });
        let machine = &session.machine;
        SessionImage {
            spec: machine.spec().clone(),
            is_recording: machine.is_recording(),
            channels: channels.collect(),
        }
    }

    /// Checks, between two effects, that the machine's channels are those in the window, and that
    /// bits agree with rules (0007: "rules").
    pub(crate) fn check_session(&mut self, number: usize) -> Result<(), String> {
        let session = &self.sessions[number];
        let is_checked = session.standing == RecorderState::Running
            && session.script.is_none()
            && !self.ledger.is_tainted(number);
        if !is_checked {
            return Ok(());
        }
        let machine = &session.machine;
        let mut there = session.channels.clone();
        for (spec, class) in machine.channels() {
            // A session that has not begun, or is over, has no channels.
            let Some(place) = there.iter().position(|channel| channel.0 == class) else {
                if session.channels.is_empty() && !machine.is_recording() {
                    continue;
                }
                return Err(format!("channel {class} is in no slot: {:?}", session.channels));
            };
            let slot = &self.window.slots[there.swap_remove(place).1];
            let is_so = slot.state == State::Active
                && slot.class == class
                && slot.is_paused != machine.is_recording()
                && slot.overwrites == (spec.mode == Mode::Overwrite)
                && Ok(&slot.rules) == spec.rules_text().as_ref()
                && slot.processes == processes_of(spec)
                && slot.blocking == spec.blocking_timeout
                && slot.filters == spec.filters
                && !slot.is_left;
            if !is_so {
                return Err(format!("of channel {class} is said {spec:?}, and it is {slot:?}"));
            }
        }
        if !there.is_empty() {
            return Err(format!("slots that the machine does not know of: {there:?}"));
        }
        for &(_, index) in &session.channels {
            self.check_bits(index, session.news)?;
        }
        Ok(())
    }

    fn check_bits(&self, index: usize, news: u64) -> Result<(), String> {
        let slot = &self.window.slots[index];
        for event in 0..EVENTS {
            let is_said = slot.selects[event] && slot.is_open() && self.window.is_ready[event];
            let is_at_it = |writer: &Writer| writer.describes().is_some_and(|of| of.event == event);
            let is_left = |life| {
                self.ledger.may_be_left(event, life)
                    || self.window.news != news && self.ledger.is_reported(event, life)
            };
            let is_excused = self.writers.iter().any(is_at_it) || slot.life.is_some_and(is_left);
            if self.window.has_bit(event, index) != is_said && !is_excused {
                let rules = &slot.rules;
                return Err(format!("bit {index} of event {event} is not as {rules:?} say"));
            }
        }
        Ok(())
    }

    /// Ends a recorder: it is killed, or finds that another recorder owns its session.
    pub(crate) fn end_recorder(&mut self, number: usize, standing: RecorderState) {
        self.log_step(|| format!("session {number} is {standing:?}"));
        let session = &mut self.sessions[number];
        session.standing = standing;
        for (_, slot) in session.channels.drain(..) {
            let slot = &mut self.window.slots[slot];
            slot.is_left = slot.state != State::Free;
            if let Some(life) = slot.life {
                let facts = &mut self.ledger.lives[life];
                facts.is_tainted |= facts.is_clearing;
            }
        }
        let effect = session.effect.take();
        session.script = None;
        if standing == RecorderState::Killed {
            session.pending.clear();
            return;
        }
        let why = Refusal::new("another recorder took it over");
        session.machine.abort(&why);
        if effect.is_some() {
            session.machine.complete(Outcome::Failed(why));
        }
    }

    /// Takes a step in the recovery of abandoned sessions.
    pub(crate) fn step_recovery(&mut self) -> Result<(), String> {
        if let Some((slot, mut script)) = self.recovery.take() {
            if !self.run(&mut script)? {
                self.recovery = Some((slot, script));
            }
            return Ok(());
        }
        let is_left = |&slot: &usize| {
            self.window.slots[slot].is_left && self.window.slots[slot].state != State::Free
        };
        if let Some(slot) = (0..self.window.slots.len()).find(is_left) {
            self.log_step(|| format!("slot {slot} is recovered"));
            self.facts.recovered += 1;
            let script = recorder::script_of_recovery(slot, self);
            self.window.slots[slot].is_left = false;
            self.recovery = Some((slot, script));
        }
        Ok(())
    }

    /// Kills the recovery process.
    pub(crate) fn kill_recovery(&mut self) {
        // The last step of a recovery frees the slot, so another session may own the slot since
        // then.
        if let Some((slot, script)) = self.recovery.take().filter(|of| !of.1.ops.is_empty()) {
            self.log_step(|| {
                format!("who recovers slot {slot} is killed before {:?}", script.ops[0])
            });
            let slot = &mut self.window.slots[slot];
            slot.is_left = slot.state != State::Free;
        }
    }
}

/// Returns true if the answer is suitable for the request.
fn answers_request(answer: &Answer, request: Option<&Request>) -> bool {
    match answer {
        Answer::Refused(_) => true,
        Answer::Spec(_) => request == Some(&Request::Spec),
        Answer::Snapshot(_) => matches!(request, Some(Request::Snapshot { .. })),
        Answer::Ended(_) => request == Some(&Request::Destroy),
        Answer::Status(_) | Answer::Following { .. } => false,
        Answer::Done { .. } => !matches!(
            request,
            Some(Request::Spec | Request::Snapshot { .. } | Request::Destroy | Request::Status)
        ),
    }
}

impl Session {
    fn note_class(&mut self, planned: &PlannedChannel) -> Result<(), String> {
        let is_new = self.classes.insert(planned.class);
        is_new.then_some(()).ok_or_else(|| format!("class {} is there twice", planned.class))
    }
}
