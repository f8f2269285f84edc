//! A hard test of the subscriber: threads make spans while the program forks, children make spans,
//! too, and the allocator makes a span for each allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: usize = 3;
const CHILDREN: usize = 20;
/// More than a thread's list of free slots holds: each round takes and returns some slots.
const SPANS_OF_ROUND: usize = 1000;

/// Makes a span for each allocation, without a guard against recursion: spans allocate nothing.
struct SpanAllocator;

/// Becomes true after a subscriber is set: before, `tracing` locks and allocates.
static IS_TRACED: AtomicBool = AtomicBool::new(false);

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for SpanAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_TRACED.load(Ordering::Relaxed) {
            drop(tracing::info_span!("allocation", bytes = layout.size() as u64));
        }
        // SAFETY: the caller's promises hold for the system's allocator, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises hold for the system's allocator, too.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: SpanAllocator = SpanAllocator;

fn make_spans() {
    let spans: Vec<_> =
        (0..SPANS_OF_ROUND).map(|number| tracing::info_span!("work", number)).collect();
    drop(spans);
}

fn main() {
    tracing::subscriber::set_global_default(trackway::subscriber()).expect("no other subscriber");
    IS_TRACED.store(true, Ordering::Relaxed);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    make_spans();
                }
            });
        }
        for _ in 0..CHILDREN {
            // SAFETY: the child only makes spans, allocates (which the C library permits after
            // fork) and exits.
            match unsafe { libc::fork() } {
                0 => {
                    make_spans();
                    // SAFETY: the call ends the child.
                    unsafe { libc::_exit(0) };
                }
                child => {
                    assert!(child > 0, "no child");
                    let mut status = 0;
                    // SAFETY: the call waits for the child.
                    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                    assert!(waited == child && status == 0, "child: {status:#x}");
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
