//! Help pages, manual pages, completions and error messages of Trackway's commands.
//!
//! `trackway` and `trackway-bench` are two programs that users invoke as one command. This crate
//! contains the parts that give both the same appearance and error handling. All functions work on
//! the declaration of a command line, a [`clap::Command`].
//!
//! Main invariant: no function depends on a command's name.
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
