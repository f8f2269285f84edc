//! Events as lines of text, byte for byte as babeltrace2 2.0.4 prints them by default.
//!
//! ```text
//! [02:56:21.324464420] (+0.000001369) host app:request: { cpu_id = 0 }, { vtid = 7 }, { n = 1 }
//! ```
//!
//! The format is that of babeltrace2's `sink.text.pretty`. Nothing is allocated per event:
//! everything goes into a buffer that the caller keeps.

mod fields;
mod line;
mod number;
mod print;

pub use fields::FieldWriter;
pub use line::{LineWriter, TraceNames};
pub use number::{push_decimal, push_general};
pub use print::{Input, print};
