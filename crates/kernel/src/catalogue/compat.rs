//! System calls by the numbers of 32 bits: those of programs of 32 bits, and of `int $0x80` in any.
//!
//! A table (`compat.txt`) has their numbers, and what they take: mostly what the call of 64 bits
//! does, with numbers and pointers half as wide. What lies behind a pointer is recorded where it is
//! the same thing there: text, addresses of sockets, integers of a fixed size, structures in which
//! nothing is as wide as a register; and where what it is there is known: arrays of addresses of
//! text, `struct compat_iovec`, `struct compat_msghdr` (linux/compat.h, linux/socket.h). Of others,
//! the pointer is. tracefs does not know these events;
//! LTTng does (`compat_syscall_entry_…`), and records them together with the others.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::EventName;
use super::btf::{Btf, Class};
use super::calls::{self, Call, SUBSYSTEM};
use super::model::{Behind, Field, Kind, Phase, Structure};
use super::select::Selection;
use trackway_schema::Scalar;

const TABLE: &str = include_str!("compat.txt");
/// What their names have in front.
pub(super) const PREFIX: &str = "compat_";
/// Structures that have wide members, and are the same for programs of 32 bits: made so.
const SAME: [&str; 15] = [
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

/// A line of the table.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: u32,
    /// What the kernel calls it.
    pub(super) name: &'static str,
    /// The call of 64 bits that it is recorded with.
    pub(super) with: &'static str,
    /// What it takes, if that is not what that one takes.
    own: Option<Call>,
    /// Whether structures are other ones, whatever is in them.
    has_others: bool,
}

/// All lines, in the order of their numbers.
pub(super) fn table() -> &'static [Line] {
    static LINES: LazyLock<Vec<Line>> = LazyLock::new(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| parse(line).unwrap_or_else(|| panic!("a line of compat.txt: {line}")))
            .collect()
    });
    &LINES
}

fn parse(text: &'static str) -> Option<Line> {
    if text.contains('(') {
        let call = calls::call(text)?;
        let (name, with) = call.name.split_once('@')?;
        let number = call.number;
        return Some(Line { number, name, with, own: Some(call), has_others: false });
    }
    let (number, names) = text.trim_start().split_once(' ')?;
    let (name, with) = names.split_once('=').unwrap_or((names, names));
    let (number, has_others) = (number.parse().ok()?, names.contains('='));
    Some(Line { number, name, with, own: None, has_others })
}

pub(super) fn find(name: &str) -> Option<&'static Line> {
    static BY_NAME: LazyLock<HashMap<&str, &Line>> =
        LazyLock::new(|| table().iter().map(|line| (line.name, line)).collect());
    BY_NAME.get(name).copied()
}

/// Whether the running kernel takes such calls, as its types say (CONFIG_IA32_EMULATION).
pub fn is_there(btf: Option<&Btf>) -> bool {
    let has = |name: &str| btf.is_some_and(|btf| btf.find(Class::Func, name).is_some());
    cfg!(target_arch = "x86_64") && has("__ia32_compat_sys_openat")
}

fn event(name: &str, phase: Phase) -> EventName {
    let side = if phase == Phase::Enter { "enter" } else { "exit" };
    EventName { subsystem: SUBSYSTEM.into(), name: format!("{PREFIX}sys_{side}_{name}") }
}

/// The names of both sides of all of them.
pub(super) fn names() -> impl Iterator<Item = EventName> {
    let sides = [Phase::Enter, Phase::Exit];
    table().iter().flat_map(move |line| sides.map(|phase| event(line.name, phase)))
}

/// Whether one of these events is meant: itself, or together with the call of 64 bits.
pub(super) fn takes(selection: &Selection, name: &EventName) -> bool {
    let Some((line, phase)) = name.call().and_then(|(call, phase)| Some((find(call)?, phase)))
    else {
        return false;
    };
    let with = event(line.with, phase);
    let wide = with.name.trim_start_matches(PREFIX).to_owned();
    // Who does not want one side of a call means both.
    !selection.excludes(&EventName { name: wide, ..with.clone() })
        && (selection.takes(&with) || selection.takes(name) && !selection.excludes(&with))
}

impl Line {
    /// What it takes, and returns.
    pub(super) fn call(&self) -> Option<&Call> {
        self.own.as_ref().or_else(|| calls::find(self.with))
    }

    /// An argument of the call of 64 bits, as this one has it.
    pub(super) fn narrow(&self, field: Field) -> Field {
        let kind = match field.kind {
            Kind::Integer(Scalar::U64) => Kind::Integer(Scalar::U32),
            Kind::Integer(Scalar::I64) => Kind::Integer(Scalar::I32),
            kind => kind,
        };
        let behind = field.behind.filter(|behind| self.is_same(behind));
        Field { kind, behind, ..field }
    }

    fn is_same(&self, behind: &Behind) -> bool {
        match behind {
            Behind::Text | Behind::SocketAddress(_) => true,
            Behind::Integers(..) => !self.has_others,
            Behind::Structures(of, _) | Behind::Sized(of, _) => !self.has_others && is_flat(of),
            // Of narrow addresses, as they are taken apart.
            Behind::Texts | Behind::Vectors(_) | Behind::Message => !self.has_others,
            Behind::Bytes(_) => false,
        }
    }
}

/// Whether programs of 32 bits have the same structure: all of it is known, and nothing in it is as
/// wide as a register.
fn is_flat(of: &Structure) -> bool {
    let known: u32 =
        of.members.iter().map(|member| member.scalar.size_bytes() as u32 * member.count).sum();
    let is_narrow = of.members.iter().all(|member| member.scalar.size_bytes() <= 4);
    SAME.contains(&&*of.name) || is_narrow && known == of.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_number_and_name_once_and_goes_with_calls_that_there_are() {
        let lines = table();
        assert!(lines.len() > 400);
        assert!(lines.windows(2).all(|pair| pair[0].number < pair[1].number));
        for line in lines {
            assert!(calls::find(line.with).is_some(), "{line:?}");
            assert!(std::ptr::eq(find(line.name).expect("it is there"), line), "{line:?}");
        }
        let of = |name: &str| find(name).map(|line| line.number);
        assert_eq!((of("openat"), of("newstat"), of("statx")), (Some(295), Some(106), Some(383)));
        assert_eq!(
            (of("getuid16"), of("getuid"), of("mmap_pgoff")),
            (Some(24), Some(199), Some(192))
        );
    }

    #[test]
    fn from_424_on_numbers_are_those_of_64_bits() {
        // Since Linux 5.1 a new call has one number on all processors.
        let new: Vec<_> = calls::table().iter().filter(|call| call.number >= 424).collect();
        assert!(new.len() > 40);
        for call in new {
            let line = find(call.name).unwrap_or_else(|| panic!("no {}", call.name));
            assert_eq!((line.number, line.with), (call.number, call.name));
        }
    }

    #[test]
    fn they_are_selected_with_the_calls_that_they_go_with() {
        let takes = |patterns: &str, name: &str| {
            let selection = Selection::new(&[patterns]).expect("patterns");
            takes(&selection, &event(name, Phase::Enter))
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
        // A pointer is no member.
        assert!(!is_flat(&of(16, vec![member(0, Scalar::U32)])));
    }
}
