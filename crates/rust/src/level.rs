//! Log levels with LTTng's names and numbers; smaller numbers are more severe.

/// The system is unusable.
pub const EMERG: u8 = 0;
/// Action must be taken immediately.
pub const ALERT: u8 = 1;
/// Critical conditions.
pub const CRIT: u8 = 2;
/// Errors.
pub const ERR: u8 = 3;
/// Warnings.
pub const WARNING: u8 = 4;
/// Normal, but significant.
pub const NOTICE: u8 = 5;
/// Informational.
pub const INFO: u8 = 6;
/// Debugging, with the scope of a set of programs.
pub const DEBUG_SYSTEM: u8 = 7;
/// Debugging, with the scope of a program.
pub const DEBUG_PROGRAM: u8 = 8;
/// Debugging, with the scope of a process.
pub const DEBUG_PROCESS: u8 = 9;
/// Debugging, with the scope of a module: an executable or library.
pub const DEBUG_MODULE: u8 = 10;
/// Debugging, with the scope of a compilation unit.
pub const DEBUG_UNIT: u8 = 11;
/// Debugging, with the scope of a function.
pub const DEBUG_FUNCTION: u8 = 12;
/// Debugging, with the scope of a line.
pub const DEBUG_LINE: u8 = 13;
/// Debugging.
pub const DEBUG: u8 = 14;
