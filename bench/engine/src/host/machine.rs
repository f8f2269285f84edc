//! Description of the machine: figures of different machines cannot be compared.

use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use object::Object as _;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::host::child;

/// A machine, and its installed software.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Name of the processor.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// True if the machine is virtual; figures of virtual machines drift.
    pub is_virtual: bool,
    /// The kernel's clock source.
    pub clocksource: String,
    /// Version of the C library.
    pub libc: String,
    /// Version of the C compiler.
    pub compiler: String,
    /// Version of Trackway.
    pub trackway: String,
    /// Version of LTTng's tools, if installed.
    pub lttng_tools: Option<String>,
    /// Version of LTTng-UST, if known.
    pub lttng_ust: Option<String>,
    /// Load average of the last minute when the bench began.
    pub load: String,
}

impl Machine {
    /// Returns the description of this machine.
    pub fn current() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let clocksource = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        Self {
            kernel: read_trimmed("/proc/sys/kernel/osrelease"),
            cpu: find_value(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            is_virtual: find_value(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            clocksource: read_trimmed(clocksource),
            libc: libc_version(),
            compiler: first_output_line("cc", &["--version"]).unwrap_or_default(),
            trackway: env!("CARGO_PKG_VERSION").to_owned(),
            lttng_tools: first_output_line("lttng", &["--version"])
                .and_then(|line| line.split(' ').find(|word| is_version(word)).map(str::to_owned)),
            lttng_ust: first_output_line("pkg-config", &["--modversion", "lttng-ust"]),
            load: read_trimmed("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the description of the machine for the head of the report.
    pub fn words(&self) -> String {
        let kind = if self.is_virtual { "virtual machine, " } else { "" };
        let lttng = self.lttng_tools.as_ref().map_or(String::new(), |tools| {
            let ust = self.lttng_ust.as_ref().map_or(String::new(), |ust| format!(", UST {ust}"));
            format!(", LTTng {tools}{ust}")
        });
        format!(
            "{}, {} CPUs, {kind}load {}\nLinux {}, clock source {}, {}, {}\nTrackway {}{lttng}\n",
            self.cpu,
            self.cpus,
            self.load,
            self.kernel,
            self.clocksource,
            self.libc,
            self.compiler,
            self.trackway
        )
    }
}

fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Returns the value of the first line `name : value`.
fn find_value<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// Returns the first line that a program prints, if it runs and succeeds.
pub fn first_output_line(program: &str, arguments: &[&str]) -> Option<String> {
    /// Longest time that a program may take to print its version, in seconds.
    const LIMIT_S: u64 = 10;
    first_output_line_within(LIMIT_S, program, arguments)
}

fn first_output_line_within(limit_s: u64, program: &str, arguments: &[&str]) -> Option<String> {
    let finished = child::run_for(Command::new(program).args(arguments), program, limit_s).ok()?;
    finished.stdout.lines().next().map(str::to_owned)
}

/// Returns the build id of an executable or a library, which the linker derives from its content.
pub fn read_build_id(file: &Path) -> Option<String> {
    let bytes = fs::read(file).ok()?;
    let object = object::File::parse(&*bytes).ok()?;
    let id = object.build_id().ok()??;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the CPUs that this process may use, in the order of their numbers.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    // SAFETY: all-zero bytes are a valid, empty set.
    let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: `set` has the stated size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(Error::io("cannot ask for our CPUs")(std::io::Error::last_os_error()));
    }
    let size = 8 * size_of_val(&set);
    // SAFETY: `set` is a set, and the numbers are within it.
    Ok((0..size).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

fn is_version(word: &str) -> bool {
    word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(target_env = "gnu")]
fn libc_version() -> String {
    // SAFETY: it returns a constant string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn libc_version() -> String {
    let _: Option<&CStr> = None;
    "another C library".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_versions_are_found() {
        let text = "processor\t: 0\nmodel name\t: A CPU: fast\nflags\t\t: a hypervisor b\n";
        assert_eq!(find_value(text, "model name"), Some("A CPU: fast"));
        assert_eq!(find_value(text, "absent"), None);
        assert!(is_version("2.13.9") && !is_version("lttng") && !is_version("..."));
    }

    #[test]
    fn a_program_that_hangs_says_no_version() {
        let said = |script| first_output_line_within(1, "sh", &["-c", script]);
        assert_eq!(said("echo 1.2; echo more").as_deref(), Some("1.2"));
        assert_eq!(said("echo 1.2; exit 1"), None);
        assert_eq!(said("echo 1.2; exec sleep 600"), None);
    }

    #[test]
    fn builds_are_told_by_what_is_in_them() {
        assert_eq!(read_build_id(Path::new("/proc/version")), None);
        assert_eq!(read_build_id(Path::new("/nonexistent")), None);
        // A linker may be configured to write no id.
        let own = read_build_id(Path::new("/proc/self/exe"));
        assert!(own.is_none_or(|id| id.len() >= 16 && id.bytes().all(|it| it.is_ascii_hexdigit())));
    }

    #[test]
    fn the_head_names_what_is_installed() {
        let machine = Machine {
            cpu: "A CPU".to_owned(),
            cpus: 2,
            is_virtual: true,
            lttng_tools: Some("2.13.9".to_owned()),
            trackway: "0.1.0".to_owned(),
            ..Machine::default()
        };
        assert!(machine.words().starts_with("A CPU, 2 CPUs, virtual machine, load"));
        assert!(machine.words().ends_with("Trackway 0.1.0, LTTng 2.13.9\n"));
    }
}
