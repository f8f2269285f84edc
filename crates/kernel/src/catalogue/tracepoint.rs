//! Arguments of tracepoints from BTF, as programs on raw tracepoints find them in their contexts.
//!
//! For its verifier, the kernel declares `typedef void (*btf_trace_NAME)(void *, ARGUMENTS…)` for
//! each tracepoint. The typedef has only types; `__traceiter_NAME`, the function that calls a
//! tracepoint's probes, has the names of the arguments.

use trackway_schema::Scalar;

use super::btf::{Btf, Class, Type};
use super::model::{Argument, ArgumentKind, Field, FieldShape};

/// Most arguments for which a program's context has room.
const ARGUMENTS_MAX: usize = 12;

/// Returns the arguments of a tracepoint, if BTF has it.
pub(crate) fn tracepoint_arguments(btf: &Btf, name: &str) -> Option<Vec<Argument>> {
    let of = btf.find(Class::Typedef, &format!("btf_trace_{name}"))?;
    let pointer = btf.resolve(of.id).filter(|of| of.class == Class::Pointer)?;
    let prototype = btf.resolve(pointer.size_or_type)?;
    let named = btf
        .find(Class::Func, &format!("__traceiter_{name}"))
        .and_then(|function| btf.get(function.size_or_type));
    let types = probe_parameters(btf, &prototype)?;
    let names: Vec<_> = named.and_then(|of| probe_parameters(btf, &of)).unwrap_or_default();
    let is_same = names.len() == types.len() && names.iter().zip(&types).all(|(a, b)| a.1 == b.1);
    let each = types.iter().enumerate().map(|(index, (name, type_id))| {
        let name = names.get(index).filter(|_| is_same).map_or(*name, |(name, _)| name);
        Argument {
            name: (!name.is_empty()).then(|| name.to_owned()),
            type_text: btf.type_text(*type_id),
            kind: argument_kind(btf, *type_id),
        }
    });
    Some(each.collect())
}

/// Returns the parameters without the first one, which is the probe's data.
fn probe_parameters<'btf>(btf: &'btf Btf, of: &Type<'btf>) -> Option<Vec<(&'btf str, u32)>> {
    let all: Vec<_> = btf.parameters(of).skip(1).collect();
    (of.class == Class::FuncProto && all.len() <= ARGUMENTS_MAX).then_some(all)
}

fn argument_kind(btf: &Btf, type_id: u32) -> ArgumentKind {
    let of = btf.resolve(type_id);
    match (of, btf.scalar(type_id)) {
        (Some(of), _) if of.class == Class::Pointer => {
            let target = btf.resolve(of.size_or_type);
            ArgumentKind::Pointer(target.map_or(0, |target| target.id))
        }
        (_, Some(scalar)) => ArgumentKind::Integer(scalar),
        (of, None) => ArgumentKind::Value(of.map_or(0, |of| of.id)),
    }
}

/// Sets the argument of each field that is the only one with the argument's name, size and sign.
pub(crate) fn relate_arguments(fields: &mut [Field], arguments: &[Argument]) {
    for field in fields {
        let FieldShape::Integer(scalar) = field.kind else { continue };
        let mut same = (0_u8..).zip(arguments).filter(|(_, argument)| {
            let is_same = match argument.kind {
                ArgumentKind::Integer(of) => of == scalar,
                // The field shows the argument's address.
                ArgumentKind::Pointer(_) => scalar == Scalar::U64 && field.type_text.contains('*'),
                ArgumentKind::Value(_) => false,
            };
            is_same && argument.name.as_deref() == Some(&field.name)
        });
        field.argument = same.next().map(|(index, _)| index).filter(|_| same.next().is_none());
    }
}
