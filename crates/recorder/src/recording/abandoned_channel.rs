//! A channel whose recorder is dead, taken over by this process.

use std::sync::atomic::Ordering;

use trackway_abi::session::state;
use trackway_window::SessionLayout;

use crate::error::RecordError;
use crate::recording::region::StreamNames;
use crate::window::handle::WindowHandle;
use crate::window::slot::{self, Slot};
use crate::window::{cpus, shared_text};

/// Policy for records whose trace cannot be completed in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranded {
    /// The records stay in memory: the folder may come back, for example on a disk.
    Keep,
    /// The records go to a new trace beside the original folder.
    NewTrace,
    /// The records are discarded.
    Discard,
}

/// A channel whose recorder is dead, and to which no process writes any more.
pub(crate) struct AbandonedChannel {
    pub(crate) slot: Slot,
    pub(crate) layout: SessionLayout,
    pub(crate) names: StreamNames,
    no_sequence: bool,
}

impl AbandonedChannel {
    /// Excludes writers from a channel that was taken over; `None` if the channel has no records
    /// left.
    pub(crate) fn of(
        handle: &WindowHandle,
        slot: Slot,
        stranded: Stranded,
    ) -> Result<Option<Self>, RecordError> {
        let session = slot.session();
        if session.state.load(Ordering::Relaxed) == state::BUILDING {
            let no_sequence = slot.deactivate_unbuilt();
            slot.free(handle, no_sequence).inspect_err(|_| slot.abandon())?;
            return Ok(None);
        }
        // A control area outside the slot's own memory belongs to another session, whatever the
        // slot contains.
        let is_of_another = handle.uid() != crate::common::user::effective_uid();
        let is_its = |layout: &SessionLayout| {
            // Each CPU of the layout uses memory of this user.
            (!is_of_another || layout.cpus <= cpus::possible_cpu_count())
                && slot::is_control_area(handle, slot.index, &layout.control_area())
        };
        let layout = SessionLayout::read(handle.window(), slot.index).filter(is_its);
        let class = session.stream_class.load(Ordering::Relaxed);
        let names = shared_text::channel_name(session).map(|name| StreamNames::new(&name, class));
        let no_sequence = slot.deactivate();
        let Some((layout, names)) = layout.zip(names) else {
            let was_let_in_to = session.control_offset.load(Ordering::Relaxed) != 0;
            // A process with a limited address space (RLIMIT_AS) does not map the whole window.
            let window = handle.window();
            let may_be_elsewhere = handle
                .allocator
                .file()
                .status()
                .is_ok_and(|file| file.bytes > window.mapped_bytes());
            let is_kept = stranded == Stranded::Keep || may_be_elsewhere;
            if was_let_in_to && !slot.is_complete && is_kept {
                slot.abandon();
                return Err(RecordError::Lost("its session in the window makes no sense"));
            }
            slot.free(handle, no_sequence).inspect_err(|_| slot.abandon_complete())?;
            return Ok(None);
        };
        if slot.is_complete {
            slot.free_undrained(handle, &layout, no_sequence)?;
            return Ok(None);
        }
        Ok(Some(Self { slot, layout, names, no_sequence }))
    }

    pub(crate) fn discard(&self, handle: &WindowHandle) -> Result<(), RecordError> {
        self.slot.free_undrained(handle, &self.layout, self.no_sequence)
    }
}
