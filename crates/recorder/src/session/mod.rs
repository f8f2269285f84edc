//! One session from start to end, driven by `trackway record` or by a background process.

pub(crate) mod background;
pub(crate) mod command_checks;
pub(crate) mod controller;
pub(crate) mod crash_watch;
pub(crate) mod driver;
pub(crate) mod end_signals;
pub(crate) mod foreground;
pub(crate) mod run_as;
pub(crate) mod run_options;
pub(crate) mod silence_watch;
pub(crate) mod snapshot_quota;
pub(crate) mod status_line;
pub(crate) mod summary_file;
pub(crate) mod suspend_check;
pub(crate) mod window_watch;
pub(crate) mod windows;
pub(crate) mod write_stall;
