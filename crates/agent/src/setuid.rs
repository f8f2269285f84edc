//! Processes that become another user: they leave the old user's window and enter the new user's.
//!
//! The wrappers of the C library's set*id functions call this module, never the recording path.
//! docs/design/0004-privileges.md describes when a process leaves a window, the order of the steps,
//! and the effect on recording threads. One thread at a time moves the process; a second thread
//! requests another check.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use trackway_abi::region::CLAIM_REGIONS_PER_CPU;
use trackway_abi::session::SESSIONS_MAX;
use trackway_sys::Errno;
use trackway_sys::file::Fd;
use trackway_sys::memory::ZeroPages;
use trackway_sys::process::{Users, current_identity, has_elevated_rights, restart_sequences};
use trackway_sys::signal::SignalSet;
use trackway_window::{Owner, SessionLayout, Window, WriterPath};

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

    /// Looks up the wrapped function: the next one in search order, which may be another wrapper.
    fn resolve(&self) -> *mut c_void {
        let name: *const c_char = self.name.as_ptr();
        // SAFETY: the name is a C string.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        self.address.store(address, Ordering::Relaxed);
        address
    }

    /// Returns the function's address; null: it does not exist (then no program has called the
    /// wrapper).
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.resolve() } else { known }
    }
}

/// Looks up all wrapped functions at load, because dlsym(3) may not be called in all places where
/// set*id may: in a signal handler, or in the fork child of a program with threads.
pub(crate) fn resolve_wrapped_functions() {
    for wrapped in [&SETUID, &SETEUID, &SETREUID, &SETRESUID] {
        wrapped.resolve();
    }
    unsafe extern "C" {
        /// pthread_atfork(3), in the static part of the C library.
        fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }
    // If this lacks memory, children that are forked during a change of user stay unchanged.
    // SAFETY: the library, and so the function, is never unloaded.
    unsafe { pthread_atfork(None, None, Some(finish_in_fork_child)) };
}

/// Number of requests for a move.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Number of threads in a wrapped function.
static CHANGES_UNDERWAY: AtomicU32 = AtomicU32::new(0);

/// A change of user, from before the C library's function to the end of its consequences.
#[derive(Debug)]
pub struct UserChange {
    /// Zero pages that replace the window, if the new user must not have it any more.
    zeros: Option<ZeroPages>,
    /// True if this process changes its user. False in a vfork child, which has its parent's memory
    /// and is about to call exec.
    is_ours: bool,
}

impl UserChange {
    /// Begins a change to these users (real, effective, saved; `None`: unchanged).
    pub fn begin(users: [Option<u32>; 3]) -> Self {
        if !PROCESS.has_started() || thread::runs_in_parent_memory() {
            return Self { zeros: None, is_ours: false };
        }
        // ORDERING: SeqCst, here and in `drop`: a child that has the new user has this count, too.
        CHANGES_UNDERWAY.fetch_add(1, Ordering::SeqCst);
        // Root may lock any amount of memory (mlockall with MCL_FUTURE locks all mapped memory);
        // the new user may not. So the zeros are mapped before the change, unless root may come
        // back or the change will be refused.
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

    /// Completes the change after the C library's function has succeeded.
    pub fn complete(&mut self) {
        if self.is_ours && must_move(Users::current()) {
            move_to_user_window(&mut self.zeros);
        }
    }
}

impl Drop for UserChange {
    fn drop(&mut self) {
        if self.is_ours {
            // A child that is forked during the change begins at zero.
            let less = |threads: u32| threads.checked_sub(1);
            // ORDERING: SeqCst: see `begin`.
            let _ = CHANGES_UNDERWAY.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less);
        }
        let errno = Errno::last();
        self.zeros = None;
        errno.set();
    }
}

/// Finishes, in a child of fork(3), a change of user that a thread of the parent had begun. The
/// child lacks that thread, so it repeats all steps. Otherwise the child could keep a window that
/// its user may not have, or stay without one. (No sandbox forbids these steps: the parent's thread
/// was making them.)
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
        // SAFETY: a thread that only the parent has mapped the window and published it nowhere.
        unsafe {
            libc::munmap(opened.cast(), UNUSED_WINDOW_BYTES.load(Ordering::Relaxed) as usize)
        };
    }
    for (mapped, _) in MappedWindow::all().filter(|(mapped, _)| !PROCESS.is_in(mapped)) {
        let Some(window) = mapped.whole_window() else { continue };
        // The window was half left or half entered. If blanking fails, nothing more can be done.
        let _ = window.blank(true, mapped.used_bytes_max(&window));
        let _ = window.blank(false, mapped.used_bytes_max(&window));
    }
    move_process_once(Users::current(), &mut None);
    if let Some(mapped) = PROCESS.current_window() {
        register_events_in(mapped);
    }
    before.make_current();
    errno.set();
}

/// Moves the process, after a successful set*id function, to the window of its present user. Runs
/// in any thread and any signal handler; errno is unchanged. Waits only for claims, for a few
/// milliseconds.
#[inline(never)]
fn move_to_user_window(zeros: &mut Option<ZeroPages>) {
    let errno = Errno::last();
    // A signal handler that called this function during the move would wait for its own thread.
    let before = SignalSet::all().block();
    // ORDERING: SeqCst, a Dekker pair: this thread requests, then finds no mover; or the mover
    // releases the lock, then finds the request.
    REQUESTS.fetch_add(1, Ordering::SeqCst);
    while let Some(lock) = PROCESS.move_lock() {
        if lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            break; // another thread is moving the process, and will check again
        }
        ensure_stamp();
        // ORDERING: SeqCst, all three: the Dekker pair of `REQUESTS` and the lock.
        let requests = REQUESTS.load(Ordering::SeqCst);
        move_process_once(Users::current(), zeros);
        lock.store(0, Ordering::SeqCst);
        if REQUESTS.load(Ordering::SeqCst) == requests {
            break;
        }
    }
    before.make_current();
    errno.set();
}

/// Returns true if the process is in a window of another user, or in none though it has one user.
fn must_move(users: Users) -> bool {
    match PROCESS.current_window() {
        Some(mapped) => !users.contain(mapped.uid()),
        None => users.only().is_some(),
    }
}

fn move_process_once(users: Users, zeros: &mut Option<ZeroPages>) {
    if !must_move(users) {
        return;
    }
    // A user may truncate their window, which kills the processes that use it. So only a process
    // that belongs to that user for good enters the window.
    let uid = users.only().filter(|&uid| uid == 0 || !has_elevated_rights());
    // If no window can be opened, the process is in none.
    let next = uid.and_then(NextWindow::open);
    if let Some(mapped) = PROCESS.current_window() {
        if let Some(next) = next.as_ref().filter(|next| mapped.shows_file(next.file)) {
            // The same user with another number, in a user namespace.
            mapped.set_uid(next.uid);
            next.discard();
            return;
        }
        if leave_window(mapped, zeros).is_err() {
            if let Some(next) = next {
                next.discard();
            }
            return;
        }
    }
    if let Some(next) = next {
        enter_window(&next);
    }
}

/// The address of a window that is mapped but not yet entered; null: there is none. Fork children
/// unmap that window.
static UNUSED_WINDOW: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static UNUSED_WINDOW_BYTES: AtomicU64 = AtomicU64::new(0);

/// The window to move to.
struct NextWindow {
    window: Window,
    fd: Fd,
    /// Device and inode of the window's file.
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

    /// Unmaps the window, which no other thread has used.
    fn discard(&self) {
        UNUSED_WINDOW.store(core::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: `open` mapped the window, and published nothing of it.
        unsafe { self.window.discard() };
    }
}

/// The sessions of the window that the process leaves. Static, because the stack may be small: one
/// thread at a time moves, with its signals blocked, and a fork child has no other thread.
static ABANDONED_LAYOUTS: Layouts = Layouts(UnsafeCell::new([None; SESSIONS_MAX]));

struct Layouts(UnsafeCell<[Option<SessionLayout>; SESSIONS_MAX]>);

// SAFETY: see `ABANDONED_LAYOUTS`.
unsafe impl Sync for Layouts {}

/// Leaves a window. Afterwards zeros replace the window, and all earlier records are whole.
fn leave_window(mapped: &'static MappedWindow, zeros: &mut Option<ZeroPages>) -> Result<(), Errno> {
    let Some(window) = &mapped.window() else { return Ok(()) };
    if !zeros.as_ref().is_some_and(ZeroPages::are_whole) {
        *zeros = None;
    }
    // Another thread may be extending the window, so each call reads the window's size again
    // (`MappedWindow::extend`).
    let mut blank = |fixed_part| {
        let Some(window) = mapped.whole_window() else { return Ok(()) };
        let reach = mapped.used_bytes_max(&window);
        let suffice = |zeros: &ZeroPages| {
            zeros.suffice(window.reserved_bytes(), window.mapped_bytes(), reach)
        };
        match zeros.as_mut().filter(|zeros| suffice(zeros)) {
            Some(zeros) => window.blank_by(zeros, fixed_part),
            None => window.blank(fixed_part, reach),
        }
    };
    // SAFETY: one thread at a time moves (see `ABANDONED_LAYOUTS`).
    let layouts = unsafe { &mut *ABANDONED_LAYOUTS.0.get() };
    for (index, layout) in layouts.iter_mut().enumerate() {
        *layout = SessionLayout::read(window, index);
    }
    // Counted before the window is gone, and reverted if the process cannot leave the window.
    count_departure(mapped, window, layouts);
    PROCESS.move_to(None);
    event_archive::set_abandoned_words(0, Some(mapped));
    // From here on every site is off, no thread finds a session, and no sequence passes its gate:
    // no session has the generation zero.
    if let Err(errno) = blank(true) {
        uncount_departure(mapped, window);
        PROCESS.move_to(Some(mapped));
        register_events_in(mapped);
        return Err(errno);
    }
    // A thread that passed its gate earlier has committed or starts again. On a kernel without this
    // function, each thread that is copying now may lose one record.
    let _ = restart_sequences();
    wait_for_claims(mapped, window, layouts);
    // If this fails, the remaining pages stay mapped, and no thread reads them any more.
    let _ = blank(false);
    // Zeros for another window would have another size and place.
    *zeros = None;
    Ok(())
}

/// Counts this process as departed, in all sessions that count it.
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

/// Reverts [`count_departure`], for a process that is back in the window.
fn uncount_departure(mapped: &MappedWindow, window: &Window) {
    for index in window.active_sessions() {
        let session = window.session(index);
        let trace = session.trace_uuid[0].load(Ordering::Relaxed) | 1;
        if mapped.departure_traces[index].swap(0, Ordering::Relaxed) == trace {
            session.departed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Waits, up to a limit, until no claim region has this process's owner word. A thread that claims
/// now finds the session gone and releases the claim. A claim that stays belongs to a thread that
/// does not run, or to the code that a signal handler interrupted to call this function. Also waits
/// for a moment without slots in use in lockless buffers, which have no owner words.
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
                let region = layout.region(window, cpu, WriterPath::Claim(which));
                // ORDERING: Acquire pairs with the Release of the claim's end: the claim's writes
                // came before.
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

/// Enters a window, if the process's window table has a free entry for it.
fn enter_window(next: &NextWindow) {
    let mapped = if let Some(mapped) = MappedWindow::find_by_file(next.file) {
        // The process is back in a window that it has left.
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
    // Keeps the slot in the process table that old claims name, if it still belongs to the process.
    let place = Owner::from_word(mapped.slot.load(Ordering::Relaxed));
    let who = current_identity();
    if !window.holds(place, who.pid) {
        mapped.slot.store(window.enter_process(&who).owner_word(0), Ordering::Relaxed);
    }
    uncount_departure(mapped, &window);
    PROCESS.move_to(Some(mapped));
    register_events_in(mapped);
}

/// Registers the process's events in the window, and retargets sites that point at another one.
fn register_events_in(mapped: &'static MappedWindow) {
    register::intern_archived_descriptions(mapped);
    event_archive::set_abandoned_words(event_archive::RETARGET, Some(mapped));
}
