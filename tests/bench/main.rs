//! `trackway bench`: what it measures, what it keeps, draws and compares. No time is asserted.

mod compare;
mod events;
mod filter_reading;
mod kernel;
mod paths;
mod peers;
mod sessions;
