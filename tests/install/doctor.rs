//! `trackway doctor`: its report for environments in which recording works, works partly, or does
//! not work. If it reports that recording works, `trackway record` must start its command;
//! otherwise it must not.
//!
//! Mounts are made in private namespaces of child processes and end with them.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{
    Fixture, build_dir, copy_program, has, is_root, report_skipped, skip_if_lockless, source_dir,
};

/// A report of `trackway doctor`.
struct DoctorReport {
    /// True if the exit status of doctor was 0.
    is_success: bool,
    /// The complete report as JSON.
    json: serde_json::Value,
}

impl DoctorReport {
    /// Runs doctor in `fixture`, by `sh` after the commands `setup`. Also runs `trackway record`
    /// there: the exit statuses must agree.
    fn with_record(fixture: &Fixture, wrapper: &[&str], setup: &str) -> Self {
        let report = Self::only(fixture, wrapper, setup);
        let trace = fixture.path("trace-of-doctor");
        let mut record = command_after_setup(fixture, wrapper, setup, &["record", "-o"]);
        let record = record.arg(&trace).args(["--", "true"]).output().expect("sh runs");
        let talk = String::from_utf8_lossy(&record.stderr);
        let works = record.status.code() == Some(0);
        assert!(works || record.status.code() == Some(125), "{:?}: {talk}", record.status);
        assert_eq!(report.is_success, works, "{}\n{talk}", report.json);
        let _ = fs::remove_dir_all(trace);
        report
    }

    /// Runs doctor only, without a recording.
    fn only(fixture: &Fixture, wrapper: &[&str], setup: &str) -> Self {
        let mut doctor =
            command_after_setup(fixture, wrapper, setup, &["doctor", "--format", "json"]);
        let output = doctor.output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let is_success = output.status.code() == Some(0);
        assert!(is_success || output.status.code() == Some(1), "{:?}", output.status);
        assert_eq!(json["recording"], is_success, "{json}");
        Self { is_success, json }
    }

    /// Runs doctor in the unchanged `fixture`.
    fn of(fixture: &Fixture) -> Self {
        Self::with_record(fixture, &[], "")
    }

    fn check(&self, name: &str) -> &serde_json::Value {
        let checks = self.json["checks"].as_array().expect("checks");
        checks.iter().find(|check| check["name"] == name).expect("a check of that name")
    }

    /// Asserts a check's result, and parts of its fact and its hint.
    fn assert_check(&self, name: &str, result: &str, fact: &str, hint: &str) {
        let check = self.check(name);
        let has = |key: &str, text: &str| check[key].as_str().unwrap_or_default().contains(text);
        assert!(check["result"] == result && has("fact", fact) && has("hint", hint), "{check}");
    }
}

/// Returns `trackway VERB…` in `fixture`, by a shell, through `wrapper` and after the commands
/// `setup`.
fn command_after_setup(fixture: &Fixture, wrapper: &[&str], setup: &str, verb: &[&str]) -> Command {
    let trackway = fixture.trackway(verb);
    let script = format!("{setup}\nexec \"$@\"");
    let mut words = wrapper.iter().copied().chain(["sh", "-ec", &script, "sh"]);
    let mut command = fixture.command(words.next().expect("a word"));
    command.args(words).arg(trackway.get_program()).args(trackway.get_args());
    command
}

/// Returns the command that runs another command in a separate mount namespace; `None`, after
/// printing the reason, if that is impossible.
fn mount_namespace_wrapper() -> Option<&'static [&'static str]> {
    let wrapper: &[&str] = if is_root() { &["unshare", "-m"] } else { &["unshare", "-r", "-m"] };
    let probe = Command::new(wrapper[0]).args(&wrapper[1..]).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        report_skipped("mount namespaces cannot be made here");
        return None;
    }
    Some(wrapper)
}

/// Runs doctor with a tmpfs with these options as the window's folder; returns its report.
fn run_doctor_on_tmpfs(fixture: &Fixture, options: &str) -> Option<DoctorReport> {
    let mount = format!("mount -t tmpfs -o {options} trackway-test \"$TRACKWAY_WINDOW_DIR\"");
    Some(DoctorReport::with_record(fixture, mount_namespace_wrapper()?, &mount))
}

fn window_path(fixture: &Fixture) -> PathBuf {
    let mut entries = fs::read_dir(fixture.window_dir()).expect("the folder");
    entries.next().expect("a window").expect("its entry").path()
}

/// Makes a window by a first recording.
fn create_window(fixture: &Fixture) -> PathBuf {
    let recording = fixture.record(&[], &["true"]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    window_path(fixture)
}

#[test]
fn where_recording_works_everything_that_it_needs_is_good() {
    let fixture = Fixture::new("doctor");
    let report = DoctorReport::only(&fixture, &[], "");
    assert!(report.is_success, "{}", report.json);
    report.assert_check("window", "good", "none yet", "");
    report.assert_check("recordings", "good", "none under way", "");
    let built = build_dir().canonicalize().expect("what was built");
    report.assert_check("library", "good", built.to_str().expect("a path of text"), "");
    report.assert_check("helpers", "good", "libc, pthread, dl, fd, fork", "");
    let made = fs::read_dir(fixture.window_dir()).expect("the folder").count();
    assert_eq!(made, 0, "doctor changes nothing");

    let window = create_window(&fixture);
    let report = DoctorReport::of(&fixture);
    report.assert_check("window", "good", window.to_str().expect("a path of text"), "");
    for check in report.json["checks"].as_array().expect("checks") {
        assert_eq!(check["hint"].is_null(), check["result"] == "good", "{check}");
    }
}

#[test]
fn the_report_is_a_table_in_colour_only_where_somebody_sees_it() {
    let fixture = Fixture::new("doctor-text");
    let doctor = || fixture.trackway(&["doctor"]);
    let output = doctor().output().expect("trackway runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.ends_with("\n\nrecording works here\n"), "{text}");
    let column = text.find("good").expect("a result");
    for line in text.lines().take_while(|line| !line.is_empty()) {
        let of_hint = line.trim_start().starts_with("hint: ");
        let word = line[column..].split(' ').next().expect("a word");
        assert!(of_hint || ["good", "limited", "missing"].contains(&word), "{line}");
    }
    if !has("script") {
        return report_skipped("script is not installed, which is a terminal");
    }
    let on_terminal = |no_colour: &str| {
        let command = format!("{} doctor", build_dir().join("trackway").display());
        let mut script = fixture.command("script");
        script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm");
        let output = script.env("NO_COLOR", no_colour).output().expect("script runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(on_terminal("").contains("\x1b[32mgood\x1b[0m"), "{}", on_terminal(""));
    assert!(!on_terminal("1").contains('\x1b'), "{}", on_terminal("1"));
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let fixture = Fixture::new("doctor-nowhere");
    let setup = "export TRACKWAY_WINDOW_DIR=/no/such/folder";
    let report = DoctorReport::with_record(&fixture, &[], setup);
    report.assert_check("window", "missing", "/no/such/folder", "unset TRACKWAY_WINDOW_DIR");
}

#[test]
fn a_read_only_file_system_is_said() {
    let fixture = Fixture::new("doctor-read-only");
    let Some(report) = run_doctor_on_tmpfs(&fixture, "ro") else { return };
    report.assert_check("window", "missing", "read-only", "remount,rw");
}

#[test]
fn a_small_file_system_is_measured_by_what_recording_needs() {
    if skip_if_lockless("all memory must be there from the start") {
        return;
    }
    let fixture = Fixture::new("doctor-small");
    let Some(report) = run_doctor_on_tmpfs(&fixture, "size=1M") else { return };
    report.assert_check("window", "missing", "no room", "remount,size=");
    // The size has room for a window and nothing else.
    let Some(report) = run_doctor_on_tmpfs(&fixture, "size=2300k") else { return };
    report.assert_check("window", "good", "none yet", "");
    report.assert_check("memory", "missing", "KiB for buffers", "remount,size=");
    // The size is more than a recording needs, and less than it would use: that depends on the
    // CPUs.
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    if cpus > 64 {
        return report_skipped("so many CPUs begin with little memory each");
    }
    let Some(report) = run_doctor_on_tmpfs(&fixture, &format!("size={}k", 2048 + 256 + 512 * cpus))
    else {
        return;
    };
    report.assert_check("memory", "limited", "for buffers", "remount,size=");
}

#[test]
fn limits_of_the_process_are_said() {
    let fixture = Fixture::new("doctor-limits");
    let report = DoctorReport::with_record(&fixture, &[], "ulimit -f 1000");
    report.assert_check("window", "missing", "2.0 MiB", "ulimit -f");
    report.assert_check("memory", "missing", "files' length", "ulimit -f");
    let report = DoctorReport::with_record(&fixture, &[], "ulimit -v 4000000");
    report.assert_check("memory", "limited", "address space is limited to 3.8 GiB", "ulimit -v");
}

#[test]
fn windows_that_cannot_be_used_are_told_from_those_that_are_replaced() {
    let fixture = Fixture::new("doctor-windows");
    let window = create_window(&fixture);
    let set_mode = |mode| {
        fs::set_permissions(&window, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    set_mode(0o644);
    DoctorReport::of(&fixture).assert_check("window", "missing", "mode 644", "chmod 600");
    set_mode(0o600);

    // The next recording sets the damaged window aside; later checks report the file as a leftover.
    let file = fs::OpenOptions::new().write(true).mode(0o600).open(&window).expect("the window");
    file.set_len(4096).expect("it is shorter");
    let report = DoctorReport::of(&fixture);
    report.assert_check("window", "limited", "truncated", "puts it aside");
    report.assert_check("leftovers", "good", "", "");
    let report = DoctorReport::of(&fixture);
    report.assert_check("window", "good", "", "");
    report.assert_check("leftovers", "limited", ".unusable-", "rm ");
}

#[test]
fn remains_of_a_killed_recorder_are_listed_until_recovery() {
    let fixture = Fixture::new("doctor-killed");
    let killed = fixture.record(&[], &["sh", "-c", "kill -9 $PPID"]);
    assert_eq!(killed.output.status.code(), None, "{:?}", killed.output);
    let trace = killed.trace.to_str().expect("a path of text");
    DoctorReport::only(&fixture, &[], "").assert_check(
        "recordings",
        "limited",
        trace,
        "trackway recover",
    );
    let recovered = fixture.trackway(&["recover"]).output().expect("trackway runs");
    assert!(recovered.status.success(), "{recovered:?}");
    DoctorReport::only(&fixture, &[], "").assert_check("recordings", "good", "none under way", "");
}

/// RUN doctor with TRACKWAY_RUN_DIR, which every fixture sets: missing, present, in a read-only
/// folder, open to others. EXPECT the run folder, and a hint.
#[test]
fn sockets_are_where_the_environment_says() {
    let fixture = Fixture::new("doctor-run-dir");
    let report = |setup: &str| DoctorReport::only(&fixture, &[], setup);
    let folder = fixture.run_dir().display().to_string();
    report("").assert_check("sessions", "good", &format!("in {folder} (TRACKWAY_RUN_DIR)"), "");
    report("mkdir -m 700 $TRACKWAY_RUN_DIR").assert_check("sessions", "good", &folder, "");
    report("chmod 755 $TRACKWAY_RUN_DIR").assert_check(
        "sessions",
        "missing",
        &folder,
        "chmod 700 ",
    );
    let nowhere = "export TRACKWAY_RUN_DIR=/nothing/here";
    report(nowhere).assert_check(
        "sessions",
        "missing",
        "/nothing/here",
        "TRACKWAY_RUN_DIR name another",
    );
}

#[test]
fn sequences_that_are_switched_off_are_explained() {
    let fixture = Fixture::new("doctor-sequences");
    let before = DoctorReport::only(&fixture, &[], "");
    if before.check("sequences")["result"] != "good" {
        return report_skipped("restartable sequences do not work here anyway");
    }
    let setup = "export GLIBC_TUNABLES=glibc.pthread.rseq=0";
    let report = DoctorReport::with_record(&fixture, &[], setup);
    report.assert_check("sequences", "limited", "go by claim", "GLIBC_TUNABLES");
}

#[test]
fn without_proc_there_is_no_recording() {
    if !is_root() {
        return report_skipped("not root: /proc stays where it is");
    }
    let fixture = Fixture::new("doctor-proc");
    let Some(wrapper) = mount_namespace_wrapper() else { return };
    let report = DoctorReport::with_record(&fixture, wrapper, "umount -l /proc");
    report.assert_check("proc", "missing", "/proc", "mount -t proc");
}

/// The folder contains copies of the programs, without the preload helpers and the library.
#[test]
fn a_library_that_is_not_installed_is_missing() {
    let fixture = Fixture::new("doctor-library");
    let bin = fixture.path("bin");
    fs::create_dir(&bin).expect("a folder");
    copy_program(&build_dir().join("trackway"), &bin.join("trackway"));
    let doctor = |bin: &Path| {
        let mut command = fixture.command(bin.join("trackway"));
        command.args(["doctor", "--format", "json"]).output().expect("trackway runs")
    };
    let output = doctor(&bin);
    assert_eq!(output.status.code(), Some(1));
    let json = serde_json::from_slice(&output.stdout).expect("JSON");
    let report = DoctorReport { is_success: false, json };
    report.assert_check("library", "missing", "libtrackway.so", "beside the trackway command");
    report.assert_check("helpers", "missing", "libc, pthread", "make install");

    fs::copy(build_dir().join("libtrackway.so"), bin.join("libtrackway.so")).expect("a copy");
    assert_eq!(doctor(&bin).status.code(), Some(0), "helpers are not needed");
}

/// The unit as installed by `make install`, with an existing command.
#[test]
fn the_unit_for_systemd_is_sound() {
    const NAME: &str = "trackway-session@.service";
    if !has("systemd-analyze") {
        return report_skipped("systemd-analyze is not installed");
    }
    let fixture = Fixture::new("doctor-unit");
    let bin = fixture.path("bin");
    fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink(build_dir().join("trackway"), bin.join("trackway")).expect("a link");
    let text = fs::read_to_string(source_dir().join("packaging/systemd").join(NAME));
    let text = text.expect("the unit");
    let prefix = fixture.path("");
    let prefix = prefix.to_str().expect("a path of text").trim_end_matches('/');
    let verify = |manager: &str, text: &str| {
        let unit = fixture.path("trackway-session@web.service");
        fs::write(&unit, text.replace("@PREFIX@", prefix)).expect("a file");
        let mut analyze = fixture.command("systemd-analyze");
        analyze.args(["verify", "--man=no", manager]).arg(unit);
        // The managers of users need to find their run folder.
        let output = analyze.env("XDG_RUNTIME_DIR", &bin).output().expect("systemd-analyze runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for manager in ["--system", "--user"] {
        let (is_sound, talk) = verify(manager, &text);
        if talk.contains("Failed to initialize manager") {
            return report_skipped("systemd-analyze needs what is not here");
        }
        assert!(is_sound && talk.is_empty(), "{manager}: {talk}");
        // The changed unit proves that systemd-analyze reports faults.
        let (_, talk) = verify(manager, &text.replace("Type=notify", "Type=other"));
        assert!(talk.contains("service type"), "{manager}: {talk}");
        let (is_sound, talk) = verify(manager, &text.replace("bin/trackway", "bin/other"));
        assert!(!is_sound && talk.contains("bin/other"), "{manager}: {talk}");
    }
}
