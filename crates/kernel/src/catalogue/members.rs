//! Meanings of numbers in structures that programs and the kernel exchange; BTF has only the types.
//! (In `calls.txt` a structure is the target of a pointer.)

use super::model::{Meaning, Member, Structure};
use super::names;

/// Returns the meaning of a structure's member; most members are plain numbers.
pub(crate) fn member_meaning(structure: &Structure, member: &Member) -> Meaning {
    let what = match (&*structure.name, &*member.name) {
        ("stat", "st_mode") | ("statx", "stx_mode") => return Meaning::Mode,
        ("open_how", "mode") => return Meaning::Mode,
        ("sigaction", "sa_mask" | "sa_mask.sig") => return Meaning::SignalSet,
        ("sigaction", "sa_handler") => return Meaning::Handler,
        ("sigaction", "sa_restorer") => return Meaning::Address,
        ("clone_args", "pidfd" | "child_tid" | "parent_tid" | "stack" | "tls" | "set_tid") => {
            return Meaning::Address;
        }
        ("iovec", "iov_base") => return Meaning::Address,
        ("sigaction", "sa_flags") => "signal_flags",
        ("clone_args", "flags") => "clone3",
        ("clone_args", "exit_signal") => "signal",
        ("epoll_event", "events") => "epoll",
        ("futex_waitv", "flags") => "futex2",
        ("mount_attr", "attr_set" | "attr_clr") => "mount_attr",
        ("open_how", "flags") => "open",
        ("open_how", "resolve") => "resolve",
        ("pollfd", "events" | "revents") => "poll",
        ("rlimit" | "rlimit64", _) => "rlimit_value",
        ("sched_attr", "sched_policy") => "sched",
        ("sembuf", "sem_flg") => "ipc",
        ("statfs", "f_type") => "file_system",
        ("statx", "stx_mask") => "statx",
        _ => return Meaning::Plain,
    };
    names::find_set(what).map_or(Meaning::Plain, Meaning::Symbols)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trackway_schema::Scalar;

    #[test]
    fn numbers_in_structures_have_the_names_of_their_arguments() {
        let of = |structure: &str, name: &str| {
            let members = Vec::new();
            let structure = Structure { name: structure.into(), bytes: 8, members };
            let member = Member { name: name.into(), offset: 0, scalar: Scalar::U64, count: 1 };
            member_meaning(&structure, &member)
        };
        let show = |structure, member, value| match of(structure, member) {
            Meaning::Symbols(symbols) => symbols.show(value),
            other => panic!("{structure}.{member}: {other:?}"),
        };
        assert_eq!(show("pollfd", "events", 0x2003), "POLLIN|POLLPRI|POLLRDHUP");
        assert_eq!(show("epoll_event", "events", 0x8000_0001), "EPOLLIN|EPOLLET");
        assert_eq!(show("rlimit64", "rlim_max", u64::MAX), "RLIM_INFINITY");
        assert_eq!(show("sigaction", "sa_flags", 0x1400_0000), "SA_RESTART|SA_RESTORER");
        assert_eq!(show("clone_args", "flags", 1 << 32 | 0x100), "CLONE_VM|CLONE_CLEAR_SIGHAND");
        assert_eq!(show("open_how", "flags", 0o2000002), "O_RDWR|O_CLOEXEC");
        assert_eq!(of("stat", "st_mode"), Meaning::Mode);
        assert_eq!(of("stat", "st_size"), Meaning::Plain);
    }
}
