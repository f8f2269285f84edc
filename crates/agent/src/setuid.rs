//! Processes that become another user: the old user's window goes, the new user's comes.
//!
//! Called after the C library's set*id functions, never on the recording path.
//! docs/design/0004-privileges.md says when a window goes, in which order, and what that does to
//! threads that are recording. One thread at a time moves; who finds it busy asks it to look again.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use trackway_abi::region::CLAIM_REGIONS_PER_CPU;
use trackway_abi::session::SESSIONS_MAX;
use trackway_sys::Errno;
use trackway_sys::file::Fd;
use trackway_sys::memory::Zeros;
use trackway_sys::process::{Users, has_more_rights, identity, restart_sequences};
use trackway_sys::signal::SignalSet;
use trackway_window::{Owner, SessionLayout, Way, Window};

use crate::fork_child::ensure_stamp;
use crate::registration::register;
use crate::state::environment;
use crate::state::event_archive;
use crate::state::process::PROCESS;
use crate::state::thread;
use crate::state::window_map::MappedWindow;

/// A function of the C library that this library wraps.
#[derive(Debug)]
pub struct WrappedFunction {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// setuid(2).
pub static SETUID: WrappedFunction = WrappedFunction::new(c"setuid");
/// seteuid(2).
pub static SETEUID: WrappedFunction = WrappedFunction::new(c"seteuid");
/// setreuid(2).
pub static SETREUID: WrappedFunction = WrappedFunction::new(c"setreuid");
/// setresuid(2).
pub static SETRESUID: WrappedFunction = WrappedFunction::new(c"setresuid");

impl WrappedFunction {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Looks the wrapped function up: the next one in search order, which may be another wrapper.
    fn look_up(&self) -> *mut c_void {
        let name: *const c_char = self.name.as_ptr();
        // SAFETY: the name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        self.address.store(address, Ordering::Relaxed);
        address
    }

    /// Its address; null: there is none (then no program can have called us in its place).
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }
}

/// Looks all wrapped functions up at load, because dlsym(3) may not be called where set*id may: in
/// a signal handler, or in the fork child of a program with threads.
pub(crate) fn look_up_wrapped() {
    for wrapped in [&SETUID, &SETEUID, &SETREUID, &SETRESUID] {
        wrapped.look_up();
    }
    unsafe extern "C" {
        /// pthread_atfork(3). Of the C library's static part.
        fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }
    // If there is no memory for that, children forked in the middle of a change stay as they are.
    // SAFETY: the library, and so the function, is never unloaded.
    unsafe { pthread_atfork(None, None, Some(finish_in_fork_child)) };
}

/// How often anybody has asked.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// How many threads are in a wrapped function now.
static CHANGES_UNDERWAY: AtomicU32 = AtomicU32::new(0);

/// A change of user while it is under way, from before the C library's function to the end of what
/// follows from it.
#[derive(Debug)]
pub struct UserChange {
    /// What the window is replaced by, where the new user may not have it any more.
    zeros: Option<Zeros>,
    /// Whether it is one of this process: a vfork child has its parent's memory, and is about to
    /// call exec.
    is_ours: bool,
}

impl UserChange {
    /// Begins a change to these users (real, effective, saved; `None`: that one has_stayed).
    pub fn begin(users: [Option<u32>; 3]) -> Self {
        if !PROCESS.has_started() || thread::runs_in_parent_memory() {
            return Self { zeros: None, is_ours: false };
        }
        // ORDERING: SeqCst, here and in `drop`: a child that has the new user has this, too.
        CHANGES_UNDERWAY.fetch_add(1, Ordering::SeqCst);
        // Root may lock as much memory as it likes (mlockall with MCL_FUTURE makes all that is
        // mapped such memory); the new user may not. Nothing is done where it may come back, or
        // where the change will be refused.
        let leaves = users.iter().all(|&user| user.is_some_and(|user| user != 0));
        let mapped = PROCESS.current_window().filter(|mapped| leaves && mapped.uid() == 0);
        let mapped = mapped.filter(|_| Users::current().effective() == 0);
        let window = mapped.and_then(|mapped| Some((mapped, mapped.whole_window()?)));
        let errno = Errno::last();
        let zeros =
            window.and_then(|(mapped, window)| window.zeros(mapped.used_bytes_max(&window)));
        errno.set();
        Self { zeros, is_ours: true }
    }

    /// The C library's function has succeeded.
    pub fn complete(&mut self) {
        if self.is_ours && must_move(Users::current()) {
            users_changed(&mut self.zeros);
        }
    }
}

impl Drop for UserChange {
    fn drop(&mut self) {
        if self.is_ours {
            // A child forked in the middle begins at zero.
            let less = |threads: u32| threads.checked_sub(1);
            // ORDERING: SeqCst: see `begin`.
            let _ = CHANGES_UNDERWAY.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less);
        }
        let errno = Errno::last();
        self.zeros = None;
        errno.set();
    }
}

/// In every child that fork(3) makes. Where a thread of the parent was changing its user, which the
/// child does not have, the child does all of that again, so that it is not left with a window that
/// its user may not have, nor without one. (It is in no sandbox that forbids this: the parent's
/// thread was at it.)
extern "C" fn finish_in_fork_child() {
    thread::note_fork();
    if CHANGES_UNDERWAY.swap(0, Ordering::Relaxed) == 0 || !PROCESS.has_started() {
        return;
    }
    let errno = Errno::last();
    let before = SignalSet::all().block();
    ensure_stamp();
    let opened = UNUSED_WINDOW.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if !opened.is_null() && !MappedWindow::all().any(|(_, window)| window.base() == opened) {
        // SAFETY: the parent's thread, which is not here, had mapped it and given it to nobody.
        unsafe {
            libc::munmap(opened.cast(), UNUSED_WINDOW_BYTES.load(Ordering::Relaxed) as usize)
        };
    }
    for (mapped, _) in MappedWindow::all().filter(|(mapped, _)| !PROCESS.is_in(mapped)) {
        let Some(window) = mapped.whole_window() else { continue };
        // Half left, or half entered. If this fails, there is nothing more to be done.
        let _ = window.blank(true, mapped.used_bytes_max(&window));
        let _ = window.blank(false, mapped.used_bytes_max(&window));
    }
    move_once(Users::current(), &mut None);
    if let Some(mapped) = PROCESS.current_window() {
        register_events_in(mapped);
    }
    before.make_current();
    errno.set();
}

/// After a set*id function that succeeded: moves to the window of the user whose process this is
/// now. Any thread, any signal handler; errno is unchanged. Waits for claims, for a few
/// milliseconds, and for nothing else.
#[inline(never)]
fn users_changed(zeros: &mut Option<Zeros>) {
    let errno = Errno::last();
    // A handler of this thread that called us in the middle would wait for itself.
    let before = SignalSet::all().block();
    // ORDERING: SeqCst, a Dekker pair: we ask, then find nobody moving; or whoever moves lets go,
    // then finds that somebody has asked.
    REQUESTS.fetch_add(1, Ordering::SeqCst);
    while let Some(lock) = PROCESS.move_lock() {
        if lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            break; // another thread of this process is at it, and will look again
        }
        ensure_stamp();
        // ORDERING: SeqCst, all three: the Dekker pair above.
        let requests = REQUESTS.load(Ordering::SeqCst);
        move_once(Users::current(), zeros);
        lock.store(0, Ordering::SeqCst);
        if REQUESTS.load(Ordering::SeqCst) == requests {
            break;
        }
    }
    before.make_current();
    errno.set();
}

/// Whether the process is in a window that is not its own, or in none though one is.
fn must_move(users: Users) -> bool {
    match PROCESS.current_window() {
        Some(mapped) => !users.contain(mapped.uid()),
        None => users.only().is_some(),
    }
}

fn move_once(users: Users, zeros: &mut Option<Zeros>) {
    if !must_move(users) {
        return;
    }
    // A user may truncate his window, which ends those who use it: only what is his for good.
    let uid = users.only().filter(|&uid| uid == 0 || !has_more_rights());
    // Where none can be had, there is none.
    let next = uid.and_then(NextWindow::open);
    if let Some(mapped) = PROCESS.current_window() {
        if let Some(next) = next.as_ref().filter(|next| mapped.shows_file(next.file)) {
            // The same user by another number, in a user namespace.
            mapped.set_uid(next.uid);
            next.discard();
            return;
        }
        if leave(mapped, zeros).is_err() {
            if let Some(next) = next {
                next.discard();
            }
            return;
        }
    }
    if let Some(next) = next {
        enter(&next);
    }
}

/// Where a window is mapped that nobody is in yet; null: there is none. For fork children.
static UNUSED_WINDOW: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static UNUSED_WINDOW_BYTES: AtomicU64 = AtomicU64::new(0);

/// A window to move to.
struct NextWindow {
    window: Window,
    fd: Fd,
    /// Device and inode.
    file: [u64; 2],
    uid: u32,
}

impl NextWindow {
    fn open(uid: u32) -> Option<Self> {
        let (window, fd) = environment::open_window(uid).ok()?;
        let status = fd.status();
        let file = status.map_or([0; 2], |status| [status.device, status.inode]);
        UNUSED_WINDOW_BYTES.store(window.reserved_bytes(), Ordering::Relaxed);
        UNUSED_WINDOW.store(window.base(), Ordering::Relaxed);
        Some(Self { window, fd, file, uid })
    }

    /// Gives up the mapping, which nobody has seen.
    fn discard(&self) {
        UNUSED_WINDOW.store(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: it was made in `open`, and nothing of it was given out.
        unsafe { self.window.discard() };
    }
}

/// The sessions of the window that is being left. Not on the stack, which may be a small one:
/// whoever moves is alone, with its signals blocked, and in a fork child there is nobody else.
static ABANDONED_LAYOUTS: Layouts = Layouts(UnsafeCell::new([None; SESSIONS_MAX]));

struct Layouts(UnsafeCell<[Option<SessionLayout>; SESSIONS_MAX]>);

// SAFETY: see `ABANDONED_LAYOUTS`.
unsafe impl Sync for Layouts {}

/// Leaves a window: afterwards there are zeros in its place, and all records of before are whole.
fn leave(mapped: &'static MappedWindow, zeros: &mut Option<Zeros>) -> Result<(), Errno> {
    let Some(window) = &mapped.window() else { return Ok(()) };
    if !zeros.as_ref().is_some_and(Zeros::are_whole) {
        *zeros = None;
    }
    // The window is looked up each time: another thread may be extending it
    // (`MappedWindow::extend`).
    let mut blank = |fixed_part| {
        let Some(window) = mapped.whole_window() else { return Ok(()) };
        let reach = mapped.used_bytes_max(&window);
        let suffice =
            |zeros: &Zeros| zeros.suffice(window.reserved_bytes(), window.mapped_bytes(), reach);
        match zeros.as_mut().filter(|zeros| suffice(zeros)) {
            Some(zeros) => window.blank_by(zeros, fixed_part),
            None => window.blank(fixed_part, reach),
        }
    };
    // SAFETY: whoever moves is the only one who is here (see `ABANDONED_LAYOUTS`).
    let layouts = unsafe { &mut *ABANDONED_LAYOUTS.0.get() };
    for (index, layout) in layouts.iter_mut().enumerate() {
        *layout = SessionLayout::read(window, index);
    }
    // Said before the window is gone, and taken back if it cannot be left.
    count_departure(mapped, window, layouts);
    PROCESS.move_to(None);
    event_archive::set_abandoned_words(0, Some(mapped));
    // From here on no site is on, nobody finds a session, and no sequence passes its gate: no
    // session has the generation zero.
    if let Err(errno) = blank(true) {
        uncount_departure(mapped, window);
        PROCESS.move_to(Some(mapped));
        register_events_in(mapped);
        return Err(errno);
    }
    // Who passed its gate before has committed or starts again. A kernel that cannot do this may
    // lose a record of each thread that is copying one now.
    let _ = restart_sequences();
    wait_for_claims(mapped, window, layouts);
    // If this fails the rest has_stayed where it is, and nobody looks there any more.
    let _ = blank(false);
    // Those of another mapped would be of another size, and there.
    *zeros = None;
    Ok(())
}

/// Says to all sessions that count this process that it is going.
fn count_departure(
    mapped: &MappedWindow,
    window: &Window,
    layouts: &[Option<SessionLayout>; SESSIONS_MAX],
) {
    for layout in layouts.iter().flatten() {
        let index = layout.index;
        let session = window.session(index);
        let trace = session.trace_uuid[0].load(Ordering::Relaxed) | 1;
        if mapped.counting_traces[index].load(Ordering::Relaxed) == trace
            && mapped.departure_traces[index].swap(trace, Ordering::Relaxed) != trace
        {
            session.departed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Takes back what [`count_departure`] said, for a process that is here again.
fn uncount_departure(mapped: &MappedWindow, window: &Window) {
    for index in window.active_sessions() {
        let session = window.session(index);
        let trace = session.trace_uuid[0].load(Ordering::Relaxed) | 1;
        if mapped.departure_traces[index].swap(0, Ordering::Relaxed) == trace {
            session.departed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Waits until no claim region bears this process's name, for a while: who takes one now finds the
/// session gone and lets go. A claim that has_stayed is that of a thread which does not run, or of
/// the code that a signal handler interrupted to call us. The same for slots of lockless buffers,
/// which do not say whose they are: until there are none for a moment.
fn wait_for_claims(
    mapped: &MappedWindow,
    window: &Window,
    layouts: &[Option<SessionLayout>; SESSIONS_MAX],
) {
    const ROUNDS_MAX: usize = 50;
    const ROUND_NS: u64 = 100_000;
    let slot = mapped.slot.load(Ordering::Relaxed);
    let ours = |layout: &SessionLayout| {
        (0..layout.cpus).any(|cpu| {
            (0..CLAIM_REGIONS_PER_CPU).any(|which| {
                let region = layout.region(window, cpu, Way::Claim(which));
                // ORDERING: Acquire pairs with the Release of whoever lets go: it wrote before.
                let owner = region.map_or(0, |region| region.control.owner.load(Ordering::Acquire));
                owner != 0 && owner as u32 == slot as u32
            }) || layout.lockless(window, cpu).is_some_and(|buffer| buffer.holes().next().is_some())
        })
    };
    for _ in 0..ROUNDS_MAX {
        if !layouts.iter().flatten().any(ours) {
            return;
        }
        trackway_sys::clock::sleep_ns(ROUND_NS);
    }
}

/// Moves to a window, if there is a place for it.
fn enter(next: &NextWindow) {
    let mapped = if let Some(mapped) = MappedWindow::find_by_file(next.file) {
        // Back in its old place.
        next.discard();
        let window = mapped.whole_window();
        let filled = window.is_some_and(|window| window.refill(&next.fd).is_ok());
        filled.then_some(mapped)
    } else {
        let mapped = MappedWindow::add(next.window, next.uid, next.file);
        if mapped.is_none() {
            next.discard();
        }
        UNUSED_WINDOW.store(core::ptr::null_mut(), Ordering::Relaxed);
        mapped
    };
    let Some((mapped, window)) = mapped.and_then(|mapped| Some((mapped, mapped.window()?))) else {
        return;
    };
    mapped.set_uid(next.uid);
    // Its place in the table of processes is the one that its old claims name, if it still has it.
    let place = Owner::from_word(mapped.slot.load(Ordering::Relaxed));
    let who = identity();
    if !window.holds(place, who.pid) {
        mapped.slot.store(window.enter_process(&who).owner_word(0), Ordering::Relaxed);
    }
    uncount_departure(mapped, &window);
    PROCESS.move_to(Some(mapped));
    register_events_in(mapped);
}

/// Describes in the process's window what it knows, and sends there who aims at another one.
fn register_events_in(mapped: &'static MappedWindow) {
    register::intern_all(mapped);
    event_archive::set_abandoned_words(event_archive::RETARGET, Some(mapped));
}
