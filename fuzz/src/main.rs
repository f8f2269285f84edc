//! Runs libFuzzer on the target that `TRACKWAY_FUZZ_TARGET` names: see `make fuzz`.
#![no_main]

use std::sync::LazyLock;

use trackway_fuzz_targets::{Target, target};
use trackway_testkit::{CountingAllocator, measured};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The fuzz target of this process.
static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("TRACKWAY_FUZZ_TARGET").expect("TRACKWAY_FUZZ_TARGET names a target");
    target(&name).unwrap_or_else(|| panic!("no target is called {name}"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (values, allocated) = measured(|| (TARGET.run)(bytes));
    TARGET.check(bytes, values, allocated.most_bytes, allocated.times);
});
