//! The recorder's decisions: buffers, growth, limits, clock; no input or output.
