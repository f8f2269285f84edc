//! The workloads: small programs in C, C++ and Rust, compiled on the machine with its own
//! compilers, so that every tracer is measured through the headers of its users.
//!
//! ```text
//! headers/    headers that several programs include
//! programs/   programs without a tracer, or with a tracer that needs no library
//! trackway/   programs with Trackway's events
//! lttng/      programs with LTTng-UST's events
//! rust/       packages that cargo builds
//! ```

use trackway_bench_engine::host::cargo_workload::Package;
use trackway_bench_engine::host::workload::Source;

/// All sources in C and C++.
pub(crate) const SOURCES: [Source; 48] = [
    Source { name: "harness.h", text: include_str!("headers/harness.h") },
    Source { name: "machine.h", text: include_str!("headers/machine.h") },
    Source { name: "singles.h", text: include_str!("headers/singles.h") },
    Source { name: "steps.h", text: include_str!("headers/steps.h") },
    Source { name: "crowd.h", text: include_str!("headers/crowd.h") },
    Source { name: "baseline.c", text: include_str!("programs/baseline.c") },
    Source { name: "printf.c", text: include_str!("programs/printf.c") },
    Source { name: "trackway.c", text: include_str!("trackway/trackway.c") },
    Source { name: "trackway-many.c", text: include_str!("trackway/trackway-many.c") },
    Source { name: "rust-events.c", text: include_str!("trackway/rust-events.c") },
    Source { name: "rust-spans.c", text: include_str!("trackway/rust-spans.c") },
    Source { name: "trackway-cxx.c", text: include_str!("trackway/trackway-cxx.c") },
    Source { name: "trackway-cxx.cc", text: include_str!("trackway/trackway-cxx.cc") },
    Source { name: "lttng.c", text: include_str!("lttng/lttng.c") },
    Source { name: "lttng-provider.c", text: include_str!("lttng/lttng-provider.c") },
    Source { name: "lttng-provider.h", text: include_str!("lttng/lttng-provider.h") },
    Source { name: "allocate.c", text: include_str!("trackway/allocate.c") },
    Source { name: "interpose.c", text: include_str!("trackway/interpose.c") },
    Source { name: "launch.c", text: include_str!("programs/launch.c") },
    Source { name: "sessions.h", text: include_str!("headers/sessions.h") },
    Source { name: "sessions.c", text: include_str!("trackway/sessions.c") },
    Source { name: "sessions-lttng.c", text: include_str!("lttng/sessions-lttng.c") },
    Source { name: "kernel.c", text: include_str!("programs/kernel.c") },
    Source { name: "load.h", text: include_str!("headers/load.h") },
    Source { name: "marks.h", text: include_str!("headers/marks.h") },
    Source { name: "served.c", text: include_str!("programs/served.c") },
    Source { name: "latency.h", text: include_str!("headers/latency.h") },
    Source { name: "latency.c", text: include_str!("programs/latency.c") },
    Source { name: "latency-trackway.c", text: include_str!("trackway/latency-trackway.c") },
    Source { name: "latency-usdt.c", text: include_str!("programs/latency-usdt.c") },
    Source { name: "latency-lttng.c", text: include_str!("lttng/latency-lttng.c") },
    Source { name: "payload.h", text: include_str!("headers/payload.h") },
    Source { name: "payload.c", text: include_str!("programs/payload.c") },
    Source { name: "payload-lttng.h", text: include_str!("lttng/payload-lttng.h") },
    Source { name: "payload-lttng.c", text: include_str!("lttng/payload-lttng.c") },
    Source { name: "usdt.c", text: include_str!("programs/usdt.c") },
    Source { name: "marker.c", text: include_str!("programs/marker.c") },
    Source { name: "functions.c", text: include_str!("programs/functions.c") },
    Source { name: "rust-peer.c", text: include_str!("programs/rust-peer.c") },
    Source { name: "cases.h", text: include_str!("headers/cases.h") },
    Source { name: "cases-bare.c", text: include_str!("programs/cases-bare.c") },
    Source { name: "cases-trackway.c", text: include_str!("trackway/cases-trackway.c") },
    Source { name: "cases-lttng.c", text: include_str!("lttng/cases-lttng.c") },
    Source { name: "cases-usdt.c", text: include_str!("programs/cases-usdt.c") },
    Source { name: "parts.h", text: include_str!("headers/parts.h") },
    Source { name: "parts-trackway.c", text: include_str!("trackway/parts-trackway.c") },
    Source { name: "parts-lttng.c", text: include_str!("lttng/parts-lttng.c") },
    Source { name: "crowd.c", text: include_str!("trackway/crowd.c") },
];

/// Package with Trackway's events.
pub(crate) const EVENTS: Package = Package {
    name: "events",
    manifest: include_str!("rust/events.toml"),
    source: include_str!("rust/events.rs"),
    lock: None,
};

/// Package with spans.
pub(crate) const SPANS: Package = Package {
    name: "spans",
    manifest: include_str!("rust/spans.toml"),
    source: include_str!("rust/spans.rs"),
    lock: Some(include_str!("rust/spans.lock")),
};

/// Package with events of fastrace.
pub(crate) const FASTRACE: Package = Package {
    name: "fastrace",
    manifest: include_str!("rust/fastrace.toml"),
    source: include_str!("rust/fastrace.rs"),
    lock: Some(include_str!("rust/fastrace.lock")),
};

/// Package with plots of Tracy.
pub(crate) const TRACY: Package = Package {
    name: "tracy",
    manifest: include_str!("rust/tracy.toml"),
    source: include_str!("rust/tracy.rs"),
    lock: Some(include_str!("rust/tracy.lock")),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_belong_to_the_crate() {
        for package in [&EVENTS, &SPANS] {
            assert!(package.manifest.contains("trackway = { path = \"@TRACKWAY@\""));
        }
        for package in [&EVENTS, &SPANS, &FASTRACE, &TRACY] {
            assert!(package.manifest.contains(&format!("name = \"lab-{}\"", package.name)));
        }
    }
}
