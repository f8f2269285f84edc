//! What program this process runs: looked up once, so that rules for processes can be evaluated in
//! a signal handler, in a sandbox, without a system call.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Longest path that is kept (PATH_MAX, linux/limits.h). A longer one is not known, and no rule
/// means it.
const PATH_BYTES: usize = 4096;

static PATH: Path = Path(UnsafeCell::new([0; PATH_BYTES]));
static LENGTH: AtomicUsize = AtomicUsize::new(0);

struct Path(UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: written once, by the thread that loads the library, before `LENGTH` is published with
// Release; read by those who saw the length with Acquire, as far as that goes.
unsafe impl Sync for Path {}

/// The name that the thread had which loaded the library.
static NAME: Name = Name(UnsafeCell::new([0; 17]));

struct Name(UnsafeCell<[u8; 17]>);

// SAFETY: as above.
unsafe impl Sync for Name {}

/// The name of the thread that loaded the library, as it was then: the program's, mostly, in 15
/// bytes. What is said in a sandbox of threads whose name is not known.
pub(crate) fn loader_thread_name() -> [u8; 17] {
    // ORDERING: Acquire pairs with the Release in `look_up`.
    LENGTH.load(Ordering::Acquire);
    // SAFETY: written before the length, and never again.
    unsafe { *NAME.0.get() }
}

/// Looks it up. Once, by the thread that loads the library.
pub(crate) fn look_up() {
    // SAFETY: nobody reads it before the length is published below.
    unsafe { *NAME.0.get() = crate::state::thread::read_name() };
    // SAFETY: nobody reads it before the length is published below.
    let path = unsafe { &mut *PATH.0.get() };
    let length = trackway_sys::process::executable(path);
    // ORDERING: Release pairs with the Acquire in `executable`.
    LENGTH.store(length.min(PATH_BYTES), Ordering::Release);
}

/// The path of the executable; empty: not known.
pub(crate) fn path() -> &'static [u8] {
    // ORDERING: Acquire pairs with the Release in `look_up`.
    let length = LENGTH.load(Ordering::Acquire);
    // SAFETY: these bytes were written before the length, and never again.
    unsafe { core::slice::from_raw_parts(PATH.0.get().cast::<u8>().cast_const(), length) }
}
