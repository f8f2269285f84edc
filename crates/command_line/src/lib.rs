//! Help pages, manual pages, completions and error messages of Trackway's commands.
//!
//! `trackway` and `trackway-bench` are two programs that users meet as one command: this crate
//! holds the parts that make both look and fail the same way. All of it works on the declaration of
//! a command line, a [`clap::Command`].
//!
//! Main invariant: nothing here depends on a command's name.
#![deny(unsafe_code)]

mod common;
pub mod completions;
pub mod help;
pub mod manual;
mod messages;

pub use common::{ColourChoice, CommonArguments, typed_colour_choice};
pub use messages::{
    EXIT_FAILED, error_text, is_broken_pipe, print_error, print_hint, print_page, print_usage_error,
};
