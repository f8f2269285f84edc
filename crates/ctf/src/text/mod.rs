//! Events as lines of text; first of all byte for byte as babeltrace2 2.0.4 prints them.
//!
//! ```text
//! [02:56:21.324464420] (+0.000001369) host app:request: { cpu_id = 0 }, { vtid = 7 }, { n = 1 }
//! ```
//!
//! [`LineFormat`] is what a format implements; [`Pretty`] is the format of babeltrace2's
//! `sink.text.pretty`. Nothing is allocated per event: everything goes into a buffer that the
//! caller keeps. Which events there are, and in which order, is the business of the crate
//! `reader`.

mod fields;
mod format;
mod number;
mod pretty;

pub use fields::FieldWriter;
pub use format::{Head, Line, LineFormat, LossPlace, Shown, Stamp};
pub use number::{push_decimal, push_general};
pub use pretty::Pretty;
