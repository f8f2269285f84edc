//! Plays one history: schedules turns, injects faults, ends all sessions, and checks the result.

use trackway_session::machine::Client;
use trackway_session::protocol::Request;
use trackway_testkit::Random;

use crate::ledger::{Ledger, PROCESSES};
use crate::mistakes::Mistake;
use crate::recorder::{Script, StepOutcome, Trace};
use crate::requests;
use crate::session::{RecorderState, Session};
use crate::window::{EVENTS, REGIONS, Record, SLOTS, State, Window};
use crate::writer::{At, Process, Writer};

/// Number of turns in a history before its end.
const TURNS: u64 = 500;
/// Most turns from the last fault to the end of a history.
const TURNS_TO_END: u64 = 20_000;
/// Most sessions in a history.
const SESSIONS_MAX: usize = 4;
/// Duration of a turn in ns, as the machine observes it.
pub(crate) const TURN_NS: u64 = 50_000_000;

/// Counts of what happened: a history that never reaches a situation does not test it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Facts {
    pub(crate) commits: u64,
    pub(crate) discards: u64,
    pub(crate) restarts: u64,
    pub(crate) followed: u64,
    pub(crate) moved: u64,
    pub(crate) left: u64,
    pub(crate) recovered: u64,
    pub(crate) no_slot: u64,
    pub(crate) outlived: u64,
    pub(crate) disk_full: u64,
    pub(crate) cleared: u64,
    pub(crate) snapshot_events: u64,
    pub(crate) overwritten: u64,
    pub(crate) effects: u64,
    pub(crate) answers: u64,
    pub(crate) refusals: u64,
    pub(crate) lost: u64,
    pub(crate) killed: u64,
    pub(crate) due: u64,
    pub(crate) excused: u64,
    pub(crate) mistaken: u64,
    pub(crate) stray: u64,
    pub(crate) spared: u64,
}

/// The whole simulation: window, processes, recorders, traces.
#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) window: Window,
    pub(crate) ledger: Ledger,
    pub(crate) processes: Vec<Process>,
    pub(crate) writers: Vec<Writer>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) traces: Vec<Trace>,
    pub(crate) recovery: Option<(usize, Script)>,
    /// The session whose recorder has the current turn.
    pub(crate) at_work: Option<usize>,
    pub(crate) random: Random,
    pub(crate) mistake: Option<Mistake>,
    pub(crate) now: u64,
    pub(crate) is_disk_full: bool,
    pub(crate) is_memory_short: bool,
    /// True if users request other contexts all the time.
    is_restless: bool,
    /// True if no faults occur any more, and no processes start.
    pub(crate) is_calm: bool,
    pub(crate) facts: Facts,
    /// The history as text, for a replay.
    pub(crate) log: Option<Vec<String>>,
}

impl Simulation {
    pub(crate) fn new(seed: u64, mistake: Option<Mistake>, log: bool) -> Self {
        let mut world = Self {
            window: Window::new(),
            ledger: Ledger::default(),
            processes: Vec::new(),
            writers: Vec::new(),
            sessions: Vec::new(),
            traces: Vec::new(),
            recovery: None,
            at_work: None,
            random: Random::new(seed),
            mistake,
            now: 1,
            is_disk_full: false,
            is_memory_short: false,
            is_restless: false,
            is_calm: false,
            facts: Facts::default(),
            log: log.then(Vec::new),
        };
        // Other sessions of the same user, which only take slots.
        if world.random.once_in(3) {
            let free = 2 + world.random.next_below(4) as usize;
            for slot in &mut world.window.slots[free..] {
                slot.state = State::Active;
            }
        }
        world.is_restless = world.random.once_in(3);
        for (number, executable) in ["web", "db", "worker", "db"].into_iter().enumerate() {
            world.processes.push(Process::new(number as u32 + 1, executable));
            let threads = 1 + usize::from(number == 0);
            for _ in 0..threads {
                let cpu = world.random.next_below(2) as usize;
                let claims = world.random.once_in(3);
                world.writers.push(Writer::new(number, cpu, claims));
            }
        }
        world.begin_session();
        world
    }

    pub(crate) fn log_step(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(log) = &mut self.log {
            log.push(format!("{now:5} {}", what()));
        }
    }

    fn begin_session(&mut self) {
        let spec = requests::random_session(&mut self.random);
        let number = self.sessions.len();
        self.log_step(|| format!("session {number} begins: {spec:?}"));
        self.sessions.push(Session::new(spec));
        self.traces.push(Trace::default());
    }

    /// Passes changes of the window to the ledger.
    pub(crate) fn observe_changes(&mut self) {
        if self.window.is_changed {
            self.window.is_changed = false;
            let writers = &self.writers;
            let in_hand = |event, slot| Self::is_in_hand(writers, event, slot);
            self.ledger.observe(&self.window, &self.processes, &in_hand, self.now);
        }
    }

    /// Plays the history to its end.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        for _ in 0..TURNS {
            self.turn()?;
        }
        self.end()?;
        (self.facts.due, self.facts.excused) = (self.ledger.due, self.ledger.excused);
        Ok(())
    }

    fn turn(&mut self) -> Result<(), String> {
        match self.random.next_below(100) {
            0..=54 => {
                let number = self.random.next_below(self.writers.len() as u64) as usize;
                // A thread mostly takes a few steps at a time, as with real schedulers.
                for _ in 0..=self.random.next_below(4) {
                    self.step_thread(number)?;
                }
            }
            55..=84 => {
                let number = self.random.next_below(self.sessions.len() as u64) as usize;
                for _ in 0..=self.random.next_below(8) {
                    self.step(|world| world.step_recorder(number))?;
                }
            }
            85..=88 => {
                for _ in 0..8 {
                    self.step(Self::step_recovery)?;
                }
            }
            89..=95 => self.somebody_asks(),
            _ => self.step(Self::something_happens)?,
        }
        Ok(())
    }

    fn step(&mut self, step: impl FnOnce(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.now += 1;
        step(self)?;
        self.observe_changes();
        Ok(())
    }

    fn step_thread(&mut self, number: usize) -> Result<(), String> {
        let writer = &self.writers[number];
        // Threads sleep more often after they have read a word that others change.
        let dozes = matches!(writer.at, At::Change(..) | At::Follow { .. } | At::Discard { .. })
            && !self.is_calm
            && !self.random.once_in(12);
        let runs = !writer.is_stopped && writer.at != At::Dead && !dozes;
        if runs { self.step(|world| world.step_writer(number)) } else { Ok(()) }
    }

    fn somebody_asks(&mut self) {
        let number = self.random.next_below(self.sessions.len() as u64) as usize;
        let client: Client = 1 + self.random.next_below(3);
        let request = match self.is_restless && !self.random.once_in(4) {
            true => requests::random_context_change(&mut self.random),
            false => requests::random_request(&mut self.random),
        };
        if self.sessions[number].standing == RecorderState::Running {
            self.log_step(|| format!("client {client} asks session {number}: {request:?}"));
            self.sessions[number].submit(client, request);
        }
    }

    /// Simulates actions of users, the system and faulty programs.
    fn something_happens(&mut self) -> Result<(), String> {
        let number = self.random.next_below(self.sessions.len() as u64) as usize;
        let thread = self.random.next_below(self.writers.len() as u64) as usize;
        match self.random.next_below(16) {
            0 | 1 => {
                self.is_disk_full = !self.is_disk_full;
                let is_full = self.is_disk_full;
                self.log_step(|| format!("the disk is full: {is_full}"));
            }
            2 => self.is_memory_short = !self.is_memory_short,
            3 if self.sessions[number].is_at_work() => {
                self.facts.killed += 1;
                self.end_recorder(number, RecorderState::Killed);
            }
            4 if self.random.once_in(2) => self.kill_recovery(),
            5 | 6 => self.kill_process(self.writers[thread].process),
            7 | 8 => self.restart_processes(),
            9 | 10 => {
                let writer = &mut self.writers[thread];
                writer.is_stopped = !writer.is_stopped;
                let is_stopped = writer.is_stopped;
                self.log_step(|| format!("thread {thread} is stopped: {is_stopped}"));
            }
            11 if self.sessions.len() < SESSIONS_MAX => self.begin_session(),
            12 => {
                let now_ns = self.now * TURN_NS;
                self.sessions[number].machine.note_snapshot_request(now_ns);
            }
            13 if self.sessions[number].standing == RecorderState::Running
                && self.random.once_in(3) =>
            {
                self.facts.lost += 1;
                self.end_recorder(number, RecorderState::Lost);
            }
            14 if self.random.once_in(3) => self.scribble(number),
            _ => {}
        }
        self.window.is_changed = true;
        Ok(())
    }

    fn kill_process(&mut self, process: usize) {
        self.log_step(|| format!("process {process} is killed"));
        self.processes[process].is_alive = false;
        for number in 0..self.writers.len() {
            if self.writers[number].process == process {
                self.kill_writer(number);
            }
        }
        let (pid, now_ns) = (self.processes[process].pid, self.now * TURN_NS);
        for session in &mut self.sessions {
            session.machine.note_crash(pid, 11, now_ns);
        }
    }

    /// Starts other programs in place of killed ones. Their threads have new numbers, so that they
    /// are not mistaken for dead threads.
    fn restart_processes(&mut self) {
        for number in 0..self.processes.len() {
            let process = &self.processes[number];
            if process.is_alive || self.writers.len() > 12 {
                continue;
            }
            self.processes[number] = Process::new(process.pid, process.executable);
            let claims = self.random.once_in(3);
            self.writers.push(Writer::new(number, self.random.next_below(2) as usize, claims));
        }
    }

    /// Lets a faulty program overwrite the words of a session. Then nothing is promised for its
    /// records, but its recorder continues, and all other sessions are unaffected (design §3.5).
    fn scribble(&mut self, number: usize) {
        let Some(&(_, index)) = self.sessions[number].channels.first() else { return };
        self.ledger.taint(number);
        self.log_step(|| format!("somebody writes over slot {index}"));
        let own: Vec<usize> = self.sessions[number].channels.iter().map(|of| of.1).collect();
        let value = self.random.next_below(64);
        let region = self.random.next_below(REGIONS as u64) as usize;
        let event = self.random.next_below(EVENTS as u64) as usize;
        let slot = &mut self.window.slots[index];
        match self.random.next_below(9) {
            0 => slot.generation += value,
            1 => slot.regions[region].head = value,
            2 => slot.regions[region].progress.position = value,
            3 => slot.regions[region].discarded = u64::MAX / 8,
            4 => slot.regions[region].owner = Some(value as usize),
            5 => slot.revision |= 1,
            6 => slot.set_rules("\n!!*:\t<=x\n".into()),
            7 => slot.successor = own.last().copied(),
            _ => self.window.set_word(event, self.window.words[event] ^ 1 << index),
        }
    }

    /// Plays the end without faults: within `TURNS_TO_END` turns, all requests must be answered,
    /// all sessions must end, and all abandoned slots must be recovered.
    fn end(&mut self) -> Result<(), String> {
        self.log_step(|| "from here on nothing goes wrong".into());
        self.is_calm = true;
        (self.is_disk_full, self.is_memory_short) = (false, false);
        self.writers.iter_mut().for_each(|writer| writer.is_stopped = false);
        self.until("what was asked is not answered", |world| {
            world.sessions.iter().filter(|session| session.is_at_work()).all(Session::is_idle)
        })?;
        for session in &mut self.sessions {
            if session.standing == RecorderState::Running {
                session.submit(1, Request::Destroy);
                session.submit(2, Request::Destroy);
            }
        }
        self.until("a session does not end", |world| {
            let is_busy = |writer: &Writer| !matches!(writer.at, At::Idle | At::Dead);
            !world.sessions.iter().any(Session::is_at_work) && !world.writers.iter().any(is_busy)
        })?;
        self.until("something is not recovered", |world| {
            world.recovery.is_none() && !world.window.slots.iter().any(|slot| slot.is_left)
        })?;
        self.check_end()
    }

    fn until(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) -> Result<(), String> {
        for turn in 0..TURNS_TO_END {
            if turn > 20 && is_done(self) {
                return Ok(());
            }
            for number in 0..self.writers.len() {
                // Idle threads make calls for some more turns.
                let is_idle = self.writers[number].at == At::Idle;
                if !is_idle || self.random.once_in(8) && turn < 100 {
                    self.step_thread(number)?;
                }
            }
            for number in 0..self.sessions.len() {
                self.step(|world| world.step_recorder(number))?;
            }
            self.step(Self::step_recovery)?;
        }
        Err(format!("after {TURNS_TO_END} turns in which nothing went wrong, {what}"))
    }

    fn check_end(&mut self) -> Result<(), String> {
        for (index, slot) in self.window.slots.iter().enumerate() {
            // Slots without a life belong to other sessions, from beginning to end.
            if slot.life.is_some() && (slot.state != State::Free || slot.block.is_some()) {
                return Err(format!("slot {index} is not free at the end: {slot:?}"));
            }
            // An event with a bit costs time at each of its sites.
            for event in 0..EVENTS {
                let is_excused = self.ledger.may_be_left_in(event, index) || slot.life.is_none();
                if self.window.has_bit(event, index) && !is_excused {
                    return Err(format!("event {event} is on for slot {index}, which is free"));
                }
            }
        }
        if let Some(life) = self.window.blocks.iter().flatten().next() {
            return Err(format!("memory of life {life} was never given back"));
        }
        for life in 0..self.ledger.lives.len() {
            self.check_trace(life)?;
        }
        Ok(())
    }

    /// Checks design §3.3: recorded + discarded + overwritten = emitted, and the trace has the
    /// committed records once, in order, for any recorder and any number of attempts.
    fn check_trace(&mut self, number: usize) -> Result<(), String> {
        let life = &self.ledger.lives[number];
        if life.is_tainted {
            return Ok(());
        }
        let committed = life.committed.iter().map(Vec::len).sum::<usize>() as u64;
        let lost = life.discarded.iter().sum::<u64>();
        if !life.is_complete {
            return match committed + lost {
                0 => Ok(()),
                _ => Err(format!("life {number} of slot {} was never written", life.slot)),
            };
        }
        let trace = &self.traces[life.session];
        let (discarded, overwritten) = trace.totals.get(&life.class).copied().unwrap_or_default();
        let mut recorded = 0;
        for (region, committed) in life.committed.iter().enumerate() {
            let empty = Vec::new();
            let stream = trace.streams.get(&(life.class, region)).unwrap_or(&empty);
            recorded += stream.len() as u64;
            let missing = committed.len().checked_sub(stream.len());
            let is_whole = missing.is_some_and(|missing| {
                committed[missing..] == stream[..] && (missing == 0 || life.overwrites)
            });
            if !is_whole {
                return Err(format!(
                    "life {number}, region {region}: {committed:?} were committed, and \
                     {stream:?} are in the trace"
                ));
            }
        }
        self.facts.overwritten += overwritten;
        let emitted = committed + lost;
        if recorded + discarded + overwritten != emitted || discarded != lost {
            return Err(format!(
                "life {number}: {recorded} recorded, {discarded} discarded and {overwritten} \
                 overwritten are not {emitted} emitted"
            ));
        }
        Ok(())
    }

    /// Checks 0007 "snapshots": a snapshot has all newest records, except those that may be
    /// overwritten at that moment.
    pub(crate) fn check_snapshot(
        &self,
        life: usize,
        region: usize,
        (head, floor, since): (u64, u64, u64),
        written: &[Record],
    ) -> Result<StepOutcome, String> {
        let facts = &self.ledger.lives[life];
        let index = facts.slot;
        if facts.is_tainted || self.window.slots[index].regions[region].is_foreign {
            return Ok(StepOutcome::Done);
        }
        let committed = &facts.committed[region];
        let range = committed.get((floor.min(head) as usize)..head as usize);
        let expected: Vec<Record> =
            range.unwrap_or(&[]).iter().filter(|record| record.time >= since).copied().collect();
        if expected != written {
            return Err(format!("a snapshot has {written:?} in place of {expected:?}"));
        }
        Ok(StepOutcome::Done)
    }
}

const _: () = assert!(PROCESSES == 4 && SLOTS >= 8);
