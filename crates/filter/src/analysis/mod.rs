//! Analyses of a checked expression: needs that are always evaluated, widths that make a
//! difference, and the relaxed form for unknown needs.

pub(crate) mod always_evaluated;
pub(crate) mod relax;
pub(crate) mod width;
