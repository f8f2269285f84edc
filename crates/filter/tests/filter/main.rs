//! Tests of filters from text to answer: cases that people wrote, and random ones; both the tree's
//! evaluator and the bytecode answer, and must agree.

mod cases;
mod event;
mod hostile;
mod machine;
mod messages;
mod random;
mod runner;
mod shape;
