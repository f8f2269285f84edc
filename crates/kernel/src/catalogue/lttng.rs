//! LTTng's names of kernel events and fields that differ from the kernel's, and LTTng's extra
//! fields: analyses depend on both (Trace Compass, lttng-analyses).
//!
//! Source: lttng-modules 2.15, `include/instrumentation/events`. Its convention is
//! `SUBSYSTEM_EVENT`, with exceptions. This module adopts only names, not fields with other
//! meanings.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use trackway_schema::Scalar;

use super::model::{Field, FieldShape, Meaning, Symbol, Symbols};

/// Subsystems whose name LTTng puts before event names that do not begin with it.
const PREFIXED_SUBSYSTEMS: [&str; 8] =
    ["btrfs", "irq", "kmem", "net", "power", "printk", "timer", "writeback"];

/// Events of kvm whose LTTng names have `x86` and no `kvm_`.
const KVM_X86: [&str; 27] = [
    "apic",
    "apic_accept_irq",
    "apic_ipi",
    "cpuid",
    "cr",
    "emulate_insn",
    "entry",
    "eoi",
    "exit",
    "hv_hypercall",
    "hypercall",
    "inj_exception",
    "inj_virq",
    "invlpga",
    "msr",
    "nested_intercepts",
    "nested_intr_vmexit",
    "nested_vmexit",
    "nested_vmexit_inject",
    "page_fault",
    "pic_set_irq",
    "pio",
    "pv_eoi",
    "skinit",
    "track_tsc",
    "update_master_clock",
    "write_tsc_offset",
];

/// Renamed fields, by subsystem. (In `sched`, a pid of the kernel is a thread id.)
const RENAMED_FIELDS: [(&str, &str, &str); 10] = [
    ("sched", "pid", "tid"),
    ("sched", "prev_pid", "prev_tid"),
    ("sched", "next_pid", "next_tid"),
    ("sched", "old_pid", "old_tid"),
    ("sched", "parent_pid", "parent_tid"),
    ("sched", "child_pid", "child_tid"),
    ("sched", "parent_tgid", "parent_pid"),
    ("sched", "child_tgid", "child_pid"),
    ("block", "rwbs", "rwbs_text"),
    ("block", REQUEST_FLAGS_FIELD, "rwbs"),
];

/// Extra process id fields of LTTng's events; tracepoint arguments contain these ids
/// (`bpf_program/arguments.txt`).
const PROCESS_FIELDS: [(&str, &str); 2] =
    [("sched_process_fork", "parent_tgid"), ("sched_process_fork", "child_tgid")];
/// LTTng's name of the field with the flags of a block request.
const REQUEST_FLAGS_FIELD: &str = "operation";

/// Flags of a block request.
#[rustfmt::skip]
pub(crate) mod request_flag {
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const DISCARD: u32 = 1 << 1;
    pub(crate) const READ: u32 = 1 << 2;
    pub(crate) const RAHEAD: u32 = 1 << 3;
    pub(crate) const SYNC: u32 = 1 << 5;
    pub(crate) const META: u32 = 1 << 6;
    pub(crate) const SECURE: u32 = 1 << 7;
    pub(crate) const FLUSH: u32 = 1 << 8;
    pub(crate) const FUA: u32 = 1 << 9;
    pub(crate) const PREFLUSH: u32 = 1 << 10;
    pub(super) const ALL: [(&str, u32); 10] = [
        ("WRITE", WRITE), ("DISCARD", DISCARD), ("READ", READ), ("RAHEAD", RAHEAD), ("SYNC", SYNC),
        ("META", META), ("SECURE", SECURE), ("FLUSH", FLUSH), ("FUA", FUA), ("PREFLUSH", PREFLUSH),
    ];
}

/// Adds LTTng's extra fields to an event, as analyses require.
pub(crate) fn add_lttng_fields(subsystem: &str, event: &str, fields: &mut Vec<Field>) {
    static FLAGS: LazyLock<Arc<Symbols>> = LazyLock::new(|| {
        let flag = |(name, value): (&str, u32)| Symbol {
            value: value.into(),
            name: format!("RWBS_FLAG_{name}").into(),
        };
        let flags = request_flag::ALL.map(flag).into();
        Arc::new(Symbols { flags, ..Symbols::default() })
    });
    let new = |name: &str, type_text: &str, kind, meaning| Field {
        name: name.into(),
        type_text: type_text.into(),
        kind,
        offset: 0,
        size: 0,
        meaning,
        argument: None,
        pointee: None,
    };
    let is_of = |of: &&(&str, &str)| subsystem == "sched" && of.0 == event;
    for (_, name) in PROCESS_FIELDS.iter().filter(is_of) {
        let kind = FieldShape::Integer(Scalar::I32);
        fields.push(new(name, "pid_t", kind, Meaning::Process));
    }
    let letters = fields.iter().find_map(|field| match field.kind {
        FieldShape::Text(bytes) if field.name == "rwbs" => Some((field.offset, bytes)),
        _ => None,
    });
    if let Some((offset, bytes)) = letters.filter(|_| subsystem == "block") {
        let meaning = Meaning::Symbols(Arc::clone(&FLAGS));
        let field =
            new(REQUEST_FLAGS_FIELD, "unsigned int", FieldShape::RequestFlags(bytes), meaning);
        fields.push(Field { offset, size: bytes, ..field });
    }
}

/// Returns LTTng's name of an event.
pub(crate) fn event_name<'a>(subsystem: &str, name: &'a str) -> Cow<'a, str> {
    let with = |prefix: &str, rest: &str| Cow::Owned(format!("{prefix}{rest}"));
    let strip = |prefix: &str| name.strip_prefix(prefix);
    match (subsystem, name) {
        ("skb", "consume_skb") => "skb_consume".into(),
        ("skb", "kfree_skb") => "skb_kfree".into(),
        ("writeback", "folio_wait_writeback") => "writeback_folio_wait".into(),
        ("kvm", "vcpu_match_mmio") => "kvm_x86_vcpu_match_mmio".into(),
        ("syscalls", _) => match (strip("sys_enter_"), strip("sys_exit_")) {
            (Some(call), _) => with("syscall_entry_", call),
            (_, Some(call)) => with("syscall_exit_", call),
            _ => match (strip("compat_sys_enter_"), strip("compat_sys_exit_")) {
                (Some(call), _) => with("compat_syscall_entry_", call),
                (_, Some(call)) => with("compat_syscall_exit_", call),
                _ => name.into(),
            },
        },
        ("irq_vectors", _) if name.ends_with("_entry") || name.ends_with("_exit") => {
            with("x86_irq_vectors_", name.strip_prefix("x86_platform_").unwrap_or(name))
        }
        ("exceptions", _) => with("x86_exceptions_", name),
        ("kvmmmu", "fast_page_fault" | "handle_mmio_page_fault" | "mark_mmio_spte") => {
            with("kvm_mmu_", name)
        }
        ("kvm", _) => match strip("kvm_").filter(|event| KVM_X86.contains(event)) {
            Some(event) => with("kvm_x86_", event),
            None => name.into(),
        },
        ("net", _) if name.starts_with("netif_") => with("net_if_", &name["netif_".len()..]),
        ("compaction", _) => strip("mm_").unwrap_or(name).into(),
        ("vmscan", _) => match strip("mm_shrink_slab_") {
            Some(event) => with("mm_vmscan_shrink_slab_", event),
            None => name.into(),
        },
        _ if PREFIXED_SUBSYSTEMS.contains(&subsystem) => {
            let has_it = strip(subsystem).is_some_and(|rest| rest.starts_with('_'));
            if has_it { name.into() } else { Cow::Owned(format!("{subsystem}_{name}")) }
        }
        _ => name.into(),
    }
}

/// Returns LTTng's name of a field.
pub(crate) fn field_name<'a>(subsystem: &str, _event: &str, field: &'a str) -> &'a str {
    let renamed = RENAMED_FIELDS.iter().find(|(of, name, _)| *of == subsystem && *name == field);
    renamed.map_or(field, |(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_names_that_analyses_expect() {
        for (subsystem, name, expected) in [
            ("sched", "sched_switch", "sched_switch"),
            ("irq", "irq_handler_entry", "irq_handler_entry"),
            ("irq", "softirq_raise", "irq_softirq_raise"),
            ("timer", "hrtimer_expire_entry", "timer_hrtimer_expire_entry"),
            ("timer", "timer_start", "timer_start"),
            ("power", "cpu_frequency", "power_cpu_frequency"),
            ("kmem", "mm_page_alloc", "kmem_mm_page_alloc"),
            ("kmem", "kmem_cache_alloc", "kmem_cache_alloc"),
            ("net", "net_dev_queue", "net_dev_queue"),
            ("net", "netif_receive_skb", "net_if_receive_skb"),
            ("block", "block_rq_issue", "block_rq_issue"),
            ("syscalls", "sys_enter_futex", "syscall_entry_futex"),
            ("syscalls", "sys_exit_futex", "syscall_exit_futex"),
            ("syscalls", "compat_sys_exit_futex", "compat_syscall_exit_futex"),
            ("irq_vectors", "reschedule_entry", "x86_irq_vectors_reschedule_entry"),
            ("irq_vectors", "x86_platform_ipi_exit", "x86_irq_vectors_ipi_exit"),
            ("irq_vectors", "vector_alloc", "vector_alloc"),
            ("kvm", "kvm_entry", "kvm_x86_entry"),
            ("kvm", "kvm_mmio", "kvm_mmio"),
            ("compaction", "mm_compaction_migratepages", "compaction_migratepages"),
            ("ext4", "ext4_da_write_begin", "ext4_da_write_begin"),
        ] {
            assert_eq!(event_name(subsystem, name), expected);
        }
        assert_eq!(field_name("sched", "sched_switch", "prev_pid"), "prev_tid");
        assert_eq!(field_name("signal", "signal_deliver", "pid"), "pid");
    }
}
