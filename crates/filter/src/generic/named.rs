//! Collects the names in an expression, and its subexpressions.

use std::collections::BTreeSet;

use super::APPLICATION_PREFIX;
use crate::parse::{Item, Node, Tree, Unary};
use crate::text::Text;

/// The names in an expression.
#[derive(Default)]
pub(super) struct ExpressionNames {
    /// Fields, in order of appearance; application contexts as `$app.provider:name`.
    pub(super) fields: Vec<String>,
    /// Names of fields that are indexed.
    pub(super) indexed: BTreeSet<String>,
    /// Strings without stars, which may be enumeration labels.
    pub(super) texts: BTreeSet<Vec<u8>>,
}

impl ExpressionNames {
    pub(super) fn of(tree: &Tree) -> Self {
        let mut named = Self::default();
        named.walk(tree);
        named
    }

    fn walk(&mut self, tree: &Tree) {
        if let Some(name) = name_of(tree)
            && !self.fields.contains(&name)
        {
            self.fields.push(name);
        }
        match &tree.node {
            Node::Index(of, _) => self.indexed.extend(name_of(of)),
            Node::Text(text) => _ = self.texts.insert(without_stars(text)),
            _ => {}
        }
        if !has_only_numbers_and_units(tree) {
            child_trees(tree).into_iter().for_each(|child| self.walk(child));
        }
    }
}

/// Returns the name of a node, in the form of [`ExpressionNames`].
fn name_of(tree: &Tree) -> Option<String> {
    match &tree.node {
        Node::Name(name) => Some(name.clone()),
        Node::Application(name) => Some(format!("{APPLICATION_PREFIX}{name}")),
        _ => None,
    }
}

/// Returns true if the call's arguments are only numbers and units, without names.
fn has_only_numbers_and_units(tree: &Tree) -> bool {
    matches!(&tree.node, Node::Call(name, ..) if matches!(name.as_str(), "rate" | "sample"))
}

/// A subexpression that can be checked on its own.
pub(super) struct Part<'t> {
    pub(super) tree: &'t Tree,
    /// True if the subexpression must be a condition.
    pub(super) is_truth: bool,
    /// Indices of the fields that the subexpression names.
    pub(super) fields: Vec<usize>,
    /// Number of nodes.
    pub(super) size: usize,
}

/// Adds the subexpressions of a tree, children first, that can be checked on their own. Returns the
/// tree's fields and size. `all` lists the fields of the whole expression.
pub(super) fn collect_parts<'t>(
    tree: &'t Tree,
    is_truth: bool,
    all: &[String],
    found: &mut Vec<Part<'t>>,
) -> (Vec<usize>, usize) {
    let own = name_of(tree).and_then(|name| all.iter().position(|field| *field == name));
    let is_name = own.is_some();
    let (mut fields, mut size): (Vec<usize>, usize) = (own.into_iter().collect(), 1);
    let are_truths = match &tree.node {
        Node::All(_) | Node::Either(_) => true,
        Node::Unary(operator, _) => *operator == Unary::Not,
        _ => false,
    };
    // Inside these calls, a sequence's name means one of its elements.
    let is_closed =
        matches!(&tree.node, Node::Call(name, ..) if ["any", "all", "none"].contains(&&**name));
    let mut inner = Vec::new();
    if !has_only_numbers_and_units(tree) {
        for child in child_trees(tree) {
            let into = if is_closed { &mut inner } else { &mut *found };
            let (named, of) = collect_parts(child, are_truths, all, into);
            size += of;
            for field in named {
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
    }
    if !fields.is_empty() && (is_truth || !is_name) {
        found.push(Part { tree, is_truth, fields: fields.clone(), size });
    }
    (fields, size)
}

/// Returns the bytes of a string, with its stars as literal characters.
fn without_stars(text: &Text) -> Vec<u8> {
    let pattern = text.to_pattern();
    let mut bytes = Vec::new();
    let mut rest = pattern.iter();
    while let Some(&byte) = rest.next() {
        match byte {
            b'*' => {}
            b'\\' => bytes.extend(rest.next()),
            _ => bytes.push(byte),
        }
    }
    bytes
}

fn child_trees(tree: &Tree) -> Vec<&Tree> {
    match &tree.node {
        Node::Number(_)
        | Node::Text(_)
        | Node::Truth(_)
        | Node::Name(_)
        | Node::Context(_)
        | Node::Application(_) => Vec::new(),
        Node::Member(of, _) | Node::Unary(_, of) => vec![of],
        Node::Index(a, b) | Node::Binary(_, a, b) => vec![a, b],
        Node::All(parts) | Node::Either(parts) | Node::Call(_, _, parts) => parts.iter().collect(),
        Node::In(value, items) => {
            let mut all = vec![&**value];
            for item in items {
                match item {
                    Item::One(one) => all.push(one),
                    Item::Range(first, last) => all.extend([first, last]),
                }
            }
            all
        }
    }
}
