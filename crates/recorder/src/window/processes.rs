//! Processes in /proc and in the window, and the process rules of a channel.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Error, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use trackway_abi::window::{PROCESS_ENTERING, PROCESSES_MAX};
use trackway_session::ChannelSpec;
use trackway_sys::process::{Life, life_of};
use trackway_window::Window;

use crate::error::RecordError;

/// A process rule that selects no process: no pid namespace has number 0.
const NO_PROCESS: &str = "pid=0:0";

/// Returns the process rules of a channel, in the form of `trackway_schema::ProcessRules`.
///
/// # Errors
///
/// If one of the channel's processes does not exist, or may not be examined.
pub(crate) fn rules_text(channel: &ChannelSpec) -> Result<String, RecordError> {
    let lines = channel.pids.iter().map(|&pid| pid_rule_of(pid)).collect::<Result<_, _>>()?;
    Ok(append_other_rules(channel, lines))
}

/// Returns the process rules of an existing channel, without processes that have ended.
pub(crate) fn rules_of_running(channel: &ChannelSpec) -> String {
    let lines =
        channel.pids.iter().map(|&pid| pid_rule_of(pid).unwrap_or_else(|_| NO_PROCESS.into()));
    append_other_rules(channel, lines.collect())
}

fn pid_rule_of(pid: u32) -> Result<String, RecordError> {
    let (namespace, pid) = innermost_id_of(pid)?;
    Ok(format!("pid={namespace}:{pid}"))
}

/// Returns the rules in `lines`, followed by the channel's rules that name no process ids.
fn append_other_rules(channel: &ChannelSpec, mut lines: Vec<String>) -> String {
    lines.extend(channel.executables.iter().map(|glob| format!("exe={glob}")));
    lines.extend(channel.pid_namespaces.iter().map(|namespace| format!("ns={namespace}")));
    lines.join("\n")
}

/// Returns the ids of known live processes in a window's table, in this process's pid namespace.
pub fn live_pids_in_window(window: &Window) -> BTreeSet<u32> {
    let own = trackway_sys::process::pid_namespace();
    let mut others = None;
    let here = (0..PROCESSES_MAX).filter_map(|index| {
        let who = window.identity_at(index);
        if who.pid == 0 || who.pid & PROCESS_ENTERING != 0 || life_of(&who, 0) == Life::Dead {
            return None;
        }
        if who.pid_namespace == own {
            return Some(who.pid);
        }
        // In this process's pid namespace, the process has another id.
        others
            .get_or_insert_with(inner_namespace_processes)
            .get(&(who.pid_namespace, who.pid))
            .copied()
    });
    here.collect()
}

/// Returns the files that a process has mapped executable; `None` if /proc does not show them.
pub fn mapped_executables(pid: u32) -> Option<BTreeSet<PathBuf>> {
    Some(executable_files(&fs::read(format!("/proc/{pid}/maps")).ok()?))
}

/// Returns the executable files in a text of proc_pid_maps(5).
fn executable_files(maps: &[u8]) -> BTreeSet<PathBuf> {
    let path = |line: &[u8]| {
        let mode = line.split(|&byte| byte == b' ').nth(1)?;
        let at = line.iter().position(|&byte| byte == b'/')?;
        mode.contains(&b'x').then(|| PathBuf::from(OsStr::from_bytes(&line[at..])))
    };
    maps.split(|&byte| byte == b'\n').filter_map(path).collect()
}

/// Returns the command name of a process (proc_pid_comm(5)); empty if it has ended.
pub fn command_name_of(pid: u32) -> String {
    // A process may choose any name; the name may end with a space.
    let name = read_proc(&format!("/proc/{pid}/comm")).unwrap_or_default();
    name.strip_suffix('\n').unwrap_or(&name).to_owned()
}

/// Returns the processes in inner pid namespaces, by namespace and by their id in it. Lacks
/// processes that have ended, or whose namespace this process cannot see.
pub(crate) fn inner_namespace_processes() -> BTreeMap<(u64, u32), u32> {
    let own = trackway_sys::process::pid_namespace();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let known = pids.filter_map(|pid| Some((innermost_id_of(pid).ok()?, pid)));
    known.filter(|((namespace, _), _)| *namespace != own).collect()
}

/// Returns the innermost pid namespace of a process, and its id in that namespace.
pub(crate) fn innermost_id_of(pid: u32) -> Result<(u64, u32), RecordError> {
    let folder = format!("/proc/{pid}");
    let fail = || RecordError::io("look at process", pid.to_string());
    let namespace = fs::metadata(format!("{folder}/ns/pid")).map_err(fail())?.ino();
    let status = read_proc(&format!("{folder}/status")).map_err(fail())?;
    // One id for each namespace, the innermost last: proc_pid_status(5).
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let id = ids.and_then(|ids| ids.split_whitespace().last()?.parse().ok());
    let id = id.ok_or_else(|| fail()(Error::from(ErrorKind::InvalidData)))?;
    Ok((namespace, id))
}

/// Reads a file of proc(5). Names in it may contain any bytes: invalid UTF-8 becomes U+FFFD.
///
/// # Errors
///
/// If the file cannot be read, for example because the process has ended.
pub(crate) fn read_proc(path: &str) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_whatever_it_calls_itself() {
        let named = std::thread::spawn(|| {
            fs::write("/proc/thread-self/comm", b"e\xff\x9bvil").expect("a name");
            let status = fs::read("/proc/thread-self/status").expect("a status");
            assert!(String::from_utf8(status).is_err(), "the name is not UTF-8");
            let thread = fs::read_link("/proc/thread-self").expect("a link");
            innermost_id_of(thread.file_name()?.to_str()?.parse().ok()?).ok()
        });
        let (namespace, _) = named.join().expect("it ends").expect("it is found");
        assert_eq!(namespace, trackway_sys::process::pid_namespace());
    }

    #[test]
    fn mapped_files_are_those_with_code() {
        let maps = b"\
5581-5582 r--p 00000000 00:19 21 /bin/app\n\
5582-5583 r-xp 00001000 00:19 21 /bin/my app\n\
5583-5584 r-xp 00001000 00:19 22 /bin/\xff\n\
7f00-7f01 r-xp 00000000 00:00 0 [vdso]\n\
7f01-7f02 rw-p 00000000 00:00 0 \n";
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        assert_eq!(
            executable_files(maps),
            BTreeSet::from([b"/bin/my app".as_slice(), b"/bin/\xff"].map(path))
        );
    }

    #[test]
    fn a_process_is_known_by_what_it_knows_itself() {
        let own = std::process::id();
        let channel = ChannelSpec {
            pids: vec![own],
            executables: vec!["nginx".into()],
            pid_namespaces: vec![7],
            ..ChannelSpec::default()
        };
        let namespace = fs::metadata("/proc/self/ns/pid").expect("a namespace").ino();
        let text = rules_text(&channel).expect("rules");
        assert_eq!(text, format!("pid={namespace}:{own}\nexe=nginx\nns=7"));
        let nobody = ChannelSpec { pids: vec![u32::MAX >> 1], ..ChannelSpec::default() };
        assert!(rules_text(&nobody).is_err_and(|error| error.to_string().contains("process")));
        assert_eq!(rules_of_running(&channel), text);
        assert_eq!(rules_of_running(&nobody), NO_PROCESS);
    }
}
