//! The site of an event: the event, and the kinds of the values that the site records.

use core::marker::PhantomData;

use crate::event::Event;
use crate::stage::{self, Fields};

/// The event of a site whose values are of the kinds `F`, a list `(K1, (K2, … ()))`.
#[derive(Debug)]
pub struct Site<F> {
    event: &'static Event,
    fields: PhantomData<fn(F)>,
}

impl<F> Clone for Site<F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Site<F> {}

impl<F: Fields> Site<F> {
    /// The site of the descriptor at `event`.
    ///
    /// # Safety
    /// It is valid, never moves, and describes fields of the kinds `F`.
    #[inline(always)]
    pub unsafe fn new(event: *const Event) -> Self {
        // SAFETY: the caller's promise.
        Self { event: unsafe { &*event }, fields: PhantomData }
    }

    /// Returns true if a session records the site's events now.
    #[inline(always)]
    pub fn is_on(self) -> bool {
        self.event.is_on()
    }

    /// The event.
    #[cfg(feature = "log")]
    #[inline(always)]
    pub(crate) fn event(self) -> &'static Event {
        self.event
    }

    /// Records one event with these values.
    ///
    /// # Safety
    /// What they point to is still there.
    #[inline(always)]
    pub unsafe fn record(self, values: F) {
        // SAFETY: the caller's promise.
        unsafe { stage::record_event(self.event, values) };
    }
}

impl Site<()> {
    /// Records one event without fields, out of line.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_aside(self) {
        // SAFETY: there are no values.
        unsafe { self.record(()) };
    }
}
