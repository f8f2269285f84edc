//! The schedule of decoding: threads decode ahead of the merge, as far as memory allows.
//!
//! Every stream is a *lane*: its planner and its planned tasks, in order, each with the batches
//! that are decoded but not yet merged. An idle thread is a worker, or the merge's thread when it
//! waits for a batch. It takes the lane that the merge needs first, i.e. the lane decoded least far
//! in time, and decodes one batch.
//!
//! [`Limits::ahead_bytes`] bounds the waiting batches, except for one batch per stream, without
//! which the order of events is unknown. A single thread is no special case: the merge then decodes
//! each batch when it needs it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use trackway_ctf::read::ByteSource;
use trackway_render::EventEncoder;

use crate::batch::Batch;
use crate::decode::DecodeTask;
use crate::plan::Planner;
use crate::stream::Stream;

/// Limits of the decoded data in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Size of a batch in bytes; its last event may exceed it.
    pub(crate) batch_bytes: usize,
    /// Size of a stream's first batch in bytes: small, so that the first line appears quickly.
    pub(crate) first_batch_bytes: usize,
    /// Number of bytes of a file per read.
    pub(crate) window_bytes: usize,
    /// Maximum size of the decoded batches that wait for the merge, in bytes.
    pub(crate) ahead_bytes: usize,
}

/// Maximum number and size of batches whose memory is kept for reuse.
const SPARE_BATCHES: usize = 64;
const SPARE_BYTES_MAX: usize = 1 << 20;

/// All lanes, and the condition variables of waiting threads.
pub(crate) struct Pipeline<'t, B> {
    state: Mutex<State<'t, B>>,
    /// Wakes the merge: a task made progress.
    progress: Condvar,
    /// Wakes worker threads: there is work, or the pipeline was stopped.
    work: Condvar,
    limits: Limits,
}

struct State<'t, B> {
    lanes: Vec<Lane<'t, B>>,
    /// Lanes with work that no thread has taken, by urgency.
    ready: BTreeSet<(i64, usize)>,
    /// Size of the batches that wait for the merge.
    waiting_bytes: usize,
    /// Maximum of `waiting_bytes` so far.
    most_bytes: usize,
    /// Number of threads that wait for work.
    idle: usize,
    /// True if the merge waits for a batch.
    is_merge_waiting: bool,
    is_stopped: bool,
    /// Cleared batches for reuse.
    spare: Vec<Batch>,
}

struct Lane<'t, B> {
    /// Planner; `None` while a thread or a task has it, or at the stream's end.
    planner: Option<Box<Planner<'t, B>>>,
    is_ended: bool,
    /// Tasks that are planned and not yet merged, in order.
    tasks: VecDeque<QueuedTask<'t, B>>,
    /// Number of the first task in `tasks`, counted from the lane's first task.
    first: u64,
    /// Approximate begin time of the next task to be planned.
    until: i64,
    /// Size of the next batch in bytes.
    batch_bytes: usize,
    /// Key of the lane in [`State::ready`], if it is there.
    ready: Option<i64>,
}

/// A task, with the planner of its stream if the planner needs the task's result.
struct PlannedTask<'t, B> {
    task: Box<DecodeTask<'t, B>>,
    planner: Option<Box<Planner<'t, B>>>,
}

struct QueuedTask<'t, B> {
    /// Task; `None` while a thread decodes it, and when it is done.
    task: Option<PlannedTask<'t, B>>,
    is_done: bool,
    batches: VecDeque<Batch>,
}

/// A unit of work.
enum Job<'t, B> {
    Plan(usize, Box<Planner<'t, B>>),
    Decode(usize, u64, PlannedTask<'t, B>, usize),
}

/// The reusable memory of a thread.
pub(crate) struct WorkerState<F> {
    format: F,
    /// Memory for packet headers.
    header_memory: Vec<u8>,
    /// Memory for the next task's window.
    window_memory: Vec<u8>,
}

impl<F> WorkerState<F> {
    pub(crate) const fn new(format: F) -> Self {
        Self { format, header_memory: Vec::new(), window_memory: Vec::new() }
    }
}

impl<'t, B: ByteSource> Pipeline<'t, B> {
    /// Creates a pipeline with a lane for each stream.
    pub(crate) fn new(streams: &'t [Stream<'t, B>], limits: Limits) -> Self {
        let lane = |stream| Lane {
            planner: Some(Box::new(Planner::new(stream))),
            is_ended: false,
            tasks: VecDeque::new(),
            first: 0,
            until: i64::MIN,
            batch_bytes: limits.first_batch_bytes.min(limits.batch_bytes),
            ready: None,
        };
        let mut state = State {
            lanes: streams.iter().map(lane).collect(),
            ready: BTreeSet::new(),
            waiting_bytes: 0,
            most_bytes: 0,
            idle: 0,
            is_merge_waiting: false,
            is_stopped: false,
            spare: Vec::new(),
        };
        (0..streams.len()).for_each(|lane| state.refresh(lane));
        Self { state: Mutex::new(state), progress: Condvar::new(), work: Condvar::new(), limits }
    }

    /// Decodes batches until [`Pipeline::stop`].
    pub(crate) fn run_worker(&self, tools: &mut WorkerState<impl EventEncoder>) {
        // Also after a panic of this thread, or else the other threads would wait forever.
        let _stop = self.stop_at_end();
        let mut state = self.lock();
        while !state.is_stopped {
            match state.most_urgent(&self.limits) {
                Some(job) => {
                    drop(state);
                    self.run(job, tools);
                    state = self.lock();
                }
                None => {
                    state.idle += 1;
                    state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                }
            }
        }
    }

    /// Stops all threads.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Returns a guard whose drop stops all threads.
    pub(crate) const fn stop_at_end(&self) -> impl Drop + use<'_, 't, B> {
        StopAtEnd(self)
    }

    /// Returns the maximum size of waiting batches so far, in bytes.
    pub(crate) fn most_bytes(&self) -> usize {
        self.lock().most_bytes
    }

    /// Returns the next batch of a stream, or `None` at its end; `used` is memory for reuse.
    pub(crate) fn take_batch(
        &self,
        lane: usize,
        used: Batch,
        tools: &mut WorkerState<impl EventEncoder>,
    ) -> Option<Batch> {
        let mut state = self.lock();
        state.recycle(used);
        loop {
            if state.is_stopped {
                return None;
            }
            match state.next(lane, &self.limits) {
                NextStep::Batch(batch) => {
                    self.wake(&state);
                    return Some(batch);
                }
                NextStep::Nothing => return None,
                NextStep::Work(job) => {
                    drop(state);
                    self.run(job, tools);
                }
                NextStep::Patience => match state.most_urgent(&self.limits) {
                    Some(job) => {
                        drop(state);
                        self.run(job, tools);
                    }
                    None => {
                        state.is_merge_waiting = true;
                        let waited = self.progress.wait(state);
                        state = waited.unwrap_or_else(PoisonError::into_inner);
                        state.is_merge_waiting = false;
                        continue;
                    }
                },
            }
            state = self.lock();
        }
    }

    /// Wakes the threads that can proceed now.
    fn wake(&self, state: &State<'_, B>) {
        if state.is_merge_waiting {
            self.progress.notify_one();
        }
        if state.idle > 0 && state.may_run_ahead(&self.limits) {
            self.work.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'t, B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a task if needed, and decodes one batch.
    fn run(&self, job: Job<'t, B>, tools: &mut WorkerState<impl EventEncoder>) {
        let (lane, number, mut task, size) = match job {
            Job::Decode(lane, number, task, size) => (lane, number, task, size),
            Job::Plan(lane, planner) => match self.plan_task(lane, planner, tools) {
                Some(planned) => planned,
                None => return,
            },
        };
        let mut batch = self.lock().spare.pop().unwrap_or_default();
        let is_more = task.task.fill(&mut tools.format, &mut batch, size);
        let (task, planner) = if is_more {
            (Some(task), None)
        } else {
            let PlannedTask { task, mut planner } = task;
            let (decoder, memory) = task.finish();
            tools.window_memory = memory;
            if let Some(planner) = &mut planner {
                planner.resume(decoder);
            }
            (None, planner)
        };
        let mut state = self.lock();
        if let (Some(planner), Some(lane)) = (planner, state.lanes.get_mut(lane)) {
            lane.planner = Some(planner);
        }
        state.store_batch(lane, number, batch, task);
        self.wake(&state);
    }

    /// Plans a lane's next task, which the caller must decode.
    fn plan_task(
        &self,
        lane: usize,
        mut planner: Box<Planner<'t, B>>,
        tools: &mut WorkerState<impl EventEncoder>,
    ) -> Option<(usize, u64, PlannedTask<'t, B>, usize)> {
        let planned = planner.plan(&mut tools.header_memory);
        let mut state = self.lock();
        let at = state.lanes.get_mut(lane)?;
        let Some(planned) = planned else {
            at.is_ended = true;
            self.wake(&state);
            return None;
        };
        at.until = at.until.max(planned.until);
        let number = at.first + at.tasks.len() as u64;
        at.tasks.push_back(QueuedTask { task: None, is_done: false, batches: VecDeque::new() });
        let size = at.next_size(&self.limits);
        let memory = std::mem::take(&mut tools.window_memory);
        let task = Box::new(planned.task.with_window(self.limits.window_bytes, memory));
        let planner = if planned.stands_alone {
            at.planner = Some(planner);
            None
        } else {
            Some(planner)
        };
        state.refresh(lane);
        self.wake(&state);
        Some((lane, number, PlannedTask { task, planner }, size))
    }
}

/// The next action for the merge to get a stream's next batch.
enum NextStep<'t, B> {
    Batch(Batch),
    /// The stream has ended.
    Nothing,
    /// The merge must do this work itself.
    Work(Job<'t, B>),
    /// Another thread does the work; the merge must wait.
    Patience,
}

impl<'t, B: ByteSource> State<'t, B> {
    fn next(&mut self, index: usize, limits: &Limits) -> NextStep<'t, B> {
        let Some(lane) = self.lanes.get_mut(index) else { return NextStep::Nothing };
        while let Some(task) = lane.tasks.front_mut() {
            if let Some(batch) = task.batches.pop_front() {
                self.waiting_bytes -= batch.size();
                return NextStep::Batch(batch);
            }
            if !task.is_done {
                break;
            }
            lane.tasks.pop_front();
            lane.first += 1;
        }
        let is_over = lane.is_ended && lane.tasks.is_empty();
        let is_wanted = lane.tasks.front().is_none_or(|task| task.task.is_some());
        if is_over {
            return NextStep::Nothing;
        }
        let job = if is_wanted { self.claim(index, limits) } else { None };
        job.map_or(NextStep::Patience, NextStep::Work)
    }

    fn may_run_ahead(&self, limits: &Limits) -> bool {
        self.waiting_bytes < limits.ahead_bytes && !self.ready.is_empty()
    }

    /// Takes work from the lane that is decoded least far.
    fn most_urgent(&mut self, limits: &Limits) -> Option<Job<'t, B>> {
        if !self.may_run_ahead(limits) {
            return None;
        }
        let &(_, lane) = self.ready.first()?;
        self.claim(lane, limits)
    }

    /// Takes a lane's next work; `None` if other threads do all of it.
    fn claim(&mut self, index: usize, limits: &Limits) -> Option<Job<'t, B>> {
        let lane = self.lanes.get_mut(index)?;
        let stopped = lane.tasks.iter().position(|task| task.task.is_some());
        let job = match stopped {
            Some(position) => {
                let task = lane.tasks.get_mut(position)?.task.take()?;
                let size = lane.next_size(limits);
                Some(Job::Decode(index, lane.first + position as u64, task, size))
            }
            None => lane.planner.take().map(|planner| Job::Plan(index, planner)),
        };
        self.refresh(index);
        job
    }

    /// Stores a decoded batch, and the task unless it is done.
    fn store_batch(
        &mut self,
        index: usize,
        number: u64,
        batch: Batch,
        task: Option<PlannedTask<'t, B>>,
    ) {
        self.waiting_bytes += batch.size();
        self.most_bytes = self.most_bytes.max(self.waiting_bytes);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let position = number.checked_sub(lane.first).and_then(|at| usize::try_from(at).ok());
        if let Some(planned) = position.and_then(|position| lane.tasks.get_mut(position)) {
            planned.batches.push_back(batch);
            planned.is_done = task.is_none();
            planned.task = task;
        }
        self.refresh(index);
    }

    /// Updates a lane's entry in [`State::ready`]: its urgency, if it has work that no thread has
    /// taken.
    fn refresh(&mut self, index: usize) {
        let Some(lane) = self.lanes.get_mut(index) else { return };
        let urgency = lane.urgency();
        if lane.ready == urgency {
            return;
        }
        if let Some(before) = std::mem::replace(&mut lane.ready, urgency) {
            self.ready.remove(&(before, index));
        }
        if let Some(urgency) = urgency {
            self.ready.insert((urgency, index));
        }
    }

    fn recycle(&mut self, mut used: Batch) {
        if self.spare.len() < SPARE_BATCHES && used.text.capacity() <= SPARE_BYTES_MAX {
            used.clear();
            self.spare.push(used);
        }
    }
}

impl<B: ByteSource> Lane<'_, B> {
    fn urgency(&self) -> Option<i64> {
        let mut stopped = self.tasks.iter().filter_map(|planned| planned.task.as_ref());
        match stopped.next() {
            Some(task) => Some(task.task.reached().unwrap_or(i64::MIN)),
            None => self.planner.as_ref().map(|_| self.until),
        }
    }

    /// Returns the size of the next batch; later batches are larger.
    fn next_size(&mut self, limits: &Limits) -> usize {
        let size = self.batch_bytes;
        self.batch_bytes = size.saturating_mul(4).min(limits.batch_bytes);
        size
    }
}

/// The guard of [`Pipeline::stop_at_end`].
struct StopAtEnd<'p, 't, B: ByteSource>(&'p Pipeline<'t, B>);

impl<B: ByteSource> Drop for StopAtEnd<'_, '_, B> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
