//! Rust in a program that is mainly C, where both have events.

/// The function that the C part calls.
#[unsafe(no_mangle)]
pub extern "C" fn mixed_rust() {
    trackway::event!(mixed, both, INFO, from = "Rust", number = 2_u32);
    trackway::event!(mixed, rust, INFO);
}

/// One call and nothing else, to be disassembled.
#[unsafe(no_mangle)]
pub extern "C" fn mixed_site() {
    trackway::event!(mixed, site, INFO, path = "/index.html", status = 200_u32, latency_us = 9_u64);
}
