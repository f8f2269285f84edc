//! Process rules: they select the processes of a session by id, executable and namespace.

use crate::glob_matches;

/// The properties of a process that rules match.
#[derive(Debug, Clone, Copy)]
pub struct ProcessFacts<'bytes> {
    /// Process id in the process's own namespace.
    pub pid: u32,
    /// Inode number of the process-id namespace; 0 if not known, which no rule matches.
    pub pid_namespace: u64,
    /// Path of the executable; empty if not known, which no rule matches.
    pub executable: &'bytes [u8],
}

/// A session's process rules in the text form of the window, one rule a line:
///
/// ```text
/// pid=NAMESPACE:PID    the process with this id in this namespace
/// exe=GLOB             processes by executable: its name, or its path if GLOB contains a /
/// ns=NAMESPACE         processes in the process-id namespace with this inode number
/// ```
///
/// At least one rule of each kind that occurs must match. An empty text selects every process. An
/// unreadable line matches no process: rules exclude processes, and damage must not admit more.
#[derive(Debug, Clone, Copy)]
pub struct ProcessRules<'bytes> {
    text: &'bytes [u8],
}

/// Number of kinds of rules, and one for unreadable lines.
const KINDS: usize = 4;

impl<'bytes> ProcessRules<'bytes> {
    /// Creates the rules of this text.
    pub const fn new(text: &'bytes [u8]) -> Self {
        Self { text }
    }

    /// Returns true if the rules select the process. Allocates nothing; takes time linear in the
    /// text's length.
    pub fn selects(&self, process: &ProcessFacts<'_>) -> bool {
        let mut holds: [Option<bool>; KINDS] = [None; KINDS];
        for line in self.text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let (kind, does) = if let Some(rest) = line.strip_prefix(b"pid=") {
                (0, matches_pid(rest, process))
            } else if let Some(glob) = line.strip_prefix(b"exe=") {
                (1, matches_executable(glob, process.executable))
            } else if let Some(namespace) = line.strip_prefix(b"ns=") {
                (2, matches_namespace(namespace, process))
            } else {
                (3, false)
            };
            holds[kind] = Some(holds[kind].unwrap_or(false) || does);
        }
        holds.iter().all(|kind| *kind != Some(false))
    }
}

fn matches_pid(rule: &[u8], process: &ProcessFacts<'_>) -> bool {
    let Some(colon) = rule.iter().position(|&byte| byte == b':') else { return false };
    matches_namespace(&rule[..colon], process)
        && read_decimal(&rule[colon + 1..]) == Some(u64::from(process.pid))
}

fn matches_namespace(rule: &[u8], process: &ProcessFacts<'_>) -> bool {
    process.pid_namespace != 0 && read_decimal(rule) == Some(process.pid_namespace)
}

fn matches_executable(glob: &[u8], path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let asked = if glob.contains(&b'/') { path } else { name };
    !asked.is_empty() && glob_matches(glob, asked)
}

/// Parses a decimal number that consists of digits alone.
fn read_decimal(text: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.checked_sub(b'0').filter(|&digit| digit < 10).map(u64::from);
    let add = |value: u64, byte| value.checked_mul(10)?.checked_add(digit(byte)?);
    if text.is_empty() { None } else { text.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const NAMESPACE: u64 = 4_026_531_836;

    fn selects_process(text: &str, pid: u32, executable: &str) -> bool {
        let executable = executable.as_bytes();
        let process = ProcessFacts { pid, pid_namespace: NAMESPACE, executable };
        ProcessRules::new(text.as_bytes()).selects(&process)
    }

    #[test]
    fn within_a_kind_one_rule_is_enough_and_every_kind_must_hold() {
        let selects = |text: &str| selects_process(text, 42, "/usr/sbin/nginx");
        assert!(selects("") && selects("\n"));
        assert!(selects("pid=4026531836:42") && !selects("pid=4026531836:43"));
        assert!(selects("pid=4026531836:41\npid=4026531836:42"));
        assert!(!selects("pid=4026531837:42"), "another namespace's");
        assert!(selects("ns=4026531836") && !selects("ns=4026531837"));
        assert!(selects("exe=nginx\nns=4026531836\npid=4026531836:42\nexe=apache"));
        assert!(!selects("exe=nginx\nns=4026531837\npid=4026531836:42"));
    }

    #[test]
    fn executables_are_told_by_name_or_by_path() {
        let selects = |glob: &str| selects_process(&format!("exe={glob}"), 1, "/usr/sbin/nginx");
        for (glob, expected) in [
            ("nginx", true),
            ("ngin*", true),
            ("sbin*", false),
            ("/usr/sbin/nginx", true),
            ("/usr/*", true),
            ("*/nginx", true),
            ("usr/sbin/nginx", false),
            ("*", true),
            ("", false),
        ] {
            assert_eq!(selects(glob), expected, "{glob:?}");
        }
        assert!(
            selects_process("exe=run", 1, "run") && !selects_process("exe=*", 1, ""),
            "relative; not known"
        );
        assert!(!selects_process("exe=*", 1, "/usr/"), "no name");
    }

    #[test]
    fn what_cannot_be_read_or_is_not_known_lets_nobody_in() {
        for text in [
            "pid=42",
            "pid=",
            "pid=:42",
            "pid=4026531836:",
            "pid=4026531836:+42",
            "ns=",
            "ns=-1",
            "ns=18446744073709551616",
            "uid=0",
            "exe",
            " ",
            "ns=4026531836\nnonsense",
        ] {
            assert!(!selects_process(text, 42, "/bin/app"), "{text:?}");
        }
        let unknown = ProcessFacts { pid: 42, pid_namespace: 0, executable: b"" };
        for text in ["ns=0", "pid=0:42", "exe=*"] {
            assert!(!ProcessRules::new(text.as_bytes()).selects(&unknown), "{text:?}");
        }
    }
}
