//! Contexts of user events: values that a session records with every event, in front of the
//! payload.
//!
//! [`TABLE`] is the only list of them. Options, metadata, the filter's type check and frames,
//! `trackway list --contexts` and help are generated from it; the agent has the code that finds the
//! values. Application contexts (`$app.`) and contexts of kernel events have their own lists.

use alloc::string::String;

use crate::Scalar;

/// Type of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextType {
    /// A number.
    Scalar(Scalar),
    /// Text of a fixed number of bytes, of which the last is a NUL.
    Text(usize),
}

/// A context of user events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Name of the context in `--context`, and behind `$ctx.` in filters.
    pub name: &'static str,
    /// Bit of the context in a session's set of contexts.
    pub bit: u32,
    /// Type of the context's value.
    pub of: ContextType,
    /// Meaning of the context, for people.
    pub about: &'static str,
}

impl Context {
    /// Returns the size of the context in a record, in bytes.
    pub const fn bytes(&self) -> usize {
        match self.of {
            ContextType::Scalar(scalar) => scalar.size_bytes(),
            ContextType::Text(bytes) => bytes,
        }
    }

    /// Returns the context named `name`.
    pub fn named(name: &str) -> Option<&'static Self> {
        TABLE.iter().find(|context| context.name == name)
    }

    /// Returns true if `bits` contains the context's bit.
    pub const fn is_in(&self, bits: u32) -> bool {
        self.bit & bits != 0
    }
}

/// `vpid`: process id in the process's own namespace.
pub const VPID: u32 = 1;
/// `vtid`: thread id in the process's own namespace.
pub const VTID: u32 = 2;
/// `procname`: the thread's name.
pub const PROCNAME: u32 = 4;
/// Application contexts, which have no row in [`TABLE`].
pub const APPLICATIONS: u32 = 8;

/// Bytes of `procname`: the kernel's 16 and a terminator, as in LTTng.
pub const PROCNAME_BYTES: usize = 17;

/// User event contexts, in their order in a record.
pub const TABLE: [Context; COUNT] = [
    Context {
        name: "vpid",
        bit: VPID,
        of: ContextType::Scalar(Scalar::I32),
        about: "process, for itself",
    },
    Context {
        name: "vtid",
        bit: VTID,
        of: ContextType::Scalar(Scalar::I32),
        about: "thread, for itself",
    },
    Context {
        name: "procname",
        bit: PROCNAME,
        of: ContextType::Text(PROCNAME_BYTES),
        about: "the thread's name",
    },
];

/// Number of contexts in [`TABLE`].
pub const COUNT: usize = 3;

/// Returns the size in a record, in bytes, of the contexts whose bits are in `bits`.
pub const fn record_bytes_of(bits: u32) -> usize {
    let (mut index, mut sum) = (0, 0);
    while index < COUNT {
        if TABLE[index].is_in(bits) {
            sum += TABLE[index].bytes();
        }
        index += 1;
    }
    sum
}

/// Returns the index in [`TABLE`] of the context with this bit; [`COUNT`] if no context has the
/// bit.
pub const fn index_of(bit: u32) -> usize {
    let mut index = 0;
    while index < COUNT && TABLE[index].bit != bit {
        index += 1;
    }
    index
}

/// Returns the names of all contexts: `vpid, vtid, procname`.
pub fn join_names() -> String {
    TABLE.map(|context| context.name).join(", ")
}

const _: () = {
    let (mut index, mut bits) = (0, APPLICATIONS);
    while index < COUNT {
        let bit = TABLE[index].bit;
        assert!(bit.is_power_of_two() && bits & bit == 0, "each context has a bit of its own");
        bits |= bit;
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_found_by_name_and_bit() {
        for (index, context) in TABLE.iter().enumerate() {
            assert_eq!(Context::named(context.name), Some(context));
            assert_eq!(index_of(context.bit), index);
        }
        assert_eq!(Context::named("pid"), None);
        assert_eq!(record_bytes_of(VPID | PROCNAME | APPLICATIONS), 4 + PROCNAME_BYTES);
        assert_eq!(join_names(), "vpid, vtid, procname");
    }
}
