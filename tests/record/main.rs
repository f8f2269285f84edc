//! `trackway record`: the command that it runs and the events that it records, writer paths,
//! contexts, and the environments and privileges of recorded programs.

mod arch;
mod command;
mod contexts;
mod diagnosis;
mod environment;
mod lives;
mod privileges;
mod reserve;
mod sandbox;
mod walked;
