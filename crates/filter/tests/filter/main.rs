//! Tests of filters from text to answer: cases that people wrote, and random ones. The tree's
//! evaluator answers, and the bytecode: run by these tests, by `jit`'s interpreter, and as machine
//! code. All must agree.

mod any;
mod case;
mod cases;
mod event;
mod frame;
mod hostile;
mod machine;
mod messages;
mod random;
mod runner;
mod shape;
mod unknown;
