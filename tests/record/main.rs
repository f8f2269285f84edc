//! `trackway record`: what it passes through and records, ways to reserve, contexts, and where and
//! with what privileges the recorded programs live.

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
