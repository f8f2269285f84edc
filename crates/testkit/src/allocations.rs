//! A global allocator that counts the allocations of a piece of code, for each thread apart, so
//! that parallel tests do not disturb each other.
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//! ```
#![allow(unsafe_code, reason = "a global allocator is an unsafe interface")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counters.
#[derive(Debug, Clone, Copy)]
pub struct CountingAllocator;

/// Allocations of a piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllocationStats {
    /// Maximum bytes that were allocated at once, beyond those allocated before.
    pub most_bytes: u64,
    /// Number of requests for memory: a measure of work that needs no clock.
    pub times: u64,
}

thread_local! {
    /// Bytes that this thread has allocated and not freed. Negative if it frees other threads'
    /// memory.
    static CURRENT_BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<i64> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count_allocation(bytes: usize) {
    // While a thread ends, its counters may be gone: there is nothing to measure then.
    let _ = CURRENT_BYTES.try_with(|now| {
        now.set(now.get() + bytes as i64);
        let _ = PEAK_BYTES.try_with(|most| most.set(most.get().max(now.get())));
    });
    let _ = ALLOCATIONS.try_with(|times| times.set(times.get() + 1));
}

fn count_deallocation(bytes: usize) {
    let _ = CURRENT_BYTES.try_with(|now| now.set(now.get() - bytes as i64));
}

// SAFETY: all is done by `System`, whose contract is the same; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count_deallocation(layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new memory exist together during the copy.
        count_allocation(size);
        count_deallocation(layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Runs `code` and returns the allocations of this thread meanwhile. Zeros if the process's
/// allocator is not a [`CountingAllocator`].
pub fn measure_allocations<R>(code: impl FnOnce() -> R) -> (R, AllocationStats) {
    let before = CURRENT_BYTES.get();
    PEAK_BYTES.set(before);
    let times = ALLOCATIONS.get();
    let result = code();
    let most_bytes = u64::try_from(PEAK_BYTES.get() - before).unwrap_or(0);
    (result, AllocationStats { most_bytes, times: ALLOCATIONS.get() - times })
}

#[cfg(test)]
mod tests {
    use super::{CountingAllocator, measure_allocations};

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn counts_what_is_there_at_once() {
        let ((), first) = measure_allocations(|| {
            drop(std::hint::black_box(vec![0_u8; 1000]));
            drop(std::hint::black_box(vec![1_u8; 3000]));
        });
        assert_eq!((first.most_bytes, first.times), (3000, 2));
        let ((), none) = measure_allocations(|| {});
        assert_eq!((none.most_bytes, none.times), (0, 0));
    }
}
