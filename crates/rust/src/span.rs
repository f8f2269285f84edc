//! The guard of `span!`.

use core::marker::PhantomData;

use crate::site::Site;

/// A scope that is being traced: records its end when it is dropped. Made by
/// [`span!`](crate::span!).
#[must_use = "it ends when it is dropped: at once, unless it is given a name"]
#[derive(Debug)]
pub struct Span {
    end: Site<()>,
    /// Begin and end belong to one thread.
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
