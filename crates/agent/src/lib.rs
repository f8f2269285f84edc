//! The library inside the traced process: events, decisions, the recording path.
