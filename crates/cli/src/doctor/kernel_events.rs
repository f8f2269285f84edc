//! Checks of kernel events: if `trackway record --kernel` works on this machine, with which
//! backend, and the obstacles to the better backend.

use std::fs;
use std::path::Path;

use trackway_recorder::KernelBackends;

use super::Finding;
use super::machine::{INITIAL_PID_NAMESPACE, read_kernel_release};

/// Capabilities that recording may need (include/uapi/linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;
/// File with the kernel's types.
const KERNEL_TYPES_FILE: &str = "/sys/kernel/btf/vmlinux";

/// Conditions for recording kernel events.
#[derive(Debug)]
pub(super) struct KernelEvents {
    ways: KernelBackends,
    release: String,
    /// True if process ids in this namespace are the kernel's own ids.
    is_first_namespace: bool,
    /// Effective capabilities, one bit each; `None`: unknown, because /proc does not show them.
    capabilities: Option<u64>,
    /// Lockdown level of the kernel, if the kernel supports lockdown.
    lockdown: Option<String>,
    /// True if the kernel describes its types.
    has_types: bool,
    /// Kernel settings that restrict unprivileged users, with their values.
    settings: Vec<(&'static str, String)>,
}

impl KernelEvents {
    pub(super) fn inspect() -> Self {
        let read = |path: &str| Some(fs::read_to_string(path).ok()?.trim().to_owned());
        let setting = |name: &'static str| {
            Some((name, read(&format!("/proc/sys/{}", name.replace('.', "/")))?))
        };
        let names = ["kernel.unprivileged_bpf_disabled", "kernel.perf_event_paranoid"];
        let status = read("/proc/self/status");
        let lockdown = read("/sys/kernel/security/lockdown");
        Self {
            ways: KernelBackends::detect(),
            release: read_kernel_release(),
            is_first_namespace: trackway_sys::process::pid_namespace() == INITIAL_PID_NAMESPACE,
            capabilities: status.as_deref().and_then(parse_effective_capabilities),
            lockdown: lockdown.as_deref().and_then(parse_active_lockdown),
            has_types: fs::File::open(KERNEL_TYPES_FILE).is_ok(),
            settings: names.into_iter().filter_map(setting).collect(),
        }
    }

    /// Checks that BPF programs can record kernel events.
    pub(super) fn check_bpf(&self) -> Finding {
        let Self { release, has_types, .. } = self;
        let refusal = match &self.ways.bpf {
            Ok(()) if *has_types => {
                return Finding::good(format!("Linux {release} takes programs that record events"));
            }
            Ok(()) => {
                return Finding::limited(
                    format!("Linux {release} takes programs, but does not tell its types (BTF)"),
                    "a kernel with CONFIG_DEBUG_INFO_BTF: system calls cost less with it",
                );
            }
            Err(refusal) => refusal,
        };
        let missing = self.missing_capabilities();
        let fact = format!("the kernel refuses {refusal}{}", self.format_refusal_reasons(&missing));
        let is_locked = self.lockdown.as_deref() == Some("confidentiality");
        if refusal.error.is_none() {
            return Finding::missing(fact, "kernel events go by tracefs here, if that is there");
        }
        if !refusal.is_permission_denied() {
            return Finding::missing(fact, "Linux 5.12 or later, with CONFIG_BPF_SYSCALL");
        }
        Finding::missing(
            fact,
            match (missing.is_empty(), is_locked) {
                (false, _) => {
                    "run it as root (sudo); in a container, root needs CAP_BPF and CAP_PERFMON"
                }
                (true, true) => "start the kernel without lockdown=confidentiality",
                (true, false) => {
                    "let bpf(2) and perf_event_open(2) through: a seccomp filter (of a container) \
                     or a security module refuses them"
                }
            },
        )
    }

    /// Returns the capabilities that BPF needs and this process lacks.
    fn missing_capabilities(&self) -> Vec<&'static str> {
        let Some(capabilities) = self.capabilities else { return Vec::new() };
        let has = |number: u32| capabilities >> number & 1 == 1;
        let wanted = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")];
        let missing = wanted.into_iter().filter(|(number, _)| !has(*number) && !has(CAP_SYS_ADMIN));
        missing.map(|(_, name)| name).collect()
    }

    /// Returns possible reasons for a refusal by the kernel, in brackets.
    fn format_refusal_reasons(&self, missing: &[&str]) -> String {
        let mut parts: Vec<String> = missing.iter().map(|name| format!("no {name}")).collect();
        let settings = self.settings.iter().map(|(name, value)| format!("{name} is {value}"));
        parts.extend(settings);
        let lockdown = self.lockdown.as_deref().filter(|lockdown| *lockdown != "none");
        parts.extend(lockdown.map(|lockdown| format!("locked down: {lockdown}")));
        parts.push(format!("Linux {}", self.release));
        format!(" ({})", parts.join(", "))
    }

    /// Checks that the kernel describes its events, and can record them with tracefs.
    pub(super) fn check_tracefs(&self) -> Finding {
        match &self.ways.tracefs {
            Ok(root) if root.starts_with(Path::new("/proc")) => {
                Finding::good("not mounted, but can be, for a recording alone")
            }
            Ok(root) => Finding::good(format!("mounted at {}", root.display())),
            Err(error) => Finding::missing(
                error.to_string(),
                error.hint().unwrap_or_else(|| "see above".into()),
            ),
        }
    }

    /// Reports the kernel backend that a recording would use.
    pub(super) fn check_backend(&self) -> Finding {
        match (&self.ways.tracefs, &self.ways.bpf) {
            (Ok(_), _) if !self.is_first_namespace => Finding::limited(
                "record --kernel records everything (--system-wide), and no command: this is a pid \
                 namespace of its own",
                "run it outside, as on the container's host",
            ),
            (Ok(_), Ok(())) => Finding::good("record --kernel goes by BPF"),
            (Ok(_), Err(_)) => Finding::limited(
                "record --kernel goes by tracefs, since BPF is refused: what programs point to, \
                 such as file names, is empty then; there is no --cgroup, and few contexts",
                "see bpf, above",
            ),
            (Err(_), _) => Finding::missing(
                "record --kernel does not work here: without tracefs nobody knows the events",
                "see tracefs, above",
            ),
        }
    }
}

/// Returns the effective capabilities in the text of /proc/PID/status.
fn parse_effective_capabilities(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

/// Returns the word in square brackets: `none [integrity] confidentiality`.
fn parse_active_lockdown(lockdown: &str) -> Option<String> {
    let word = lockdown.split_once('[')?.1.split_once(']')?.0;
    Some(word.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io;

    use trackway_kernel::bpf_program::support::Refusal;
    use trackway_kernel::catalogue::error::CatalogueError;
    use trackway_kernel::tracefs::instance::InstanceError;

    use super::super::Verdict;
    use super::*;

    fn refusal_with_errno(code: i32) -> Refusal {
        Refusal { what: "a map of bpf(2)", error: Some(io::Error::from_raw_os_error(code).into()) }
    }

    fn kernel_events_with(bpf: Result<(), Refusal>) -> KernelEvents {
        KernelEvents {
            ways: KernelBackends { bpf, tracefs: Ok("/sys/kernel/tracing".into()) },
            release: "6.18".into(),
            is_first_namespace: true,
            capabilities: Some(u64::MAX),
            lockdown: None,
            has_types: true,
            settings: vec![("kernel.unprivileged_bpf_disabled", "2".into())],
        }
    }

    fn assert_finding(finding: &Finding, verdict: Verdict, fact: &str, hint: &str) {
        let is_so = finding.verdict == verdict
            && finding.fact.contains(fact)
            && finding.hint.as_deref().unwrap_or_default().contains(hint);
        assert!(is_so, "{finding:?}");
    }

    #[test]
    fn bpf_is_explained_by_what_stands_against_it() {
        assert_finding(
            &kernel_events_with(Ok(())).check_bpf(),
            Verdict::Good,
            "Linux 6.18 takes programs",
            "",
        );
        let untyped = KernelEvents { has_types: false, ..kernel_events_with(Ok(())) };
        assert_finding(&untyped.check_bpf(), Verdict::Limited, "types", "CONFIG_DEBUG_INFO_BTF");
        let user = KernelEvents {
            capabilities: Some(0),
            ..kernel_events_with(Err(refusal_with_errno(libc::EPERM)))
        };
        let fact =
            "(no CAP_BPF, no CAP_PERFMON, kernel.unprivileged_bpf_disabled is 2, Linux 6.18)";
        assert_finding(&user.check_bpf(), Verdict::Missing, fact, "run it as root");
        let half = KernelEvents {
            capabilities: Some(1 << CAP_BPF),
            ..kernel_events_with(Err(refusal_with_errno(libc::EPERM)))
        };
        assert_finding(
            &half.check_bpf(),
            Verdict::Missing,
            "(no CAP_PERFMON, kernel",
            "CAP_PERFMON",
        );
        assert_finding(
            &kernel_events_with(Err(refusal_with_errno(libc::EPERM))).check_bpf(),
            Verdict::Missing,
            "a map",
            "seccomp",
        );
        let locked = Some("confidentiality".to_owned());
        let locked = KernelEvents {
            lockdown: locked,
            ..kernel_events_with(Err(refusal_with_errno(libc::EPERM)))
        };
        assert_finding(&locked.check_bpf(), Verdict::Missing, "locked down", "without lockdown");
        assert_finding(
            &kernel_events_with(Err(refusal_with_errno(libc::ENOSYS))).check_bpf(),
            Verdict::Missing,
            "",
            "Linux 5.12",
        );
        let other = kernel_events_with(Err(Refusal { what: "not on this processor", error: None }));
        assert_finding(&other.check_bpf(), Verdict::Missing, "not on this processor", "tracefs");
    }

    #[test]
    fn the_way_is_the_one_that_a_recording_takes() {
        assert_finding(
            &kernel_events_with(Ok(())).check_backend(),
            Verdict::Good,
            "goes by BPF",
            "",
        );
        let by_tracefs = kernel_events_with(Err(refusal_with_errno(libc::EPERM))).check_backend();
        assert_finding(&by_tracefs, Verdict::Limited, "goes by tracefs", "bpf");
        let within = KernelEvents { is_first_namespace: false, ..kernel_events_with(Ok(())) };
        assert_finding(
            &within.check_backend(),
            Verdict::Limited,
            "no command: this is a pid namespace",
            "host",
        );
        let mut without = kernel_events_with(Ok(()));
        without.ways.tracefs = Err(InstanceError::Catalogue(CatalogueError::PermissionDenied));
        assert_finding(&without.check_backend(), Verdict::Missing, "does not work", "tracefs");
        assert_finding(&without.check_tracefs(), Verdict::Missing, "only root", "run it as root");
        assert_finding(
            &kernel_events_with(Ok(())).check_tracefs(),
            Verdict::Good,
            "at /sys/kernel/tracing",
            "",
        );
        let mut private = kernel_events_with(Ok(()));
        private.ways.tracefs = Ok("/proc/self/fd/3".into());
        assert_finding(&private.check_tracefs(), Verdict::Good, "can be", "");
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        assert_eq!(
            parse_effective_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"),
            Some(0x1ff_ffff_ffff)
        );
        assert_eq!(parse_effective_capabilities("CapEff:\tx\n"), None);
        assert_eq!(
            parse_active_lockdown("none [integrity] confidentiality").as_deref(),
            Some("integrity")
        );
        assert_eq!(parse_active_lockdown("none"), None);
    }
}
