//! The unit `trackway-session@.service`: a real systemd starts, uses, kills and stops it, for the
//! system and for a user who logs in and out. Every test has a separate machine.

mod machine;

use machine::Machine;

/// The unit of session web, and the folder of its traces.
const WEB_UNIT: &str = "trackway-session@web.service";
const TRACES_FOLDER: &str = "/var/lib/trackway";
/// Configuration of the session: the events that it records.
const SESSION_CONFIG: &str = "[[channel]]\non = [\"myapp:*\"]\n";

/// Returns the traces of session web in a folder, the oldest first.
fn list_traces(machine: &Machine, folder: &str) -> Vec<String> {
    let listed = machine.ok(&format!("ls -d {folder}/trackway-web-*"));
    listed.lines().map(str::to_owned).collect()
}

/// RUN enable --now; a service that is ordered after the session, as soon as systemd starts it;
/// stop; and enable again. EXPECT every event of the service, the summary once in the journal, and
/// that the session starts with the machine.
#[test]
fn a_session_records_from_its_start_to_its_stop_and_comes_with_the_machine() {
    let Some(machine) = Machine::start("unit") else { return };
    machine.session("web", SESSION_CONFIG);
    let after = format!("[Unit]\nAfter={WEB_UNIT}\n[Service]\nType=oneshot\n");
    machine.service("app", &format!("{after}ExecStart=/usr/local/bin/myapp count 1000\n"));
    machine.ok(&format!("systemctl enable {WEB_UNIT}; systemctl start {WEB_UNIT} app"));
    assert_eq!(machine.property(WEB_UNIT, "ActiveState"), "active");
    let status = machine.property(WEB_UNIT, "StatusText");
    assert!(status.starts_with(&format!("session web records into {TRACES_FOLDER}/")), "{status}");
    assert!(machine.ok("trackway doctor; true").contains("systemd can start them"));
    // The unit's restrictions are in effect.
    let recorder = machine.property(WEB_UNIT, "MainPID");
    machine.ok(&format!("grep -q 'NoNewPrivs:.1' /proc/{recorder}/status"));
    machine.ok(&format!("grep -q 'Seccomp:.2' /proc/{recorder}/status"));
    machine.ok(&format!("systemctl stop {WEB_UNIT}"));
    assert_eq!(machine.property(WEB_UNIT, "Result"), "success");
    let first = list_traces(&machine, TRACES_FOLDER);
    assert_eq!(first.len(), 1);
    assert_eq!(machine.numbers(&first[0]), (0..1000).collect::<Vec<_>>());
    assert_eq!(machine.ok(&format!("stat -c %a {TRACES_FOLDER} {}", first[0])), "700\n700\n");
    let summary = "1,000 events recorded, 0 lost, 1 process";
    let journal = || machine.ok(&format!("journalctl --no-pager -o cat -u {WEB_UNIT}"));
    trackway_tests::steps::wait_for("the journal", || journal().contains(summary));
    assert_eq!(journal().matches(summary).count(), 1, "{}", journal());
    // Isolating the target repeats the start of the machine.
    machine.ok("systemctl isolate bare.target; systemctl default");
    machine.wait(&format!("systemctl is-active {WEB_UNIT}"));
    machine.ok(&format!("myapp count 10; trackway session destroy web; test -d {TRACES_FOLDER}"));
    machine.wait(&format!("systemctl show -p ActiveState {WEB_UNIT} | grep -q inactive"));
    assert_eq!(machine.property(WEB_UNIT, "Result"), "success", "ended by hand");
    let second = list_traces(&machine, TRACES_FOLDER);
    assert_eq!((second.len(), &second[0]), (2, &first[0]));
    assert_eq!(machine.numbers(&second[1]).len(), 10);
}

/// RUN a program without an end; kill -9 of the recorder. EXPECT another recorder, a complete first
/// trace up to the kill, and a second trace from then on.
#[test]
fn a_killed_recorder_comes_back_and_what_it_had_in_memory_is_written() {
    let Some(machine) = Machine::start("killed") else { return };
    machine.session("web", SESSION_CONFIG);
    machine.service("app", "[Service]\nExecStart=/usr/local/bin/myapp serve\n");
    machine.ok(&format!("systemctl start {WEB_UNIT}; systemctl start app"));
    machine.wait_more("web", 100);
    let recorder = machine.property(WEB_UNIT, "MainPID");
    let before = machine.recorded("web");
    machine.ok(&format!("systemctl kill --signal=KILL {WEB_UNIT}"));
    machine.wait(&format!("systemctl show -p NRestarts {WEB_UNIT} | grep -q =1"));
    machine.wait(&format!("systemctl is-active {WEB_UNIT}"));
    assert_ne!(machine.property(WEB_UNIT, "MainPID"), recorder);
    machine.wait_more("web", 100);
    machine.ok(&format!("systemctl stop app {WEB_UNIT}"));
    let traces = list_traces(&machine, TRACES_FOLDER);
    assert_eq!(traces.len(), 2);
    let [first, second] = [&traces[0], &traces[1]].map(|trace| machine.numbers(trace));
    let last = *first.last().expect("events");
    assert_eq!(first, (0..=last).collect::<Vec<_>>());
    assert!(u64::from(last) + 1 >= before && second.len() >= 100);
    assert!(second[0] > last, "each event once");
    assert_eq!(second, (second[0]..=*second.last().expect("events")).collect::<Vec<_>>());
    let journal = machine.ok(&format!("journalctl --no-pager -o cat -u {WEB_UNIT}"));
    assert!(journal.contains(&format!("recovered {}, whose recorder was killed", traces[0])));
}

/// RUN start of a session that cannot begin. EXPECT that systemctl fails at once, that `systemctl
/// status` and the journal have the reason, and that systemd does not try again.
#[test]
fn a_session_that_cannot_begin_fails_and_says_why() {
    let Some(machine) = Machine::start("refused") else { return };
    machine.session("bad", "[[chanel]]\n");
    machine.session("place", &format!("output = \"/proc/none\"\n{SESSION_CONFIG}"));
    for (name, why) in [
        ("bad", "unknown field `chanel`"),
        ("place", "/proc/none"),
        ("missing", "cannot read /etc/trackway/missing.toml: No such file"),
    ] {
        let unit = format!("trackway-session@{name}.service");
        let talk = machine.fails(&format!("systemctl start {unit}"));
        assert!(talk.contains(&format!("Job for {unit} failed")), "{talk}");
        assert_eq!(machine.property(&unit, "ActiveState"), "failed");
        assert_eq!(machine.property(&unit, "NRestarts"), "0");
        assert_eq!(machine.property(&unit, "ExecMainStatus"), "2");
        // Checks the unit's status: systemctl may not show lines that the recorder wrote so early.
        let shown = machine.run(&format!("systemctl status --no-pager --lines=0 {unit}")).stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(
            shown.lines().any(|line| line.contains("Status: ") && line.contains(why)),
            "{shown}"
        );
        machine.wait(&format!("journalctl --no-pager -o cat -u {unit} | grep -qF '{why}'"));
    }
}

/// RUN restricted services with a filter in machine code. EXPECT them to run, and every event,
/// except those of the service that has a private /dev/shm.
#[test]
fn services_that_are_locked_in_are_recorded() {
    const STRICT_SERVICE: &str = "NoNewPrivileges=yes\nMemoryDenyWriteExecute=yes\n\
        PrivateDevices=yes\n\
        PrivateIPC=yes\nPrivateTmp=yes\nPrivateNetwork=yes\nPrivateUsers=yes\nProtectHome=yes\n\
        ProtectSystem=strict\nProtectProc=invisible\nProcSubset=pid\nRestrictNamespaces=yes\n\
        RestrictAddressFamilies=none\nCapabilityBoundingSet=\nLockPersonality=yes\n\
        SystemCallArchitectures=native\nSystemCallFilter=@system-service\n";
    let Some(machine) = Machine::start("locked-in") else { return };
    let filter = "filters = [\"number >= 500\"]\n";
    machine.session("web", &format!("users = [\"root\", \"alice\"]\n{SESSION_CONFIG}{filter}"));
    machine.ok(&format!("systemctl start {WEB_UNIT}"));
    for (user, more, events) in [
        ("root", STRICT_SERVICE, 500),
        ("alice", STRICT_SERVICE, 500),
        ("root", "TemporaryFileSystem=/dev/shm\n", 0),
    ] {
        let service = format!("[Service]\nType=oneshot\nUser={user}\n{more}");
        machine.service("app", &format!("{service}ExecStart=/usr/local/bin/myapp count 1000\n"));
        machine.ok("systemctl start app");
        machine.ok("trackway session stop web");
        let trace = &list_traces(&machine, TRACES_FOLDER)[0];
        let found = machine.numbers(trace);
        assert_eq!(found, (1000 - events..1000).collect::<Vec<u32>>(), "{user}: {more}");
        machine.ok("trackway session clear web; trackway session start web");
    }
    machine.ok(&format!("systemctl stop {WEB_UNIT}"));
    assert_eq!(machine.property(WEB_UNIT, "Result"), "success");
}

/// RUN a user's own unit; logout without and with lingering. EXPECT that the trace is complete
/// after the logout, and that the session goes on where the user lingers.
#[test]
fn a_user_s_session_ends_whole_with_the_logout_or_lingers() {
    let Some(machine) = Machine::start("user") else { return };
    machine.has_logins();
    let shown = machine.logs_in(&format!(
        "mkdir -p .config/trackway; printf '{}' >.config/trackway/web.toml\n\
         systemctl --user enable --quiet --now {WEB_UNIT}\n\
         myapp count 1000; systemctl --user show -p StatusText {WEB_UNIT}",
        SESSION_CONFIG.replace('\n', "\\n")
    ));
    let folder = shown.lines().find_map(|line| line.split_once("records into ")).expect("a folder");
    let folder = folder.1.rsplit_once('/').expect("a path").0;
    machine.wait_logged_out();
    assert_eq!(machine.numbers(&list_traces(&machine, folder)[0]), (0..1000).collect::<Vec<_>>());

    machine.ok("loginctl enable-linger alice");
    machine.wait("test -S /run/user/2000/trackway/web.sock");
    machine.logs_in("myapp count 10");
    machine.wait("test -z \"$(loginctl list-sessions --no-legend)\"");
    let ask = "TRACKWAY_RUN_DIR=/run/user/2000/trackway trackway session";
    machine.wait(&format!("{ask} status web | grep -q '10 recorded'"));
    machine.ok(&format!("{ask} destroy web"));
    assert_eq!(machine.numbers(&list_traces(&machine, folder)[1]).len(), 10);
}

/// RUN root's session over a user's service; the user logs in, and out, upon which systemd removes
/// the user's window (RemoveIPC=); the service starts again. EXPECT all events of the first window,
/// and the events of the second from its detection on, in a separate part.
#[test]
fn a_window_that_a_logout_removes_ends_no_recording() {
    let Some(machine) = Machine::start("remove-ipc") else { return };
    machine.has_logins();
    machine.session("web", &format!("users = [\"alice\"]\n{SESSION_CONFIG}"));
    machine.service("app", "[Service]\nUser=alice\nExecStart=/usr/local/bin/myapp serve\n");
    machine.ok(&format!("systemctl start {WEB_UNIT}; systemctl start app"));
    machine.wait_more("web", 100);
    machine.logs_in("ls /dev/shm/trackway-2000-*");
    machine.wait_logged_out();
    machine.fails("ls /dev/shm/trackway-2000-*");
    machine.wait_more("web", 100);
    machine.ok("systemctl restart app");
    machine.wait("ls /dev/shm/trackway-2000-*");
    machine.wait("trackway session status web | grep -q 'user 2000 is recorded, too'");
    let trace = &list_traces(&machine, TRACES_FOLDER)[0];
    machine.wait(&format!("trackway print {trace}/ust/uid/2000/64-bit-2 | grep -q myapp:request"));
    machine.ok(&format!("systemctl stop app {WEB_UNIT}"));
    let first = machine.numbers(&format!("{trace}/ust/uid/2000/64-bit"));
    assert_eq!(first, (0..first.len() as u32).collect::<Vec<_>>());
    let second = machine.numbers(&format!("{trace}/ust/uid/2000/64-bit-2"));
    let begin = second[0];
    assert_eq!(second, (begin..begin + second.len() as u32).collect::<Vec<_>>());
}

/// RUN trackway session create in a login, with and without KillUserProcesses=, by which systemd
/// ends the user's processes at logout. EXPECT the session to continue with its window, and its
/// trace to be complete.
#[test]
fn a_session_in_the_background_outlives_the_logout_or_ends_whole() {
    let Some(machine) = Machine::start("logout") else { return };
    machine.has_logins();
    let create = "trackway session create web -q -o web-trace --event 'myapp:*'; myapp count 1000";
    let file = "/etc/systemd/logind.conf.d/kill.conf";
    let restart = "systemctl restart systemd-logind.service";
    machine.ok(&format!("printf '[Login]\\nKillUserProcesses=no\\n' >{file}; {restart}"));
    machine.logs_in(create);
    let ask = "TRACKWAY_RUN_DIR=/run/user/2000/trackway trackway session";
    machine.wait(&format!("{ask} status web | grep -q '1,000 recorded'"));
    machine.ok(&format!("ls /dev/shm/trackway-2000-*; {ask} destroy web"));
    machine.wait_logged_out();
    let whole: Vec<u32> = (0..1000).collect();
    assert_eq!(machine.numbers("/home/alice/web-trace"), whole);

    machine.ok(&format!("sed -i s/=no/=yes/ {file}; {restart}"));
    machine.logs_in(create);
    machine.wait_logged_out();
    assert_eq!(machine.numbers("/home/alice/web-trace"), whole);
    machine.ok("test -d /home/alice/web-trace.old; ! pgrep -x trackway");
}

/// RUN systemd-tmpfiles over a trace in /tmp, and over the folder of a user's sockets there, as if
/// they were old, while they are in use and afterwards. EXPECT it to remove no files of sessions.
#[test]
fn files_of_sessions_in_tmp_are_not_cleaned_away() {
    let Some(machine) = Machine::start("tmp") else { return };
    let alice = "setpriv --reuid=2000 --regid=2000 --clear-groups trackway session";
    let clean = "find /tmp -exec touch --no-dereference -m -d '20 days ago' {} +\n\
        systemd-tmpfiles --clean /etc/tmpfiles.d/test.conf";
    machine.ok("mkdir /etc/tmpfiles.d; echo 'd /tmp - - - m:10d' >/etc/tmpfiles.d/test.conf");
    machine
        .ok("trackway session create web -q -o /tmp/web-trace --event 'myapp:*'; myapp count 1000");
    machine.ok(&format!("{alice} create web -q -o /home/alice/web-trace; touch /tmp/file"));
    machine.ok(clean);
    machine.ok(&format!("! test -e /tmp/file; {alice} status web; {alice} destroy web"));
    machine.ok("trackway session destroy web");
    assert_eq!(machine.numbers("/tmp/web-trace"), (0..1000).collect::<Vec<_>>());
    machine.ok(clean);
    machine.fails("trackway print /tmp/web-trace");
}
