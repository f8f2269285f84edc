//! The parts of an expression, read or changed: one list for both.

use std::collections::BTreeSet;

use super::{Expr, Node};

/// The one list. (A macro, since no function is generic over whether what it borrows may change.)
macro_rules! children {
    ($node:expr, $child:ty) => {
        match $node {
            Node::Number(_)
            | Node::Text(_)
            | Node::Load(_)
            | Node::Absent
            | Node::Item
            | Node::Bound
            | Node::Fold(..)
            | Node::Sample(_)
            | Node::Rate { .. }
            | Node::Count(_) => Vec::new(),
            Node::Element(_, of)
            | Node::Length(of)
            | Node::Negate(of)
            | Node::Complement(of)
            | Node::Not(of)
            | Node::ToFloat(of)
            | Node::Matches(of, _)
            | Node::Ranges(of, _)
            | Node::Any(_, of)
            | Node::Changed(_, of) => vec![of],
            Node::Arithmetic(_, a, b) | Node::Compare(_, a, b) | Node::StringTest(_, a, b) => {
                vec![a, b]
            }
            Node::All(parts) | Node::Either(parts) => Vec::from_iter(parts),
            Node::Within(of, tests) => {
                let mut all: Vec<$child> = vec![of];
                all.extend(tests);
                all
            }
        }
    };
}

impl Expr {
    /// Returns its parts, from left to right.
    pub fn children(&self) -> Vec<&Self> {
        children!(&self.node, &Self)
    }

    /// The same, to be changed.
    pub(crate) fn children_mut(&mut self) -> Vec<&mut Self> {
        children!(&mut self.node, &mut Self)
    }

    /// Adds the numbers of the needs whose elements the expression reads to `needs`.
    pub(crate) fn collect_element_needs(&self, needs: &mut BTreeSet<usize>) {
        if let Node::Element(need, _) | Node::Any(need, _) | Node::Fold(_, need) = self.node {
            needs.insert(need);
        }
        for child in self.children() {
            child.collect_element_needs(needs);
        }
    }
}
