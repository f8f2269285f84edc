//! The scope of a filter: kernel or user events, by its pattern and its contexts.

use trackway_filter::layout::Layout;
use trackway_filter::span::Span;
use trackway_filter::token::{Token, tokenize};
use trackway_kernel::bpf_program::contexts::Context;

/// Returns true if an expression names a context that only kernel events have.
pub(crate) fn names_kernel_context(text: &str) -> bool {
    let of_programs = Layout::program_contexts();
    let is_there = |name: &str| of_programs.iter().any(|context| context.name == name);
    let names_kernel_context = |(token, _): &(Token, Span)| {
        let Token::Context(name) = token else { return false };
        !is_there(name) && Context::filterable().any(|context| context.name == name)
    };
    tokenize(text).is_ok_and(|tokens| tokens.iter().any(names_kernel_context))
}
