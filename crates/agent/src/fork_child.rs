//! The list of everything that a fork child resets, and the moment when it does.
//!
//! A fork child has a copy of its parent's memory, without the parent's other threads. Its first
//! event, or its first call of this library, finds no process stamp (the stamp's page is wiped on
//! fork) and makes one; this list runs in between. Whatever a module remembers about its process
//! belongs in here, in one function that this module alone calls.
//!
//! Handlers of pthread_atfork(3) do what cannot wait for that: `setuid` finishes a change of user
//! that a thread of the parent had begun, and `filters::executable_memory` pins the parts that a
//! handler's fork leaves in use and gives the child memory of its own.

use crate::filters;
use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;
use crate::sync::claims;

/// Returns the process stamp, and makes it if this process has none: at start, and in a fork child.
/// Zero while another thread, or the code that this signal handler interrupted, is making it.
pub(crate) fn ensure_stamp() -> u64 {
    PROCESS.ensure_stamp(reset)
}

/// Resets what this process must not have from its parent. The library's start runs the same list,
/// less the parts that are still untouched then.
fn reset(is_fork_child: bool) {
    // Before the decisions: a signal handler that decides in between counts this process as well.
    MappedWindow::reset_all();
    if is_fork_child {
        filters::reset_in_fork_child();
        claims::release_in_fork_child();
    }
    PROCESS.void_decisions();
}
