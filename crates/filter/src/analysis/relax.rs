//! Relaxes a filter for unknown needs: the relaxed filter reads no unknown need, and rejects only
//! events that the full filter rejects for all values of the unknown needs.
//!
//! Each test of an unknown need becomes true, or false behind a `!`. This is three-valued logic in
//! which "perhaps" counts as true at the end. Parts with state or random results, which must not
//! run twice, count as unknown. So do elements, which may not exist: the filter may short-circuit
//! around an element, and a read here would reject the event.

use std::collections::BTreeMap;

use crate::types::{Expr, Filter, Need, Node, Root, Step, Type};

impl Filter {
    /// Returns this filter relaxed for the needs for which `is_unknown` returns true. Returns
    /// `None` if no test is left, or no need is unknown.
    #[must_use]
    pub fn relaxed(&self, is_unknown: impl Fn(&Need) -> bool) -> Option<Self> {
        if !self.needs.iter().any(&is_unknown) {
            return None;
        }
        let may_be_asked = |need: &Need| {
            let is_element = matches!(need.place.steps.last(), Some(Step::Element(_)));
            // Application contexts may be absent, too.
            !is_unknown(need) && !is_element && need.place.root != Root::Application
        };
        let known: Vec<bool> = self.needs.iter().map(may_be_asked).collect();
        let mut root = relax_expr(&self.root, &known, true);
        if root.constant().is_some_and(|bits| bits != 0) {
            return None;
        }
        let mut places = BTreeMap::new();
        renumber_needs(&mut root, &mut places);
        let mut needs: Vec<(usize, Need)> =
            places.iter().map(|(&old, &new)| (new, self.needs[old].clone())).collect();
        needs.sort_by_key(|(new, _)| *new);
        let needs = needs.into_iter().map(|(_, need)| need).collect();
        Some(Self { needs, cells: 0, root, warnings: Vec::new() })
    }
}

/// Replaces unknown parts of the expression by `answer`, the value that lets the event pass.
fn relax_expr(expr: &Expr, known: &[bool], answer: bool) -> Expr {
    let all = |parts: &[Expr]| parts.iter().map(|part| relax_expr(part, known, answer)).collect();
    match &expr.node {
        Node::All(parts) => join_parts(all(parts), true),
        Node::Either(parts) => join_parts(all(parts), false),
        Node::Not(of) => {
            let of = relax_expr(of, known, !answer);
            match of.constant() {
                Some(bits) => truth_constant(bits == 0),
                None => Expr::truth(Node::Not(Box::new(of))),
            }
        }
        _ if is_known(expr, known) => expr.clone(),
        _ => truth_constant(answer),
    }
}

fn truth_constant(is_true: bool) -> Expr {
    Expr::number(is_true.into(), Type::Signed)
}

/// Joins the parts with `&&` or `||`, without the parts that do not affect the result.
fn join_parts(parts: Vec<Expr>, is_all: bool) -> Expr {
    let is = |part: &Expr, truth: bool| part.constant().is_some_and(|bits| (bits != 0) == truth);
    if parts.iter().any(|part| is(part, !is_all)) {
        return truth_constant(!is_all);
    }
    let parts: Vec<Expr> = parts.into_iter().filter(|part| !is(part, is_all)).collect();
    match (parts.is_empty(), is_all) {
        (true, _) => truth_constant(is_all),
        (false, true) => Expr::truth(Node::All(parts)),
        (false, false) => Expr::truth(Node::Either(parts)),
    }
}

/// Returns true if the expression can be evaluated and always has the same value.
fn is_known(expr: &Expr, known: &[bool]) -> bool {
    let is_known_need = |need: &usize| known.get(*need).is_some_and(|known| *known);
    let is_known_itself = match &expr.node {
        Node::Element(..)
        | Node::Absent
        | Node::Fold(..)
        | Node::Sample(_)
        | Node::Rate { .. }
        | Node::Count(_)
        | Node::Changed(..) => false,
        Node::Load(need) | Node::Any(need, _) => is_known_need(need),
        _ => true,
    };
    is_known_itself && expr.children().into_iter().all(|child| is_known(child, known))
}

/// Renumbers the used needs in the order of their first use.
fn renumber_needs(expr: &mut Expr, places: &mut BTreeMap<usize, usize>) {
    let mut place = |need: &mut usize| {
        let next = places.len();
        *need = *places.entry(*need).or_insert(next);
    };
    match &mut expr.node {
        Node::Load(need) | Node::Element(need, _) | Node::Any(need, _) | Node::Fold(_, need) => {
            place(need);
        }
        _ => {}
    }
    for child in expr.children_mut() {
        renumber_needs(child, places);
    }
}
