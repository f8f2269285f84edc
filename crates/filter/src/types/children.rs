//! Lists the children of an expression, for shared and for mutable access.

use std::collections::BTreeSet;

use super::{Expr, Node};

/// The single list of children: a macro, since no function is generic over mutability.
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
    /// Returns the children, from left to right.
    pub fn children(&self) -> Vec<&Self> {
        children!(&self.node, &Self)
    }

    /// Returns the children like [`Self::children`], for mutation.
    pub(crate) fn children_mut(&mut self) -> Vec<&mut Self> {
        children!(&mut self.node, &mut Self)
    }

    /// Adds the indices of the needs whose elements the expression reads to `needs`.
    pub(crate) fn collect_element_needs(&self, needs: &mut BTreeSet<usize>) {
        if let Node::Element(need, _) | Node::Any(need, _) | Node::Fold(_, need) = self.node {
            needs.insert(need);
        }
        for child in self.children() {
            child.collect_element_needs(needs);
        }
    }
}
