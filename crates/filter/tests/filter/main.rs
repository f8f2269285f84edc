//! Tests of filters from text to answer, with handwritten and random cases. The evaluator of typed
//! trees must agree with the bytecode, which runs in these tests' own runner, in `jit`'s
//! interpreter, and as machine code.

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
