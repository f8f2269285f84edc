//! Detaching of BPF programs from their tracepoints.
//!
//! For each tracepoint, the kernel waits for all running programs: 76 ms here, 37 of them
//! serialized over all processes. So one thread each detaches a few programs. With many programs, a
//! child process without other work holds their last descriptors, and the recorder does not wait.

use std::fs;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::AttachedEventProgram;
use crate::notices::Notices;

/// Highest number of programs that the recorder waits for while the kernel detaches them.
const WAITED_DETACHES_MAX: usize = 8;

/// Programs on tracepoints. Dropping this value detaches the programs, now or soon, even if
/// recording never began.
#[derive(Debug, Default)]
pub(super) struct Attachments(Vec<AttachedEventProgram>);

impl Deref for Attachments {
    type Target = Vec<AttachedEventProgram>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Attachments {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        detach_programs(mem::take(&mut self.0));
    }
}

/// Detaches programs from their tracepoints, now or soon. The programs record nothing any more.
fn detach_programs(attached: Vec<AttachedEventProgram>) {
    let mut descriptors: Vec<OwnedFd> =
        attached.into_iter().map(|one| one.attached.into_descriptor()).collect();
    if descriptors.len() > WAITED_DETACHES_MAX {
        descriptors.sort_by_key(OwnedFd::as_raw_fd);
        let numbers: Vec<i32> = descriptors.iter().map(OwnedFd::as_raw_fd).collect();
        if let Ok(until_closed) = trackway_sys::process::close_in_child(&numbers) {
            drop(descriptors);
            drop(until_closed);
            return;
        }
    }
    std::thread::scope(|scope| {
        let share = descriptors.len().div_ceil(WAITED_DETACHES_MAX).max(1);
        while !descriptors.is_empty() {
            let some = descriptors.split_off(descriptors.len().saturating_sub(share));
            let one = std::thread::Builder::new().name("trackway-detach".into());
            // If no thread can be created, the closure is dropped here with its descriptors.
            drop(one.spawn_scoped(scope, move || drop(some)));
        }
    });
}

/// Detaches some programs without waiting, while others go on recording. A detached program has
/// another version than the program that records its event, if there is one.
pub(super) fn detach_in_background(attached: Vec<AttachedEventProgram>) {
    if attached.is_empty() {
        return;
    }
    let work = || detach_programs(attached);
    // If no thread can be created, the closure is dropped with its descriptors.
    drop(std::thread::Builder::new().name("trackway-detach".into()).spawn(work));
}

/// Shortest start time that causes a notice.
const SLOW_START_MIN: Duration = Duration::from_secs(1);

/// Reports why the start took long, if the cause is that the kernel detaches another recorder's
/// programs: attaching needs the same locks.
pub(super) fn report_slow_start(begun: Instant, notices: &Notices) {
    let took = begun.elapsed();
    if took >= SLOW_START_MIN && is_any_recorder_detaching() {
        notices.report(format_args!(
            "to begin took {:.1} s: the kernel is letting go of the events of another recorder, \
             which has ended or was killed",
            took.as_secs_f64()
        ));
    }
}

/// Returns true if any process waits for the kernel to detach a recorder's programs.
fn is_any_recorder_detaching() -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|process| is_detaching_process(&process))
}

/// Returns true if the process in this folder of /proc waits for a detach: a child process left for
/// that, or a killed recorder. A killed recorder has no memory, but one thread that is no zombie:
/// the last thread closes the files.
fn is_detaching_process(process: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    match read("comm").trim_end() {
        "trackway-detach" => true,
        "trackway" => {
            let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
            let is_zombie =
                |stat: &str| stat.rsplit_once(") ").is_none_or(|it| it.1.starts_with('Z'));
            let stats = threads.map(|it| fs::read_to_string(it.path().join("stat")));
            read("statm").starts_with("0 ") && stats.flatten().any(|stat| !is_zombie(&stat))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn who_waits_for_the_kernel_is_known_by_its_name_or_has_no_memory() {
        let folder = TemporaryFolder::new();
        let is = |comm: &str, states: &str, statm: &str| {
            for (number, state) in states.char_indices() {
                let thread = folder.join("task").join(number.to_string());
                fs::create_dir_all(&thread).expect("a folder");
                let stat = format!("7 ({comm}) {state} 1 7 7\n");
                fs::write(thread.join("stat"), stat).expect("room");
            }
            for (name, text) in [("comm", comm), ("statm", statm)] {
                fs::write(folder.join(name), format!("{text}\n")).expect("room");
            }
            is_detaching_process(folder.path())
        };
        assert!(is("trackway-detach", "S", "200 30 20"));
        assert!(is("trackway", "D", "0 0 0 0 0 0 0"));
        assert!(!is("trackway", "S", "2000 30 20"), "it records");
        assert!(!is("trackway", "Z", "0 0 0 0 0 0 0"), "it has nothing any more");
        assert!(is("trackway", "ZD", "0 0 0 0 0 0 0"), "another thread closes its files");
        assert!(!is("trackway", "ZZ", "0 0 0 0 0 0 0"));
        assert!(!is("kworker/0:1", "I", "0 0 0 0 0 0 0"));
        assert!(!is_detaching_process(&folder.join("gone")));
    }
}
