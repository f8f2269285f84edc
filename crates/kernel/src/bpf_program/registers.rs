//! Locations of a system call's arguments and result in the kernel's registers.

use super::kernel_version::PreemptionGuard;
use crate::catalogue::btf::{Btf, Class};

/// Offsets of a system call's registers in `struct pt_regs` of x86-64, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterLayout {
    /// Offsets of the arguments of a call.
    pub arguments: [u32; 6],
    /// Offsets of the arguments of a call by a 32-bit number: lower halves of registers.
    pub compat_arguments: [u32; 6],
    /// The offset of the result of a call.
    pub result: u32,
    /// The offset of the number of a call, which stays until the call returns.
    pub number: u32,
    /// The offset of the thread id in `task_struct`.
    pub task_tid: u32,
    /// The offset in `task_struct` of the flags that mark calls by 32-bit numbers.
    pub task_status: u32,
    /// The guard that programs on raw tracepoints need, if any.
    pub guard: Option<PreemptionGuard>,
}

impl RegisterLayout {
    /// Finds the offsets of registers in the kernel's types. `None`: the types are unexpected.
    pub fn find(btf: &Btf) -> Option<Self> {
        let all = btf.find(Class::Struct, "pt_regs")?;
        let at = |name: &str| Some(btf.find_member(all.id, name)?.bit_offset / 8);
        let all_at = |names: [&str; 6]| -> Option<[u32; 6]> {
            let mut places = [0; 6];
            for (place, name) in places.iter_mut().zip(names) {
                *place = at(name)?;
            }
            Some(places)
        };
        // The conventions of syscall(2) on x86-64 and i386.
        let arguments = all_at(["di", "si", "dx", "r10", "r8", "r9"])?;
        let compat_arguments = all_at(["bx", "cx", "dx", "si", "di", "bp"])?;
        let (result, number) = (at("ax")?, at("orig_ax")?);
        let thread = btf.find(Class::Struct, "task_struct")?;
        let of_thread = |name: &str| Some(btf.find_member(thread.id, name)?.bit_offset / 8);
        let (task_tid, task_status) = (of_thread("pid")?, of_thread("thread_info.status")?);
        let guard = PreemptionGuard::find_if_needed(btf).ok()?;
        Some(Self { arguments, compat_arguments, result, number, task_tid, task_status, guard })
    }
}
