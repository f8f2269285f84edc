//! Rust code in a program that is mainly C; both parts have events.

/// The function that the C part calls.
#[unsafe(no_mangle)]
pub extern "C" fn mixed_rust() {
    trackway::event!(mixed, both, INFO, from = "Rust", number = 2_u32);
    trackway::event!(mixed, rust, INFO);
}

/// A function with a single event call, for disassembly.
#[unsafe(no_mangle)]
pub extern "C" fn mixed_site() {
    trackway::event!(mixed, site, INFO, path = "/index.html", status = 200_u32, latency_us = 9_u64);
}
