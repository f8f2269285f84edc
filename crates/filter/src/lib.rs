//! Compiles filter expressions: from text to a tree, a typed tree, a graph and bytecode.
//!
//! Programs that run filters: docs/design/0008-filters.md. The idea comes from Sharma, Dagenais:
//! *Enhanced Userspace and In-Kernel Trace Filtering for Quasi-Realtime Systems*, 2015, sections
//! 3.4 and 4.
//!
//! | stage | from | to |
//! |---|---|---|
//! | [`token`] | text | tokens with their positions |
//! | [`mod@parse`] | tokens | a tree, by C's precedences |
//! | [`types`] | the tree and a [`layout`] | a typed tree, or an error with advice |
//! | `graph` | the typed tree | a control-flow graph in which nothing is evaluated twice |
//! | `emit` | the graph | eBPF, registers, constants |
//! | [`object`] | bytecode for all kinds of events | bytes |
//!
//! Filters in C come from [`elf`] files, and become the same objects; [`mod@header`] generates C
//! headers with the members of events. [`mod@checked`] checks whether objects are valid, and for
//! which events. Filters compiled before their events are known are checked against synthetic
//! events (`generic`).
//!
//! [`mod@evaluate`] evaluates the typed tree directly, with the same results. [`explain`] formats
//! the compiled filter.
//!
//! # The language
//!
//! ```text
//! fields      length   pos.x   xs[2]   xs[i]   $ctx.vpid   $app.provider:type
//! numbers     12  0xff  0b101  0755  1_000  'a'  2.5  1e9  64Ki (k M G Ki Mi Gi)  5ms (ns us ms s)
//! strings     "a\n"; with == != in, a star is anything: "lib*.so"; \* is a star
//! operators   as in C, with C's precedences:  * / %   + -   << >>   < <= > >=   == !=   &   ^   |
//!             && ||  ! ~ - + ( )
//! sets        x in (1, 2, 5..9)   name in ("a*", "b")   status in ("FAILED", 7)
//! functions   starts_with(s, t)  ends_with(s, t)  contains(s, t)  length(s)  length(xs)
//!             any(xs > 3)  all(xs > 3)  none(xs > 3)
//!             sample(1/1000)  rate(100/s)  changed(x)  count() % 100 == 0
//! ```
//!
//! - Integers have 64 bits. They are compared as numbers, whatever their signs: -1 is less than
//!   anything unsigned. Arithmetic has a sign unless one side is an unsigned field of 64 bits; it
//!   wraps; `x / 0` is 0, `x % 0` is `x`; a shift by a field is modulo 64. An integer beside a
//!   float becomes a float.
//! - A true condition is 1. A number is true if it is not 0. A string is neither true nor false.
//! - An enumeration compared with a string is compared by label.
//! - `&&`, `||` and `in` evaluate from left to right, and stop once the result is known. The state
//!   of `count`, `changed` and `rate` covers only the evaluations of that call.
//! - `any`, `all` and `none` iterate over one sequence or array of numbers, at most 4,096 elements.
//!   They must not contain state, random choices, or reads of elements that may not exist.
//! - An element that does not exist, once it is read, makes the whole filter false.
//!
//! # Example
//!
//! ```
//! use trackway_filter::compile::compile;
//! use trackway_filter::layout::{Layout, Member};
//! use trackway_schema::Scalar;
//!
//! let length = Member { name: "length".into(), of: Scalar::U32.into() };
//! let layout = Layout { event: "myapp:read".into(), fields: vec![length], ..Layout::default() };
//! let error = compile("lenght > 5", &layout).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "unknown field 'lenght' of myapp:read; did you mean 'length'?"
//! );
//! assert_eq!(compile("length > 5", &layout)?.alternative.needs[0].path, "length");
//! # Ok::<(), trackway_filter::error::Error>(())
//! ```
#![forbid(unsafe_code)]

mod analysis;
pub mod applications;
pub mod checked;
pub mod compile;
pub mod elf;
mod emit;
pub mod error;
pub mod evaluate;
pub mod explain;
mod generic;
mod graph;
pub mod header;
pub mod layout;
mod meaning;
pub mod member_path;
pub mod number;
pub mod object;
pub mod parse;
pub mod span;
pub mod text;
pub mod token;
pub mod types;
pub mod value_type;
