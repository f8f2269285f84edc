//! The site of an event: its event, and the kinds of the values that it records.

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
    /// Creates the site of the descriptor at `event`.
    ///
    /// # Safety
    /// The descriptor must be valid, never move, and describe fields of the kinds `F`.
    #[inline(always)]
    pub unsafe fn new(event: *const Event) -> Self {
        // SAFETY: the caller promises that the descriptor is valid.
        Self { event: unsafe { &*event }, fields: PhantomData }
    }

    /// Returns true if a session records the site's events now.
    #[inline(always)]
    pub fn is_on(self) -> bool {
        self.event.is_on()
    }

    /// Returns the site's event.
    #[cfg(feature = "log")]
    #[inline(always)]
    pub(crate) fn event(self) -> &'static Event {
        self.event
    }

    /// Records one event with these values.
    ///
    /// # Safety
    /// The data to which the values point must still exist.
    #[inline(always)]
    pub unsafe fn record(self, values: F) {
        // SAFETY: the caller promises that the data exists.
        unsafe { stage::record_event(self.event, values) };
    }
}

impl Site<()> {
    /// Records one event without fields, in a separate function.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_aside(self) {
        // SAFETY: there are no values.
        unsafe { self.record(()) };
    }
}
