//! Compares recording from the arguments of raw tracepoints with the kernel's own record.
//!
//! Longer than 600 lines: one program after the other, each with its comparison.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::Duration;

use trackway_filter::compile::compile;
use trackway_kernel::bpf_program::arguments::raw_tracepoint_type;
use trackway_kernel::bpf_program::attach::{AttachedProgram, LoadedProgram};
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::codegen::{
    EventNumber, ProgramMaps, generate_filtered_program, generate_program,
};
use trackway_kernel::bpf_program::contexts::FilterContexts;
use trackway_kernel::bpf_program::filter::{Filter, FilterMaps};
use trackway_kernel::bpf_program::kernel_version::PreemptionGuard;
use trackway_kernel::bpf_program::layout::{BufferLayout, LEVELS};
use trackway_kernel::bpf_program::plan::{EventPlan, RegisterLayout};
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::btf::{Btf, Class};
use trackway_kernel::catalogue::model::{Event, Source};
use trackway_kernel::catalogue::select::Selection;
use trackway_schema::EventDescription;
use trackway_testkit::report_skipped;

use crate::decode::{Record, Value, read_records};
use crate::filters::filter_layout;
use crate::recording::count_possible_cpus;

/// Most payload bytes that either kind of program records.
pub(crate) const PAYLOAD_MAX: u32 = 3000;
/// Most records of each program that a failed comparison prints.
const SHOWN_MAX: usize = 3;
/// Frequent events, and events that all users record.
const REQUIRED_EVENTS: [&str; 12] = [
    "sched:sched_switch",
    "sched:sched_waking",
    "sched:sched_wakeup",
    "sched:sched_migrate_task",
    "sched:sched_stat_runtime",
    "sched:sched_process_fork",
    "sched:sched_process_exit",
    "irq:softirq_entry",
    "timer:hrtimer_start",
    "timer:hrtimer_expire_entry",
    "timer:timer_start",
    "kmem:kmalloc",
];

/// Returns the events that can be recorded from their arguments, with their plans.
fn recordable_events<'e>(events: &'e [Event], btf: &Btf) -> Vec<(&'e Event, EventPlan)> {
    let plan = |event| Some((event, EventPlan::from_arguments(event, btf, PAYLOAD_MAX)?));
    events.iter().filter_map(plan).collect()
}

/// RUN the program of every event of the table through the kernel's verifier. EXPECT that it
/// accepts all, and descriptions equal to those from the tracepoint's record.
#[test]
fn the_kernel_takes_the_programs_that_read_arguments() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let layout = BufferLayout::new(16, 2, 1).expect("a layout");
    let buffers = match Buffers::new(layout, count_possible_cpus(), BufferMode::Discard) {
        Ok(buffers) => buffers,
        Err(error) => return report_skipped(format!("BPF is not available: {error}")),
    };
    let events = catalogue.events(catalogue.names()).events;
    let known = recordable_events(&events, btf);
    let mut refused = Vec::new();
    for (event, plan) in &known {
        let of_record = EventPlan::from_record_with_unknown(event, PAYLOAD_MAX);
        assert_eq!(plan.description, of_record.description);
        let code = generate_program(
            plan,
            &layout,
            ProgramMaps { buffers_fd: buffers.map_fd(), scope: None },
            EventNumber { id: 1000, index: 0 },
        )
        .expect("it fits");
        let btf_id = raw_tracepoint_type(event, btf).expect("it is there");
        if let Err(error) = LoadedProgram::load_raw(&code, btf_id) {
            refused.push(format!("{}: {error}", event.full_name()));
        }
    }
    println!("{} events", known.len());
    assert!(refused.is_empty(), "{} of {}: {}", refused.len(), known.len(), refused.join("\n"));
    assert!(known.len() > 100, "{}", known.len());
}

/// Programs attached to events, and their records.
pub(crate) struct RecordingPrograms<'c> {
    btf: &'c Btf,
    buffers: Buffers,
    pub(crate) events: Vec<EventDescription>,
    attached: Vec<AttachedProgram>,
    /// For each program, the final number of skipped runs and of records that did not fit.
    pub(crate) missed: Vec<u64>,
}

impl<'c> RecordingPrograms<'c> {
    /// Creates buffers for `programs` programs. `None`: BPF is not available, which is reported.
    pub(crate) fn new(btf: &'c Btf, programs: usize) -> Option<Self> {
        let layout = BufferLayout::new(16, 7, programs).expect("a layout");
        match Buffers::new(layout, count_possible_cpus(), BufferMode::Discard) {
            Ok(buffers) => Some(Self {
                btf,
                buffers,
                events: Vec::new(),
                attached: Vec::new(),
                missed: Vec::new(),
            }),
            Err(error) => {
                report_skipped(format!("BPF is not available: {error}"));
                None
            }
        }
    }

    pub(crate) fn attach(&mut self, event: &Event, plan: EventPlan, is_raw: bool) {
        self.attach_filtered(event, plan, is_raw, &[]);
    }

    fn attach_filtered(
        &mut self,
        event: &Event,
        plan: EventPlan,
        is_raw: bool,
        filters: &[Filter],
    ) {
        let number = self.events.len();
        let maps = ProgramMaps { buffers_fd: self.buffers.map_fd(), scope: None };
        let code = generate_filtered_program(
            &plan,
            self.buffers.layout(),
            maps,
            EventNumber { id: number as u16, index: number },
            filters,
        );
        let code = code.expect("it fits");
        let attached = if is_raw {
            let btf_id = raw_tracepoint_type(event, self.btf).expect("it is there");
            LoadedProgram::load_raw(&code, btf_id).expect("it is taken").attach_raw()
        } else {
            LoadedProgram::load(&code).expect("it is taken").attach(event.id.expect("a number"))
        };
        self.attached.push(attached.expect("it is attached"));
        // Contexts precede the fields; the decoder already reads the thread id of records.
        let mut described = plan.description;
        described.fields.splice(0..0, plan.contexts.fields().into_iter().skip(1));
        self.events.push(described);
    }

    /// Detaches all programs; returns their records by CPU, in the order of time.
    pub(crate) fn finish(&mut self) -> Vec<Vec<Record>> {
        self.buffers.stop();
        // In parallel, because the kernel waits during each detachment.
        let take_off = |one: AttachedProgram| one.detach().missed_runs().expect("it says");
        let share = self.attached.len().div_ceil(8).max(1);
        let mut rest = std::mem::take(&mut self.attached);
        self.missed = std::thread::scope(|scope| {
            let mut off = Vec::new();
            while !rest.is_empty() {
                let some: Vec<_> = rest.drain(..share.min(rest.len())).collect();
                off.push(scope.spawn(move || some.into_iter().map(take_off).collect::<Vec<_>>()));
            }
            off.into_iter().flat_map(|some| some.join().expect("it ends")).collect()
        });
        // Records that did not fit count as missed.
        let too_deep = self.buffers.too_deep();
        for (number, missed) in self.missed.iter_mut().enumerate() {
            *missed += self.buffers.lost(number) + too_deep;
        }
        let of_cpu = |cpu| {
            let levels =
                (0..LEVELS).map(|level| read_records(&self.buffers, (cpu, level), &self.events));
            let mut all: Vec<Record> = levels.flatten().collect();
            all.sort_by_key(|record| (record.time_ns, record.id));
            all
        };
        (0..count_possible_cpus()).map(of_cpu).collect()
    }
}

/// Causes many kinds of events.
fn cause_events() {
    let folder = std::env::temp_dir().join(format!("trackway-arguments-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = "cd \"$1\"; for i in 1 2 3; do echo $i > f$i; mv f$i g$i; cat g$i | cat; done; \
        sleep 0.05 & p=$!; sleep 0.01; kill -STOP $p; sleep 0.01; kill -CONT $p; wait $p; \
        truncate -s 100000 h; sync h; dd if=/dev/zero of=i bs=64k count=16 conv=fsync; \
        nice -n 5 true; rm -f g? h i";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(&folder);
    let mut child = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let other = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(5));
        (0..200_000_u64).fold(0, |a, b| std::hint::black_box(a ^ b))
    });
    send_packets();
    migrate_across_cpus();
    trace_child();
    let (mut output, mut input) = std::io::pipe().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut byte = [0];
        while output.read(&mut byte).is_ok_and(|count| count > 0) {}
    });
    for _ in 0..300 {
        input.write_all(&[0]).expect("it is read");
        std::thread::yield_now();
    }
    drop(input);
    reader.join().expect("it ends");
    other.join().expect("it ends");
    child.wait().expect("it ends");
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

/// Sends network packets to this process.
fn send_packets() {
    let one = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = one.local_addr().expect("it is bound");
    for _ in 0..20 {
        one.send_to(b"something", address).expect("it is sent");
        one.recv(&mut [0; 16]).expect("it is there");
    }
    // The timeout counts in ticks, so this starts a kernel timer.
    one.set_read_timeout(Some(Duration::from_millis(5))).expect("it is a time");
    one.recv(&mut [0; 16]).expect_err("nothing is there");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("it is bound");
    let client = std::thread::spawn(move || {
        let mut client = TcpStream::connect(address).expect("it listens");
        client.write_all(&[1; 100_000]).expect("it is read");
    });
    let (mut server, _) = listener.accept().expect("it comes");
    let mut all = Vec::new();
    server.read_to_end(&mut all).expect("it is sent");
    client.join().expect("it ends");
    assert_eq!(all.len(), 100_000);
}

/// Traces a child process for a moment.
fn trace_child() {
    let mut child = Command::new("/bin/sleep").arg("1000").spawn().expect("it runs");
    let pid = child.id().cast_signed();
    let nothing = core::ptr::null_mut::<u8>();
    // SAFETY: the child is ours, and the calls read and write no address.
    unsafe {
        if libc::ptrace(libc::PTRACE_ATTACH, pid, nothing, nothing) == 0 {
            libc::waitpid(pid, core::ptr::null_mut(), libc::__WALL);
            libc::ptrace(libc::PTRACE_DETACH, pid, nothing, nothing);
        }
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
}

/// Moves this thread to each CPU, under several names, with a timer running.
fn migrate_across_cpus() {
    let go = || {
        // SAFETY: the name ends in a NUL; sets of CPUs and timers may be all zero.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NAME, c"a-name-of-15-by".as_ptr()), 0);
            for cpu in (0..count_possible_cpus()).chain(0..count_possible_cpus()) {
                let mut one: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(cpu, &mut one);
                let _ = libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
                let map = libc::mmap(
                    core::ptr::null_mut(),
                    1 << 20,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                core::ptr::write_bytes(map.cast::<u8>(), 1, 1 << 20);
                libc::munmap(map, 1 << 20);
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(libc::prctl(libc::PR_SET_NAME, c"short".as_ptr()), 0);
            let mut never: libc::itimerval = core::mem::zeroed();
            never.it_value.tv_sec = 1000;
            libc::setitimer(libc::ITIMER_REAL, &raw const never, core::ptr::null_mut());
            let none: libc::itimerval = core::mem::zeroed();
            libc::setitimer(libc::ITIMER_REAL, &raw const none, core::ptr::null_mut());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    std::thread::spawn(go).join().expect("it ends");
}

/// Returns true if two records have equal common fields; only one kind has LTTng's fields.
fn is_same(event: &str, one: &Record, other: &Record) -> bool {
    let is_near = |(name, value): (&String, &Value)| match (value, other.fields.get(name)) {
        (Value::Number(ticks), Some(Value::Number(others)))
            if event.starts_with("timer_") && name == "now" =>
        {
            ticks.abs_diff(*others) <= 1
        }
        (value, other) => other.is_none_or(|other| value == other),
    };
    one.tid == other.tid && one.fields.iter().all(is_near)
}

/// Counts of compared events, and of the thread states in their records.
#[derive(Debug, Default)]
struct ComparisonCounts {
    events: BTreeMap<String, u64>,
    states: BTreeMap<i64, u64>,
}

/// The events and conditions of a comparison.
struct Comparison<'a> {
    events: &'a [&'a (&'a Event, EventPlan)],
    /// For each program, the number of missed records.
    missed: &'a [u64],
    /// The time in which both programs recorded. Before and after, one may have recorded alone.
    time_ns: Range<u64>,
}

impl ComparisonCounts {
    /// Compares the records of two programs on each event, for each CPU: the first program reads
    /// the event's arguments, the second the kernel's record. The kernel skips the first program if
    /// it would interrupt itself, and counts that. So this count limits the events that only the
    /// second program has recorded.
    ///
    /// Records of the first program alone are not limited. The kernel also skips a program on its
    /// record, without counting, while another `perf` handles a wake-up in the same context
    /// (perf_swevent_get_recursion_context()). While another program runs, it skips and counts it.
    fn compare(&mut self, what: &Comparison<'_>, records: &[Vec<Record>]) -> Result<(), String> {
        let mut alone: Vec<Vec<&Record>> = vec![Vec::new(); what.missed.len()];
        for records in records {
            let rest = self.find_unpaired(what, records);
            alone.iter_mut().zip(rest).for_each(|(alone, rest)| alone.extend(rest));
        }
        for (number, (event, _)) in what.events.iter().enumerate() {
            let (others, of) = (&alone[2 * number], &alone[2 * number + 1]);
            let missed = what.missed[2 * number];
            if of.len() as u64 > missed {
                let (count, name) = (of.len(), &event.name);
                let shown = |of: &[&Record]| format!("{:#?}", &of[..of.len().min(SHOWN_MAX)]);
                let (of, others) = (shown(of), shown(others));
                return Err(format!("{name}: {count} are none of {others}, {missed} missed: {of}"));
            }
        }
        Ok(())
    }

    /// Returns, for each program, the records of one CPU that only this program has.
    fn find_unpaired<'r>(
        &mut self,
        what: &Comparison<'_>,
        records: &'r [Record],
    ) -> Vec<Vec<&'r Record>> {
        let mut pending: Vec<Vec<&Record>> = vec![Vec::new(); what.missed.len()];
        for record in records {
            let (event, _) = what.events[record.id / 2];
            // The order varies: other programs on a tracepoint can change it.
            let others = &mut pending[record.id ^ 1];
            if let Some(found) = others.iter().rposition(|one| is_same(&event.name, one, record)) {
                others.remove(found);
                *self.events.entry(event.full_name()).or_default() += 1;
                if let Some(Value::Number(state)) = record.fields.get("prev_state") {
                    *self.states.entry(*state).or_default() += 1;
                }
                continue;
            }
            pending[record.id].push(record);
        }
        for alone in &mut pending {
            alone.retain(|record| what.time_ns.contains(&record.time_ns));
        }
        pending
    }
}

/// Causes events with both kinds of program on each event, and compares their records.
fn compare_group(
    btf: &Btf,
    group: &[&(&Event, EventPlan)],
    compared: &mut ComparisonCounts,
) -> Result<(), String> {
    let mut both = RecordingPrograms::new(btf, 2 * group.len()).expect("there was one");
    // Attaching takes long; meanwhile, other processes would fill the buffers.
    both.buffers.stop();
    for (event, plan) in group {
        both.attach(event, plan.clone(), true);
        both.attach(event, EventPlan::from_record(event, PAYLOAD_MAX), false);
    }
    both.buffers.start();
    let begin_ns = trackway_sys::clock::monotonic_ns() + 1_000_000;
    cause_events();
    let end_ns = trackway_sys::clock::monotonic_ns() - 10_000_000;
    let all = both.finish();
    let what = Comparison { events: group, missed: &both.missed, time_ns: begin_ns..end_ns };
    compared.compare(&what, &all)
}

/// RUN all events of the table that this test can cause, with both kinds of program on each event.
/// EXPECT records from arguments that equal the kernel's own records.
#[test]
fn fields_from_arguments_equal_the_kernels_record() {
    /// Number of events above which an event would fill the buffers of other events.
    const FREQUENT_COUNT: u64 = 2000;
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let events = catalogue.events(catalogue.names()).events;
    let known = recordable_events(&events, btf);
    // Detaching takes long, so the test compares only events that occur.
    let Some(mut first) = RecordingPrograms::new(btf, known.len()) else { return };
    first.buffers.stop();
    for (event, plan) in &known {
        first.attach(event, plan.clone(), true);
    }
    first.buffers.start();
    cause_events();
    let mut happened = vec![0; known.len()];
    (0..).zip(&mut happened).for_each(|(at, count)| *count = first.buffers.lost(at));
    first.finish().iter().flatten().for_each(|record| happened[record.id] += 1);
    drop(first);
    let mut compared = ComparisonCounts::default();
    for is_often in [false, true] {
        let group = happened.iter().zip(&known);
        let group =
            group.filter(|(count, _)| **count > 0 && (**count > FREQUENT_COUNT) == is_often);
        let group: Vec<_> = group.map(|(_, known)| known).collect();
        compare_group(btf, &group, &mut compared).unwrap_or_else(|error| panic!("{error}"));
    }
    let names: Vec<&str> = compared.events.keys().map(String::as_str).collect();
    println!("{} of {} events, {compared:?}", names.len(), known.len());
    for wanted in REQUIRED_EVENTS
        .iter()
        .filter(|wanted| known.iter().any(|(event, _)| event.full_name() == **wanted))
    {
        assert!(names.contains(wanted), "{wanted} was not compared");
    }
}

/// Returns the events with these names.
pub(crate) fn select_events(catalogue: &Catalogue, names: &[&str]) -> Vec<Event> {
    let selection = Selection::new(names).expect("patterns");
    catalogue.select(&selection).expect("they are there").events
}

/// RUN the program on the kernel's record, the fallback for arguments, for an event with numbers
/// that the record lacks. EXPECT records of the described size, one after the other, with zeros for
/// these numbers.
#[test]
fn fields_missing_in_a_record_are_zero() {
    const FORKS: usize = 5;
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let event = &select_events(&catalogue, &["sched:sched_process_fork"])[0];
    let mut plan = EventPlan::from_record_with_unknown(event, PAYLOAD_MAX);
    assert_eq!(plan.unknown_fields().collect::<Vec<_>>(), ["parent_pid", "child_pid"]);
    // More data follows the zeros, so a program that copies too few bytes shifts that data.
    plan.description.fields.rotate_right(2);
    plan.meanings.rotate_right(2);
    plan.steps.rotate_right(2);
    let Some(mut both) = RecordingPrograms::new(btf, 1) else { return };
    both.attach(event, plan, false);
    for _ in 0..FORKS {
        assert!(Command::new("/bin/true").status().expect("it runs").success());
    }
    let all: Vec<Record> = both.finish().into_iter().flatten().collect();
    assert!(all.len() + both.missed[0] as usize >= FORKS, "{all:?}");
    for record in &all {
        let zero = Some(&Value::Number(0));
        assert_eq!(record.fields.get("parent_pid"), zero, "{record:?}");
        assert_eq!(record.fields.get("child_pid"), zero, "{record:?}");
        let child = record.fields.get("child_tid");
        assert!(matches!(child, Some(Value::Number(1..))), "{record:?}");
    }
}

/// RUN the comparison with a program that reads the wrong argument. EXPECT a difference.
#[test]
fn the_comparison_finds_a_wrong_argument() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let event = &select_events(&catalogue, &["sched:sched_process_fork"])[0];
    let mut wrong = event.clone();
    let Source::RawTracepoint { arguments } = &mut wrong.source else { panic!("{event:?}") };
    let names: Vec<_> = arguments.iter().rev().map(|argument| argument.name.clone()).collect();
    arguments.iter_mut().zip(names).for_each(|(argument, name)| argument.name = name);
    let Some(plan) = EventPlan::from_arguments(&wrong, btf, PAYLOAD_MAX) else {
        return report_skipped("this kernel's sched_process_fork is another one");
    };
    let Some(mut both) = RecordingPrograms::new(btf, 2) else { return };
    both.attach(event, plan.clone(), true);
    both.attach(event, EventPlan::from_record(event, PAYLOAD_MAX), false);
    assert!(Command::new("/bin/true").status().expect("it runs").success());
    let known = (event, plan);
    let mut compared = ComparisonCounts::default();
    let all = both.finish();
    let what = Comparison { events: &[&known], missed: &[0, 0], time_ns: 0..u64::MAX };
    assert!(compared.compare(&what, &all).is_err(), "{compared:?}");
}

/// RUN the comparison of records as if an interrupt that frees memory came during the second
/// program: one record of the first program, ten of the interrupt, one of the second program.
/// EXPECT that the outer two are found to be one event. EXPECT that an additional record of the
/// second program is found, unless the kernel counts a skipped run.
#[test]
fn a_record_waits_for_its_second_whatever_interrupts_it() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let event = &select_events(&catalogue, &["kmem:kfree"])[0];
    let known = (event, EventPlan::from_record(event, PAYLOAD_MAX));
    let record = |time_ns: u64, id: usize, number: i64| {
        let fields = BTreeMap::from([("ptr".to_owned(), Value::Number(number))]);
        Record { time_ns, id, tid: 1, fields }
    };
    let mut all = vec![record(0, 0, 0)];
    all.extend((1..=10).map(|number| record(number, 0, number.cast_signed())));
    all.push(record(11, 1, 0));
    let differs = |records: &[Record], missed: &[u64]| {
        let what = Comparison { events: &[&known], missed, time_ns: 0..100 };
        ComparisonCounts::default().compare(&what, &[records.to_vec()]).is_err()
    };
    assert!(!differs(&all, &[0, 10]));
    all.push(record(12, 1, 12));
    assert!(!differs(&all, &[1, 10]));
    assert!(differs(&all, &[0, 10]), "nobody counted it");
    all.push(record(100, 1, 100));
    assert!(!differs(&all, &[1, 10]), "what comes at the end may be alone");
}

/// RUN events like another kernel's: with more or fewer fields, another type, another argument
/// name. EXPECT that their fields do not come from the table.
#[test]
fn events_unlike_the_table_use_the_kernels_record() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let is_known = |event: &Event| EventPlan::from_arguments(event, btf, PAYLOAD_MAX).is_some();
    for event in
        select_events(&catalogue, &["sched:sched_waking", "irq:softirq_entry", "kmem:kmalloc"])
    {
        if !is_known(&event) {
            println!("skipped, because {} is not the table's here", event.full_name());
            continue;
        }
        let mut more = event.clone();
        more.fields.push(event.fields[0].clone());
        assert!(!is_known(&more), "{more:?}");
        let mut fewer = event.clone();
        fewer.fields.pop();
        assert!(!is_known(&fewer), "{fewer:?}");
        let mut renamed = event.clone();
        renamed.fields[0].name.push('_');
        assert!(!is_known(&renamed), "{renamed:?}");
        let mut wider = event.clone();
        let last = wider.fields.last_mut().expect("it has some");
        last.size += 1;
        assert!(!is_known(&wider), "{wider:?}");
        let mut other = event.clone();
        let Source::RawTracepoint { arguments } = &mut other.source else { panic!("{event:?}") };
        arguments.iter_mut().for_each(|argument| argument.name = Some("else".into()));
        assert!(!is_known(&other), "{other:?}");
    }
    // In the kernel's sources, fields do not show the arguments of these names.
    for event in select_events(&catalogue, &["irq_vectors:vector_alloc"]) {
        assert!(event.fields.iter().all(|field| field.argument.is_some()), "{event:?}");
        assert!(!is_known(&event), "{event:?}");
    }
}

/// RUN switches and programs, with and without filters on fields that are computed, in an array, or
/// behind a pointer. EXPECT with a filter exactly the events for which it is true.
#[test]
fn filters_on_arguments_see_the_recorded_values() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let state = |record: &Record| {
        let Value::Number(state) = record.fields["prev_state"] else { panic!("{record:?}") };
        let Value::Text(name) = &record.fields["prev_comm"] else { panic!("{record:?}") };
        state & 3 != 0 && !name.starts_with("kworker")
    };
    let file = |record: &Record| record.fields["filename"] == Value::Text("/bin/true".into());
    type RecordPredicate<'a> = &'a dyn Fn(&Record) -> bool;
    let cases: [(&str, &str, RecordPredicate<'_>); 2] = [
        ("sched:sched_switch", "(prev_state & 3) != 0 && prev_comm != \"kworker*\"", &state),
        ("sched:sched_process_exec", "filename == \"/bin/true\"", &file),
    ];
    for (name, text, is_so) in cases {
        let event = &select_events(&catalogue, &[name])[0];
        let Some(plan) = EventPlan::from_arguments(event, btf, PAYLOAD_MAX) else {
            println!("skipped, because this kernel's {name} is another one");
            continue;
        };
        let Some(mut both) = RecordingPrograms::new(btf, 2) else { return };
        let mut memory =
            FilterMaps::new(count_possible_cpus(), 1, FilterContexts::find(Some(btf), |_| false))
                .expect("there was a map already");
        let compiled =
            compile(text, &filter_layout(&plan)).unwrap_or_else(|error| panic!("{error:?}"));
        let object = compiled.into_object().encode().expect("an object");
        let filter = Filter::new(&object, 0, &plan, &mut memory).expect("it is done");
        both.attach_filtered(event, plan.clone(), true, &[filter.expect("it has all")]);
        both.attach(event, plan, true);
        let begin_ns = trackway_sys::clock::monotonic_ns();
        for program in ["/bin/true", "/bin/false", "/bin/true"] {
            Command::new(program).status().expect("it runs");
        }
        let end_ns = trackway_sys::clock::monotonic_ns();
        let all = both.finish().concat();
        let between = |record: &&Record| (begin_ns..end_ns).contains(&record.time_ns);
        let passed = all.iter().filter(between).filter(|record| record.id == 0);
        let recorded = all.iter().filter(between).filter(|record| record.id == 1);
        let (expected, others): (Vec<&Record>, Vec<&Record>) =
            recorded.partition(|record| is_so(record));
        let passed: Vec<_> = passed.map(|record| &record.fields).collect();
        let expected: Vec<_> = expected.iter().map(|record| &record.fields).collect();
        assert!(expected.len() >= 2 && !others.is_empty(), "{name}: {expected:?} {others:?}");
        assert_eq!(passed, expected, "{name}");
    }
}

/// RUN programs that disable preemption, as Linux 7.0 requires: for events, for system calls, with
/// a filter. EXPECT that the kernel accepts them, and records equal to those of other programs.
#[test]
fn programs_that_are_not_preempted_record_the_same() {
    let Ok(catalogue) = Catalogue::open() else {
        return report_skipped("the catalogue is not available");
    };
    let Some(btf) = catalogue.btf() else { return report_skipped("the kernel has no BTF") };
    let Some(guard) = PreemptionGuard::find(btf) else {
        return report_skipped("this kernel has nothing for it");
    };
    let event = &select_events(&catalogue, &["sched:sched_switch"])[0];
    let Some(plan) = EventPlan::from_arguments(event, btf, PAYLOAD_MAX) else {
        return report_skipped("this kernel's sched_switch is another one");
    };
    let Some(mut both) = RecordingPrograms::new(btf, 3) else { return };
    let mut memory =
        FilterMaps::new(count_possible_cpus(), 1, FilterContexts::find(Some(btf), |_| false))
            .expect("there was a map already");
    let compiled = compile("next_prio >= 0", &filter_layout(&plan)).expect("it makes sense");
    let object = compiled.into_object().encode().expect("an object");
    let filter = Filter::new(&object, 0, &plan, &mut memory).expect("it is done");
    let filters = [filter.expect("it has all")];
    let guarded = EventPlan { guard: Some(guard), ..plan.clone() };
    both.attach(event, guarded.clone(), true);
    both.attach_filtered(event, guarded, true, &filters);
    both.attach(event, plan, true);
    let begin_ns = trackway_sys::clock::monotonic_ns();
    assert!(Command::new("/bin/true").status().expect("it runs").success());
    let end_ns = trackway_sys::clock::monotonic_ns();
    let all = both.finish().concat();
    let of = |id: usize| -> Vec<_> {
        let between = |record: &&Record| (begin_ns..end_ns).contains(&record.time_ns);
        let ours = all.iter().filter(between).filter(|record| record.id == id);
        ours.map(|record| &record.fields).collect()
    };
    assert!(!of(2).is_empty());
    assert_eq!((of(0), of(1)), (of(2), of(2)));
    // A program that reads registers loads at raw tracepoint `sys_enter`.
    let registers =
        RegisterLayout { guard: Some(guard), ..RegisterLayout::find(btf).expect("x86-64's") };
    let call = &select_events(&catalogue, &["syscalls:sys_enter_openat"])[0];
    let plan = EventPlan::from_registers(call, &registers, PAYLOAD_MAX).expect("it has a number");
    let maps = ProgramMaps { buffers_fd: both.buffers.map_fd(), scope: None };
    let code =
        generate_program(&plan, both.buffers.layout(), maps, EventNumber { id: 3, index: 0 })
            .expect("it fits");
    let btf_id = btf.find(Class::Typedef, "btf_trace_sys_enter").expect("it is there").id;
    LoadedProgram::load_raw(&code, btf_id).unwrap_or_else(|error| panic!("{error}"));
}
