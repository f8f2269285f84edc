//! Resolves the names in a tree to members of a layout.

use trackway_jit::{Kind, SLOTS_MAX};
use trackway_schema::Label;

use super::check::{Checker, TypedExpr};
use super::{Elements, Expr, MemberPath, Need, Node, Root, Step, Type, Widths, closest_name};
use crate::error::{Error, Subject, Topic};
use crate::layout::{self, Member};
use crate::parse::{Node as Parsed, Tree};
use crate::span::Span;

/// Maximum length of a path, in bytes: an object stores the length in one byte.
const PATH_BYTES_MAX: usize = 255;
/// Maximum number of names that an error lists.
const LISTED_MAX: usize = 8;

/// A member of the event, and its path.
pub(super) struct ResolvedMember<'layout> {
    pub(super) place: MemberPath,
    pub(super) of: &'layout layout::Type,
}

impl<'layout> ResolvedMember<'layout> {
    /// Returns the element with this index and type.
    pub(super) fn element(mut self, index: u64, of: &'layout layout::Type) -> Self {
        self.place.steps.push(Step::Element(index));
        Self { of, ..self }
    }
}

/// Returns the error for an unknown name, with a similar name as a suggestion, or else with a list
/// of the existing names.
pub(super) fn unknown_name_error(span: Span, what: String, name: &str, has: &[&str]) -> Error {
    match closest_name(name, has.iter().copied()) {
        Some(meant) => Error::new(Topic::Unknown, span, what).with_suggestion(format!("'{meant}'")),
        None => {
            let error = Error::new(Topic::Unknown, span, what);
            let more = if has.len() > LISTED_MAX { ", …" } else { "" };
            match has {
                [] => error,
                _ => {
                    let shown = &has[..has.len().min(LISTED_MAX)];
                    error.with_hint(format!("there is: {}{more}", shown.join(", ")))
                }
            }
        }
    }
}

fn member_names(members: &[Member]) -> Vec<&str> {
    members.iter().map(|member| member.name.as_str()).collect()
}

impl<'layout> Checker<'layout> {
    /// Resolves a name, a member, or an element with a constant index.
    pub(super) fn resolve(&mut self, tree: &Tree) -> Result<ResolvedMember<'layout>, Error> {
        match &tree.node {
            Parsed::Name(name) => self.root(Root::Field, name, tree.span),
            Parsed::Context(name) => self.root(Root::Context, name, tree.span),
            Parsed::Application(name) => self.root(Root::Application, name, tree.span),
            Parsed::Member(of, name) => {
                let of = self.resolve(of)?;
                Self::resolve_member(of, name, tree.span)
            }
            Parsed::Index(of, index) => {
                let of = self.resolve(of)?;
                let index_value = self.integer(index)?;
                let Some(at) = index_value.constant() else {
                    let message = "here an element's number must be a constant";
                    return Err(Error::new(Topic::Type, index.span, message));
                };
                match of.of {
                    layout::Type::Array(element, count) if at < *count => {
                        Ok(of.element(at, element))
                    }
                    layout::Type::Sequence(element) if at <= i64::MAX as u64 => {
                        Ok(of.element(at, element))
                    }
                    layout::Type::Array(_, count) => {
                        let message = format!("{} has {count} elements, from 0", of.place);
                        Err(Error::new(Topic::Type, index.span, message))
                    }
                    _ => Err(Self::no_elements(&of, tree.span)),
                }
            }
            _ => {
                let message = "only fields and contexts have members and elements";
                Err(Error::new(Topic::Type, tree.span, message))
            }
        }
    }

    pub(super) fn no_elements(of: &ResolvedMember<'_>, span: Span) -> Error {
        let message =
            format!("{} is {}; it has no elements", of.place, describe_layout_type(of.of));
        Error::new(Topic::Type, span, message)
    }

    fn root(&self, root: Root, name: &str, span: Span) -> Result<ResolvedMember<'layout>, Error> {
        let members = match root {
            Root::Field => &self.layout.fields,
            Root::Context => &self.layout.contexts,
            Root::Application => &self.layout.applications,
        };
        if let Some(member) = members.iter().find(|member| member.name == name) {
            let place = MemberPath { root, name: name.into(), steps: Vec::new() };
            return Ok(ResolvedMember { place, of: &member.of });
        }
        let event = &self.layout.event;
        let (what, has) = match root {
            Root::Field => (format!("unknown field '{name}' of {event}"), member_names(members)),
            Root::Context => (format!("unknown context '$ctx.{name}'"), member_names(members)),
            Root::Application => (format!("unknown context '$app.{name}'"), member_names(members)),
        };
        if root == Root::Field {
            if self.layout.contexts.iter().any(|context| context.name == name) {
                let near =
                    closest_name(name, has.iter().copied()).map(|near| format!("'{near}', or "));
                let near = near.unwrap_or_default();
                let error = Error::new(Topic::Unknown, span, what).with_subject(Subject::Name);
                return Err(error.with_suggestion(format!("{near}'$ctx.{name}'")));
            }
            return Err(unknown_name_error(span, what, name, &has).with_subject(Subject::Name));
        }
        let prefix = if root == Root::Context { "$ctx." } else { "$app." };
        let has: Vec<String> = has.into_iter().map(|name| format!("{prefix}{name}")).collect();
        let has: Vec<&str> = has.iter().map(String::as_str).collect();
        Err(unknown_name_error(span, what, &format!("{prefix}{name}"), &has)
            .with_subject(Subject::Name))
    }

    fn resolve_member(
        of: ResolvedMember<'layout>,
        name: &str,
        span: Span,
    ) -> Result<ResolvedMember<'layout>, Error> {
        let layout::Type::Structure(members) = of.of else {
            let message =
                format!("{} is {}; it has no members", of.place, describe_layout_type(of.of));
            return Err(Error::new(Topic::Type, span, message));
        };
        let Some(member) = members.iter().find(|member| member.name == name) else {
            let what = format!("unknown member '{name}' of {}", of.place);
            return Err(unknown_name_error(span, what, name, &member_names(members)));
        };
        let mut place = of.place;
        place.steps.push(Step::Member(name.into()));
        Ok(ResolvedMember { place, of: &member.of })
    }

    /// Returns the expression that loads a resolved member.
    pub(super) fn load_member(
        &mut self,
        found: ResolvedMember<'layout>,
        span: Span,
    ) -> Result<TypedExpr<'layout>, Error> {
        let (kind, of, labels): (_, _, &[Label]) = match found.of {
            layout::Type::Integer(integer) => {
                let kind = if integer.is_signed { Kind::Signed } else { Kind::Unsigned };
                (kind, self.type_of(&found.place, integer), &integer.labels)
            }
            layout::Type::Float(_) => (Kind::Float, Type::Float, &[]),
            layout::Type::String => (Kind::String, Type::Text, &[]),
            layout::Type::Array(element, _) | layout::Type::Sequence(element) => {
                let Some((elements, labels)) = Self::elements_of_type(element) else {
                    let place = &found.place;
                    let message =
                        format!("{place} has elements that are {}", describe_element_type(element));
                    let error = Error::new(Topic::Type, span, message);
                    return Err(error.with_hint(element_hint(place, element)));
                };
                let need =
                    self.find_or_add_need(found.place, Kind::Sequence, Some(elements), span)?;
                return self.sequence(need, elements, labels, span);
            }
            layout::Type::Structure(members) => {
                let message = format!("{} is a structure", found.place);
                let error = Error::new(Topic::Type, span, message);
                let first = members.first().map_or("member", |member| &member.name);
                return Err(error.with_hint(format!("name a member: {}.{first}", found.place)));
            }
            layout::Type::Other(_) => {
                let message = format!("{} is {}", found.place, describe_layout_type(found.of));
                let error = Error::new(Topic::Type, span, message);
                return Err(error.with_hint("filters ask for numbers, strings and sequences"));
            }
        };
        let need = self.find_or_add_need(found.place, kind, None, span)?;
        Ok(TypedExpr { expr: Expr { node: Node::Load(need), of }, labels })
    }

    fn type_of(&self, place: &MemberPath, integer: &layout::Integer) -> Type {
        // The layout's width applies to structure members, which only traces have.
        let is_member = place.steps.iter().any(|step| matches!(step, Step::Member(_)));
        let is_wide = match self.widths {
            _ if place.root != Root::Field || is_member => integer.is_wide(),
            Widths::Own => integer.is_wide(),
            Widths::Narrow => false,
            Widths::NarrowOnly(names) => !integer.is_signed && !names.contains(&place.name),
        };
        if is_wide { Type::Unsigned } else { Type::Signed }
    }

    /// Returns the type of numeric elements, and their labels; `None` for other elements.
    pub(super) fn elements_of_type(
        of: &'layout layout::Type,
    ) -> Option<(Elements, &'layout [Label])> {
        use trackway_schema::Scalar;
        Some(match of {
            layout::Type::Integer(integer) => {
                let of = if integer.is_wide() { Type::Unsigned } else { Type::Signed };
                (Elements { of, scalar: integer.scalar }, &integer.labels)
            }
            layout::Type::Float(width) => {
                let scalar = match width {
                    layout::Float::F32 => Scalar::F32,
                    layout::Float::F64 => Scalar::F64,
                };
                (Elements { of: Type::Float, scalar: Some(scalar) }, &[])
            }
            _ => return None,
        })
    }

    /// Returns the index of a need: a new one, or the existing one for this place.
    pub(super) fn find_or_add_need(
        &mut self,
        place: MemberPath,
        kind: Kind,
        elements: Option<Elements>,
        span: Span,
    ) -> Result<usize, Error> {
        if let Some(at) = self.needs.iter().position(|need| need.place == place) {
            return Ok(at);
        }
        let path = place.to_string();
        if path.len() > PATH_BYTES_MAX {
            let message = format!("a path has at most {PATH_BYTES_MAX} bytes");
            return Err(Error::new(Topic::Limit, span, message));
        }
        if self.needs.len() == SLOTS_MAX {
            let message = format!("a filter reads at most {SLOTS_MAX} fields and contexts");
            return Err(Error::new(Topic::Limit, span, message));
        }
        self.needs.push(Need { path, kind, place, elements });
        Ok(self.needs.len() - 1)
    }
}

/// Describes a layout's type for messages.
pub(crate) fn describe_layout_type(of: &layout::Type) -> &'static str {
    match of {
        layout::Type::Integer(integer) if !integer.labels.is_empty() => "an enumeration",
        layout::Type::Integer(_) => "an integer",
        layout::Type::Float(_) => "a floating-point number",
        layout::Type::String => "a string",
        layout::Type::Structure(_) => "a structure",
        layout::Type::Array(..) => "an array",
        layout::Type::Sequence(_) => "a sequence",
        layout::Type::Other(what) => what,
    }
}

/// Returns the hint for elements that are not numbers.
fn element_hint(place: &MemberPath, element: &layout::Type) -> String {
    match element {
        layout::Type::String => format!(
            "any(), all(), none() and length() are for numbers; of strings name each, by a \
             constant: {place}[0] == \"…\""
        ),
        _ => format!("name one of them by a constant: {place}[0]"),
    }
}

fn describe_element_type(of: &layout::Type) -> &'static str {
    match of {
        layout::Type::String => "strings",
        layout::Type::Structure(_) => "structures",
        layout::Type::Array(..) => "arrays",
        layout::Type::Sequence(_) => "sequences",
        _ => "not numbers",
    }
}
