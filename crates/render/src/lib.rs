//! Output formats for events. The main format is babeltrace2's text, byte for byte: CTF 1.8 as
//! 2.0.4 prints it, CTF 2 as 2.1 does, the first version that reads CTF 2.
//!
//! ```text
//! [02:56:21.324464420] (+0.000001369) host app:request: { cpu_id = 0 }, { vtid = 7 }, { n = 1 }
//! ```
//!
//! An [`EventOutput`] receives events in time order, in any format. [`LineOutput`] is the output
//! for lines; a [`LineFormat`] defines their form. [`Pretty`] is the format of babeltrace2's
//! `sink.text.pretty`; [`Json`] and [`Csv`] are for programs; [`Discard`] writes no events. Formats
//! allocate nothing per event: the caller keeps the buffer. The crate `reader` selects and orders
//! the events.

#![forbid(unsafe_code)]

mod address;
mod call;
mod csv;
mod details;
mod discard;
mod fields;
mod format;
mod json;
mod level;
mod meaning;
mod number;
mod one_line;
mod options;
mod output;
mod pretty;
mod socket;
mod symbolic;
mod time;

pub use csv::{Csv, event_columns, push_csv_cell};
pub use details::{push_details, push_details_json, to_printable};
pub use discard::Discard;
pub use fields::FieldWriter;
pub use format::{
    DeltaSlot, Difference, EventEncoder, LINE_BYTES_MAX, LastShown, Line, LineFormat, LossPlace,
    Stamp, TraceName,
};
pub use json::{Json, format_seconds};
pub use number::{format_grouped, push_decimal, push_general_float};
pub use one_line::OneLine;
pub use options::{ListError, PrettyOptions, ShownFields, ShownNames};
pub use output::{EncodedRun, EventOutput, LineOutput, OutputBuffer};
pub use pretty::{Marks, Pretty};
pub use symbolic::Symbolic;
pub use time::{Calendar, DateTime, unix_seconds_of, utc_date_time};
