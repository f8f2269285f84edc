//! An event's enable word, and the session bits that the word held when it was read.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::abi::Event;

/// The sessions that an emission records in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnabledSessions {
    /// The enable word. Its address alone identifies window and event, because another thread may
    /// move the process to another user's window meanwhile ([`crate::setuid`]).
    pub(crate) word: *const AtomicU32,
    /// Session bits of the enable word when it was read.
    pub(crate) bits: u32,
}

impl EnabledSessions {
    /// Reads an event's enable word.
    ///
    /// # Safety
    /// The event is registered.
    #[inline(always)]
    pub(crate) unsafe fn load(event: *mut Event) -> Self {
        // SAFETY: the caller's event; `register` replaces `enabled` while sites read it.
        let word = unsafe { AtomicPtr::from_ptr((&raw mut (*event).enabled).cast()) };
        let word: *mut AtomicU32 = word.load(Ordering::Relaxed);
        // SAFETY: the word is in a window or in the event itself.
        Self { word, bits: unsafe { (*word).load(Ordering::Relaxed) } }
    }

    /// Returns the lowest session; 32 if there is none.
    #[inline(always)]
    pub(crate) const fn first(self) -> usize {
        self.bits.trailing_zeros() as usize
    }

    /// Removes the lowest session and returns it.
    #[inline(always)]
    pub(crate) const fn take_first(&mut self) -> Option<usize> {
        if self.bits == 0 {
            return None;
        }
        let session = self.first();
        self.bits &= self.bits - 1;
        Some(session)
    }
}
