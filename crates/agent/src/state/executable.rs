//! The program of this process, read once, so that process rules need no system call in a signal
//! handler or in a sandbox.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum length of the path (PATH_MAX, linux/limits.h). A longer path stays unknown, and no rule
/// selects its program.
const PATH_BYTES: usize = 4096;

static PATH: Path = Path(UnsafeCell::new([0; PATH_BYTES]));
static LENGTH: AtomicUsize = AtomicUsize::new(0);

struct Path(UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: the thread that loads the library writes the path once, before it publishes `LENGTH` with
// Release; readers saw the length with Acquire, and read only as many bytes.
unsafe impl Sync for Path {}

/// The name of the thread that loaded the library.
static NAME: Name = Name(UnsafeCell::new([0; 17]));

struct Name(UnsafeCell<[u8; 17]>);

// SAFETY: the thread that loads the library writes the name once, before it publishes `LENGTH`.
unsafe impl Sync for Name {}

/// Returns the name of the thread that loaded the library, at that time: mostly the program's, in
/// 15 bytes. In a sandbox it stands for threads with unknown names.
pub(crate) fn loader_thread_name() -> [u8; 17] {
    // ORDERING: Acquire pairs with the Release in `read_path_and_name`.
    LENGTH.load(Ordering::Acquire);
    // SAFETY: written before the length, and never again.
    unsafe { *NAME.0.get() }
}

/// Reads the program's path and name. The thread that loads the library calls this once.
pub(crate) fn read_path_and_name() {
    // SAFETY: no thread reads it before the length is published below.
    unsafe { *NAME.0.get() = crate::state::thread::read_name() };
    // SAFETY: no thread reads it before the length is published below.
    let path = unsafe { &mut *PATH.0.get() };
    let length = trackway_sys::process::write_executable_path(path);
    // ORDERING: Release pairs with the Acquire in `executable_path`.
    LENGTH.store(length.min(PATH_BYTES), Ordering::Release);
}

/// Returns the path of the executable; empty: unknown.
pub(crate) fn executable_path() -> &'static [u8] {
    // ORDERING: Acquire pairs with the Release in `read_path_and_name`.
    let length = LENGTH.load(Ordering::Acquire);
    // SAFETY: these bytes were written before the length, and never again.
    unsafe { core::slice::from_raw_parts(PATH.0.get().cast::<u8>().cast_const(), length) }
}
