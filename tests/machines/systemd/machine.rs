//! A machine with a real systemd, which runs this machine's own programs in namespaces
//! (`machine.sh`), with the files that `make install` installs.
//!
//! Main invariant: the machine exists as long as the pipe that this process holds, so that nothing
//! of it remains when the test ends, fails, or is killed. The machine is never shut down but always
//! cut off: a test of a clean end must request it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, Weak};

use trackway_tests::steps::wait_for;
use trackway_tests::{Fixture, build_dir, has, is_root, report_skipped, source_dir};

/// Programs that a machine consists of, or that make it.
const NEEDED_PROGRAMS: [&str; 7] =
    ["bash", "cc", "dbus-daemon", "make", "nsenter", "setpriv", "unshare"];
/// Files of systemd and PAM that a machine needs.
const SYSTEMD_FILES: [&str; 2] = ["/usr/lib/systemd/systemd", "/usr/share/pam-configs/systemd"];
/// Longest time of a command in the machine, in seconds.
const COMMAND_SECONDS_MAX: &str = "60";

/// The recorded program: `myapp count N` emits N events with the numbers from 0, `myapp serve`
/// emits events until it is ended.
const MYAPP_SOURCE: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <trackway/trackway.h>
#include <unistd.h>
TRACKWAY_EVENT(myapp, request, TRACKWAY_INFO, (u32, number));
int main(int count, char **arguments)
{
    const unsigned long until = count == 3 ? strtoul(arguments[2], NULL, 10) : -1ul;
    for (unsigned long i = 0; i < until; i++) {
        trackway(myapp, request, (unsigned)i);
        if (count != 3) usleep(500);
    }
    return 0;
}
"#;

/// Returns the reason if a machine is impossible here.
fn missing_prerequisite() -> Option<String> {
    if !is_root() {
        return Some("not root: systemd needs namespaces".into());
    }
    if let Some(program) = NEEDED_PROGRAMS.into_iter().find(|program| !has(program)) {
        return Some(format!("{program} is not installed"));
    }
    if let Some(file) = SYSTEMD_FILES.into_iter().find(|file| !Path::new(file).exists()) {
        return Some(format!("{file} is not installed"));
    }
    if !Path::new("/bin").is_symlink() {
        return Some("/bin is no link: systemd's machine is made of /usr alone".into());
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--net", "sh", "-c"]);
    unshare.arg(
        "mount --make-rprivate / && mount -t tmpfs place /mnt && mknod /mnt/null c 1 3 && \
         mkdir /mnt/groups && mount -t cgroup2 groups /mnt/groups && test -w /mnt/groups",
    );
    match unshare.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => None,
        _ => Some("systemd needs namespaces and control groups, which are not to be had".into()),
    }
}

/// The installed files that all machines share.
struct SharedFiles {
    fixture: Fixture,
}

impl SharedFiles {
    fn get() -> Arc<Self> {
        static LAST: Mutex<Weak<SharedFiles>> = Mutex::new(Weak::new());
        let mut last = LAST.lock().expect("it was installed the last time, too");
        if let Some(installed) = last.upgrade() {
            return installed;
        }
        let fixture = Fixture::new("systemd-installed");
        let mut make = Command::new("make");
        // The files that were already built are installed without another build.
        make.args(["--no-print-directory", "-o", "build", "install"]).current_dir(source_dir());
        make.arg(format!("DESTDIR={}", fixture.path("").display()));
        make.arg(format!("BUILD={}", build_dir().display()));
        let output = make.output().expect("make runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let program = fixture.compile("myapp", MYAPP_SOURCE, true, &["-Wl,-rpath,/usr/local/lib"]);
        let there = fixture.path("usr/local/bin/myapp");
        fs::copy(program, there).expect("the program is installed");
        let installed = Arc::new(Self { fixture });
        *last = Arc::downgrade(&installed);
        installed
    }
}

/// A machine with systemd.
pub(crate) struct Machine {
    keeper: Child,
    /// Process id of the machine's systemd, outside the machine.
    pid: u32,
    messages: PathBuf,
    _installed: Arc<SharedFiles>,
    _fixture: Fixture,
}

impl Machine {
    /// Starts a machine; returns `None`, after printing the reason, if that is impossible.
    pub(crate) fn start(name: &str) -> Option<Self> {
        if let Some(because) = missing_prerequisite() {
            report_skipped(&because);
            return None;
        }
        let installed = SharedFiles::get();
        let fixture = Fixture::new(&format!("systemd-{name}"));
        let root = fixture.path("root");
        fs::create_dir(&root).expect("a folder");
        let messages = fixture.path("messages");
        let group = fixture.path("").file_name().expect("a name").to_owned();
        let mut keeper = Command::new("unshare");
        keeper
            .args(["--mount", "--cgroup", "bash"])
            .arg(source_dir().join("tests/machines/systemd/machine.sh"));
        keeper.arg(&root).arg(installed.fixture.path("usr/local")).arg(group);
        // The keeper has its own process group: a signal to this process's group does not reach it,
        // and it ends by itself.
        keeper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        keeper.stderr(fs::File::create(&messages).expect("a file"));
        let mut keeper = keeper.spawn().expect("unshare runs");
        let mut line = String::new();
        let read = BufReader::new(keeper.stdout.take().expect("a pipe")).read_line(&mut line);
        read.expect("a line");
        let pid = line.trim().parse();
        let talk = || fs::read_to_string(&messages).unwrap_or_default();
        let pid = pid.unwrap_or_else(|_| panic!("no machine: {}", talk()));
        let machine = Self { keeper, pid, messages, _installed: installed, _fixture: fixture };
        wait_for("systemd", || machine.run("systemctl is-active default.target").status.success());
        Some(machine)
    }

    /// Returns a command that runs a command line in the machine, as root. Its process belongs to
    /// none of the machine's services.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args([
            "--signal=KILL",
            COMMAND_SECONDS_MAX,
            "nsenter",
            "--target",
            &self.pid.to_string(),
        ]);
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root"]);
        command.args(["--wd", "env", "-i", "HOME=/root", "PAGER=", "SYSTEMD_COLORS=0"]);
        command.arg("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.args(["sh", "-e", "-c", script]).stdin(Stdio::null());
        command
    }

    /// Runs a command line and returns its output.
    pub(crate) fn run(&self, script: &str) -> Output {
        self.command(script).output().expect("nsenter runs")
    }

    /// Runs a command line, which must succeed, and returns its standard output.
    pub(crate) fn ok(&self, script: &str) -> String {
        let output = self.run(script);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (text, talk) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{script}\n{text}{talk}");
        text
    }

    /// Runs a command line, which must fail, and returns its messages.
    pub(crate) fn fails(&self, script: &str) -> String {
        let output = self.run(script);
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{script}\n{talk}");
        talk
    }

    /// Returns all output of the machine so far, for the message of a failed test.
    fn log(&self) -> String {
        let journal = self.run("journalctl --no-pager -o short-monotonic");
        let messages = fs::read_to_string(&self.messages).unwrap_or_default();
        format!("{}{messages}", String::from_utf8_lossy(&journal.stdout))
    }

    /// Waits until a command line succeeds.
    pub(crate) fn wait(&self, script: &str) {
        wait_for(script, || self.run(script).status.success());
    }

    /// Writes the configuration file of a session.
    pub(crate) fn session(&self, name: &str, toml: &str) {
        self.ok(&format!(
            "mkdir -p /etc/trackway; cat >/etc/trackway/{name}.toml <<'E'\n{toml}E\n"
        ));
    }

    /// Makes a service with these lines. Recorded programs run as services.
    pub(crate) fn service(&self, name: &str, lines: &str) {
        self.ok(&format!(
            "cat >/etc/systemd/system/{name}.service <<'E'\n{lines}E\nsystemctl daemon-reload"
        ));
    }

    /// Returns a property of a unit.
    pub(crate) fn property(&self, unit: &str, name: &str) -> String {
        self.ok(&format!("systemctl show --value --property {name} {unit}")).trim().to_owned()
    }

    /// Returns the numbers of a trace's events, in order.
    pub(crate) fn numbers(&self, trace: &str) -> Vec<u32> {
        let text = self.ok(&format!("trackway print {trace}"));
        let number = |line: &str| {
            let (_, fields) = line.split_once("myapp:request: ")?;
            fields.split_once("number = ")?.1.split_once(' ')?.0.parse().ok()
        };
        text.lines().map(|line| number(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }

    /// Returns the number of events that a session has recorded; 0 if there is no such session.
    pub(crate) fn recorded(&self, session: &str) -> u64 {
        let output = self.run(&format!("trackway session status {session} --format json"));
        let status = serde_json::from_slice::<serde_json::Value>(&output.stdout);
        status.ok().and_then(|status| status["counts"]["recorded"].as_u64()).unwrap_or(0)
    }

    /// Waits until a session has recorded `more` further events.
    pub(crate) fn wait_more(&self, session: &str, more: u64) {
        let before = self.recorded(session);
        wait_for("events", || self.recorded(session) >= before + more);
    }

    /// Starts systemd-logind.
    pub(crate) fn has_logins(&self) {
        self.ok("systemctl start dbus.service systemd-logind.service");
    }

    /// Runs a command line as the user alice, between login and logout.
    pub(crate) fn logs_in(&self, script: &str) -> String {
        self.ok(&format!(
            "systemd-run --quiet --wait --pipe --property PAMName=login --property User=alice \
             --property WorkingDirectory=/home/alice sh -e <<'E'\n{script}\nE\n"
        ))
    }

    /// Waits until no user is logged in and systemd has removed the last user's files.
    pub(crate) fn wait_logged_out(&self) {
        self.wait("test -z \"$(loginctl list-users --no-legend)\" && test ! -e /run/user/2000");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let is_failing = std::thread::panicking();
        if is_failing {
            // The log is printed where the failure itself is reported.
            eprintln!("{}", self.log());
        }
        // Closes the keeper's standard input, as if this process had been killed.
        drop(self.keeper.stdin.take());
        // The keeper's status reports whether everything is gone: a control group ends only after
        // its processes.
        let status = self.keeper.wait();
        assert!(is_failing || status.is_ok_and(|status| status.success()), "something is left");
    }
}
