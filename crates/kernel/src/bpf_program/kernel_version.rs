//! The version of the running kernel, for behaviour that the kernel's types do not reveal.

use std::sync::OnceLock;

use crate::bpf_sys::asm::Asm;
use crate::catalogue::btf::{Btf, Class};

/// The file with the version of the running kernel.
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The version of a kernel: major, minor and stable number. Vendors backport features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KernelVersion(pub(super) u32, pub(super) u32, pub(super) u32);

impl KernelVersion {
    /// Returns the version of the running kernel; `None`: it is unreadable.
    pub(super) fn running() -> Option<Self> {
        static RUNNING: OnceLock<Option<KernelVersion>> = OnceLock::new();
        let read = || Self::parse(&std::fs::read_to_string(RELEASE).ok()?);
        *RUNNING.get_or_init(read)
    }

    fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut numbers = text[..end].split('.').map(|number| number.parse().unwrap_or(0));
        Some(Self(numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
    }

    /// Returns true if the kernel derives a thread's state from its bits as Linux 6.14 does: a
    /// frozen thread counts as waiting. Stable versions do so since the numbers below.
    pub(super) fn counts_frozen_as_waiting(self) -> bool {
        match self {
            Self(6, 1, stable) => stable >= 192,
            Self(6, 12, stable) => stable >= 117,
            _ => self >= Self(6, 14, 0),
        }
    }

    /// Returns true if the kernel may preempt programs on raw tracepoints. (It never preempts
    /// programs on tracepoints.)
    fn preempts_raw_programs(self) -> bool {
        self >= Self(7, 0, 0)
    }
}

/// BTF ids of the kernel functions that guard a program against preemption (since Linux 6.10). A
/// level's region has one writer at a time only if a program stays on its CPU until the program
/// ends; interrupts use other levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreemptionGuard {
    disable: i32,
    enable: i32,
}

impl PreemptionGuard {
    /// Finds the guard in the running kernel; `None`: the kernel has none.
    pub fn find(btf: &Btf) -> Option<Self> {
        let of = |name: &str| i32::try_from(btf.find(Class::Func, name)?.id).ok();
        Some(Self { disable: of("bpf_preempt_disable")?, enable: of("bpf_preempt_enable")? })
    }

    /// Returns the guard that programs on raw tracepoints need, if any. Error: the kernel cannot
    /// run such programs safely.
    pub(super) fn find_if_needed(btf: &Btf) -> Result<Option<Self>, ()> {
        if !KernelVersion::running().ok_or(())?.preempts_raw_programs() {
            return Ok(None);
        }
        Self::find(btf).map(Some).ok_or(())
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
        let parse = |text: &str| KernelVersion::parse(text);
        assert_eq!(parse("6.18.44-fc-v669\n"), Some(KernelVersion(6, 18, 44)));
        assert_eq!(parse("6.8.0-45-generic"), Some(KernelVersion(6, 8, 0)));
        assert_eq!(parse("7.0-rc1"), Some(KernelVersion(7, 0, 0)));
        assert_eq!(parse("seven"), None);
        let known = ["6.14.0", "6.18.44", "6.12.117+deb12-amd64", "6.1.192", "7.1.3"];
        assert!(
            known
                .iter()
                .all(|text| parse(text).is_some_and(KernelVersion::counts_frozen_as_waiting))
        );
        let unknown = ["6.13.9", "6.12.0-55.el10", "6.8.0-45-generic", "5.15.100"];
        assert!(
            !unknown
                .iter()
                .any(|text| parse(text).is_some_and(KernelVersion::counts_frozen_as_waiting))
        );
        let preempted = |text: &str| parse(text).is_some_and(KernelVersion::preempts_raw_programs);
        assert!(preempted("7.0.0-1-amd64") && !preempted("6.19.3"));
    }
}
