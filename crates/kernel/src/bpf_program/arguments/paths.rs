//! Resolves paths of the argument table through the kernel's types.

use trackway_schema::Scalar;

use super::{ArgumentRead, HOPS_MAX, NAMES_MAX, Representation, Root};
use crate::bpf_program::kernel_version::KernelVersion;
use crate::bpf_program::plan::VARIABLE_BYTES_MAX;
use crate::catalogue::btf::{Btf, Class};
use crate::catalogue::model::{Argument, ArgumentKind, Field, FieldShape};

/// Resolves paths through the kernel's types.
pub(super) struct PathResolver<'a> {
    pub(super) btf: &'a Btf,
    pub(super) arguments: &'a [Argument],
    pub(super) release: KernelVersion,
}

/// The resolved part of a path.
struct ResolvedPath {
    read: ArgumentRead,
    /// The type at the end of the path.
    type_id: Option<u32>,
    /// The kind of the argument, if the path is only an argument.
    kind: Option<ArgumentKind>,
}

impl PathResolver<'_> {
    pub(super) fn resolve_field(&self, from: &str, field: &Field) -> Option<ArgumentRead> {
        match from {
            "@state" => return self.resolve_state(field),
            "@jiffies" => return resolve_jiffies(field),
            _ => {}
        }
        if let Some(name) = from.strip_prefix('*') {
            return self.resolve_pointed_integer(name, field);
        }
        let (path, is_int) = match from.split_once(':') {
            Some((path, "int")) => (path, true),
            Some(_) => return None,
            None => (from, false),
        };
        let path_end = self.resolve_path(path)?;
        let representation = match field.kind {
            FieldShape::Integer(into) => self.integer_at(&path_end, is_int, into, field)?,
            FieldShape::Text(bytes) => self.text_at(&path_end, bytes)?,
            FieldShape::DynamicText(_) => self.text_at(&path_end, VARIABLE_BYTES_MAX)?,
            _ => return None,
        };
        Some(ArgumentRead { representation, ..path_end.read })
    }

    fn find_argument(&self, name: &str) -> Option<(u8, &Argument)> {
        let is_it = |(_, argument): &(u8, &Argument)| argument.name.as_deref() == Some(name);
        // The verifier permits no access to function pointers.
        let is_function = |kind| {
            let ArgumentKind::Pointer(target) = kind else { return false };
            self.btf.get(target).is_some_and(|of| of.class == Class::FuncProto)
        };
        (0_u8..).zip(self.arguments).find(is_it).filter(|(_, it)| !is_function(it.kind))
    }

    /// Resolves a path without dereferencing its last part.
    fn resolve_path(&self, path: &str) -> Option<ResolvedPath> {
        let mut names = path.split('.');
        let root = names.next()?;
        let (root, kind) = match root {
            "current" => {
                let task = self.btf.find(Class::Struct, "task_struct")?.id;
                (Root::Current, ArgumentKind::Pointer(task))
            }
            name => {
                let (index, argument) = self.find_argument(name)?;
                (Root::Argument(index), argument.kind)
            }
        };
        let representation = Representation::PointedInteger(0);
        let read =
            ArgumentRead { root, hops: [0; HOPS_MAX], hop_count: 0, at: None, representation };
        let mut path_end = ResolvedPath { read, type_id: None, kind: Some(kind) };
        for name in names.take(NAMES_MAX) {
            self.step_into(&mut path_end, name)?;
        }
        Some(path_end)
    }

    fn step_into(&self, path_end: &mut ResolvedPath, name: &str) -> Option<()> {
        let ResolvedPath { read, type_id, kind } = path_end;
        let (structure, base) = match (*kind, *type_id) {
            (Some(ArgumentKind::Pointer(target)), _) => (target, 0),
            (Some(_), _) | (None, None) => return None,
            (None, Some(id)) => {
                let of = self.btf.resolve(id)?;
                let at = read.at?;
                if of.class == Class::Pointer {
                    *read.hops.get_mut(usize::from(read.hop_count))? = at;
                    read.hop_count += 1;
                    (self.pointee_type(of.size_or_type)?, 0)
                } else {
                    (of.id, u32::try_from(at).ok()?)
                }
            }
        };
        let member = self.btf.find_member(structure, name).filter(|member| member.bits == 0)?;
        let at = base.checked_add(member.bit_offset / 8)?;
        read.at = Some(i16::try_from(at).ok()?);
        *type_id = Some(member.type_id);
        *kind = None;
        Some(())
    }

    /// Returns the type that a pointer leads to, if programs may read its memory.
    fn pointee_type(&self, id: u32) -> Option<u32> {
        let target = self.btf.get(id)?;
        let is_elsewhere =
            target.class == Class::TypeTag && matches!(target.name, "user" | "percpu");
        (!is_elsewhere).then(|| self.btf.resolve(id).map(|of| of.id))?
    }

    fn integer_at(
        &self,
        path_end: &ResolvedPath,
        is_int: bool,
        into: Scalar,
        field: &Field,
    ) -> Option<Representation> {
        let from = match (path_end.kind, path_end.type_id) {
            (Some(ArgumentKind::Integer(scalar)), _) => scalar,
            (Some(ArgumentKind::Pointer(_)), _) => Scalar::U64,
            (None, Some(id)) => self.btf.scalar(id)?,
            _ => return None,
        };
        // Truncation to `int` keeps the low bytes, which come first in memory.
        let from = match (is_int, from.size_bytes()) {
            (false, _) => from,
            (true, 4 | 8) => Scalar::I32,
            (true, _) => return None,
        };
        // A conversion to bool is not a truncation.
        let fits = into != Scalar::Bool || from == Scalar::Bool;
        let (bytes, into) = (from.size_bytes() as u32, into.size_bytes() as u32);
        let is_whole = fits && (into == field.size || field.size == 0);
        is_whole.then_some(Representation::Integer { bytes, is_signed: from.is_signed(), into })
    }

    fn text_at(&self, path_end: &ResolvedPath, bytes_max: u32) -> Option<Representation> {
        let is_character = |id: u32| self.btf.scalar(id).is_some_and(|of| of.size_bytes() == 1);
        let id = match (path_end.kind, path_end.type_id) {
            (Some(ArgumentKind::Pointer(target)), _) => {
                return is_character(target).then_some(Representation::Text(bytes_max));
            }
            (None, Some(id)) => id,
            _ => return None,
        };
        let of = self.btf.resolve(id)?;
        if of.class == Class::Pointer {
            return is_character(self.pointee_type(of.size_or_type)?)
                .then_some(Representation::Text(bytes_max));
        }
        let (element, bytes) = self.btf.elements(&of)?;
        (is_character(element) && (1..=bytes_max).contains(&bytes))
            .then_some(Representation::Array(bytes))
    }

    /// Resolves an integer whose pointer has no type that the verifier can follow.
    fn resolve_pointed_integer(&self, name: &str, field: &Field) -> Option<ArgumentRead> {
        let (index, argument) = self.find_argument(name)?;
        let (ArgumentKind::Pointer(target), FieldShape::Integer(into)) =
            (argument.kind, field.kind)
        else {
            return None;
        };
        let from = self.btf.scalar(target)?;
        let bytes = from.size_bytes() as u32;
        let is_same = from == into && bytes == field.size;
        let (root, representation) = (Root::Argument(index), Representation::PointedInteger(bytes));
        is_same.then_some(ArgumentRead {
            root,
            hops: [0; HOPS_MAX],
            hop_count: 0,
            at: None,
            representation,
        })
    }

    fn resolve_state(&self, field: &Field) -> Option<ArgumentRead> {
        let path_end = self.resolve_path("prev.exit_state")?;
        let is_int = |id| self.btf.scalar(id).is_some_and(|of| of.size_bytes() == 4);
        let exit_state = path_end.read.at.filter(|_| path_end.type_id.is_some_and(is_int))?;
        let (preempt, of_preempt) = self.find_argument("preempt")?;
        let (prev_state, of_state) = self.find_argument("prev_state")?;
        let is_known = of_preempt.kind == ArgumentKind::Integer(Scalar::Bool)
            && of_state.kind == ArgumentKind::Integer(Scalar::U32)
            && field.kind == FieldShape::Integer(Scalar::I64)
            && field.size == 8
            && self.release.counts_frozen_as_waiting();
        let representation = Representation::State { preempt, prev_state, exit_state };
        is_known.then_some(ArgumentRead { representation, ..path_end.read })
    }
}

fn resolve_jiffies(field: &Field) -> Option<ArgumentRead> {
    let representation = Representation::Integer { bytes: 8, is_signed: false, into: 8 };
    let is_long = field.kind == FieldShape::Integer(Scalar::U64);
    let root = Root::Jiffies;
    is_long.then_some(ArgumentRead {
        root,
        hops: [0; HOPS_MAX],
        hop_count: 0,
        at: None,
        representation,
    })
}
