//! Which kernel this is, where that matters and its types do not tell.

use std::sync::OnceLock;

use crate::bpf_sys::asm::Asm;
use crate::catalogue::btf::{Btf, Class};

/// Where the running kernel says its version.
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// Version, patch level, and stable version of a kernel. Vendors add to what a version has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release(pub(super) u32, pub(super) u32, pub(super) u32);

impl Release {
    /// The running kernel's; `None`: it does not say.
    pub(super) fn running() -> Option<Self> {
        static RUNNING: OnceLock<Option<Release>> = OnceLock::new();
        let read = || Self::parse(&std::fs::read_to_string(RELEASE).ok()?);
        *RUNNING.get_or_init(read)
    }

    fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut numbers = text[..end].split('.').map(|number| number.parse().unwrap_or(0));
        Some(Self(numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
    }

    /// Whether a thread's state is made of its bits as the kernel does it since Linux 6.14: what
    /// is frozen is taken for what waits. Stable versions do since some before these.
    pub(super) fn has_state(self) -> bool {
        match self {
            Self(6, 1, stable) => stable >= 192,
            Self(6, 12, stable) => stable >= 117,
            _ => self >= Self(6, 14, 0),
        }
    }

    /// Whether programs on raw tracepoints may be preempted. (Not those on tracepoints.)
    fn is_preemptible(self) -> bool {
        self >= Self(7, 0, 0)
    }
}

/// What keeps a program from being preempted: functions of the kernel's (since Linux 6.10), by
/// their numbers in its types. A level's region has one writer at a time only if whoever is on a
/// CPU stays there until it is through, but for interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    disable: i32,
    enable: i32,
}

impl Guard {
    /// The running kernel's; `None`: it has none.
    pub fn of(btf: &Btf) -> Option<Self> {
        let of = |name: &str| i32::try_from(btf.find(Class::Func, name)?.id).ok();
        Some(Self { disable: of("bpf_preempt_disable")?, enable: of("bpf_preempt_enable")? })
    }

    /// What programs on raw tracepoints of the running kernel have to have, if anything. An error:
    /// there can be no such programs.
    pub(super) fn needed(btf: &Btf) -> Result<Option<Self>, ()> {
        if !Release::running().ok_or(())?.is_preemptible() {
            return Ok(None);
        }
        Self::of(btf).map(Some).ok_or(())
    }

    pub(super) fn begin(self, asm: &mut Asm) {
        asm.call_kernel_function(self.disable);
    }

    pub(super) fn end(self, asm: &mut Asm) {
        asm.call_kernel_function(self.enable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_those_that_kernels_call_themselves() {
        let parse = |text: &str| Release::parse(text);
        assert_eq!(parse("6.18.44-fc-v669\n"), Some(Release(6, 18, 44)));
        assert_eq!(parse("6.8.0-45-generic"), Some(Release(6, 8, 0)));
        assert_eq!(parse("7.0-rc1"), Some(Release(7, 0, 0)));
        assert_eq!(parse("seven"), None);
        let known = ["6.14.0", "6.18.44", "6.12.117+deb12-amd64", "6.1.192", "7.1.3"];
        assert!(known.iter().all(|text| parse(text).is_some_and(Release::has_state)));
        let unknown = ["6.13.9", "6.12.0-55.el10", "6.8.0-45-generic", "5.15.100"];
        assert!(!unknown.iter().any(|text| parse(text).is_some_and(Release::has_state)));
        let preempted = |text: &str| parse(text).is_some_and(Release::is_preemptible);
        assert!(preempted("7.0.0-1-amd64") && !preempted("6.19.3"));
    }
}
