//! The guard of `span!`.

use core::marker::PhantomData;

use crate::site::Site;

/// A scope that is being traced: its end is recorded when this guard is dropped. Created by
/// [`span!`](crate::span!).
#[must_use = "it ends when it is dropped: at once, unless it is given a name"]
#[derive(Debug)]
pub struct Span {
    end: Site<()>,
    /// Makes the guard `!Send`: beginning and end belong to one thread.
    in_thread: PhantomData<*const ()>,
}

impl Span {
    #[doc(hidden)]
    #[inline(always)]
    pub fn __new(end: Site<()>) -> Self {
        Self { end, in_thread: PhantomData }
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.end.is_on() {
            self.end.record_aside();
        }
    }
}
