//! Sessions and events in a test's own window.

use std::sync::atomic::Ordering;

use trackway_abi::session::state;
use trackway_abi::window::granule;
use trackway_schema::Heading;
use trackway_window::{Allocator, SessionLayout, Window};

use super::support::{Folder, encode_event};

/// A window for the sessions and events of one test.
pub(crate) struct Fixture {
    _folder: Folder,
    pub(crate) window: Window,
    allocator: Allocator,
}

impl Fixture {
    pub(crate) fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let (window, file) = folder.open(true).unwrap();
        Self { _folder: folder, window, allocator: Allocator::new(window, file) }
    }

    /// Makes an active session in `slot`, with these rules.
    pub(crate) fn session(&self, slot: usize, rules: &str) -> SessionLayout {
        let session = self.window.session(slot);
        let bytes = SessionLayout::control_bytes(1, 0);
        let control = self.allocator.take(bytes, granule::CONTROL + slot as u8).unwrap();
        session.control_offset.store(control, Ordering::Relaxed);
        session.cpus.store(1, Ordering::Relaxed);
        session.sub_shift.store(12, Ordering::Relaxed);
        session.claim_sub_shift.store(12, Ordering::Relaxed);
        session.count_shift.store(2, Ordering::Relaxed);
        assert!(self.window.set_rules(slot, rules.as_bytes()));
        session.state.store(state::ACTIVE, Ordering::SeqCst);
        SessionLayout::read(&self.window, slot).unwrap()
    }

    /// Registers an event like the library. Returns its index, and true if it is enabled.
    pub(crate) fn describe(&self, layout: &SessionLayout, name: &str) -> (usize, bool) {
        let encoded = encode_event(name);
        let index = self.window.intern_event(&encoded).unwrap() as usize;
        let heading = Heading::read(&encoded).unwrap();
        (index, self.window.enable_if_selected(layout, index, &heading))
    }

    pub(crate) fn bits(&self, index: usize) -> u32 {
        self.window.event(index).enabled.load(Ordering::SeqCst)
    }

    pub(crate) fn id(&self, layout: &SessionLayout, index: usize) -> u32 {
        layout.id(&self.window, index).load(Ordering::SeqCst)
    }
}
