//! Kernel events in sessions: `trackway session create --kernel`, requests to such a session, and
//! its end. The sessions record calls of getpgid(2) with numbers that no other program uses. Each
//! call lies between two events of the program that makes it.
//!
//! Longer than 600 lines: the tests share one program and the steps of a session.

mod edges;
mod kernel_test;
mod status;
mod swapped_folders;
mod tracefs;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kernel_test::{KernelTest, stream_file_sizes};
use tracefs::CallingProcess;
use trackway_tests::steps::wait_for;
use trackway_tests::{has, lossy_text};

/// Returns true if the session has this number of entries and exits of calls, or twice that number
/// with the 32-bit system calls of the kernel.
fn is_call_event_count(events: &serde_json::Value, count: u64) -> bool {
    events.as_u64().is_some_and(|events| events == count || events == 2 * count)
}

/// RUN a session of kernel events, and a program, and end it. EXPECT entry and exit of each call,
/// on the clock of the program's own events, and equal counts everywhere.
#[test]
fn a_session_records_the_kernel_beside_programs() {
    let Some(test) = KernelTest::new("ksession-all") else { return };
    let talk = test.ok("session create k --kernel syscalls:getpgid -o trace").1;
    assert!(talk.contains("session k records into "), "{talk}");
    test.calls(0..1000);
    let status = test.status("k");
    let kernel = &status["kernel"];
    let number = |name: &str| kernel[name].as_u64().expect("a number");
    // Other programs may also make this call, with other numbers.
    assert!(number("recorded") >= 2000, "{kernel}");
    assert_eq!((number("lost"), number("overwritten")), (0, 0), "{kernel}");
    assert!(is_call_event_count(&kernel["events"], 2), "{kernel}");
    assert!(number("memory-bytes") > 1 << 20, "{kernel}");
    let shown = test.ok("session status k").0;
    assert!(shown.contains("\nkernel: discards what finds no room\n"), "{shown}");
    assert!(shown.contains("  on        syscalls:getpgid ("), "{shown}");
    let talk = test.ok("session destroy k").1;
    assert!(talk.contains("trackway: kernel: ") && talk.contains(" 0 lost"), "{talk}");
    let lines = test.lines("trace");
    test.check("trace", 0..1000);
    let of_program = lines.iter().filter(|line| line.contains(" calls:")).count();
    assert_eq!(of_program, 2000);
    // Each call has `before`, entry and `after`, in the order of time.
    let mut last = "after";
    for line in &lines {
        let next = ["calls:before", "syscall_entry_getpgid", "calls:after"];
        let Some(name) = next.into_iter().find(|name| line.contains(name)) else { continue };
        if name == "syscall_entry_getpgid" && test.number(line).is_none() {
            continue;
        }
        let expected = match last {
            "calls:before" => "syscall_entry_getpgid",
            "syscall_entry_getpgid" => "calls:after",
            _ => "calls:before",
        };
        assert_eq!(name, expected, "{line}");
        last = name;
    }
}

/// RUN stop, calls, start, calls. EXPECT all earlier events in the trace once it is stopped, no
/// event from in between, and all later events.
#[test]
fn calls_while_a_session_is_stopped_are_not_recorded() {
    let Some(test) = KernelTest::new("ksession-stop") else { return };
    test.ok("session create k --kernel syscalls:getpgid --no-start -o trace");
    test.calls(5000..5100);
    test.ok("session start k");
    test.calls(0..100);
    test.ok("session stop k");
    // The trace is complete when the answer arrives.
    test.check("trace", 0..100);
    test.calls(1000..1100);
    test.ok("session start k");
    test.calls(100..200);
    test.ok("session destroy k");
    test.check("trace", 0..200);
}

/// RUN clear between calls. EXPECT no earlier calls, nor counts of them, and all later calls.
#[test]
fn clear_forgets_the_kernels_events_too() {
    let Some(test) = KernelTest::new("ksession-clear") else { return };
    test.ok("session create k --kernel syscalls:getpgid -o trace");
    test.calls(0..3000);
    test.ok("session clear k");
    let kernel = || stream_file_sizes(&test.fixture.path("trace/kernel"));
    assert!(kernel().iter().all(|(_, size)| *size < 4096), "{:?}", kernel());
    test.calls(3000..3100);
    test.ok("session destroy k");
    test.check("trace", 3000..3100);
}

/// RUN a flight recorder, calls, a snapshot, calls, a second one. EXPECT all kernel and user events
/// up to each; each event once in both; and no others at the end.
#[test]
fn snapshots_have_the_kernels_events_as_far_as_the_programs() {
    let Some(test) = KernelTest::new("ksession-snapshot") else { return };
    test.ok("session create k --kernel syscalls:getpgid --flight-recorder -o flight");
    test.calls(0..500);
    let (folder, talk) = test.ok("session snapshot k");
    assert!(
        folder.trim_end().ends_with("flight/snapshot-1") && talk.contains(" events, "),
        "{talk}"
    );
    test.calls(500..1000);
    test.ok("session snapshot k");
    test.ok("session snapshot k --last 100ms -o last");
    for (trace, until) in [("flight/snapshot-1", 500), ("flight/snapshot-2", 1000)] {
        test.check(trace, 0..until);
        let lines = test.lines(trace);
        let of_program = lines.iter().filter(|line| line.contains(" calls:after")).count();
        assert_eq!(of_program as u64, until, "{trace}");
    }
    test.ok("merge flight/snapshot-1 flight/snapshot-2 -o merged");
    test.check("merged", 0..1000);
    test.ok("session destroy k");
    let mut left: Vec<_> = fs::read_dir(test.fixture.path("flight"))
        .expect("its folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["snapshot-1", "snapshot-2"]);
    // The folder holds only Trackway's files: another session may set it aside.
    test.ok("session create k --kernel syscalls:getpgid --flight-recorder -o flight");
    test.ok("session destroy k");
    assert!(test.fixture.path("flight.old/snapshot-2/kernel/metadata").is_file());
}

/// RUN more calls than a flight recorder holds. EXPECT the newest in a snapshot: all calls since
/// the buffers of all CPUs wrapped. (If the program left a CPU and came back after the other CPU's
/// buffer had wrapped, the older calls have a gap.)
#[test]
fn a_snapshot_of_a_buffer_that_came_round_has_the_newest() {
    let Some(test) = KernelTest::new("ksession-round") else { return };
    let mut caller = CallingProcess::new(&test);
    test.ok(&format!(
        "session create k --kernel syscalls:getpgid --flight-recorder --buffer-size 128K \
         -o flight --pid {}",
        caller.pid()
    ));
    caller.calls(0..50_000);
    test.ok("session snapshot k");
    let lines = test.lines("flight/snapshot-1");
    let mut oldest = BTreeMap::new();
    for line in lines.iter().filter(|line| line.contains(" syscall_entry_getpgid: ")) {
        let (_, cpu) = line.split_once("cpu_id = ").expect("a CPU");
        let cpu = cpu.split(' ').next().expect("a number").to_owned();
        let number = test.number(line).expect("one of the program's");
        oldest.entry(cpu).or_insert(number);
    }
    let since = *oldest.values().max().expect("some");
    let entries = test.numbers(&lines);
    assert!(entries.len() < 50_000 && entries.ends_with(&[49_998, 49_999]), "{}", entries.len());
    assert!(entries.is_sorted_by(|before, number| before < number), "out of order");
    assert!(entries.into_iter().filter(|number| *number >= since).eq(since..50_000), "{oldest:?}");
    test.ok("session destroy k");
}

/// RUN a session whose trace files are bounded, until they wrap. EXPECT no more and no larger
/// kernel files, the newest events in them, and the other events counted.
#[test]
fn trace_files_of_the_kernel_are_bounded() {
    let Some(test) = KernelTest::new("ksession-files") else { return };
    test.ok(
        "session create k --kernel syscalls:getpgid --tracefile-size 128K --tracefile-count 2 \
         -o trace",
    );
    test.calls(0..50_000);
    test.ok("session stop k");
    let kernel = test.status("k")["kernel"].clone();
    let number = |name: &str| kernel[name].as_u64().expect("a number");
    assert!(number("recorded") >= 100_000 && number("deleted") > 0, "{kernel}");
    let sizes = stream_file_sizes(&test.fixture.path("trace/kernel"));
    assert!(sizes.iter().all(|(_, size)| *size <= 128 << 10), "{sizes:?}");
    assert!(sizes.len() <= 2 * 4 * std::thread::available_parallelism().expect("CPUs").get());
    test.ok("session destroy k");
    let entries = test.numbers(&test.lines("trace"));
    assert!(entries.len() < 50_000 && entries.last() == Some(&49_999));
}

/// RUN events enabled and disabled while it records. EXPECT events from the time when they were
/// enabled; none when all are disabled; and the same name for each event enabled again.
// Longer than 70 lines: one session, changed step by step.
#[test]
fn events_of_the_kernel_are_switched_on_and_off_while_it_records() {
    let Some(test) = KernelTest::new("ksession-events") else { return };
    test.ok("session create k --kernel syscalls:getpgid -o trace");
    test.calls(0..100);
    // Two events are enabled: a tracepoint, which `true` causes, and the entry of another call.
    test.ok("event on k --kernel sched_process_exec syscalls:sys_enter_getpgid");
    test.calls(100..200);
    test.ok("event off k --kernel syscalls:sys_exit_getpgid");
    test.calls(200..300);
    test.ok("event off k --kernel syscalls:getpgid");
    test.calls(300..400);
    assert_eq!(test.status("k")["kernel"]["events"], 1, "sched_process_exec by its name");
    test.ok("event off k --kernel *");
    assert_eq!(test.status("k")["kernel"]["events"], 0);
    test.calls(400..500);
    test.ok("event on k --kernel syscalls:getpgid");
    test.calls(500..600);
    let talk = test.ok("event on k --kernel syscalls:getpgid").1;
    assert!(talk.contains("nothing has changed"), "{talk}");
    let refused = test.refused("event on k --kernel no_such_event");
    assert!(refused.contains("no_such_event"), "{refused}");
    let before = test.status("k")["kernel"]["spec"]["on"].clone();
    for (exclusion, why) in
        [("no_such_event", "no kernel event matches"), ("!sched_switch", "nothing excludes")]
    {
        let refused = test.refused(&format!("event off k --kernel {exclusion}"));
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(test.status("k")["kernel"]["spec"]["on"], before, "what is refused changes nothing");
    assert!(is_call_event_count(&test.status("k")["kernel"]["events"], 2));
    // An exclusion is reverted.
    test.ok("event off k --kernel syscalls:sys_exit_getpgid");
    assert!(is_call_event_count(&test.status("k")["kernel"]["events"], 1));
    test.ok("event off k --kernel !syscalls:sys_exit_getpgid");
    assert!(is_call_event_count(&test.status("k")["kernel"]["events"], 2));
    let hint = test.ok("event on k task_rename --only").1;
    assert!(
        hint.contains("hint: kernel events of that name exist: --kernel 'task_rename'"),
        "{hint}"
    );
    test.ok("event on k * --only");
    // The kernel takes long to detach from these events, and there are so many of them that it does
    // not finish at once.
    let slow = "task_rename,writeback,filelock,cgroup";
    let name = |phase: usize| format!("{:x}-{phase}", std::process::id());
    let rename = |phase: usize| {
        let script = "n=0; while [ $n -lt 50 ]; do printf %s $1 >/proc/self/comm; n=$((n+1)); done";
        let mut shell = test.fixture.command("sh");
        let done = shell.args(["-c", script, "sh"]).arg(name(phase)).status();
        assert!(done.expect("a shell").success());
    };
    for phase in (0..6).step_by(2) {
        test.ok(&format!("event on k --kernel {}", if phase == 0 { slow } else { "task_rename" }));
        rename(phase);
        test.ok(&format!("event off k --kernel {slow}"));
        rename(phase + 1);
    }
    test.ok("session destroy k");
    test.check("trace", (0..300).chain(500..600));
    let lines = test.lines("trace");
    let renamed = |phase: usize| {
        let new = format!("newcomm = \"{}\"", name(phase));
        lines.iter().filter(|line| line.contains(" task_rename: ") && line.contains(&new)).count()
    };
    assert_eq!([0, 1, 2, 3, 4, 5].map(renamed), [50, 0, 50, 0, 50, 0]);
    // Only events of the same threads count: other programs may also make this call.
    let tid = |line: &str| line.split_once("{ tid = ")?.1.split(' ').next().map(str::to_owned);
    let ours = lines.iter().filter(|line| test.number(line).is_some());
    let ours: HashSet<String> = ours.filter_map(|line| tid(line)).collect();
    let exits = lines.iter().filter(|line| line.contains(" syscall_exit_getpgid: "));
    let exits = exits.filter_map(|line| tid(line)).filter(|tid| ours.contains(tid)).count();
    assert_eq!(exits, 300);
    let execs = lines.iter().filter(|line| line.contains(" sched_process_exec: ")).count();
    assert!(execs >= 2, "{execs}");
}

/// RUN events enabled for which there are not enough open files; then other events. EXPECT no
/// change, and the other events to have their own names.
#[test]
fn events_that_cannot_be_switched_on_change_nothing() {
    let Some(test) = KernelTest::new("ksession-failed") else { return };
    let trackway = trackway_tests::build_dir().join("trackway");
    let mut create = test.fixture.command("sh");
    let script = "ulimit -n 80; exec \"$0\" session create k --kernel sched_process_exec -o trace";
    let created = create.args(["-c", script]).arg(trackway).output().expect("sh runs");
    assert!(created.status.success(), "{}", lossy_text(&created.stderr));
    // The check before the attempt accepts these events, but there are not enough open files.
    let talk = test.refused("event on k --kernel sched,timer,irq");
    assert!(talk.contains("Too many open files"), "{talk}");
    assert_eq!(test.status("k")["kernel"]["events"], 1);
    test.ok("event on k --kernel syscalls:getpgid");
    test.calls(0..100);
    test.ok("session destroy k");
    test.check("trace", 0..100);
    let lines = test.lines("trace");
    let of_kernel = lines.iter().filter(|line| !line.contains(" calls:"));
    let strange = of_kernel.into_iter().find(|line| {
        let known = ["sched_process_exec: ", "syscall_entry_getpgid: ", "syscall_exit_getpgid: "];
        !known.iter().any(|name| line.contains(name))
    });
    assert_eq!(strange, None);
}

/// RUN a session and follow it. EXPECT kernel events while it goes on.
#[test]
fn a_follower_of_a_session_shows_kernel_events() {
    let Some(test) = KernelTest::new("ksession-follow") else { return };
    test.ok("session create k --kernel syscalls:getpgid -o trace");
    let shown = test.fixture.path("shown");
    let mut follow = test.command("print --follow k");
    follow.stdout(fs::File::create(&shown).expect("a file"));
    let mut follow = follow.spawn().expect("trackway runs");
    for round in 0..3 {
        test.calls(round * 10..round * 10 + 10);
        let seen = || {
            let text = fs::read_to_string(&shown).expect("a file");
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            test.numbers(&lines).len()
        };
        wait_for("the calls", || seen() as u64 == (round + 1) * 10);
    }
    test.ok("session destroy k");
    assert!(follow.wait().expect("it ends with the session").success());
}

/// RUN a session of one process. EXPECT its calls and its children's calls, and no others.
#[test]
fn a_session_of_a_process_has_its_calls_alone() {
    let Some(test) = KernelTest::new("ksession-pid") else { return };
    let mut shell = test.shell("read x; \"$0\" 100 $1; read x; exec \"$0\" 10 $1");
    let pid = shell.pid();
    test.ok(&format!("session create k --kernel syscalls:getpgid --pid {pid} -o trace"));
    test.calls(5000..5100);
    shell.go_on();
    wait_for("its calls", || test.status("k")["kernel"]["recorded"] == 200);
    test.calls(5000..5100);
    shell.go_on();
    shell.wait();
    let shown = test.ok("session status k").0;
    assert!(shown.contains(&format!("only      process {pid}, and what it starts")), "{shown}");
    test.ok("session destroy k");
    test.check("trace", (0..100).chain(0..10));
    let talk = test.refused("session create k --kernel syscalls:getpgid --pid 4194304 -o none");
    assert!(talk.contains("4194304"), "{talk}");
}

/// RUN save, and load the saved file. EXPECT the same session.
#[test]
fn a_saved_session_has_the_kernels_events() {
    let Some(test) = KernelTest::new("ksession-save") else { return };
    test.ok("session create k --kernel syscalls:getpgid,!sys_exit_getpgid --buffer-size 1M \
         --tracefile-size 1M -o trace");
    let saved = test.ok("session save k -o k.toml");
    let file = fs::read_to_string(test.fixture.path("k.toml")).expect("a file");
    assert!(file.contains("\n[kernel]\n") && file.contains("buffer-size = \"1M\"\n"), "{saved:?}");
    test.ok("session destroy k");
    test.ok("session load k.toml again");
    test.calls(0..10);
    let status = test.status("again");
    assert!(is_call_event_count(&status["kernel"]["events"], 1), "{status}");
    test.ok("session destroy again");
    let folder = status["folder"].as_str().expect("a path").to_owned();
    let lines = test.lines(&folder);
    test.check(&folder, 0..10);
    assert!(!lines.iter().any(|line| line.contains("syscall_exit")), "{lines:?}");
}

/// RUN save of a session with a filter that only kernel events can evaluate, and load the saved
/// file. EXPECT the filter as it was written, in both sessions; no user event; and an equal file.
#[test]
fn a_saved_filter_of_the_kernels_is_as_it_was_written() {
    let Some(test) = KernelTest::new("ksession-save-filter") else { return };
    let mut create = test.command("session create k --kernel syscalls:getpgid --context prio");
    create.args(["--filter", "$ctx.prio > 5", "-o", "trace"]);
    let output = create.output().expect("trackway runs");
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    let save = |name: &str| test.ok(&format!("session save {name}")).0;
    let saved = save("k");
    assert_eq!(saved.matches("$ctx.prio > 5").count(), 2, "{saved}");
    assert!(!saved.contains("false"), "{saved}");
    fs::write(test.fixture.path("k.toml"), &saved).expect("a file");
    test.ok("session destroy k");
    test.ok("session create k --load k.toml -o again");
    assert_eq!(save("k"), saved);
    test.calls(0..10);
    test.ok("session destroy k");
    test.check("again", 0..10);
    assert!(!test.lines("again").iter().any(|line| line.contains("calls:")));
}

/// RUN a session of some calls, with contexts, on one CPU; then the session loaded from its file.
/// EXPECT only those calls, with their contexts; user events unfiltered; and both equal.
#[test]
fn a_session_asks_the_kernels_events_and_chooses_among_them() {
    let Some(test) = KernelTest::new("ksession-keys") else { return };
    if !has("taskset") {
        return trackway_tests::report_skipped("taskset is not installed");
    }
    let (_, first) = test.first();
    let filter = format!("syscalls:getpgid: pid >= {} && pid < {}", first + 10, first + 20);
    let options = "create k --kernel syscalls:getpgid --context prio,vpid --cpu 0 -o trace";
    let mut create = test.command(&format!("session {options}"));
    create.args(["--filter", &filter, "--filter", "calls:after: number >= 0"]);
    let output = create.output().expect("trackway runs");
    assert!(output.status.success(), "{output:?}");
    let check = |name: &str, trace: &str| {
        let spec = test.status(name)["kernel"]["spec"].clone();
        let told = (&spec["filters"][0], &spec["contexts"][0], &spec["cpus"]);
        assert_eq!(told, (&filter.as_str().into(), &"prio".into(), &"0".into()), "{spec}");
        assert_eq!(spec["filters"].as_array().map(Vec::len), Some(1), "the other is programs'");
        let mut shell = test.shell("taskset -c 0 \"$0\" 100 $1");
        shell.wait();
        test.ok(&format!("session destroy {name}"));
        test.check(trace, 10..20);
        let lines = test.lines(trace);
        let of_kernel: Vec<_> = lines.iter().filter(|line| line.contains("_entry_")).collect();
        assert!(of_kernel.iter().all(|line| line.contains(", prio = ")), "{of_kernel:?}");
        assert!(of_kernel.iter().all(|line| line.contains("cpu_id = 0 }")), "{of_kernel:?}");
        // These events only have the context vpid.
        let of_program: Vec<_> = lines.iter().filter(|line| line.contains("calls:")).collect();
        assert_eq!(of_program.len(), 200);
        assert!(of_program.iter().all(|line| line.contains("vpid = ") && !line.contains("prio")));
    };
    let shown = test.ok("session status k").0;
    for line in
        [&format!("  if        {filter}\n"), "  contexts  prio, vpid\n", "  only      CPU 0\n"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    test.ok("session save k -o k.toml");
    check("k", "trace");
    test.ok("session create again --load k.toml -o again");
    check("again", "again");
    // A channel's filter on kernel events becomes a filter of the kernel part.
    let channel =
        format!("[[channel]]\ncontexts = ['vpid']\nfilters = ['{filter}', 'number >= 0']\n");
    let kernel = "[kernel]\non = ['syscalls:getpgid']\ncpus = '0'\ncontexts = ['prio', 'vpid']\n";
    fs::write(test.fixture.path("c.toml"), format!("{kernel}{channel}")).expect("a file");
    test.ok("session create third --load c.toml -o third");
    check("third", "third");
    // The same applies to a recorded command, with kernel events of the file, or with others.
    fs::write(test.fixture.path("d.toml"), channel).expect("a file");
    for (trace, options) in [
        ("fourth", "--config c.toml"),
        ("fifth", "--config d.toml --kernel syscalls:getpgid --cpu 0"),
    ] {
        let mut record = test.command(&format!("record {options} -o {trace} -- taskset -c 0"));
        record.arg(&test.program).args(["100", &test.first().0.to_string()]);
        let output = record.output().expect("trackway runs");
        assert!(output.status.success(), "{output:?}");
        test.check(trace, 10..20);
        let lines = test.lines(trace);
        let prio = lines.iter().filter(|line| line.contains(", prio = ")).count();
        assert_eq!(prio, if trace == "fourth" { 10 } else { 0 }, "{trace}");
    }
    let twice = test.refused("record --config c.toml --kernel sched_switch -- true");
    assert!(twice.contains("c.toml says which of the kernel's events"), "{twice}");
}

/// RUN sessions with a filter on all events, on fields of user events, and on fields of kernel
/// events. EXPECT each event to be filtered by the fields that it has, also after kernel events
/// have changed; and a refusal of fields that no event has.
#[test]
fn a_filter_without_a_pattern_asks_each_what_it_has() {
    let Some(test) = KernelTest::new("ksession-both") else { return };
    // With this session, the recorder knows the program's events.
    test.ok("session create first --event calls -o first");
    test.calls(0..1);
    test.ok("session destroy first");
    let (first, of_kernel) = test.first();
    let on_numbers = format!("number >= {} && number < {}", first + 5, first + 8);
    let on_pids = format!("pid >= {} && pid < {}", of_kernel + 5, of_kernel + 8);
    for (filter, of_program, of_kernel) in [(&on_numbers, 6, 0..0), (&on_pids, 0, 5..8)] {
        let mut create = test.command("session create k --kernel syscalls:getpgid -o trace");
        let output = create.args(["--filter", filter]).output().expect("trackway runs");
        assert!(output.status.success(), "{filter}: {}", lossy_text(&output.stderr));
        test.calls(0..10);
        // The filter also applies to other events.
        test.ok("event on k --kernel syscalls:getsid");
        test.calls(100..101);
        test.ok("session destroy k");
        test.check("trace", of_kernel);
        let lines = test.lines("trace");
        let found = lines.iter().filter(|line| line.contains(" calls:")).count();
        assert_eq!(found, of_program, "{filter}: {lines:?}");
        fs::remove_dir_all(test.fixture.path("trace")).expect("a trace");
    }
    for options in ["", " --kernel-only"] {
        let create = format!("session create k --kernel syscalls:getpgid -o none{options}");
        let filter = if options.is_empty() { "no_field > 5" } else { on_numbers.as_str() };
        let output = test.command(&create).args(["--filter", filter]).output();
        let output = output.expect("trackway runs");
        let talk = lossy_text(&output.stderr);
        assert!(!output.status.success(), "{filter}");
        assert!(talk.contains("say which: PATTERN: EXPR"), "{filter}: {talk}");
    }
}

/// RUN an event enabled later that a session's filter names; none was enabled before. EXPECT the
/// filter to apply from its first record on, and a message at first that nothing matches.
#[test]
fn events_that_are_switched_on_later_are_asked_too() {
    let Some(test) = KernelTest::new("ksession-later") else { return };
    let (_, first) = test.first();
    let file = format!(
        "name = \"k\"\noutput = \"trace\"\n[kernel]\non = [\"sched_process_exec\"]\n\
         filters = [\"syscalls:sys_enter_getpgid: pid == {}\"]\n",
        first + 7
    );
    fs::write(test.fixture.path("k.toml"), file).expect("a file");
    let talk = test.ok("session load k.toml").1;
    assert!(talk.contains("no kernel event that is recorded is what 'syscalls:"), "{talk}");
    test.ok("event on k --kernel syscalls:getpgid");
    test.calls(0..100);
    test.ok("event off k --kernel syscalls:getpgid");
    test.calls(0..100);
    test.ok("event on k --kernel syscalls:getpgid");
    test.calls(0..10);
    // Other filters: for recorded events, for events enabled with the filter, and no filter.
    let on = |patterns: &str, filter: &str| {
        let mut on = test.command("event on k --kernel");
        on.args(patterns.split(' ')).args(["--filter", filter]).output().expect("it runs")
    };
    let refused = on("syscalls:sys_enter_getpgid", "no_field == 7");
    assert!(
        !refused.status.success() && lossy_text(&refused.stderr).contains("no_field"),
        "{refused:?}"
    );
    test.calls(0..10);
    let five = format!("pid == {}", first + 5);
    let done = on("syscalls:sys_enter_getpgid task_rename", &five);
    assert!(done.status.success(), "{done:?}");
    test.calls(0..10);
    let filters = test.status("k")["kernel"]["spec"]["filters"].clone();
    assert_eq!(filters[0], format!("syscalls:sys_enter_getpgid: {five}"));
    assert!(on("syscalls:sys_enter_getpgid", "").status.success());
    test.calls(0..3);
    let set = test.refused("channel set k channel0 --context nice");
    assert!(set.contains("chosen when their session began"), "{set}");
    test.ok("session destroy k");
    test.check("trace", [7, 7, 7, 5, 0, 1, 2]);
}

/// RUN a filter that only entries can evaluate, so that exits have no BPF program, and remove it.
/// EXPECT exits from then on.
#[test]
fn exits_are_recorded_once_no_filter_keeps_all_of_them_out() {
    let Some(test) = KernelTest::new("ksession-exits") else { return };
    let events = "syscalls:sys_*_getpgid";
    let filter = format!("{events}: pid >= 0");
    // Exits of 32-bit calls would have a BPF program.
    let calls = "--kernel syscalls:getpgid,!compat_*";
    let mut create = test.command(&format!("session create k {calls} -o trace"));
    assert!(create.args(["--filter", &filter]).output().expect("it runs").status.success());
    test.calls(0..100);
    let mut on = test.command("event on k --kernel");
    let done = on.args([events, "--filter", ""]).output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    test.calls(100..200);
    test.ok("session destroy k");
    test.check("trace", 0..200);
    let lines = test.lines("trace");
    let exits = lines.iter().filter(|line| line.contains(" syscall_exit_getpgid: ")).count();
    assert!((100..200).contains(&exits), "{exits}");
}

/// RUN changes of a filter for a frequent event, whose every occurrence has another name; all
/// filters pass it. EXPECT each name once: from the old BPF program or the new one.
#[test]
fn nothing_is_recorded_twice_or_missed_while_filters_change() {
    const FILTER_CHANGES: usize = 30;
    let Some(test) = KernelTest::new("ksession-versions") else { return };
    let rename = "--kernel task:task_rename";
    // Buffers for a million events per second, for the duration of a change.
    test.ok(&format!("session create k --kernel-only {rename} --buffer-size 32M -o trace"));
    let is_over = Arc::new(AtomicBool::new(false));
    let is_changing = Arc::new(AtomicBool::new(false));
    let renamer = std::thread::spawn({
        let (is_over, is_changing) = (Arc::clone(&is_over), Arc::clone(&is_changing));
        move || {
            let mut number = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                if !is_changing.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(100));
                    continue;
                }
                let name = format!("w{number:014}\0");
                // SAFETY: PR_SET_NAME reads 16 bytes of a text that is as long.
                unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
                number += 1;
            }
            number
        }
    });
    for change in 0..FILTER_CHANGES {
        let filter = ["newcomm == \"w*\"", "newcomm == \"w0*\""][change % 2];
        let mut on = test.command(&format!("event on k {rename} --filter"));
        is_changing.store(true, Ordering::Relaxed);
        let done = on.arg(filter).output().expect("it runs");
        is_changing.store(false, Ordering::Relaxed);
        assert!(done.status.success(), "{done:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    let renamed = renamer.join().expect("it counts");
    let talk = test.ok("session destroy k").1;
    assert!(talk.contains(" 0 lost"), "{talk}");
    let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
    for line in test.lines("trace") {
        let Some((_, name)) = line.split_once("newcomm = \"w") else { continue };
        // Other threads may have names with this beginning.
        let Some(Ok(number)) = name.get(..14).map(str::parse) else { continue };
        *seen.entry(number).or_default() += 1;
    }
    let others: Vec<_> = (0..renamed).filter(|number| seen.get(number) != Some(&1)).collect();
    assert!(others.is_empty(), "of {renamed}: {:?}", others.iter().take(20).collect::<Vec<_>>());
}

/// RUN a session of an empty control group. EXPECT no calls.
#[test]
fn a_session_of_a_cgroup_has_nothing_of_others() {
    let Some(test) = KernelTest::new("ksession-cgroup") else { return };
    let mounted = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(std::path::PathBuf::from);
    let Some(root) = mounted.iter().find(|root| root.join("cgroup.procs").is_file()) else {
        return trackway_tests::report_skipped("no control groups of version 2 are mounted");
    };
    let group = root.join(format!("trackway-ksession-{}", std::process::id()));
    if fs::create_dir(&group).is_err() {
        return trackway_tests::report_skipped("no control group can be made");
    }
    let create = "session create k --kernel syscalls:getpgid -o trace --cgroup";
    let begun = test.command(&format!("{create} {}", group.display())).output();
    test.calls(0..10);
    let mut shell = test.shell(&format!(
        "echo $$ > {}/cgroup.procs && \"$0\" 20 $1; echo $$ > {}/cgroup.procs",
        group.display(),
        root.display()
    ));
    shell.wait();
    let status = test.command("session status k").output();
    let ended = test.command("session destroy k").output();
    let _ = fs::remove_dir(&group);
    assert!(begun.expect("it runs").status.success() && ended.expect("it runs").status.success());
    let shown = lossy_text(&status.expect("it runs").stdout);
    let only = format!("  only      control group {}, and below\n", group.display());
    assert!(shown.contains(&only), "{shown}");
    test.check("trace", 0..20);
}

/// RUN impossible selections. EXPECT a refusal with record's reason, and no session.
#[test]
fn impossible_choices_of_a_session_are_refused() {
    let Some(test) = KernelTest::new("ksession-refused") else { return };
    for (option, value, why) in [
        ("--cpu", "8191", "there is no CPU 8191"),
        ("--cgroup", "/no/such/group", "there is no cgroup /no/such/group"),
        ("--filter", "syscalls:sys_enter_getpgid: no_field > 5", "no_field"),
        ("--filter", "sys_enter_getpgit: pid > 5", "did you mean 'sys_enter_getpgid'?"),
        ("--context", "colour", "no context 'colour'"),
    ] {
        let mut create = test.command("session create k --kernel syscalls:getpgid -o none");
        let output = create.args([option, value]).output().expect("trackway runs");
        let talk = lossy_text(&output.stderr);
        assert!(!output.status.success() && talk.contains(why), "{option} {value}: {talk}");
        let talk = test.refused("session status k");
        assert!(talk.contains("no session"), "{option}: {talk}");
    }
    let talk = test.refused("session create k --context prio");
    assert!(talk.contains("a context of the kernel's events alone"), "{talk}");
    let file = "name = \"k\"\n[kernel]\non = [\"sched\"]\ncontexts = [\"colour\"]\n";
    fs::write(test.fixture.path("k.toml"), file).expect("a file");
    let talk = test.refused("session load k.toml");
    assert!(talk.contains("no context 'colour'") && talk.contains("cgroup_id"), "{talk}");
}

/// RUN floods of events that exceed the buffers, including events that interrupt themselves. EXPECT
/// the same number of losses from the recorder, print and babeltrace2.
#[test]
fn every_loss_of_the_kernels_events_is_in_some_packet() {
    let Some(test) = KernelTest::new("ksession-lost") else { return };
    let mut passed_over = 0;
    // Losses by the kernel are not deterministic, so the test repeats.
    for round in 0..10 {
        let trace = format!("trace-{round}");
        test.ok(&format!(
            "session create k --kernel sched,timer,irq,kmem,syscalls:getpgid --buffer-size 128K \
             -o {trace}"
        ));
        test.calls(0..200_000);
        test.ok("session stop k");
        let kernel = test.status("k")["kernel"].clone();
        let lost = kernel["lost"].as_u64().expect("a number");
        passed_over += kernel["passed-over"].as_u64().expect("a number");
        let by_event = kernel["lost-by-event"].as_array().expect("a list").clone();
        let talk = test.ok("session destroy k").1;
        // The counts of the events with the most losses, largest first, as at the end.
        let counts: Vec<u64> =
            by_event.iter().map(|of| of[1].as_u64().expect("a number")).collect();
        assert!(counts.is_sorted_by(|more, less| more >= less) && counts.len() <= 5, "{kernel}");
        assert!(
            counts.iter().sum::<u64>() <= lost && (lost == 0 || !counts.is_empty()),
            "{kernel}"
        );
        let is_said = |of: &serde_json::Value| {
            talk.contains(&format!(" × {}\n", of[0].as_str().expect("a name")))
        };
        assert!(by_event.iter().all(is_said), "{kernel}\n{talk}");
        // The user events' losses are in the other part of the trace.
        let trace = format!("{trace}/kernel");
        let stats = test.ok(&format!("print --stats {trace}")).0;
        let told = stats.lines().find_map(|line| line.strip_prefix("lost: ")?.split(' ').next());
        let told = told.map(|told| told.replace(',', ""));
        assert_eq!(told, Some(lost.to_string()), "{kernel}\n{talk}\n{stats}");
        if has("babeltrace2") {
            let output = test.fixture.babeltrace(&test.fixture.path(&trace)).expect("it is there");
            let said = trackway_tests::babeltrace_discarded_events(&lossy_text(&output.stderr));
            assert_eq!(said, lost);
        }
        if passed_over > 0 && lost > passed_over {
            return;
        }
    }
    trackway_tests::report_skipped("the kernel passed over no program here");
}
