//! The traced process: its stamp, its window, its tokens, and which sessions it takes part in.
//!
//! The *stamp* identifies the process in its own memory. It lies in a page that a fork child finds
//! zeroed, so a child never takes what it copied from its parent for its own.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use trackway_abi::session::{PROCESS_RULES_BYTES_MAX, SESSIONS_MAX, Session, flag};
use trackway_schema::{ProcessFacts, ProcessRules};
use trackway_window::{Owner, ProcessSlot, SessionLayout, Window};

use super::session_cache::{self, Decision};
use super::window_map::MappedWindow;
use super::{executable, thread};
use crate::sync::recoverable_lock::{StackMarker, StackOwner};

/// Bit of the process stamp while it is being made; the others say by whom ([`StackOwner`]). No
/// real stamp has it: process ids are shorter.
const STAMP_IN_PROGRESS: u64 = 1 << 63;

/// Most tokens that a process may hold: recordings nested in recordings.
const TOKENS_MAX: usize = 8;

/// Everything that this process knows of Trackway, besides its threads' lines.
pub(crate) struct Process {
    /// The window that it is in now; null: none.
    window: AtomicPtr<MappedWindow>,
    /// How often that has changed.
    moves: AtomicU64,
    /// Page that a fork child finds zeroed, with the process stamp in it, and behind that whether
    /// one of the process's threads is moving.
    stamp: AtomicPtr<u64>,
    /// Process id.
    pub(crate) pid: AtomicU32,
    /// Inode number of its process-id namespace; 0: not known.
    pid_namespace: AtomicU64,
    tokens: [AtomicU64; TOKENS_MAX],
    /// See [`Self::is_sandboxed`].
    sandboxed: AtomicBool,
    pub(crate) decisions: [Decision; SESSIONS_MAX],
}

/// The one instance.
pub(crate) static PROCESS: Process = Process {
    window: AtomicPtr::new(core::ptr::null_mut()),
    moves: AtomicU64::new(0),
    stamp: AtomicPtr::new(core::ptr::null_mut()),
    pid: AtomicU32::new(0),
    pid_namespace: AtomicU64::new(0),
    tokens: [const { AtomicU64::new(0) }; TOKENS_MAX],
    sandboxed: AtomicBool::new(false),
    decisions: [const { Decision::new() }; SESSIONS_MAX],
};

impl Process {
    /// Begins life in its first mapped. Once, by the thread that loads the library.
    pub(crate) fn start(
        &self,
        mapped: &'static MappedWindow,
        stamp_page: *mut u64,
        tokens: &[u64],
    ) {
        for (slot, token) in self.tokens.iter().zip(tokens) {
            slot.store(*token, Ordering::Relaxed);
        }
        self.stamp.store(stamp_page, Ordering::Relaxed);
        self.move_to(Some(mapped));
    }

    /// Lives there from now on, or nowhere. The window of before is left as it is.
    pub(crate) fn move_to(&self, mapped: Option<&'static MappedWindow>) {
        let mapped =
            mapped.map_or(core::ptr::null_mut(), |mapped| core::ptr::from_ref(mapped).cast_mut());
        // ORDERING: SeqCst, both: who reads the new number reads the new mapped after it; and
        // `register` aims an event at a mapped's window, then looks at the number again, while we
        // move, then register all events: one of us sees the other (Dekker).
        self.window.store(mapped, Ordering::SeqCst);
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    /// How often it has moved.
    pub(crate) fn moves(&self) -> u64 {
        // ORDERING: SeqCst pairs with `move_to`.
        self.moves.load(Ordering::SeqCst)
    }

    /// Where it lives now.
    pub(crate) fn current_window(&self) -> Option<&'static MappedWindow> {
        // ORDERING: SeqCst pairs with `move_to`.
        let mapped = self.window.load(Ordering::SeqCst);
        // SAFETY: null or one of the homes, which are static and shared.
        unsafe { mapped.cast_const().as_ref() }
    }

    /// Whether it lives there now.
    pub(crate) fn is_in(&self, mapped: &MappedWindow) -> bool {
        self.current_window().is_some_and(|now| core::ptr::eq(now, mapped))
    }

    /// The number of moves, if the process lives in this mapped: to ask [`Self::has_stayed`] later.
    fn moves_in(&self, mapped: &MappedWindow) -> Option<u64> {
        // First: who leaves says so (`mapped`), counts the move (`moves`), then puts zeros there.
        let moves = self.moves();
        self.is_in(mapped).then_some(moves)
    }

    /// Whether the process has been in that mapped all the time since: what was read there is no
    /// mixture of a window and of the zeros in its place, under a generation that holds again when
    /// the process comes back.
    fn has_stayed(&self, stay: Option<u64>) -> bool {
        // ORDERING: Acquire keeps what was read before this second look. Who read zeros read them
        // after the change of the mapping, which comes after the count in `move_to`.
        fence(Ordering::Acquire);
        stay == Some(self.moves())
    }

    /// Whether the library has started here.
    pub(crate) fn has_started(&self) -> bool {
        !self.stamp.load(Ordering::Relaxed).is_null()
    }

    /// The process stamp. Zero in a fork child that has not noticed yet, or without a window;
    /// with [`STAMP_IN_PROGRESS`] while it is being made.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `settle`: pid and slot belong to the stamp.
        self.stamp_word().map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn stamp_word(&self) -> Option<&'static AtomicU64> {
        let page = self.stamp.load(Ordering::Relaxed);
        // SAFETY: the page is null or mapped for good.
        unsafe { page.cast::<AtomicU64>().as_ref() }
    }

    /// Not zero while one of this process's threads moves to another window. (In a fork child that
    /// thread is not there.) `None`: the library has not started.
    pub(crate) fn move_lock(&self) -> Option<&'static AtomicU64> {
        let page = self.stamp.load(Ordering::Relaxed);
        // SAFETY: the page is null or mapped for good, and longer than two words.
        (!page.is_null()).then(|| unsafe { &*page.add(1).cast::<AtomicU64>() })
    }

    /// Whether it has a stamp: what it remembers of itself is its own.
    pub(crate) fn has_stamp(&self) -> bool {
        let stamp = self.stamp();
        stamp != 0 && stamp & STAMP_IN_PROGRESS == 0
    }

    /// The process stamp, made if this process has none: at start, and in a fork child at its first
    /// event. `reset` voids what a fork child must not inherit; its argument is true in one
    /// ([`crate::fork_child`]). Zero if another thread (or the code that a signal handler
    /// interrupted) is at it: then nothing may be remembered. A handler does not wait for what it
    /// interrupted: with signals that come more often than it waits, that would never go on.
    pub(crate) fn ensure_stamp(&self, reset: fn(bool)) -> u64 {
        /// How long a thread looks on while another one settles.
        const PATIENCE: usize = 10_000;
        let Some(word) = self.stamp_word() else { return 0 };
        if !self.has_stamp() && thread::runs_in_parent_memory() {
            // What it would remember is its own process id, in the memory of its parent.
            return 0;
        }
        for _ in 0..PATIENCE {
            match self.stamp() {
                stamp if stamp == 0 || stamp & STAMP_IN_PROGRESS != 0 => {
                    match self.try_make_stamp(word, stamp, reset) {
                        Some(stamp) => return stamp,
                        None => core::hint::spin_loop(),
                    }
                }
                stamp => return stamp,
            }
        }
        0
    }

    /// Makes the stamp, if nobody is at it, or who was is gone: what he has done is done once more.
    /// `None`: to be looked at again.
    #[cold]
    #[inline(never)] // for the stack of those that do not come here
    fn try_make_stamp(&self, word: &AtomicU64, before: u64, reset: fn(bool)) -> Option<u64> {
        let marker = StackMarker::new();
        let (ours, other) = (marker.owner(), StackOwner::from_word(before));
        let may = before == 0 || ours.proves_gone(other);
        // ORDERING: Acquire: what `settle` does comes after winning.
        let won = may
            && word
                .compare_exchange(
                    before,
                    STAMP_IN_PROGRESS | ours.word(),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok();
        let stamp = if won {
            Some(self.make_stamp(word, reset))
        } else {
            (before != 0 && ours.shares_thread_with(other)).then_some(0)
        };
        marker.end();
        stamp
    }

    /// Makes what this process remembers its own. In a fork child by getpid and getppid alone: it
    /// may have been in a sandbox before it forked.
    fn make_stamp(&self, word: &AtomicU64, reset: fn(bool)) -> u64 {
        let parent = self.pid.load(Ordering::Relaxed);
        let is_fork_child = parent != 0;
        let who = if is_fork_child {
            let namespace = self.pid_namespace.load(Ordering::Relaxed);
            trackway_sys::process::identity_after_fork(parent, namespace)
        } else {
            trackway_sys::process::identity()
        };
        let moment = (trackway_sys::clock::monotonic_ns() >> 10) & 0xffff_ffff;
        let stamp = u64::from(who.pid) << 32 | moment | 2;
        reset(is_fork_child);
        self.pid.store(who.pid, Ordering::Relaxed);
        self.pid_namespace.store(who.pid_namespace, Ordering::Relaxed);
        self.is_sandboxed(); // what stands in the parent's place is a fork child's, too
        if let Some((mapped, window)) =
            self.current_window().and_then(|mapped| Some((mapped, mapped.window()?)))
        {
            let slot = if is_fork_child {
                window.enter_fork_child(&who)
            } else {
                window.enter_process(&who)
            };
            mapped.slot.store(slot.owner_word(0), Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `stamp`.
        word.store(stamp, Ordering::Release);
        stamp
    }

    /// Voids all decisions, which a fork child has from its parent.
    pub(crate) fn void_decisions(&self) {
        session_cache::void_all(&self.decisions);
    }

    /// Whether the process is known to be in a sandbox, or was forked there: then it makes no
    /// system call that it need not make. No process comes out of one.
    pub(crate) fn is_sandboxed(&self) -> bool {
        let window = || self.current_window().and_then(|mapped| Some((mapped, mapped.window()?)));
        let is_seen = |(mapped, window): (&MappedWindow, Window)| {
            let owner = mapped.slot.load(Ordering::Relaxed);
            owner != 0 && window.is_sandboxed(Owner::from_word(owner))
        };
        if !self.sandboxed.load(Ordering::Relaxed) && window().is_some_and(is_seen) {
            self.sandboxed.store(true, Ordering::Relaxed);
        }
        self.sandboxed.load(Ordering::Relaxed)
    }

    /// Process id of the calling thread: a vfork child has its own, though it shares our memory.
    pub(crate) fn pid_for(&self, thread: &thread::Identity) -> u32 {
        if thread.in_vfork_child || !self.has_stamp() {
            // SAFETY: getpid has no preconditions.
            return unsafe { libc::getpid() }.cast_unsigned();
        }
        self.pid.load(Ordering::Relaxed)
    }

    /// Whether the calling thread is one of a process in the table of its mapped's window.
    pub(crate) fn has_process_slot(
        &self,
        mapped: &MappedWindow,
        thread: &thread::Identity,
    ) -> bool {
        let place = Owner::from_word(self.owner_word(mapped, thread));
        place.slot() != ProcessSlot::NONE
    }

    /// The calling thread's owner word. Before the process has a place of its own in the table,
    /// its claims cannot be proved dead (its parent's place would prove it so at once), nor can
    /// those of a vfork child, which is no thread of the process that the table names.
    pub(crate) fn owner_word(&self, mapped: &MappedWindow, thread: &thread::Identity) -> u64 {
        if thread.in_vfork_child || !self.has_stamp() {
            return ProcessSlot::NONE.owner_word(thread.tid);
        }
        mapped.slot.load(Ordering::Relaxed) | ProcessSlot::tid_bits(thread.tid)
    }

    /// Decides whether this process takes part in the session in slot `index` of this mapped's
    /// window, as it is now. Returns the checked layout if so. No system call; async-signal-safe.
    #[inline(always)] // a layout less on the stack of signal handlers
    pub(crate) fn decide(&self, mapped: &MappedWindow, index: usize) -> Option<SessionLayout> {
        let decision = &self.decisions[index % SESSIONS_MAX];
        let session = mapped.window()?.session(index);
        let stay = self.moves_in(mapped);
        // ORDERING: Acquire pairs with the recorder's Release of a generation.
        let generation = session.generation.load(Ordering::Acquire);
        let usable = mapped.usable_bytes();
        let window = &mapped.window()?; // as far as it is mapped now
        let layout =
            SessionLayout::read(window, index).filter(|layout| layout.generation == generation);
        match decision.participation(window, generation) {
            Some(true) => {
                // Seldom is anything stored then: threads that come this way for every record
                // (claims) would fight for the cache line.
                if decision.usable.load(Ordering::Relaxed) != usable && self.has_stayed(stay) {
                    decision.publish(index, window, generation, usable, layout.as_ref());
                }
                return layout;
            }
            Some(false) => return None,
            None => {}
        }
        let layout = layout.filter(|layout| self.participates(window, layout));
        if !self.has_stayed(stay) {
            return None; // what is emitted while a process moves is nobody's
        }
        if layout.is_none() && session.generation.load(Ordering::Relaxed) != generation {
            return None; // raised in the middle: the layout was not read, which decides nothing
        }
        decision.publish(index, window, generation, usable, layout.as_ref());
        if layout.is_some() {
            let trace = session.trace_uuid[0].load(Ordering::Relaxed) | 1;
            let counting_traces = &mapped.counting_traces[index % SESSIONS_MAX];
            if counting_traces.swap(trace, Ordering::Relaxed) != trace {
                session.processes.fetch_add(1, Ordering::Relaxed);
            }
        }
        layout
    }

    /// Whether an active session waits for a token that this process holds.
    pub(crate) fn holds_awaited_token(&self) -> bool {
        self.current_window().and_then(MappedWindow::window).is_some_and(|window| {
            window.active_sessions().any(|index| {
                let token = window.session(index).token.load(Ordering::Relaxed);
                token != 0 && self.tokens.iter().any(|held| held.load(Ordering::Relaxed) == token)
            })
        })
    }

    /// Whether the session is for this process, as it is now: it is active and not paused, the
    /// process holds its token if it wants one, and its rules for processes mean it. No system call
    /// but getpid(2), in a fork child that is not settled; async-signal-safe.
    pub(crate) fn participates(&self, window: &Window, layout: &SessionLayout) -> bool {
        use trackway_abi::session::state;
        let session = window.session(layout.index);
        // ORDERING: Acquire pairs with the recorder's store of ACTIVE: rules and token were there.
        if session.state.load(Ordering::Acquire) != state::ACTIVE {
            return false;
        }
        let token = session.token.load(Ordering::Relaxed);
        let is_invited = layout.flags & flag::TOKEN == 0
            || self.tokens.iter().any(|held| {
                let held = held.load(Ordering::Relaxed);
                held != 0 && held == token
            });
        let is_paused = layout.flags & flag::PAUSED != 0;
        let rules_bytes = session.process_rules_bytes.load(Ordering::Relaxed) as usize;
        is_invited
            && !is_paused
            && (rules_bytes == 0 || self.is_selected_by_rules(session, rules_bytes))
    }

    /// Whether the session's rules for processes mean this one. They are rewritten before the
    /// session's generation is raised: whoever reads a mixture decides for a generation that ends.
    #[cold]
    #[inline(never)] // for the stack of those that do not come here
    fn is_selected_by_rules(&self, session: &Session, rules_bytes: usize) -> bool {
        let mut text = [0_u8; PROCESS_RULES_BYTES_MAX];
        let text = &mut text[..rules_bytes.min(PROCESS_RULES_BYTES_MAX)];
        for (byte, shared) in text.iter_mut().zip(&session.process_rules) {
            *byte = shared.load(Ordering::Relaxed);
        }
        // A vfork child is taken for its parent, in whose memory the decision is kept.
        let pid = if self.has_stamp() || thread::in_vfork_child() {
            self.pid.load(Ordering::Relaxed)
        } else {
            // SAFETY: getpid has no preconditions.
            unsafe { libc::getpid() }.cast_unsigned()
        };
        ProcessRules::new(text).selects(&ProcessFacts {
            pid,
            pid_namespace: self.pid_namespace.load(Ordering::Relaxed),
            executable: executable::path(),
        })
    }
}
