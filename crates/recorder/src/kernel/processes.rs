//! Processes whose kernel events are recorded: their threads and the pid namespace.

use crate::error::RecordError;
use crate::kernel::error::kernel_error;

/// Adds each thread of a process by `take_in`, which returns true if the thread was no member yet.
/// The list of threads may miss a thread whose creator was no member at that moment. So the scan is
/// repeated until all listed threads are members.
pub(crate) fn each_thread(
    pid: u32,
    mut take_in: impl FnMut(u32) -> bool,
) -> Result<(), RecordError> {
    /// Most scans, for processes that create threads all the time: later threads are members from
    /// their creation.
    const LOOKS_MAX: usize = 100;
    for look in 0..LOOKS_MAX {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let threads = tasks.into_iter().flatten().flatten();
        let threads = threads.filter_map(|one| one.file_name().to_str()?.parse().ok());
        let threads: Vec<u32> = threads.collect();
        if look == 0 && threads.is_empty() {
            return Err(kernel_error("cannot record", format_args!("there is no process {pid}")));
        }
        if threads.into_iter().filter(|&tid| take_in(tid)).count() == 0 {
            break;
        }
    }
    Ok(())
}

/// Returns true if this process is in the first pid namespace, whose ids BPF programs read.
pub(crate) fn is_first_namespace() -> bool {
    /// PROC_PID_INIT_INO (include/linux/proc_ns.h).
    const FIRST: u64 = 0xeffffffc;
    trackway_sys::process::pid_namespace() == FIRST
}
