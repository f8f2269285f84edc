//! Tests recording on the running kernel, where BPF is available.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use trackway_kernel::bpf_program::arguments::raw_tracepoint_type;
use trackway_kernel::bpf_program::attach::{AttachedProgram, LoadedProgram, ProgramTable};
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::codegen::{
    DispatchTables, EventNumber, ProgramMaps, generate_dispatcher, generate_program,
};
use trackway_kernel::bpf_program::contexts::{self, Context, Contexts};
use trackway_kernel::bpf_program::layout::{BufferLayout, LEVELS};
use trackway_kernel::bpf_program::plan::{EventPlan, RegisterLayout};
use trackway_kernel::bpf_program::scope::{NewThreadSource, Scope};
use trackway_kernel::bpf_sys::bpf::LoadError;
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::btf::{Btf, Class};
use trackway_kernel::catalogue::model::{Event, Meaning, Phase, Source};
use trackway_kernel::catalogue::select::Selection;
use trackway_schema::{EventDescription, FieldKind, Scalar};
use trackway_testkit::folder::TemporaryFolder;
use trackway_testkit::report_skipped;

use crate::decode::{Record, Value, read_records};

/// A recording of events.
struct Recording {
    buffers: Buffers,
    events: Vec<EventDescription>,
    attached: Vec<AttachedProgram>,
}

pub(crate) fn count_possible_cpus() -> usize {
    // SAFETY: the call takes no address.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).expect("a number")
}

/// Records these events; `None`: recording is impossible, which is reported.
fn start_recording(patterns: &[&str], shifts: (u32, u32), overwrite: bool) -> Option<Recording> {
    let catalogue = match Catalogue::open() {
        Ok(catalogue) => catalogue,
        Err(error) => {
            report_skipped(error);
            return None;
        }
    };
    let selection = Selection::new(patterns).expect("patterns");
    let events = catalogue.select(&selection).expect("events").events;
    let layout = BufferLayout::new(shifts.0, shifts.1, events.len()).expect("a layout");
    let buffers =
        match Buffers::new(layout, count_possible_cpus(), BufferMode::from_overwrite(overwrite)) {
            Ok(buffers) => buffers,
            Err(error) => {
                report_skipped(format!("BPF is not available: {error}"));
                return None;
            }
        };
    let mut recording = Recording { buffers, events: Vec::new(), attached: Vec::new() };
    for (number, event) in events.iter().enumerate() {
        let plan = EventPlan::from_record(event, 3000);
        let event_number = EventNumber { id: number as u16, index: number };
        let maps = ProgramMaps { buffers_fd: recording.buffers.map_fd(), scope: None };
        let code = generate_program(&plan, &layout, maps, event_number).expect("it fits");
        let name = event.full_name();
        let id = event.id.expect("a tracepoint's number");
        let loaded = LoadedProgram::load(&code).unwrap_or_else(|error| panic!("{name}: {error}"));
        recording.attached.push(loaded.attach(id).expect("it is there"));
        recording.events.push(plan.description);
    }
    Some(recording)
}

impl Recording {
    /// Detaches the programs; returns all records with the levels of their regions.
    fn finish(&mut self) -> Vec<(usize, Record)> {
        self.attached.clear();
        let mut all = Vec::new();
        for cpu in 0..self.buffers.cpus() {
            for level in 0..LEVELS {
                let found = read_records(&self.buffers, (cpu, level), &self.events);
                all.extend(found.into_iter().map(|record| (level, record)));
            }
        }
        all
    }
}

/// RUN a system call with a unique name. EXPECT its entry with text and numbers, between two
/// readings of the clock; then its exit with the result.
#[test]
fn a_system_call_is_recorded_with_its_file_name() {
    let patterns = ["syscalls:sys_enter_openat", "syscalls:sys_exit_openat"];
    let Some(mut recording) = start_recording(&patterns, (16, 4), false) else { return };
    let name = "/nowhere/that/anybody/else/looks";
    let before = trackway_sys::clock::monotonic_ns();
    let error = File::open(name).expect_err("it is not there");
    let after = trackway_sys::clock::monotonic_ns();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let all = recording.finish();
    let ours = |record: &&(usize, Record)| {
        record.1.fields.get("filename") == Some(&Value::Text(name.into()))
    };
    let (_, entry) = all.iter().find(ours).expect("it is recorded");
    assert!((before..=after).contains(&entry.time_ns), "{before} {} {after}", entry.time_ns);
    let exit_name = "syscall_exit_openat";
    let is_exit = |record: &&(usize, Record)| {
        recording.events[record.1.id].name == exit_name
            && (entry.time_ns..=after).contains(&record.1.time_ns)
            && record.1.fields.get("ret") == Some(&Value::Number(-i64::from(libc::ENOENT)))
    };
    assert!(all.iter().any(|record| is_exit(&record)), "{} records", all.len());
}

/// RUN a program that causes scheduler events. EXPECT correct texts in arrays, texts elsewhere in
/// the record, and enumerations.
#[test]
fn scheduler_events_are_recorded() {
    let patterns = ["sched:sched_process_exec", "sched:sched_process_fork", "sched:sched_switch"];
    let Some(mut recording) = start_recording(&patterns, (16, 5), false) else { return };
    let child = Command::new("/bin/true").spawn().expect("it runs");
    let pid = i64::from(child.id());
    child.wait_with_output().expect("it ends");
    let all = recording.finish();
    let of = |name: &str, field: &str, value: Value| {
        let is_it = |record: &&(usize, Record)| {
            recording.events[record.1.id].name == name && record.1.fields.get(field) == Some(&value)
        };
        all.iter().filter(is_it).map(|(_, record)| record.clone()).collect::<Vec<_>>()
    };
    let execs = of("sched_process_exec", "tid", Value::Number(pid));
    let file = execs.iter().find_map(|record| record.fields.get("filename"));
    assert_eq!(file, Some(&Value::Text("/bin/true".into())), "{execs:?}");
    // The last switch away from the program: no other event follows with this name.
    let switches = of("sched_switch", "prev_comm", Value::Text("true".into()));
    assert!(!switches.is_empty(), "{} records", all.len());
}

/// RUN programs with paths of the longest recorded length and longer, recorded from the
/// tracepoint's record and from its arguments. EXPECT that longer paths are cut and counted.
#[test]
fn cut_kernel_texts_are_counted() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let selection = Selection::new(&["sched:sched_process_exec"]).expect("a pattern");
    let event = catalogue.select(&selection).expect("an event").events.remove(0);
    let raw = catalogue.btf().and_then(|btf| {
        Some((EventPlan::from_arguments(&event, btf, 3500)?, raw_tracepoint_type(&event, btf)?))
    });
    if raw.is_none() {
        report_skipped("what this event's arguments are is not known of this kernel");
    }
    let plan = [(EventPlan::from_record(&event, 3500), None)].into_iter();
    for (plan, raw) in plan.chain(raw.map(|(plan, id)| (plan, Some(id)))) {
        let layout = BufferLayout::new(16, 3, 1).expect("a layout");
        let Ok(buffers) = Buffers::new(layout, count_possible_cpus(), BufferMode::Discard) else {
            return report_skipped("BPF is not available");
        };
        let code = generate_program(
            &plan,
            &layout,
            ProgramMaps { buffers_fd: buffers.map_fd(), scope: None },
            EventNumber { id: 0, index: 0 },
        )
        .expect("it fits");
        let attached = match raw {
            Some(id) => LoadedProgram::load_raw(&code, id).map(|loaded| loaded.attach_raw()),
            None => {
                LoadedProgram::load(&code).map(|loaded| loaded.attach(event.id.expect("a number")))
            }
        };
        let attached = attached.unwrap_or_else(|error| panic!("{error}")).expect("it is there");
        let folder = TemporaryFolder::new();
        let deep = folder.join("d".repeat(100));
        std::fs::create_dir_all(&deep).expect("a folder");
        let paths = [255, 256, 300].map(|length| {
            let name = "n".repeat(length - 1 - deep.as_os_str().len());
            let path = deep.join(name);
            std::os::unix::fs::symlink("/bin/true", &path).expect("a link");
            path
        });
        let ran = paths.each_ref().map(|path| Command::new(path).arg0("true").status());
        assert!(ran.iter().all(|ran| ran.as_ref().is_ok_and(|status| status.success())), "{ran:?}");
        drop(attached);
        let events = [plan.description];
        let all =
            (0..count_possible_cpus()).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)));
        let all: Vec<_> = all.flat_map(|which| read_records(&buffers, which, &events)).collect();
        let names: Vec<_> = all.iter().map(|record| record.fields["filename"].clone()).collect();
        for path in &paths {
            let kept = &path.to_str().expect("letters")[..255];
            assert!(names.contains(&Value::Text(kept.into())), "{raw:?} {kept}: {names:?}");
        }
        assert_eq!(buffers.cut(0), 2, "{raw:?}");
    }
}

/// RUN more events than the buffers can hold. EXPECT that all written records are whole, and that
/// the event's counter has every other record.
#[test]
fn records_without_room_are_counted() {
    const CALLS: u64 = 20_000;
    let Some(mut recording) = start_recording(&["syscalls:sys_enter_getppid"], (12, 1), false)
    else {
        return;
    };
    for _ in 0..CALLS {
        // SAFETY: getppid(2) has no arguments.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    let recorded = recording.finish().len() as u64;
    let (lost, too_deep) = (recording.buffers.lost(0), recording.buffers.too_deep());
    assert!(recorded > 100 && lost > 100, "{recorded} {lost}");
    assert!(recorded + lost >= CALLS, "{recorded} {lost}");
    assert_eq!(too_deep, 0);
    let discarded = |cpu| {
        let region = recording.buffers.region(cpu, 0).expect("it is there");
        region.snapshot().expect("it makes sense").discarded
    };
    assert_eq!((0..count_possible_cpus()).map(discarded).sum::<u64>(), lost);
}

/// RUN events with buffers that programs overwrite. EXPECT the latest events, and no counted loss.
#[test]
fn a_flight_recorder_has_the_latest() {
    const CALLS: u64 = 20_000;
    let patterns = ["syscalls:sys_enter_getpgid"];
    let Some(mut recording) = start_recording(&patterns, (12, 2), true) else { return };
    for number in 0..CALLS {
        // SAFETY: getpgid(2) takes a number.
        unsafe { libc::syscall(libc::SYS_getpgid, 1_000_000_000 + number) };
    }
    let all = recording.finish();
    assert_eq!(recording.buffers.lost(0), 0);
    let last = Value::Number((1_000_000_000 + CALLS - 1) as i64);
    assert!(
        all.iter().any(|(_, record)| record.fields.get("pid") == Some(&last)),
        "{} records",
        all.len()
    );
    assert!((all.len() as u64) < CALLS);
}

/// Returns all contexts that this kernel reveals.
fn all_contexts(btf: &Btf) -> Contexts {
    let all = Contexts::new(&contexts::ALL, Some(btf)).or_else(|hidden| {
        println!("skipped in part, because there are not all: {hidden}");
        let is_there = |of: &Context| Contexts::new(&[*of], Some(btf)).is_ok();
        let all: Vec<_> = contexts::ALL.into_iter().filter(is_there).collect();
        Contexts::new(&all, Some(btf))
    });
    all.expect("each is there")
}

/// RUN the program of every event of this kernel through its verifier, with all contexts. EXPECT
/// that the verifier accepts all, and that nearly all fields are recorded.
#[test]
fn the_kernel_takes_the_program_of_every_event() {
    let Some(recording) = start_recording(&["syscalls:sys_enter_getppid"], (16, 2), false) else {
        return;
    };
    let catalogue = Catalogue::open().expect("it was there a moment ago");
    let events = catalogue.events(catalogue.names()).events;
    let layout = recording.buffers.layout();
    let contexts = match catalogue.btf() {
        Some(btf) => all_contexts(btf),
        None => Contexts::default(),
    };
    let registers = catalogue.btf().and_then(RegisterLayout::find);
    let raw = |phase: Phase| {
        let side = if phase == Phase::Enter { "enter" } else { "exit" };
        let of = catalogue.btf()?.find(Class::Typedef, &format!("btf_trace_sys_{side}"))?;
        Some(of.id)
    };
    let unread = Scope::new().expect("there was a map already");
    let maps = ProgramMaps { buffers_fd: recording.buffers.map_fd(), scope: None };
    let (mut fields, mut left_out, mut taken) = (0, Vec::new(), 0);
    let mut instructions = (0, 0);
    for event in events.iter().filter(|event| event.id.is_some()) {
        let name = event.full_name();
        let make = |mut plan: EventPlan| {
            plan.contexts = contexts.clone();
            plan.unread_threads = Some(unread.maps());
            assert_eq!(plan.steps.len(), plan.description.fields.len(), "{name}");
            let code = generate_program(&plan, layout, maps, EventNumber { id: 1000, index: 0 })
                .expect("it fits");
            (plan, code)
        };
        let mut check = |loaded: Result<LoadedProgram, LoadError>| match loaded {
            Err(error) => panic!("{name}: {}", error.to_string().lines().last().unwrap_or("")),
            Ok(loaded) => {
                let counts = loaded.instruction_counts().expect("the kernel reports it");
                let (program, verified) = (counts.program, counts.verified);
                assert!(program > 100 && verified < 10 * program, "{name}: {verified}");
                instructions = (instructions.0 + program, instructions.1 + verified);
            }
        };
        let (mut plan, code) = make(EventPlan::from_record_with_unknown(event, 3500));
        check(LoadedProgram::load(&code));
        // A system call is recorded from its registers if possible.
        if let (Source::Syscall { phase, .. }, Some(registers)) = (&event.source, &registers)
            && let Some(of_call) = EventPlan::from_registers(event, registers, 3500)
        {
            let code;
            (plan, code) = make(of_call);
            check(LoadedProgram::load_raw(&code, raw(*phase).expect("a type")));
        }
        taken += 1;
        fields += plan.steps.len();
        left_out.extend(plan.omitted_fields.iter().map(|of| format!("{name}.{of}")));
    }
    println!("{taken} events, {fields} fields, {instructions:?}; left out: {left_out:?}");
    // Verification time grows with the number of walked instructions: without countermeasures, 14
    // for each instruction.
    assert!(instructions.1 < 3 * instructions.0, "{instructions:?}");
    assert!(taken > 100, "{taken}");
    assert!(left_out.len() * 50 < fields, "{left_out:?}");
}

/// RUN a command in a scope, and other commands that get thread ids of former members. EXPECT the
/// events of the command and its descendants, including threads, and no others.
#[test]
fn a_scope_has_a_thread_and_its_descendants() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    if Scope::new().is_err() {
        return report_skipped("BPF is not available");
    }
    let one = |pattern: &str| {
        let selection = Selection::new(&[pattern]).expect("a pattern");
        catalogue.select(&selection).expect("an event").events.remove(0)
    };
    let new = one("task:task_newtask");
    let argument = catalogue.btf().and_then(NewThreadSource::find_argument);
    let attach = |scope: &Scope, source: NewThreadSource| {
        let code = scope.generate_inheritance(source).expect("a program");
        match (source, argument) {
            (NewThreadSource::Argument { .. }, Some((_, raw))) => {
                let loaded =
                    LoadedProgram::load_raw(&code, raw).unwrap_or_else(|error| panic!("{error}"));
                loaded.attach_raw().expect("it is there")
            }
            _ => {
                let loaded = LoadedProgram::load(&code).unwrap_or_else(|error| panic!("{error}"));
                loaded.attach(new.id.expect("a number")).expect("it is there")
            }
        }
    };
    let field = NewThreadSource::find_field(&new).expect("it says who");
    for source in argument.map(|(source, _)| source).into_iter().chain([field]) {
        let scope = Scope::new().expect("there was one a moment ago");
        let heir = attach(&scope, source);
        check_scope(&scope, &one("syscalls:sys_enter_openat"));
        drop(heir);
    }
}

fn check_scope(scope: &Scope, call: &Event) {
    let layout = BufferLayout::new(16, 3, 1).expect("a layout");
    let buffers = Buffers::new(layout, count_possible_cpus(), BufferMode::Discard)
        .expect("there was a map already");
    let plan = EventPlan::from_record(call, 3000);
    let maps = ProgramMaps { buffers_fd: buffers.map_fd(), scope: Some(scope.maps()) };
    let code =
        generate_program(&plan, &layout, maps, EventNumber { id: 0, index: 0 }).expect("it fits");
    let loaded = LoadedProgram::load(&code).unwrap_or_else(|error| panic!("{error}"));
    let attached = loaded.attach(call.id.expect("a number")).expect("it is there");
    // Ids that new threads get next, marked as if former members had used them.
    let ran = Command::new("/bin/true").spawn().and_then(|mut ran| ran.wait().map(|_| ran.id()));
    let first = ran.expect("it runs") + 1;
    let had: Vec<u32> = (first..first + 2000).collect();
    let is_there = |tid: &u32| Path::new(&format!("/proc/{tid}")).exists();
    had.iter().filter(|tid| !is_there(tid)).for_each(|&tid| scope.set_recorded(tid, true));
    let outside = Command::new("/bin/cat").arg("/nowhere/outside").stderr(Stdio::null()).spawn();
    let mut outside = outside.expect("it runs");
    assert!(!outside.wait().expect("it ends").success());
    if !had.contains(&outside.id()) {
        report_skipped("other numbers were given out than the next ones");
    }
    assert!(!scope.contains(outside.id()));
    let ours = trackway_sys::thread::current_tid();
    scope.set_recorded(ours, true);
    let script = "(cat /nowhere/child); cat /nowhere/another";
    let child = Command::new("/bin/sh").args(["-c", script]).spawn();
    scope.set_recorded(ours, false);
    let mut child = child.expect("it runs");
    let _ = File::open("/nowhere/ours");
    child.wait().expect("it ends");
    assert!(scope.contains(child.id()));
    drop(attached);
    let events = [plan.description];
    let all = (0..count_possible_cpus()).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)));
    let all: Vec<_> = all.flat_map(|which| read_records(&buffers, which, &events)).collect();
    let names: Vec<_> = all.iter().map(|record| record.fields["filename"].clone()).collect();
    let has = |name: &str| names.contains(&Value::Text(name.into()));
    assert!(has("/nowhere/child") && has("/nowhere/another"), "{names:?}");
    assert!(!has("/nowhere/outside") && !has("/nowhere/ours"), "{names:?}");
    assert!(all.iter().any(|record| record.tid == u64::from(child.id())), "{all:?}");
}

/// RUN an event with a number of which only some bits have names. EXPECT a plain number.
#[test]
fn names_of_some_bits_are_not_the_numbers() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let selection = Selection::new(&["block:block_rq_issue", "irq:softirq_entry"]);
    let Ok(events) = catalogue.select(&selection.expect("patterns")) else {
        return report_skipped("the kernel does not have these events");
    };
    let kind = |name: &str| {
        let of = |event: &Event| {
            let plan = EventPlan::from_record(event, 3000);
            let at = plan.description.fields.iter().position(|field| field.name == name)?;
            Some((plan.description.fields[at].kind.clone(), plan.meanings[at].clone()))
        };
        events.events.iter().find_map(of).expect("a field")
    };
    let (priority, meaning) = kind("ioprio");
    let Meaning::Symbols(symbols) = meaning else {
        return report_skipped("ioprio is a number here");
    };
    assert_eq!(symbols.show(2 << 13 | 4), "be|0x4");
    assert_eq!(priority, FieldKind::Scalar(Scalar::X16));
    assert_eq!(kind("vec").0, FieldKind::Scalar(Scalar::U32));
    let (operation, _) = kind("rwbs");
    assert_eq!(operation, FieldKind::Scalar(Scalar::X32));
}

/// RUN a system call whose program reads its registers. EXPECT fields equal to those from its
/// tracepoint.
// Longer than 70 lines: one comparison of two records.
#[test]
fn a_system_call_is_recorded_from_its_registers() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let registers = RegisterLayout::find(btf).expect("those of x86-64");
    let selection = Selection::new(&["syscalls:openat"]).expect("a pattern");
    let events = catalogue.select(&selection).expect("events").events;
    let layout = BufferLayout::new(16, 3, events.len()).expect("a layout");
    let buffers = match Buffers::new(layout, count_possible_cpus(), BufferMode::Discard) {
        Ok(buffers) => buffers,
        Err(error) => return report_skipped(format!("BPF is not available: {error}")),
    };
    let (mut descriptions, mut attached, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for (number, event) in events.iter().enumerate() {
        let Source::Syscall { number: Some(call), phase, .. } = event.source else {
            panic!("{event:?}")
        };
        let plan = EventPlan::from_registers(event, &registers, 3000).expect("it has a number");
        let maps = ProgramMaps { buffers_fd: buffers.map_fd(), scope: None };
        let code = generate_program(
            &plan,
            &layout,
            maps,
            EventNumber { id: number as u16, index: number },
        )
        .expect("it fits");
        let name = match phase {
            Phase::Enter => "btf_trace_sys_enter",
            Phase::Exit => "btf_trace_sys_exit",
        };
        let btf_id = btf.find(Class::Typedef, name).expect("it is there").id;
        let load = |code: &[u8]| {
            LoadedProgram::load_raw(code, btf_id)
                .unwrap_or_else(|error| panic!("{}: {error}", event.full_name()))
        };
        let programs = ProgramTable::new(1024).expect("there was a map already");
        let compat = ProgramTable::new(1024).expect("there was a map already");
        let tables = DispatchTables { programs: &programs, compat: &compat };
        let counted = Some(buffers.map_fd());
        let dispatcher =
            generate_dispatcher(phase, &registers, tables, None, counted).expect("a program");
        programs.set(call, &load(&code)).expect("of one kind");
        attached.push(load(&dispatcher).attach_raw().expect("it is there"));
        descriptions.push(plan.description);
        kept.push(programs);
    }
    let name = "/nowhere/that/registers/lead";
    File::open(name).expect_err("it is not there");
    // Other system calls have no program and are counted, unless recording is stopped.
    let others =
        || kept.iter().map(|programs: &ProgramTable| programs.unknown_calls()).collect::<Vec<_>>();
    let before = others();
    let call = || std::fs::metadata("/").map(drop).expect("it is there");
    call();
    assert!(others().iter().zip(&before).any(|(now, before)| now > before), "{before:?}");
    buffers.stop();
    trackway_sys::process::wait_for_readers_in_kernel().expect("the kernel can wait");
    let before = others();
    call();
    assert_eq!(others(), before);
    drop(attached);
    let all = (0..count_possible_cpus()).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)));
    let all: Vec<_> = all.flat_map(|which| read_records(&buffers, which, &descriptions)).collect();
    let entry =
        all.iter().find(|record| record.fields.get("filename") == Some(&Value::Text(name.into())));
    let entry = entry.expect("it is recorded");
    assert_eq!(entry.fields["dfd"], Value::Number(libc::AT_FDCWD.into()));
    assert!(all.iter().any(|record| {
        record.tid == entry.tid
            && record.fields.get("ret") == Some(&Value::Number(-i64::from(libc::ENOENT)))
    }));
}

/// RUN records that would fill a sub-buffer to its last byte, the last record with the longest
/// header. EXPECT all these records, and the records after them.
#[test]
fn no_record_ends_where_a_sub_buffer_does() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Ok(scope) = Scope::new() else { return report_skipped("BPF is not available") };
    let selection = Selection::new(&["syscalls:sys_enter_chdir"]).expect("a pattern");
    let call = catalogue.select(&selection).expect("an event").events.remove(0);
    let layout = BufferLayout::new(12, 3, 1).expect("a layout");
    let buffers = Buffers::new(layout, count_possible_cpus(), BufferMode::Discard)
        .expect("there was a map already");
    let plan = EventPlan::from_record(&call, 3000);
    let maps = ProgramMaps { buffers_fd: buffers.map_fd(), scope: Some(scope.maps()) };
    let code =
        generate_program(&plan, &layout, maps, EventNumber { id: 0, index: 0 }).expect("it fits");
    let loaded = LoadedProgram::load(&code).unwrap_or_else(|error| panic!("{error}"));
    let attached = loaded.attach(call.id.expect("a number")).expect("it is there");
    // Runs on one CPU only.
    // SAFETY: a set of CPUs may be all zero; the calls fill it in and read it.
    let before = unsafe {
        let mut before: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&before), &raw mut before), 0);
        let mut one: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &raw const one), 0);
        before
    };
    scope.set_recorded(trackway_sys::thread::current_tid(), true);
    let go = |length: usize| {
        let name = format!("/nowhere/{}\0", "x".repeat(length - 9));
        // SAFETY: the path ends in a NUL.
        assert_eq!(unsafe { libc::chdir(name.as_ptr().cast()) }, -1);
    };
    // Header 4, thread id 4, text and its NUL, 1: 11 × 260 + 110 = 4096 - 84 - (13 + 4 + 1024 + 1).
    (0..11).for_each(|_| go(250));
    go(100);
    // The header of the next record has the whole time.
    std::thread::sleep(std::time::Duration::from_millis(150));
    go(1023);
    (0..50).for_each(|_| go(40));
    scope.set_recorded(trackway_sys::thread::current_tid(), false);
    // SAFETY: `before` is a valid set of CPUs, from sched_getaffinity(2).
    unsafe { libc::sched_setaffinity(0, size_of_val(&before), &raw const before) };
    drop(attached);
    let events = [plan.description];
    let all = (0..count_possible_cpus()).flat_map(|cpu| read_records(&buffers, (cpu, 0), &events));
    assert_eq!((all.count(), buffers.lost(0)), (63, 0));
}
