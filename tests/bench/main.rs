//! `trackway bench`: its measurements, files, drawings and comparisons. No time is asserted.

mod compare;
mod events;
mod filter_reading;
mod kernel;
mod paths;
mod peers;
mod sessions;
