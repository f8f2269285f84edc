//! Programs taken off their tracepoints.
//!
//! The kernel waits for all programs that are under way, of each tracepoint anew: 76 ms here, of
//! which it does 37 for one after the other, whoever asks. So few are let go by a thread each; of
//! many, the last descriptors are left to a process that has nothing else, which nobody waits for.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::Attachment;

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
