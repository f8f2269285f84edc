//! A library that a running program loads: it registers its events itself.

/// The function that the program calls.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_run(number: u32) {
    trackway::event!(plugin, run, INFO, number = number);
}
