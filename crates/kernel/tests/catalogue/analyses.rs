//! Checks the events, fields and types that analyses of LTTng's kernel traces read: Trace Compass
//! (`LttngEventLayout` to `Lttng29EventLayout`, as far as `analysis.os.linux.core` uses them) and
//! lttng-analyses 0.6.1.

use std::collections::BTreeMap;

use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::tracefs::convert::plan_event;
use trackway_schema::FieldKind;
use trackway_testkit::report_skipped;

/// The fields of each event: integers without a mark, texts with `'`, sequences with `*`. Fields
/// with `?` may be missing in a kernel's configuration or on another machine.
const READ: &str = "
    sched_switch 'prev_comm prev_tid prev_prio prev_state 'next_comm next_tid next_prio
    sched_wakeup 'comm tid prio target_cpu
    sched_wakeup_new 'comm tid prio target_cpu
    sched_waking 'comm tid prio target_cpu
    sched_migrate_task 'comm tid prio dest_cpu
    sched_process_fork 'parent_comm parent_tid parent_pid 'child_comm child_tid child_pid
    sched_process_exit 'comm tid prio
    sched_process_free 'comm tid prio
    sched_process_exec 'filename tid
    sched_pi_setprio 'comm tid oldprio newprio
    irq_handler_entry irq 'name
    irq_handler_exit irq ret
    irq_softirq_raise vec
    irq_softirq_entry vec
    irq_softirq_exit vec
    timer_hrtimer_start hrtimer function expires softexpires
    timer_hrtimer_cancel hrtimer
    timer_hrtimer_expire_entry hrtimer now function
    timer_hrtimer_expire_exit hrtimer
    block_rq_insert dev sector nr_sector rwbs
    block_rq_issue dev sector nr_sector rwbs
    block_rq_complete dev sector nr_sector rwbs
    block_bio_frontmerge dev sector nr_sector rwbs
    block_bio_backmerge dev sector nr_sector rwbs
    block_bio_remap dev sector old_dev old_sector rwbs
    kmem_mm_page_alloc order
    kmem_mm_page_free order
    mm_vmscan_wakeup_kswapd nid
    writeback_pages_written pages
    net_dev_queue skbaddr len 'name
    net_if_receive_skb skbaddr len 'name
    net_dev_xmit len 'name
    power_cpu_frequency state cpu_id
    ?x86_irq_vectors_local_timer_entry vector
    ?x86_irq_vectors_local_timer_exit vector
    ?x86_irq_vectors_reschedule_entry vector
    ?x86_irq_vectors_call_function_entry vector
    ?x86_irq_vectors_call_function_single_exit vector
    ?x86_irq_vectors_irq_work_entry vector
    ?kvm_x86_entry vcpu_id
    ?kvm_x86_exit vcpu_id
    ?syscall_entry_open 'filename flags
    syscall_entry_openat 'filename flags
    syscall_exit_openat ret
    syscall_entry_close fd
    syscall_entry_read fd count
    syscall_exit_read ret
    syscall_entry_write fd count
    syscall_entry_pread64 fd count
    syscall_entry_pwrite64 fd count
    syscall_entry_readv fd vlen
    syscall_entry_writev fd vlen
    syscall_entry_preadv fd vlen
    syscall_entry_pwritev fd vlen
    syscall_entry_recvfrom fd size
    syscall_entry_sendto fd len
    syscall_entry_recvmsg fd
    syscall_entry_sendmsg fd
    syscall_entry_splice fd_in fd_out len
    syscall_entry_sendfile64 in_fd out_fd count
    syscall_entry_dup fildes
    ?syscall_entry_dup2 oldfd newfd
    syscall_entry_dup3 oldfd newfd flags
    syscall_entry_fcntl fd cmd
    syscall_entry_socket family
    syscall_entry_connect fd family dport *v4addr
    syscall_entry_fsync fd
    syscall_entry_fdatasync fd
    syscall_entry_sync_file_range fd nbytes
    syscall_entry_futex uaddr op val
    syscall_exit_futex ret
";

/// RUN the catalogue. EXPECT all fields that analyses read, with name and type, and the thread of
/// each event.
#[test]
fn fields_read_by_analyses_exist() {
    let catalogue = match Catalogue::open() {
        Ok(catalogue) => catalogue,
        Err(error) => return report_skipped(error.to_string()),
    };
    let events = catalogue.events(catalogue.names()).events;
    let by_name: BTreeMap<_, _> =
        events.iter().map(|event| (event.lttng_name().into_owned(), event)).collect();
    let mut missing = Vec::new();
    for line in READ.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let name = words.next().expect("an event");
        let Some(event) = by_name.get(name.trim_start_matches('?')) else {
            if !name.starts_with('?') {
                missing.push(name.to_owned());
            }
            continue;
        };
        let plan = plan_event(event, 4000);
        assert!(plan.contexts.fields().iter().any(|field| field.name == "tid"), "{name}");
        for word in words {
            let (is_it, of): (fn(&FieldKind) -> bool, _) = match word.as_bytes()[0] {
                b'\'' => (|kind| *kind == FieldKind::Str, &word[1..]),
                b'*' => (|kind| matches!(kind, FieldKind::Sequence(_)), &word[1..]),
                _ => (|kind| matches!(kind, FieldKind::Scalar(of) if !of.is_float()), word),
            };
            let fields = &plan.description.fields;
            match fields.iter().find(|field| field.name == of) {
                Some(field) if is_it(&field.kind) => {}
                other => missing.push(format!("{name}.{word}: {other:?}")),
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
