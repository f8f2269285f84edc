//! The list of everything that a fork child resets.
//!
//! A fork child has a copy of its parent's memory, without the parent's other threads. Its first
//! event, or its first call of this library, finds no process stamp, because the stamp's page is
//! wiped on fork. The child makes a stamp, and runs this list before it publishes the stamp. Each
//! module that keeps state of its process has one reset function, which only this module calls.
//!
//! Two handlers of pthread_atfork(3) do the work that cannot wait: `setuid` finishes a change of
//! user that a thread of the parent had begun; `filters::executable_memory` pins the parts that a
//! fork in a handler leaves in use, and gives the child memory of its own.

use crate::filters;
use crate::state::process::PROCESS;
use crate::state::window_map::MappedWindow;
use crate::sync::claims;

/// Returns the process stamp, and makes one if this process has none: at start, and in a fork
/// child. Returns zero while another thread, or the code that this signal handler interrupted,
/// makes the stamp.
pub(crate) fn ensure_stamp() -> u64 {
    PROCESS.ensure_stamp(reset_process_state)
}

/// Resets the state that this process must not inherit from its parent. At the library's start,
/// filters and claims are still unused and need no reset.
fn reset_process_state(is_fork_child: bool) {
    // Precedes the reset of decisions: a signal handler that decides in between also counts this
    // process.
    MappedWindow::reset_all();
    if is_fork_child {
        filters::reset_in_fork_child();
        claims::release_in_fork_child();
    }
    PROCESS.void_decisions();
}
