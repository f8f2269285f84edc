//! An event that never happens, because its value never exists; in optimised code, only the event's
//! description remains of the enumeration.
#![forbid(unsafe_code)]

trackway::enumeration! {
    /// The phases of a loader.
    #[derive(Debug)]
    enum Phase: u8 {
        Idle,
        Loading,
    }
}

fn no_phase() -> Option<Phase> {
    None
}

fn main() {
    trackway::event!(never, before, INFO, number = 1_u8);
    if std::env::args().len() > 1 {
        trackway::event!(never, happens, INFO, phase = no_phase().expect("a phase"));
    }
    trackway::event!(never, after, INFO, number = 2_u8);
}
