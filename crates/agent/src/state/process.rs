//! The traced process: its stamp, its window, its tokens, and the sessions that it takes part in.
//!
//! The *stamp* identifies the process in its own memory. It lies in a page that a fork child finds
//! zeroed, so a child never takes its parent's memory for its own.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use trackway_abi::session::{PROCESS_RULES_BYTES_MAX, SESSIONS_MAX, Session, flag};
use trackway_schema::{ProcessFacts, ProcessRules};
use trackway_window::{Owner, ProcessSlot, SessionLayout, Window};

use super::session_cache::{self, Decision};
use super::window_map::MappedWindow;
use super::{executable, thread};
use crate::sync::recoverable_lock::{StackMarker, StackOwner};

/// Bit of the process stamp while a thread makes the stamp; the other bits are that thread's
/// [`StackOwner`]. A finished stamp never has this bit, because process ids are shorter.
const STAMP_IN_PROGRESS: u64 = 1 << 63;

/// Maximum number of a process's tokens: one for each level of nested recordings.
const TOKENS_MAX: usize = 8;

/// The state of this process, apart from its threads' lines.
pub(crate) struct Process {
    /// The present window; null: none.
    window: AtomicPtr<MappedWindow>,
    /// Number of changes of `window`.
    moves: AtomicU64,
    /// The page that a fork child finds zeroed. Its first word is the process stamp; its second
    /// word is the lock of a move to another window.
    stamp: AtomicPtr<u64>,
    /// The process id.
    pub(crate) pid: AtomicU32,
    /// Inode number of the process-id namespace; 0: unknown.
    pid_namespace: AtomicU64,
    tokens: [AtomicU64; TOKENS_MAX],
    /// True if the process is in a sandbox: see [`Self::is_sandboxed`].
    sandboxed: AtomicBool,
    pub(crate) decisions: [Decision; SESSIONS_MAX],
}

/// The state of this process.
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
    /// Starts the process in its first window. The thread that loads the library calls this once.
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

    /// Makes `mapped` the present window, or none. The old window stays as it is.
    pub(crate) fn move_to(&self, mapped: Option<&'static MappedWindow>) {
        let mapped =
            mapped.map_or(core::ptr::null_mut(), |mapped| core::ptr::from_ref(mapped).cast_mut());
        // ORDERING: SeqCst, both. A thread that reads the new count reads the new window after it.
        // `register` points an event at a window, then reads the count again; a move changes the
        // count, then registers all events: one of them finds the other (Dekker).
        self.window.store(mapped, Ordering::SeqCst);
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of moves.
    pub(crate) fn moves(&self) -> u64 {
        // ORDERING: SeqCst pairs with `move_to`.
        self.moves.load(Ordering::SeqCst)
    }

    /// Returns the present window.
    pub(crate) fn current_window(&self) -> Option<&'static MappedWindow> {
        // ORDERING: SeqCst pairs with `move_to`.
        let mapped = self.window.load(Ordering::SeqCst);
        // SAFETY: null or one of the mapped windows, which are static and shared.
        unsafe { mapped.cast_const().as_ref() }
    }

    /// Returns true if `mapped` is the present window.
    pub(crate) fn is_in(&self, mapped: &MappedWindow) -> bool {
        self.current_window().is_some_and(|now| core::ptr::eq(now, mapped))
    }

    /// Returns the number of moves if `mapped` is the present window, for [`Self::has_stayed`].
    fn moves_in(&self, mapped: &MappedWindow) -> Option<u64> {
        // Read first: a move changes `window`, then the count, then writes zeros into the old
        // window.
        let moves = self.moves();
        self.is_in(mapped).then_some(moves)
    }

    /// Returns true if the process has stayed in one window since [`Self::moves_in`]. Then nothing
    /// read in between mixes the window with the zeros that replace it. (A generation alone would
    /// hold again when the process comes back.)
    fn has_stayed(&self, stay: Option<u64>) -> bool {
        // ORDERING: Acquire keeps earlier reads before this second load of the count. A thread that
        // read zeros did so after the change of the mapping, which follows the count in `move_to`.
        fence(Ordering::Acquire);
        stay == Some(self.moves())
    }

    /// Returns true if the library has started in this process.
    pub(crate) fn has_started(&self) -> bool {
        !self.stamp.load(Ordering::Relaxed).is_null()
    }

    /// Returns the process stamp. Zero in a fork child before its first event, and without a
    /// window; with [`STAMP_IN_PROGRESS`] while a thread makes it.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `make_stamp`: pid and slot belong to the
        // stamp.
        self.stamp_word().map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn stamp_word(&self) -> Option<&'static AtomicU64> {
        let page = self.stamp.load(Ordering::Relaxed);
        // SAFETY: the page is null or mapped for good.
        unsafe { page.cast::<AtomicU64>().as_ref() }
    }

    /// Returns the lock of a move to another window: not zero while a thread of this process moves.
    /// Wiped in a fork child, which does not have that thread. `None`: the library has not started.
    pub(crate) fn move_lock(&self) -> Option<&'static AtomicU64> {
        let page = self.stamp.load(Ordering::Relaxed);
        // SAFETY: the page is null or mapped for good, and longer than two words.
        (!page.is_null()).then(|| unsafe { &*page.add(1).cast::<AtomicU64>() })
    }

    /// Returns true if the process has a finished stamp: the other fields are its own.
    pub(crate) fn has_stamp(&self) -> bool {
        let stamp = self.stamp();
        stamp != 0 && stamp & STAMP_IN_PROGRESS == 0
    }

    /// Returns the process stamp, and makes one if this process has none: at start, and in a fork
    /// child at its first event. `reset` voids everything that a fork child must not inherit; its
    /// argument is true in a fork child ([`crate::fork_child`]).
    ///
    /// Returns zero while another thread, or the code that this signal handler interrupted, makes
    /// the stamp; then the caller must not store anything. A handler does not wait for the code
    /// that it interrupted: signals that come faster than it waits would stop that code for ever.
    pub(crate) fn ensure_stamp(&self, reset: fn(bool)) -> u64 {
        /// Maximum number of polls while another thread makes the stamp.
        const POLLS_MAX: usize = 10_000;
        let Some(word) = self.stamp_word() else { return 0 };
        if !self.has_stamp() && thread::runs_in_parent_memory() {
            // A stamp would store this process's own id in its parent's memory.
            return 0;
        }
        for _ in 0..POLLS_MAX {
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

    /// Makes the stamp, if no thread is making it or the thread that began is gone; then all steps
    /// run again. `None`: the caller must poll again.
    #[cold]
    #[inline(never)] // keeps its frame off its callers' stack
    fn try_make_stamp(&self, word: &AtomicU64, before: u64, reset: fn(bool)) -> Option<u64> {
        let marker = StackMarker::new();
        let (ours, other) = (marker.owner(), StackOwner::from_word(before));
        let may = before == 0 || ours.proves_gone(other);
        // ORDERING: Acquire: the work of `make_stamp` comes after winning.
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

    /// Makes this state the process's own. A fork child makes only the system calls getpid and
    /// getppid, because it may be in a sandbox since before the fork.
    fn make_stamp(&self, word: &AtomicU64, reset: fn(bool)) -> u64 {
        let parent = self.pid.load(Ordering::Relaxed);
        let is_fork_child = parent != 0;
        let identity = if is_fork_child {
            let namespace = self.pid_namespace.load(Ordering::Relaxed);
            trackway_sys::process::identity_after_fork(parent, namespace)
        } else {
            trackway_sys::process::current_identity()
        };
        let moment = (trackway_sys::clock::monotonic_ns() >> 10) & 0xffff_ffff;
        let stamp = u64::from(identity.pid) << 32 | moment | 2;
        reset(is_fork_child);
        self.pid.store(identity.pid, Ordering::Relaxed);
        self.pid_namespace.store(identity.pid_namespace, Ordering::Relaxed);
        self.is_sandboxed(); // stores the parent's state, which a fork child shares
        if let Some((mapped, window)) =
            self.current_window().and_then(|mapped| Some((mapped, mapped.window()?)))
        {
            let slot = if is_fork_child {
                window.enter_fork_child(&identity)
            } else {
                window.enter_process(&identity)
            };
            mapped.slot.store(slot.owner_word(0), Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `stamp`.
        word.store(stamp, Ordering::Release);
        stamp
    }

    /// Voids all decisions, which a fork child inherits from its parent.
    pub(crate) fn void_decisions(&self) {
        session_cache::void_decisions(&self.decisions);
    }

    /// Returns true if the process is in a sandbox, or its parent was at the fork. Then the library
    /// makes no avoidable system call. No process leaves a sandbox.
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

    /// Returns the process id of the calling thread. A vfork child has its own, though it shares
    /// this memory.
    pub(crate) fn pid_for(&self, thread: &thread::Identity) -> u32 {
        if thread.in_vfork_child || !self.has_stamp() {
            // SAFETY: getpid has no preconditions.
            return unsafe { libc::getpid() }.cast_unsigned();
        }
        self.pid.load(Ordering::Relaxed)
    }

    /// Returns true if the window's process table names the calling thread's process.
    pub(crate) fn has_process_slot(
        &self,
        mapped: &MappedWindow,
        thread: &thread::Identity,
    ) -> bool {
        let place = Owner::from_word(self.owner_word(mapped, thread));
        place.slot() != ProcessSlot::NONE
    }

    /// Returns the calling thread's owner word. Two kinds of claims cannot be proved dead, so their
    /// word names no process: those of a process without a slot of its own in the table (its
    /// parent's slot would prove them dead at once), and those of a vfork child.
    pub(crate) fn owner_word(&self, mapped: &MappedWindow, thread: &thread::Identity) -> u64 {
        if thread.in_vfork_child || !self.has_stamp() {
            return ProcessSlot::NONE.owner_word(thread.tid);
        }
        mapped.slot.load(Ordering::Relaxed) | ProcessSlot::tid_bits(thread.tid)
    }

    /// Decides whether this process takes part in the session in slot `index` of this window.
    /// Returns the checked layout if it does. No system call; async-signal-safe.
    #[inline(always)] // one layout less on signal handlers' stacks
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
                // This rarely stores anything: threads that come here for every record (claims)
                // would otherwise compete for the cache line.
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
            return None; // an event that is emitted during a move is not recorded
        }
        if layout.is_none() && session.generation.load(Ordering::Relaxed) != generation {
            return None; // raised in between: without a layout there is no decision
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

    /// Returns true if an active session waits for a token that this process holds.
    pub(crate) fn holds_awaited_token(&self) -> bool {
        self.current_window().and_then(MappedWindow::window).is_some_and(|window| {
            window.active_sessions().any(|index| {
                let token = window.session(index).token.load(Ordering::Relaxed);
                token != 0 && self.tokens.iter().any(|own| own.load(Ordering::Relaxed) == token)
            })
        })
    }

    /// Returns true if the process takes part in the session now: the session is active and not
    /// paused, the process holds its token if it has one, and its process rules select this
    /// process. The only system call is getpid(2), in a fork child without a stamp;
    /// async-signal-safe.
    pub(crate) fn participates(&self, window: &Window, layout: &SessionLayout) -> bool {
        use trackway_abi::session::state;
        let session = window.session(layout.index);
        // ORDERING: Acquire pairs with the recorder's store of ACTIVE: rules and token were there.
        if session.state.load(Ordering::Acquire) != state::ACTIVE {
            return false;
        }
        let token = session.token.load(Ordering::Relaxed);
        let is_invited = layout.flags & flag::TOKEN == 0
            || self.tokens.iter().any(|own| {
                let own = own.load(Ordering::Relaxed);
                own != 0 && own == token
            });
        let is_paused = layout.flags & flag::PAUSED != 0;
        let rules_bytes = session.process_rules_bytes.load(Ordering::Relaxed) as usize;
        is_invited
            && !is_paused
            && (rules_bytes == 0 || self.is_selected_by_rules(session, rules_bytes))
    }

    /// Returns true if the session's process rules select this process. The recorder rewrites them
    /// before it raises the generation, so a torn read decides only for a generation that ends.
    #[cold]
    #[inline(never)] // keeps its frame off its callers' stack
    fn is_selected_by_rules(&self, session: &Session, rules_bytes: usize) -> bool {
        let mut text = [0_u8; PROCESS_RULES_BYTES_MAX];
        let text = &mut text[..rules_bytes.min(PROCESS_RULES_BYTES_MAX)];
        for (byte, shared) in text.iter_mut().zip(&session.process_rules) {
            *byte = shared.load(Ordering::Relaxed);
        }
        // A vfork child counts as its parent, whose memory holds the decision.
        let pid = if self.has_stamp() || thread::in_vfork_child() {
            self.pid.load(Ordering::Relaxed)
        } else {
            // SAFETY: getpid has no preconditions.
            unsafe { libc::getpid() }.cast_unsigned()
        };
        ProcessRules::new(text).selects(&ProcessFacts {
            pid,
            pid_namespace: self.pid_namespace.load(Ordering::Relaxed),
            executable: executable::executable_path(),
        })
    }
}
