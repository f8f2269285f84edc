//! Helpers for tests: generators, oracles, temporary windows.
