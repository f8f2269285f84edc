//! System calls by 32-bit numbers: calls of 32-bit processes, and `int $0x80` in any process.
//!
//! A table (`compat.txt`) has the calls' numbers and arguments: mostly the arguments of the 64-bit
//! call, with numbers and pointers half as wide. A pointee is recorded if both calls use the same
//! layout: text, socket addresses, integers of fixed size, structures without register-sized
//! members. A pointee is also recorded if its 32-bit layout is known: arrays of text addresses,
//! `struct compat_iovec`, `struct compat_msghdr` (linux/compat.h, linux/socket.h). Otherwise only
//! the pointer is recorded. tracefs lacks these events; LTTng has them (`compat_syscall_entry_…`)
//! and records them together with 64-bit calls.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::EventName;
use super::btf::{Btf, Class};
use super::calls::{self, CallDescription, SUBSYSTEM};
use super::model::{Field, FieldShape, Phase, Pointee, Structure};
use super::select::Selection;
use trackway_schema::Scalar;

const TABLE: &str = include_str!("compat.txt");
/// The prefix of these events' names.
pub(super) const PREFIX: &str = "compat_";
/// Structures with wide members that have the same layout for 32-bit programs by design.
const SHARED_STRUCTURES: [&str; 15] = [
    "__kernel_timespec",
    "__kernel_itimerspec",
    "cachestat",
    "cachestat_range",
    "clone_args",
    "epoll_event",
    "file_attr",
    "futex_waitv",
    "landlock_ruleset_attr",
    "mnt_id_req",
    "mount_attr",
    "open_how",
    "sched_attr",
    "statx",
    "xattr_args",
];

/// A system call by a 32-bit number, from a line of the table.
#[derive(Debug)]
pub(super) struct CompatCall {
    pub(super) number: u32,
    /// The call's name in the kernel.
    pub(super) name: &'static str,
    /// The name of the 64-bit call that is recorded together with this call.
    pub(super) wide_name: &'static str,
    /// The arguments and result, if they differ from the 64-bit call.
    own_call: Option<CallDescription>,
    /// True if structures differ from those of the 64-bit call, whatever their members.
    has_other_structures: bool,
}

/// Returns all lines of the table, in the order of call numbers.
pub(super) fn compat_table() -> &'static [CompatCall] {
    static CALLS: LazyLock<Vec<CompatCall>> = LazyLock::new(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| parse_line(line).unwrap_or_else(|| panic!("a line of compat.txt: {line}")))
            .collect()
    });
    &CALLS
}

fn parse_line(text: &'static str) -> Option<CompatCall> {
    if text.contains('(') {
        let call = calls::parse_line(text)?;
        let (name, with) = call.name.split_once('@')?;
        let number = call.number;
        return Some(CompatCall {
            number,
            name,
            wide_name: with,
            own_call: Some(call),
            has_other_structures: false,
        });
    }
    let (number, names) = text.trim_start().split_once(' ')?;
    let (name, with) = names.split_once('=').unwrap_or((names, names));
    let (number, has_other_structures) = (number.parse().ok()?, names.contains('='));
    Some(CompatCall { number, name, wide_name: with, own_call: None, has_other_structures })
}

pub(super) fn find_compat_call(name: &str) -> Option<&'static CompatCall> {
    static BY_NAME: LazyLock<HashMap<&str, &CompatCall>> =
        LazyLock::new(|| compat_table().iter().map(|line| (line.name, line)).collect());
    BY_NAME.get(name).copied()
}

/// Returns true if the running kernel accepts 32-bit calls, according to its types
/// (CONFIG_IA32_EMULATION).
pub fn is_supported(btf: Option<&Btf>) -> bool {
    let has = |name: &str| btf.is_some_and(|btf| btf.find(Class::Func, name).is_some());
    cfg!(target_arch = "x86_64") && has("__ia32_compat_sys_openat")
}

fn event_name(name: &str, phase: Phase) -> EventName {
    let side = if phase == Phase::Enter { "enter" } else { "exit" };
    EventName { subsystem: SUBSYSTEM.into(), name: format!("{PREFIX}sys_{side}_{name}") }
}

/// Returns the names of all entry and exit events of 32-bit calls.
pub(super) fn event_names() -> impl Iterator<Item = EventName> {
    let sides = [Phase::Enter, Phase::Exit];
    compat_table().iter().flat_map(move |line| sides.map(|phase| event_name(line.name, phase)))
}

/// Returns true if a 32-bit call's event is selected, by its own name or with the 64-bit call.
pub(super) fn is_selected(selection: &Selection, name: &EventName) -> bool {
    let Some((line, phase)) =
        name.call().and_then(|(call, phase)| Some((find_compat_call(call)?, phase)))
    else {
        return false;
    };
    let with = event_name(line.wide_name, phase);
    let wide = with.name.trim_start_matches(PREFIX).to_owned();
    // Excluding one event of a call excludes both.
    !selection.excludes(&EventName { name: wide, ..with.clone() })
        && (selection.selects(&with) || selection.selects(name) && !selection.excludes(&with))
}

impl CompatCall {
    /// Returns the call's own arguments and result, if any.
    pub(super) fn description(&self) -> Option<&CallDescription> {
        self.own_call.as_ref().or_else(|| calls::find_call(self.wide_name))
    }

    /// Converts an argument of the 64-bit call to an argument of this call.
    pub(super) fn narrow(&self, field: Field) -> Field {
        let kind = match field.kind {
            FieldShape::Integer(Scalar::U64) => FieldShape::Integer(Scalar::U32),
            FieldShape::Integer(Scalar::I64) => FieldShape::Integer(Scalar::I32),
            kind => kind,
        };
        let pointee = field.pointee.filter(|pointee| self.has_same_pointee(pointee));
        Field { kind, pointee, ..field }
    }

    fn has_same_pointee(&self, pointee: &Pointee) -> bool {
        match pointee {
            Pointee::Text | Pointee::SocketAddress(_) => true,
            Pointee::Integers(..) => !self.has_other_structures,
            Pointee::Structures(of, _) | Pointee::SizedStructure(of, _) => {
                !self.has_other_structures && is_flat(of)
            }
            // The plan has separate steps for arrays of 32-bit addresses.
            Pointee::Texts | Pointee::Vectors(_) | Pointee::Message => !self.has_other_structures,
            Pointee::Bytes(_) => false,
        }
    }
}

/// Returns true if a structure has the same layout in 32-bit programs: all its members are known,
/// and none is as wide as a register.
fn is_flat(of: &Structure) -> bool {
    let known: u32 =
        of.members.iter().map(|member| member.scalar.size_bytes() as u32 * member.count).sum();
    let is_narrow = of.members.iter().all(|member| member.scalar.size_bytes() <= 4);
    SHARED_STRUCTURES.contains(&&*of.name) || is_narrow && known == of.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_number_and_name_once_and_goes_with_calls_that_there_are() {
        let lines = compat_table();
        assert!(lines.len() > 400);
        assert!(lines.windows(2).all(|pair| pair[0].number < pair[1].number));
        for line in lines {
            assert!(calls::find_call(line.wide_name).is_some(), "{line:?}");
            assert!(
                std::ptr::eq(find_compat_call(line.name).expect("it is there"), line),
                "{line:?}"
            );
        }
        let of = |name: &str| find_compat_call(name).map(|line| line.number);
        assert_eq!((of("openat"), of("newstat"), of("statx")), (Some(295), Some(106), Some(383)));
        assert_eq!(
            (of("getuid16"), of("getuid"), of("mmap_pgoff")),
            (Some(24), Some(199), Some(192))
        );
    }

    #[test]
    fn from_424_on_numbers_are_those_of_64_bits() {
        // Since Linux 5.1, a new call has one number on all architectures.
        let new: Vec<_> = calls::call_table().iter().filter(|call| call.number >= 424).collect();
        assert!(new.len() > 40);
        for call in new {
            let line = find_compat_call(call.name).unwrap_or_else(|| panic!("no {}", call.name));
            assert_eq!((line.number, line.wide_name), (call.number, call.name));
        }
    }

    #[test]
    fn compat_calls_are_selected_with_their_64_bit_calls() {
        let takes = |patterns: &str, name: &str| {
            let selection = Selection::new(&[patterns]).expect("patterns");
            is_selected(&selection, &event_name(name, Phase::Enter))
        };
        assert!(takes("syscalls", "mmap_pgoff") && takes("*", "openat"));
        assert!(takes("syscalls:mmap", "mmap_pgoff") && takes("syscalls:open*", "openat"));
        assert!(takes("compat_syscall_entry_mmap_pgoff", "mmap_pgoff"));
        assert!(!takes("syscalls:openat", "open") && !takes("sys_enter_openat", "openat"));
        assert!(!takes("syscalls,!syscalls:mmap", "mmap_pgoff"));
        assert!(!takes("syscalls:openat,!sys_enter_openat", "openat"));
        assert!(!takes("syscalls,!compat_*", "openat") && !takes("sched_switch", "openat"));
    }

    #[test]
    fn structures_are_the_same_where_nothing_is_wide() {
        let member = |offset, scalar| super::super::model::Member {
            name: "m".into(),
            offset,
            scalar,
            count: 1,
        };
        let of = |bytes, members| Structure { name: "s".into(), bytes, members };
        assert!(is_flat(&of(8, vec![member(0, Scalar::U32), member(4, Scalar::I32)])));
        assert!(!is_flat(&of(8, vec![member(0, Scalar::U64)])));
        // A pointer member does not count as a known member.
        assert!(!is_flat(&of(16, vec![member(0, Scalar::U32)])));
    }
}
