//! The table of contexts: names, descriptions and origins.

use trackway_schema::{FieldKind, Scalar};

/// MAX_RT_PRIO (include/linux/sched/prio.h), from which LTTng and /proc/PID/stat count priorities.
const FIRST_PRIORITY: i32 = 100;
/// DEFAULT_PRIO: the priority of nice 0.
const DEFAULT_PRIORITY: i32 = 120;
/// A context of kernel events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The context's name in traces and filters.
    pub name: &'static str,
    /// A description for users.
    pub about: &'static str,
    pub(super) source: Source,
}

/// A structure and its member: a pointer to follow, or the value.
pub(super) type Hop = (&'static str, &'static str);

/// The source of a context's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The process or thread id, in one half of the result of bpf_get_current_pid_tgid().
    PidTgid { shift: i32 },
    /// The user or group id, in one half of the result of bpf_get_current_uid_gid().
    UidGid { shift: i32 },
    /// The current CPU.
    Cpu,
    /// The end of a path from the thread's `task_struct`, minus a constant.
    Path { hops: &'static [Hop], scalar: Scalar, less: i32 },
    /// The id, in its own namespace, of the `struct pid` at the end of the path.
    OwnNumber(&'static [Hop]),
    /// The number of the own namespace of the `struct pid` at the end of the path.
    OwnNamespace(&'static [Hop]),
    /// The thread's name.
    Name,
    /// A part of the thread's preemption state.
    State(State),
}

/// Parts of a thread's preemption state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Preemptible,
    Interruptible,
    NeedReschedule,
    Migratable,
}

pub(super) const TASK: &str = "task_struct";

const fn path_context(
    name: &'static str,
    about: &'static str,
    hops: &'static [Hop],
    scalar: Scalar,
) -> Context {
    Context { name, about, source: Source::Path { hops, scalar, less: 0 } }
}

const fn subtract_constant(context: Context, less: i32) -> Context {
    match context.source {
        Source::Path { hops, scalar, .. } => {
            Context { source: Source::Path { hops, scalar, less }, ..context }
        }
        _ => context,
    }
}

const fn state_context(name: &'static str, about: &'static str, state: State) -> Context {
    Context { name, about, source: Source::State(state) }
}

const PROCESS: &[Hop] = &[(TASK, "group_leader"), (TASK, "thread_pid")];
const THREAD: &[Hop] = &[(TASK, "thread_pid")];

/// The CPU, a context for filters only: in traces, packets have the CPU.
const CPU_ID: Context = Context { name: "cpu_id", about: "the CPU", source: Source::Cpu };

/// All contexts that records can have.
#[rustfmt::skip]
pub const ALL: [Context; 27] = [
    Context { name: "tid", about: "thread", source: Source::PidTgid { shift: 0 } },
    Context { name: "pid", about: "process", source: Source::PidTgid { shift: 32 } },
    path_context("ppid", "parent process", &[(TASK, "real_parent"), (TASK, "tgid")], Scalar::I32),
    Context { name: "vpid", about: "process, for itself", source: Source::OwnNumber(PROCESS) },
    Context { name: "vtid", about: "thread, for itself", source: Source::OwnNumber(THREAD) },
    Context { name: "procname", about: "the thread's name", source: Source::Name },
    subtract_constant(
        path_context("prio", "priority, as in /proc/PID/stat", &[(TASK, "prio")], Scalar::I32),
        FIRST_PRIORITY),
    subtract_constant(path_context("nice", "niceness", &[(TASK, "static_prio")], Scalar::I32),
        DEFAULT_PRIORITY),
    Context { name: "uid", about: "user", source: Source::UidGid { shift: 0 } },
    path_context("euid", "user, effective", &[(TASK, "cred"), ("cred", "euid.val")], Scalar::U32),
    path_context("suid", "user, saved", &[(TASK, "cred"), ("cred", "suid.val")], Scalar::U32),
    Context { name: "gid", about: "group", source: Source::UidGid { shift: 32 } },
    path_context("egid", "group, effective", &[(TASK, "cred"), ("cred", "egid.val")], Scalar::U32),
    path_context("sgid", "group, saved", &[(TASK, "cred"), ("cred", "sgid.val")], Scalar::U32),
    path_context("cgroup_id", "control group (version 2): the inode number of its folder",
        &[(TASK, "cgroups"), ("css_set", "dfl_cgrp"), ("cgroup", "kn"), ("kernfs_node", "id")],
        Scalar::U64),
    path_context("cgroup_ns", "namespace of control groups",
        &[(TASK, "nsproxy"), ("nsproxy", "cgroup_ns"), ("cgroup_namespace", "ns.inum")],
        Scalar::U32),
    path_context("ipc_ns", "namespace of System V IPC",
        &[(TASK, "nsproxy"), ("nsproxy", "ipc_ns"), ("ipc_namespace", "ns.inum")], Scalar::U32),
    path_context("mnt_ns", "namespace of mounts",
        &[(TASK, "nsproxy"), ("nsproxy", "mnt_ns"), ("mnt_namespace", "ns.inum")], Scalar::U32),
    path_context("net_ns", "namespace of networks",
        &[(TASK, "nsproxy"), ("nsproxy", "net_ns"), ("net", "ns.inum")], Scalar::U32),
    Context { name: "pid_ns", about: "namespace of processes",
        source: Source::OwnNamespace(THREAD) },
    path_context("time_ns", "namespace of clocks",
        &[(TASK, "nsproxy"), ("nsproxy", "time_ns"), ("time_namespace", "ns.inum")], Scalar::U32),
    path_context("user_ns", "namespace of users",
        &[(TASK, "cred"), ("cred", "user_ns"), ("user_namespace", "ns.inum")], Scalar::U32),
    path_context("uts_ns", "namespace of host names",
        &[(TASK, "nsproxy"), ("nsproxy", "uts_ns"), ("uts_namespace", "ns.inum")], Scalar::U32),
    state_context("preemptible", "whether nothing forbids that it is preempted",
        State::Preemptible),
    state_context("interruptible", "whether interrupts come", State::Interruptible),
    state_context("need_reschedule", "whether it is to leave its CPU", State::NeedReschedule),
    state_context("migratable", "whether nothing forbids that it goes to another CPU",
        State::Migratable),
];

impl Context {
    /// Returns the context with this name.
    pub fn find_by_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|context| context.name == name)
    }

    /// Returns all contexts that filters may read.
    pub fn filterable() -> impl Iterator<Item = Self> {
        ALL.into_iter().chain([CPU_ID])
    }

    /// Returns the type of a numeric context; `None`: it is text.
    pub fn scalar(&self) -> Option<Scalar> {
        Some(match self.source {
            Source::PidTgid { .. } | Source::OwnNumber(_) => Scalar::I32,
            Source::UidGid { .. } | Source::Cpu | Source::OwnNamespace(_) => Scalar::U32,
            Source::Path { scalar, .. } => scalar,
            Source::Name => return None,
            Source::State(State::Interruptible) => Scalar::I8,
            Source::State(_) => Scalar::U8,
        })
    }

    pub(super) fn kind(&self) -> FieldKind {
        self.scalar().map_or(FieldKind::Str, FieldKind::Scalar)
    }
}
