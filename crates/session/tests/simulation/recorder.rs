//! The steps of a recorder for each effect, in the window and in files. Between two steps, anything
//! may happen: docs/design/0007-sessions.md, the window's slots in `crates/recorder`, and the order
//! for successors in `crates/window/src/rules.rs`. A recovery takes the same steps.
//!
//! Longer than 600 lines: a list with an arm for each step of a recorder.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use trackway_session::machine::{Effect, PlannedChannel, Snapshot};
use trackway_session::{ChannelSpec, FilterSpec, Mode};

use crate::ledger::PROCESSES;
use crate::mistakes::Mistake;
use crate::simulation::Simulation;
use crate::window::{BLOCKS, CPUS, EVENTS, Processes, Progress, REGIONS, Record, SLOTS, State};

/// A slot, or the channel of a class, whose slot is determined when the step is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepTarget {
    Class(u32),
    Slot(usize),
}

/// One step of a recorder.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Take the slot that has been free longest, possibly to replace the channel of class `of`.
    Take {
        planned: PlannedChannel,
        of: Option<u32>,
    },
    /// Create the trace.
    Create,
    /// Reset the control lines, take memory, and write the channel's configuration.
    Fill {
        planned: PlannedChannel,
        rules: bool,
    },
    Activate {
        on: StepTarget,
        record: bool,
    },
    Pause {
        on: StepTarget,
        paused: bool,
    },
    End(StepTarget),
    Raise(StepTarget),
    ClearBit(StepTarget, usize),
    /// Set or clear a bit as the rules require.
    Apply(StepTarget, usize),
    /// Give an event its id after its bit: the second half of a mistake.
    GiveId(StepTarget, usize),
    Visit(usize),
    WaitForClaims(StepTarget),
    NameSuccessor {
        old: u32,
        new: u32,
    },
    Move {
        old: u32,
        new: u32,
        event: usize,
    },
    /// Set the new bit of a moved event: the second half of a mistake.
    MoveLate {
        new: u32,
        event: usize,
    },
    BeginRules(StepTarget),
    EndRules(StepTarget, String),
    SetProcesses {
        on: StepTarget,
        spec: ChannelSpec,
    },
    SetBlocking {
        on: StepTarget,
        time: Option<Duration>,
    },
    SetFilters {
        on: StepTarget,
        filters: Vec<FilterSpec>,
    },
    /// Write committed records to the stream; then update the progress in the window.
    Drain(StepTarget, usize),
    Proceed(StepTarget, usize, Progress),
    /// Write the counters of lost records.
    Total(StepTarget),
    GiveBack(StepTarget),
    Free(StepTarget),
    /// Leave the slot to a recovery.
    Leave(StepTarget),
    /// Clear a channel: reset each region, then truncate the streams.
    Begin(StepTarget, usize),
    Cut(StepTarget),
    /// Take over a region whose claimer of an earlier life has released it.
    Adopt(StepTarget, usize),
    /// Read a region of a flight recorder: its head, then its records, then its head again.
    ReadHead {
        class: u32,
        region: usize,
    },
    Copy {
        class: u32,
        region: usize,
        head: u64,
    },
    Recheck {
        class: u32,
        region: usize,
        head: u64,
        records: Vec<Option<Record>>,
    },
    /// Only for the checks: the recorder begins or ends a change of rules or bits.
    Changing(StepTarget, bool),
}

/// The outcome of a step.
pub(crate) enum StepOutcome {
    Done,
    /// The step must be repeated.
    Wait,
    Failed(&'static str),
}

/// The remaining steps of an effect.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) ops: VecDeque<Op>,
    /// The steps that undo the effect if a step fails before the change is visible.
    pub(crate) undo: Vec<Op>,
    pub(crate) failed: Option<&'static str>,
    pub(crate) snapshot: Option<Snapshot>,
    /// Number of events in the snapshot.
    pub(crate) events: u64,
}

/// The streams on disk.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) streams: BTreeMap<(u32, usize), Vec<Record>>,
    /// Numbers of discarded and overwritten records, by stream class.
    pub(crate) totals: BTreeMap<u32, (u64, u64)>,
}

/// Returns the steps of an effect in a session with channels of these classes. (Long, because it
/// has an arm for each effect.)
// Longer than 70 lines: an arm for each effect.
pub(crate) fn script_of_effect(
    effect: &Effect,
    classes: &[u32],
    records: bool,
    world: &Simulation,
) -> Script {
    let mistake = world.mistake;
    let mut ops = Vec::new();
    let mut undo = Vec::new();
    match effect {
        Effect::Begin { channels, record } => {
            for planned in channels {
                push_build(&mut ops, planned, None);
                undo.extend(unbuild_steps(planned.class));
            }
            ops.push(Op::Create);
            for planned in channels {
                push_activate(&mut ops, planned.class, *record);
            }
        }
        Effect::Add { channel, record } => {
            push_build(&mut ops, channel, None);
            undo = unbuild_steps(channel.class);
            push_activate(&mut ops, channel.class, *record);
        }
        Effect::Replace { old, channel, record } => {
            push_build(&mut ops, channel, Some(*old));
            undo = unbuild_steps(channel.class);
            push_replace(&mut ops, *old, channel, *record, mistake);
        }
        Effect::End { class } => {
            let on = StepTarget::Class(*class);
            push_exclude(&mut ops, &[on], Op::End, mistake);
            push_end(&mut ops, on);
        }
        Effect::Finish => {
            let all: Vec<StepTarget> =
                classes.iter().map(|class| StepTarget::Class(*class)).collect();
            push_exclude(&mut ops, &all, Op::End, mistake);
            for class in classes {
                push_end(&mut ops, StepTarget::Class(*class));
            }
        }
        Effect::SetRules { class, rules } => {
            push_set_rules(&mut ops, StepTarget::Class(*class), rules)
        }
        Effect::SetProcesses { class, spec } => {
            let on = StepTarget::Class(*class);
            ops.push(Op::SetProcesses { on, spec: spec.clone() });
            if mistake != Some(Mistake::ProcessesWithoutGeneration) {
                ops.push(Op::Raise(on));
            }
        }
        Effect::SetBlocking { class, time } => {
            ops.push(Op::SetBlocking { on: StepTarget::Class(*class), time: *time });
        }
        Effect::SetFilters { class, filters } => {
            let on = StepTarget::Class(*class);
            ops.push(Op::SetFilters { on, filters: filters.clone() });
            ops.push(Op::Raise(on));
        }
        Effect::Start => push_resume(&mut ops, classes),
        Effect::Stop => {
            push_pause(&mut ops, classes, mistake);
            for class in classes {
                push_drain(&mut ops, StepTarget::Class(*class));
            }
        }
        Effect::Clear => {
            push_pause(&mut ops, classes, mistake);
            let all = || classes.iter().map(|class| StepTarget::Class(*class));
            ops.extend(all().flat_map(|on| (0..REGIONS).map(move |region| Op::Begin(on, region))));
            ops.extend(all().map(Op::Cut));
            if records || mistake == Some(Mistake::ClearStarts) {
                push_resume(&mut ops, classes);
            }
        }
        Effect::Snapshot(_) => {
            let flight = |class: &&u32| {
                world.slot_of_class(**class).is_some_and(|slot| world.window.slots[slot].overwrites)
            };
            for class in classes.iter().filter(flight) {
                let regions = (0..REGIONS).map(|region| Op::ReadHead { class: *class, region });
                ops.extend(regions);
            }
        }
        // The window contains no kernel events.
        Effect::SetKernel(_)
        | Effect::Answer(..)
        | Effect::ReportStatus(_)
        | Effect::Follow(_)
        | Effect::Exit => {}
    }
    let snapshot = match effect {
        Effect::Snapshot(snapshot) => Some(snapshot.clone()),
        _ => None,
    };
    Script { ops: ops.into(), undo, snapshot, ..Script::default() }
}

/// Returns the steps for the recovery of a slot.
pub(crate) fn script_of_recovery(slot: usize, world: &Simulation) -> Script {
    let on = StepTarget::Slot(slot);
    let (mistake, mut ops) = (world.mistake, Vec::new());
    let found = &world.window.slots[slot];
    // No writer was admitted to a slot that was being built. The slot must not look as if it had
    // begun, because its regions may belong to an earlier life.
    let was_begun = found.state != State::Building;
    if was_begun {
        push_exclude(&mut ops, &[on], Op::End, mistake);
    }
    if was_begun && !found.is_complete {
        push_end(&mut ops, on);
    } else {
        ops.extend([Op::GiveBack(on), Op::Free(on)]);
    }
    Script { ops: ops.into(), ..Script::default() }
}

/// Returns the steps that drain a channel's complete records.
pub(crate) fn script_of_drain(class: u32) -> Script {
    let on = StepTarget::Class(class);
    let look = |region| [Op::Adopt(on, region), Op::Drain(on, region)];
    let ops = (0..REGIONS).flat_map(look).collect();
    Script { ops, ..Script::default() }
}

/// Returns the steps that apply the rules to all events, after new events were added.
pub(crate) fn script_of_rules(classes: &[u32]) -> Script {
    let apply = |class: &u32| {
        let on = StepTarget::Class(*class);
        (0..EVENTS).map(move |event| Op::Apply(on, event))
    };
    let ops = classes.iter().flat_map(apply).collect();
    Script { ops, ..Script::default() }
}

/// Returns true if the recorder detects an invalid filter only when it compiles the filter.
fn fails_to_compile(filter: &FilterSpec) -> bool {
    filter.to_string().contains("$ctx.nothing")
}

fn push_build(ops: &mut Vec<Op>, planned: &PlannedChannel, of: Option<u32>) {
    let on = StepTarget::Class(planned.class);
    ops.push(Op::Take { planned: planned.clone(), of });
    ops.push(Op::Raise(on));
    ops.extend((0..EVENTS).map(|event| Op::ClearBit(on, event)));
    ops.extend((0..CPUS).map(Op::Visit));
    ops.push(Op::Fill { planned: planned.clone(), rules: of.is_none() });
}

fn unbuild_steps(class: u32) -> Vec<Op> {
    let on = StepTarget::Class(class);
    // As in `recovery`, the slot must never look as if it had begun.
    vec![Op::GiveBack(on), Op::Free(on)]
}

fn push_activate(ops: &mut Vec<Op>, class: u32, record: bool) {
    let on = StepTarget::Class(class);
    ops.extend([Op::Activate { on, record }, Op::Raise(on)]);
    ops.extend((0..EVENTS).map(|event| Op::Apply(on, event)));
}

/// Replaces a channel. The new slot becomes ACTIVE without rules, then the successor. Then each
/// event moves by the old slot's rules. Then the new slot gets its own rules.
fn push_replace(
    ops: &mut Vec<Op>,
    old: u32,
    channel: &PlannedChannel,
    record: bool,
    mistake: Option<Mistake>,
) {
    let (on, new) = (StepTarget::Class(channel.class), channel.class);
    ops.push(Op::Changing(StepTarget::Class(old), true));
    ops.push(Op::Changing(on, true));
    ops.extend([Op::Activate { on, record }, Op::Raise(on)]);
    let named = Op::NameSuccessor { old, new };
    let moves = (0..EVENTS).map(|event| Op::Move { old, new, event });
    match mistake {
        Some(Mistake::NoSuccessor) => ops.extend(moves),
        Some(Mistake::SuccessorLate) => ops.extend(moves.chain([named])),
        _ => ops.extend([named].into_iter().chain(moves)),
    }
    let rules = channel.spec.rules_text().unwrap_or_default();
    push_set_rules(ops, on, &rules);
    ops.push(Op::Changing(StepTarget::Class(old), false));
}

fn push_set_rules(ops: &mut Vec<Op>, on: StepTarget, rules: &str) {
    ops.extend([Op::Changing(on, true), Op::BeginRules(on), Op::EndRules(on, rules.to_owned())]);
    ops.extend((0..EVENTS).map(|event| Op::Apply(on, event)));
    ops.push(Op::Changing(on, false));
}

fn push_resume(ops: &mut Vec<Op>, classes: &[u32]) {
    for on in classes.iter().map(|class| StepTarget::Class(*class)) {
        ops.extend([Op::Pause { on, paused: false }, Op::Raise(on)]);
        ops.extend((0..EVENTS).map(|event| Op::Apply(on, event)));
    }
}

fn push_pause(ops: &mut Vec<Op>, classes: &[u32], mistake: Option<Mistake>) {
    let all: Vec<StepTarget> = classes.iter().map(|class| StepTarget::Class(*class)).collect();
    push_exclude(ops, &all, |on| Op::Pause { on, paused: true }, mistake);
}

/// Excludes writers from channels: changes the state, then the generation, then the bits, then
/// visits every CPU and waits for claims.
fn push_exclude(
    ops: &mut Vec<Op>,
    all: &[StepTarget],
    exclude: impl Fn(StepTarget) -> Op,
    mistake: Option<Mistake>,
) {
    for &on in all {
        match mistake {
            Some(Mistake::GenerationBeforeState) => ops.extend([Op::Raise(on), exclude(on)]),
            _ => ops.extend([exclude(on), Op::Raise(on)]),
        }
        ops.extend((0..EVENTS).map(|event| Op::ClearBit(on, event)));
    }
    if mistake != Some(Mistake::NoVisit) {
        ops.extend((0..CPUS).map(Op::Visit));
    }
    if mistake != Some(Mistake::ClaimsNotWaitedFor) {
        ops.extend(all.iter().map(|on| Op::WaitForClaims(*on)));
    }
}

fn push_drain(ops: &mut Vec<Op>, on: StepTarget) {
    ops.extend((0..REGIONS).map(|region| Op::Drain(on, region)));
}

fn push_end(ops: &mut Vec<Op>, on: StepTarget) {
    push_drain(ops, on);
    ops.extend([Op::Total(on), Op::GiveBack(on), Op::Free(on)]);
}

impl Op {
    /// Returns true if the step may change which events of which processes are recorded.
    fn decides(&self) -> bool {
        !matches!(
            self,
            Self::Create
                | Self::ClearBit(..)
                | Self::Visit(_)
                | Self::WaitForClaims(_)
                | Self::Drain(..)
                | Self::Proceed(..)
                | Self::Adopt(..)
                | Self::Total(_)
                | Self::ReadHead { .. }
                | Self::Copy { .. }
                | Self::Recheck { .. }
        )
    }

    /// Returns the channel or slot that the step concerns.
    fn on(&self) -> Option<StepTarget> {
        match self {
            Self::Drain(on, _)
            | Self::Proceed(on, ..)
            | Self::Total(on)
            | Self::GiveBack(on)
            | Self::Free(on) => Some(*on),
            _ => None,
        }
    }
}

impl Script {
    /// Handles a failed step: discards or replaces the remaining steps.
    pub(crate) fn fail(&mut self, op: &Op, why: &'static str) {
        self.failed = Some(why);
        match op {
            // Unwritten records stay in the buffers, for the next attempt or a recovery.
            Op::Drain(on, _) | Op::Total(on) => {
                let frees = self.ops.iter().any(|op| matches!(op, Op::Free(of) if of == on));
                self.ops.retain(|op| op.on() != Some(*on));
                if frees {
                    self.ops.push_front(Op::Leave(*on));
                }
            }
            _ => self.ops = self.undo.drain(..).collect(),
        }
    }
}

impl Simulation {
    /// Returns the slot of the channel of a class, in the session that has the current turn.
    pub(crate) fn slot_of_class(&self, class: u32) -> Option<usize> {
        let channels = &self.sessions[self.at_work?].channels;
        channels.iter().find(|channel| channel.0 == class).map(|channel| channel.1)
    }

    fn slot_of(&self, on: StepTarget) -> Option<usize> {
        match on {
            StepTarget::Class(class) => self.slot_of_class(class),
            StepTarget::Slot(slot) => Some(slot),
        }
    }

    /// Takes one step; puts resulting steps before the remaining ones.
    pub(crate) fn carry_out(
        &mut self,
        op: &Op,
        script: &mut Script,
    ) -> Result<StepOutcome, String> {
        self.window.is_changed |= op.decides();
        match op {
            Op::Take { planned, of } => return self.take(planned, *of),
            Op::Create if self.is_disk_full => return Ok(StepOutcome::Failed("the disk is full")),
            Op::Create => {}
            Op::Fill { planned, rules } => return Ok(self.fill(planned, *rules)),
            Op::Visit(cpu) => {
                let writers = self.writers.iter_mut().filter(|writer| writer.cpu == *cpu);
                writers.for_each(crate::writer::Writer::preempt);
            }
            Op::NameSuccessor { old, new } => {
                let places = self.slot_of_class(*old).zip(self.slot_of_class(*new));
                if let Some((old, new)) = places {
                    self.window.slots[old].successor = Some(new);
                }
            }
            Op::Move { old, new, event } => self.move_event(*old, *new, *event, script),
            Op::MoveLate { new, event } => {
                if let Some(new) = self.slot_of_class(*new) {
                    self.window.set_bit(*event, new, true);
                }
            }
            Op::ReadHead { class, region } => {
                if let Some(slot) = self.slot_of_class(*class) {
                    let head = self.window.slots[slot].regions[*region].head;
                    script.ops.push_front(Op::Copy { class: *class, region: *region, head });
                }
            }
            Op::Copy { class, region, head } => {
                if let Some(slot) = self.slot_of_class(*class) {
                    let from = head.saturating_sub(u64::from(u16::MAX));
                    let records = self.window.slots[slot].regions[*region].copy(from, *head);
                    let (class, region, head) = (*class, *region, *head);
                    script.ops.push_front(Op::Recheck { class, region, head, records });
                }
            }
            Op::Recheck { class, region, head, records } => {
                return self.take_snapshot(*class, (*region, *head), records, script);
            }
            other => return self.carry_out_on(other, script),
        }
        Ok(StepOutcome::Done)
    }

    /// Takes a step that concerns one slot. (Long, because it has an arm for each step.)
    // Longer than 70 lines: an arm for each step.
    fn carry_out_on(&mut self, op: &Op, script: &mut Script) -> Result<StepOutcome, String> {
        let (Op::Activate { on, .. }
        | Op::Pause { on, .. }
        | Op::End(on)
        | Op::Raise(on)
        | Op::ClearBit(on, _)
        | Op::Apply(on, _)
        | Op::GiveId(on, _)
        | Op::WaitForClaims(on)
        | Op::BeginRules(on)
        | Op::EndRules(on, _)
        | Op::SetProcesses { on, .. }
        | Op::SetBlocking { on, .. }
        | Op::SetFilters { on, .. }
        | Op::Drain(on, _)
        | Op::Proceed(on, ..)
        | Op::Total(on)
        | Op::GiveBack(on)
        | Op::Free(on)
        | Op::Leave(on)
        | Op::Cut(on)
        | Op::Begin(on, _)
        | Op::Adopt(on, _)
        | Op::Changing(on, _)) = op
        else {
            return Ok(StepOutcome::Done);
        };
        let Some(index) = self.slot_of(*on) else { return Ok(StepOutcome::Done) };
        let slot = &mut self.window.slots[index];
        match op {
            Op::Activate { record, .. } => {
                (slot.state, slot.is_paused, slot.is_unpublished) = (State::Active, !record, true);
            }
            Op::Pause { paused, .. } => {
                (slot.is_paused, slot.is_unpublished) = (*paused, true);
            }
            Op::End(_) => (slot.state, slot.is_unpublished) = (State::Ending, true),
            Op::Raise(_) => {
                slot.generation += 1;
                slot.is_unpublished = false;
            }
            Op::ClearBit(_, event) => {
                let life = slot.life;
                self.window.is_changed |= self.window.has_bit(*event, index);
                self.window.set_bit(*event, index, false);
                self.ledger.clear_bit(*event, life);
            }
            Op::Apply(_, event) if self.mistake == Some(Mistake::BitBeforeId) => {
                let had_id = slot.has_id[*event];
                self.apply(index, *event);
                let has_id = &mut self.window.slots[index].has_id[*event];
                if *has_id && !had_id {
                    *has_id = false;
                    script.ops.push_front(Op::GiveId(*on, *event));
                }
            }
            Op::GiveId(_, event) => slot.has_id[*event] = true,
            Op::Apply(_, event) => self.apply(index, *event),
            Op::WaitForClaims(_) => return Ok(self.wait_for_claims(index)),
            Op::BeginRules(_) => slot.revision |= 1,
            Op::EndRules(_, text) => {
                slot.revision = (slot.revision | 1) + 1;
                slot.set_rules(text.clone());
            }
            Op::SetBlocking { time, .. } => slot.blocking = *time,
            Op::SetFilters { filters, .. } if filters.iter().any(fails_to_compile) => {
                return Ok(StepOutcome::Failed("no such field"));
            }
            Op::SetFilters { filters, .. } => slot.filters.clone_from(filters),
            Op::SetProcesses { spec, .. } if has_no_process(spec) => {
                return Ok(StepOutcome::Failed("no such process"));
            }
            Op::SetProcesses { spec, .. } => {
                slot.processes = processes_of(spec);
                slot.is_unpublished = self.mistake != Some(Mistake::ProcessesWithoutGeneration);
            }
            Op::Drain(_, region) => return Ok(self.drain(index, (*on, *region), script)),
            Op::Proceed(_, region, progress) => slot.regions[*region].progress = *progress,
            Op::Total(_) => return Ok(self.total(index)),
            Op::GiveBack(_) => self.give_back(index),
            Op::Free(_) => self.free(index),
            Op::Leave(_) => {
                slot.is_left = true;
                self.facts.left += 1;
                self.forget(index);
            }
            Op::Cut(_) => self.cut(index),
            Op::Begin(_, region) => {
                let capacity = slot.regions[*region].ring.len().max(1);
                slot.regions[*region].reset(capacity);
                if let Some(life) = slot.life {
                    self.ledger.clear_region(life, *region);
                }
            }
            Op::Adopt(_, region) => {
                let region = &mut slot.regions[*region];
                if region.is_foreign && region.owner.is_none() {
                    let discarded = region.discarded;
                    region.reset(region.ring.len());
                    region.discarded = discarded;
                }
            }
            Op::Changing(_, is_changing) => slot.is_changing = *is_changing,
            _ => {}
        }
        Ok(StepOutcome::Done)
    }

    fn take(&mut self, planned: &PlannedChannel, of: Option<u32>) -> Result<StepOutcome, String> {
        let Some(session) = self.at_work else { return Ok(StepOutcome::Done) };
        // 0007: all sessions together have at most 32 channels. The choice of the longest free slot
        // matters for threads that sleep on their way to a slot.
        let slots = &self.window.slots;
        let free = (0..SLOTS).filter(|&slot| slots[slot].state == State::Free);
        let Some(index) = free.min_by_key(|&slot| slots[slot].freed_at) else {
            self.facts.no_slot += 1;
            return Ok(StepOutcome::Failed("no slot"));
        };
        let of = of.and_then(|class| self.slot_of_class(class));
        let of = of.and_then(|slot| self.window.slots[slot].life);
        let overwrites = planned.spec.mode == Mode::Overwrite;
        let life = self.ledger.begin_life((session, planned.class), index, of, overwrites);
        let slot = &mut self.window.slots[index];
        slot.state = State::Building;
        (slot.session, slot.class, slot.life) = (session, planned.class, Some(life));
        (slot.is_left, slot.is_complete, slot.is_unpublished) = (false, false, false);
        self.sessions[session].channels.push((planned.class, index));
        Ok(StepOutcome::Done)
    }

    fn fill(&mut self, planned: &PlannedChannel, rules: bool) -> StepOutcome {
        let Some(index) = self.slot_of_class(planned.class) else { return StepOutcome::Done };
        if has_no_process(&planned.spec) {
            return StepOutcome::Failed("no such process");
        }
        if planned.spec.filters.iter().any(fails_to_compile) {
            return StepOutcome::Failed("no such field");
        }
        let free = (0..BLOCKS).find(|&block| self.window.blocks[block].is_none());
        let Some(block) = free.filter(|_| !self.is_memory_short) else {
            return StepOutcome::Failed("memory is short");
        };
        let slot = &mut self.window.slots[index];
        self.window.blocks[block] = slot.life;
        slot.block = Some(block);
        slot.overwrites = planned.spec.mode == Mode::Overwrite;
        let capacity = if planned.spec.buffer_size.is_some() { 2 } else { 4 };
        slot.regions.iter_mut().for_each(|region| region.reset(capacity));
        slot.revision = (slot.revision | 1) + 1;
        let text = planned.spec.rules_text().unwrap_or_default();
        slot.set_rules(if rules { text } else { String::new() });
        slot.processes = processes_of(&planned.spec);
        slot.blocking = planned.spec.blocking_timeout;
        slot.filters.clone_from(&planned.spec.filters);
        if !rules && self.mistake == Some(Mistake::FiltersForgotten) {
            slot.filters.clear();
        }
        (slot.successor, slot.has_id) = (None, [false; EVENTS]);
        slot.is_changing = false;
        StepOutcome::Done
    }

    /// Gives the event an id and sets its bit, in place of a predecessor's bit, or clears its bit.
    fn apply(&mut self, index: usize, event: usize) {
        let is_forgotten = self.mistake == Some(Mistake::LateBitLeft);
        let late = if is_forgotten { 0 } else { self.predecessors(index) };
        let slot = &mut self.window.slots[index];
        if slot.successor.is_some() {
            return;
        }
        let wanted = slot.is_open() && slot.selects[event] && self.window.is_ready[event];
        slot.has_id[event] |= wanted;
        let life = slot.life;
        let word = self.window.words[event];
        let bit = 1 << index;
        self.window.set_word(event, if wanted { word & !late | bit } else { word & !bit });
        self.ledger.note_corrected_bit(event, life);
    }

    /// Returns the bits of slots of the same session that have this slot as successor.
    pub(crate) fn predecessors(&self, index: usize) -> u32 {
        let slots = &self.window.slots;
        let precedes = |slot: &usize| {
            let slot = &slots[*slot];
            slot.state == State::Active
                && slot.successor == Some(index)
                && slot.session == slots[index].session
        };
        (0..SLOTS)
            .filter(|slot| *slot != index && precedes(slot))
            .fold(0, |bits, slot| bits | 1 << slot)
    }

    /// Moves an event by one exchange: if the old bit is set, clears it and sets the new one.
    fn move_event(&mut self, old: u32, new: u32, event: usize, script: &mut Script) {
        let Some((from, to)) = self.slot_of_class(old).zip(self.slot_of_class(new)) else { return };
        if !self.window.has_bit(event, from) {
            return;
        }
        self.facts.moved += 1;
        if self.mistake != Some(Mistake::NoIdInSuccessor) {
            self.window.slots[to].has_id[event] = true;
        }
        self.window.set_bit(event, from, false);
        if self.mistake == Some(Mistake::MovedInTwoSteps) {
            script.ops.push_front(Op::MoveLate { new, event });
        } else {
            self.window.set_bit(event, to, true);
        }
    }

    /// Waits until no running thread holds a claim; frees claims of dead threads.
    fn wait_for_claims(&mut self, index: usize) -> StepOutcome {
        for region in 0..REGIONS {
            let Some(owner) = self.window.slots[index].regions[region].owner else { continue };
            let Some(writer) = self.writers.get(owner) else {
                // No thread has this number: a program overwrote the word.
                self.window.slots[index].regions[region].owner = None;
                continue;
            };
            let is_freed = writer.at == crate::writer::At::Dead
                || self.mistake == Some(Mistake::ClaimOfTheLivingFreed)
                || writer.claim() != Some((index, region));
            if is_freed {
                self.window.slots[index].regions[region].owner = None;
            } else if writer.is_stopped {
                if let Some(emission) = writer.emission() {
                    self.ledger.emission(emission).is_outlived = true;
                }
                self.facts.outlived += 1;
            } else {
                return StepOutcome::Wait;
            }
        }
        StepOutcome::Done
    }

    /// Writes committed records at the position that the window has as written. A dead recorder or
    /// a failed attempt wrote the bytes after that position.
    fn drain(
        &mut self,
        index: usize,
        (on, number): (StepTarget, usize),
        script: &mut Script,
    ) -> StepOutcome {
        let slot = &self.window.slots[index];
        let region = &slot.regions[number];
        // A flight recorder is written only when it ends.
        let is_flying = slot.overwrites && slot.state == State::Active;
        if region.is_foreign || region.ring.is_empty() || slot.is_complete || is_flying {
            return StepOutcome::Done;
        }
        let mut progress = region.progress;
        let from = region.trusted(slot.overwrites).min(region.head);
        let mut records: Vec<Record> =
            region.copy(from, region.head).into_iter().flatten().collect();
        progress.overwritten += from.saturating_sub(progress.position);
        let room = if self.is_disk_full { self.random.next_below(2) as usize } else { usize::MAX };
        let is_full = records.len() > room;
        records.truncate(room);
        let trace = &mut self.traces[slot.session];
        let stream = trace.streams.entry((slot.class, number)).or_default();
        if self.mistake != Some(Mistake::AppendedAnywhere) {
            stream.truncate(progress.written);
        }
        stream.extend(&records);
        if is_full && self.mistake != Some(Mistake::FullDiskForgotten) {
            self.facts.disk_full += 1;
            return StepOutcome::Failed("the disk is full");
        }
        progress.written += records.len();
        progress.position = region.head;
        script.ops.push_front(Op::Proceed(on, number, progress));
        StepOutcome::Done
    }

    fn total(&mut self, index: usize) -> StepOutcome {
        if self.is_disk_full {
            return StepOutcome::Failed("the disk is full");
        }
        let slot = &self.window.slots[index];
        let sum = |of: fn(&crate::window::Region) -> u64| slot.regions.iter().map(of).sum();
        let totals = (sum(|region| region.discarded), sum(|region| region.progress.overwritten));
        self.traces[slot.session].totals.insert(slot.class, totals);
        if let Some(life) = slot.life {
            self.ledger.lives[life].is_complete = true;
        }
        self.window.slots[index].is_complete = true;
        StepOutcome::Done
    }

    /// Returns true if a live thread may still write to the slot's memory.
    fn is_claimed(&self, index: usize) -> bool {
        let owners = self.window.slots[index].regions.iter().filter_map(|region| region.owner);
        let mut held = owners.filter(|&owner| {
            self.writers.get(owner).is_some_and(|writer| {
                writer.at != crate::writer::At::Dead
                    && writer.claim().is_some_and(|(slot, _)| slot == index)
            })
        });
        held.next().is_some() && self.mistake != Some(Mistake::ClaimedMemoryGivenBack)
    }

    fn give_back(&mut self, index: usize) {
        if self.is_claimed(index) {
            return;
        }
        if let Some(block) = self.window.slots[index].block.take() {
            self.window.blocks[block] = None;
        }
    }

    /// Frees the slot, or leaves it, marked as complete, until all claims are released.
    fn free(&mut self, index: usize) {
        self.forget(index);
        let slot = &mut self.window.slots[index];
        if slot.block.is_some() {
            (slot.is_left, slot.is_complete) = (true, true);
        } else {
            (slot.state, slot.freed_at) = (State::Free, self.now);
            slot.is_left = false;
        }
    }

    /// Removes the slot from its recorder's channels.
    fn forget(&mut self, index: usize) {
        if let Some(session) = self.at_work {
            self.sessions[session].channels.retain(|channel| channel.1 != index);
        }
    }

    /// Truncates the streams. If the recorder dies before this step, cleared records may still
    /// exist.
    fn cut(&mut self, index: usize) {
        let slot = &self.window.slots[index];
        for region in 0..REGIONS {
            self.traces[slot.session].streams.remove(&(slot.class, region));
        }
        if let Some(life) = slot.life {
            self.ledger.note_cleared(life);
            self.facts.cleared += 1;
        }
    }

    /// Writes a region's part of a snapshot: the copied records, except those that may have been
    /// overwritten meanwhile.
    fn take_snapshot(
        &mut self,
        class: u32,
        (number, head): (usize, u64),
        records: &[Option<Record>],
        script: &mut Script,
    ) -> Result<StepOutcome, String> {
        let Some(index) = self.slot_of_class(class) else { return Ok(StepOutcome::Done) };
        let Some(snapshot) = &script.snapshot else { return Ok(StepOutcome::Done) };
        if self.is_disk_full {
            self.facts.disk_full += 1;
            return Ok(StepOutcome::Failed("the disk is full"));
        }
        let region = &self.window.slots[index].regions[number];
        let first = head.saturating_sub(records.len() as u64);
        let trusted = match self.mistake {
            Some(Mistake::SnapshotTrustsAll) => first,
            _ => region.trusted(true).min(head),
        };
        let since = snapshot.last_ns.map_or(0, |ns| self.now.saturating_sub(ns));
        let skipped = trusted.saturating_sub(first) as usize;
        let taken: Vec<Record> = records.iter().skip(skipped).flatten().copied().collect();
        let taken: Vec<Record> = taken.into_iter().filter(|record| record.time >= since).collect();
        script.events += taken.len() as u64;
        self.facts.snapshot_events += taken.len() as u64;
        let now = region.head;
        let capacity = region.ring.len() as u64;
        if self.mistake == Some(Mistake::SnapshotMovesProgress) {
            self.window.slots[index].regions[number].progress.position = head;
        }
        let Some(life) = self.window.slots[index].life else { return Ok(StepOutcome::Done) };
        self.check_snapshot(life, number, (head, (now + 1).saturating_sub(capacity), since), &taken)
    }
}

pub(crate) fn processes_of(spec: &ChannelSpec) -> Processes {
    Processes { pids: spec.pids.clone(), executables: spec.executables.clone() }
}

/// Returns true if a process does not exist and so cannot be found in its namespace.
fn has_no_process(spec: &ChannelSpec) -> bool {
    spec.pids.iter().any(|&pid| pid as usize > PROCESSES)
}
