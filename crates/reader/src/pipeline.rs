//! The schedule of decoding: threads that run ahead of the merge, as far as memory allows.
//!
//! Every stream is a *lane*: its planner, and the tasks that it has planned, in order, each with
//! the batches that are decoded but not yet merged. A thread with no other work (a thread made for
//! it, or the one that merges while it waits for a batch) takes the lane that the merge will need
//! first, which is the one decoded least far in time, and decodes one batch.
//!
//! Memory is bounded by [`Limits::ahead_bytes`] of batches that wait, and beyond them by one
//! batch for each stream, without which there is no saying what comes next. One thread is no
//! special case: then the merge decodes each batch when it needs it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use trackway_ctf::read::ByteSource;
use trackway_render::EventEncoder;

use crate::batch::Batch;
use crate::decode::DecodeTask;
use crate::plan::Planner;
use crate::stream::Stream;

/// Limits of the work and of the memory at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Size of a batch, in bytes; the one event more that fills it may be large.
    pub(crate) batch_bytes: usize,
    /// Size of a stream's first batch: small, so that the first line does not wait long.
    pub(crate) first_batch_bytes: usize,
    /// Bytes of a file that are read at once.
    pub(crate) window_bytes: usize,
    /// Decoded batches that may wait for the merge.
    pub(crate) ahead_bytes: usize,
}

/// Number of batches whose memory is kept for reuse, and the largest size.
const SPARE_BATCHES: usize = 64;
const SPARE_BYTES_MAX: usize = 1 << 20;

/// All lanes, and those who wait for them.
pub(crate) struct Pipeline<'t, B> {
    state: Mutex<State<'t, B>>,
    /// For the merge: a task made progress.
    progress: Condvar,
    /// For the other threads: there is work, or no more of it ever.
    work: Condvar,
    limits: Limits,
}

struct State<'t, B> {
    lanes: Vec<Lane<'t, B>>,
    /// Lanes with work that no thread does, by urgency.
    ready: BTreeSet<(i64, usize)>,
    /// Bytes of batches that wait for the merge.
    waiting_bytes: usize,
    /// The most that `waiting_bytes` was.
    most_bytes: usize,
    /// Threads that wait for work.
    idle: usize,
    /// True if the merge waits for a batch.
    is_merge_waiting: bool,
    is_stopped: bool,
    /// Memory of batches to be used again.
    spare: Vec<Batch>,
}

struct Lane<'t, B> {
    /// `None` while someone plans, or while a task has it, or at the stream's end.
    planner: Option<Box<Planner<'t, B>>>,
    is_ended: bool,
    /// Tasks planned and not yet merged, in order.
    tasks: VecDeque<QueuedTask<'t, B>>,
    /// Number of the first of `tasks`, of all that this lane ever had.
    first: u64,
    /// About when the first task begins that is not planned yet.
    until: i64,
    /// Size of the next batch.
    batch_bytes: usize,
    /// Its key in [`State::ready`], if it is there.
    ready: Option<i64>,
}

/// A task, and the planner of its stream, if that cannot go on before the task is done.
struct PlannedTask<'t, B> {
    task: Box<DecodeTask<'t, B>>,
    planner: Option<Box<Planner<'t, B>>>,
}

struct QueuedTask<'t, B> {
    /// `None` while someone decodes it, and when it is done.
    task: Option<PlannedTask<'t, B>>,
    is_done: bool,
    batches: VecDeque<Batch>,
}

/// Something to do.
enum Job<'t, B> {
    Plan(usize, Box<Planner<'t, B>>),
    Decode(usize, u64, PlannedTask<'t, B>, usize),
}

/// The reusable memory of a thread.
pub(crate) struct WorkerState<F> {
    format: F,
    /// For packets' headers.
    header_memory: Vec<u8>,
    /// For the next task's window.
    window_memory: Vec<u8>,
}

impl<F> WorkerState<F> {
    pub(crate) const fn new(format: F) -> Self {
        Self { format, header_memory: Vec::new(), window_memory: Vec::new() }
    }
}

impl<'t, B: ByteSource> Pipeline<'t, B> {
    /// A pipeline with a lane for each stream.
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

    /// Decodes until [`Pipeline::stop`].
    pub(crate) fn run_worker(&self, tools: &mut WorkerState<impl EventEncoder>) {
        // Also if this thread panics, as in a test: the others would wait for ever.
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

    /// Lets all threads end.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.work.notify_all();
        self.progress.notify_all();
    }

    /// Lets all threads end when what is returned is dropped.
    pub(crate) const fn stop_at_end(&self) -> impl Drop + use<'_, 't, B> {
        StopAtEnd(self)
    }

    /// The most bytes that waited at once.
    pub(crate) fn most_bytes(&self) -> usize {
        self.lock().most_bytes
    }

    /// The next batch of a stream, `None` at its end; `used` is memory to be used again.
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

    /// Wakes who waits for what has become possible.
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

    /// Plans if need be, and decodes one batch.
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

    /// Plans a lane's next task, which is to be decoded by the caller.
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

/// The next action of the merge for the next batch of a stream.
enum NextStep<'t, B> {
    Batch(Batch),
    /// The stream is at its end.
    Nothing,
    /// This.
    Work(Job<'t, B>),
    /// Another thread is at it.
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

    /// Work for the lane that is decoded least far.
    fn most_urgent(&mut self, limits: &Limits) -> Option<Job<'t, B>> {
        if !self.may_run_ahead(limits) {
            return None;
        }
        let &(_, lane) = self.ready.first()?;
        self.claim(lane, limits)
    }

    /// A lane's next work, unless others do it all.
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

    /// Takes what was decoded, and the task, if it is not done.
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

    /// Notes whether a lane has work that no thread does, and how urgent it is.
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

    /// The size of the next batch; the ones after it are larger.
    fn next_size(&mut self, limits: &Limits) -> usize {
        let size = self.batch_bytes;
        self.batch_bytes = size.saturating_mul(4).min(limits.batch_bytes);
        size
    }
}

/// See [`Pipeline::stop_at_end`].
struct StopAtEnd<'p, 't, B: ByteSource>(&'p Pipeline<'t, B>);

impl<B: ByteSource> Drop for StopAtEnd<'_, '_, B> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
