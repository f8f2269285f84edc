//! A hard test of a subscriber: threads that make spans while the program forks, children that make
//! spans, too, and an allocator that makes one for each allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: usize = 3;
const CHILDREN: usize = 20;
/// More than the lists of free slots of a thread hold: each round takes and gives some.
const SPANS_OF_ROUND: usize = 1000;

/// Makes a span for each allocation, without any guard: what is done for a span allocates nothing.
struct SpanAllocator;

/// Not before there is a subscriber: `tracing` locks, and allocates, while it gets one.
static IS_TRACED: AtomicBool = AtomicBool::new(false);

// SAFETY: it is the system's allocator.
unsafe impl GlobalAlloc for SpanAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_TRACED.load(Ordering::Relaxed) {
            drop(tracing::info_span!("allocation", bytes = layout.size() as u64));
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
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
            // SAFETY: the child only makes spans, allocates (the C library's allocator is made for
            // that) and exits.
            match unsafe { libc::fork() } {
                0 => {
                    make_spans();
                    // SAFETY: ends the child here.
                    unsafe { libc::_exit(0) };
                }
                child => {
                    assert!(child > 0, "no child");
                    let mut status = 0;
                    // SAFETY: waits for that child.
                    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                    assert!(waited == child && status == 0, "child: {status:#x}");
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
