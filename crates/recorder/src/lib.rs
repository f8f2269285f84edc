//! Records sessions: makes regions, drains them, keeps the clock, writes the trace, recovers.
