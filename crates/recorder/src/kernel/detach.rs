//! Programs taken off their tracepoints.
//!
//! The kernel waits for all programs that are under way, of each tracepoint anew: 76 ms here, of
//! which it does 37 for one after the other, whoever asks. So few are let go by a thread each; of
//! many, the last descriptors are left to a process that has nothing else, which nobody waits for.

use std::fs;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::Attachment;
use crate::notices::Notices;

/// How many of them are waited for.
const FEW: usize = 8;

/// Programs on tracepoints. They are taken off, now or soon, when this goes: also where it is not
/// recorded after all.
#[derive(Debug, Default)]
pub(super) struct Attachments(Vec<Attachment>);

impl Deref for Attachments {
    type Target = Vec<Attachment>;

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
        detach(mem::take(&mut self.0));
    }
}

/// Takes programs off their tracepoints, now or soon. They record nothing any more.
fn detach(attached: Vec<Attachment>) {
    let mut descriptors: Vec<OwnedFd> =
        attached.into_iter().map(|one| one.attached.into_descriptor()).collect();
    if descriptors.len() > FEW {
        descriptors.sort_by_key(OwnedFd::as_raw_fd);
        let numbers: Vec<i32> = descriptors.iter().map(OwnedFd::as_raw_fd).collect();
        if let Ok(until_closed) = trackway_sys::process::close_elsewhere(&numbers) {
            drop(descriptors);
            drop(until_closed);
            return;
        }
    }
    std::thread::scope(|scope| {
        let share = descriptors.len().div_ceil(FEW).max(1);
        while !descriptors.is_empty() {
            let some = descriptors.split_off(descriptors.len().saturating_sub(share));
            let one = std::thread::Builder::new().name("trackway-detach".into());
            // Where there can be no thread, they go here, with what was to run there.
            drop(one.spawn_scoped(scope, move || drop(some)));
        }
    });
}

/// The same of some while others go on: nobody waits. They are other versions than the one that
/// records their event, if any.
pub(super) fn detach_beside(attached: Vec<Attachment>) {
    if attached.is_empty() {
        return;
    }
    let work = || detach(attached);
    // Where there can be no thread, they went with what was to run there.
    drop(std::thread::Builder::new().name("trackway-detach".into()).spawn(work));
}

/// How long it may take to begin without a word, where others are being let go of.
const LONG: Duration = Duration::from_secs(1);

/// Says why it took long to begin, if it did, and the kernel is letting go of another recorder's
/// programs: whoever attaches one waits for the same locks.
pub(super) fn say_why_long(begun: Instant, notices: &Notices) {
    let took = begun.elapsed();
    if took >= LONG && is_another_leaving() {
        notices.say(format_args!(
            "to begin took {:.1} s: the kernel is letting go of the events of another recorder, \
             which has ended or was killed",
            took.as_secs_f64()
        ));
    }
}

/// Whether a process waits for the kernel to let go of what a recorder had.
fn is_another_leaving() -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|process| is_leaving(&process))
}

/// Whether the process in this folder of /proc does: it was left for that, or is a recorder that
/// was killed. Such a one has no memory any more, but a thread that is no zombie: the last one
/// closes its files.
fn is_leaving(process: &Path) -> bool {
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
            is_leaving(folder.path())
        };
        assert!(is("trackway-detach", "S", "200 30 20"));
        assert!(is("trackway", "D", "0 0 0 0 0 0 0"));
        assert!(!is("trackway", "S", "2000 30 20"), "it records");
        assert!(!is("trackway", "Z", "0 0 0 0 0 0 0"), "it has nothing any more");
        assert!(is("trackway", "ZD", "0 0 0 0 0 0 0"), "another thread closes its files");
        assert!(!is("trackway", "ZZ", "0 0 0 0 0 0 0"));
        assert!(!is("kworker/0:1", "I", "0 0 0 0 0 0 0"));
        assert!(!is_leaving(&folder.join("gone")));
    }
}
