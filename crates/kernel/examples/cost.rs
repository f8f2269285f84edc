//! Measures the cost of programs on tracepoints and raw tracepoints: figures for docs/design/0011.
//! As root: `cargo run --release -p trackway-kernel --example cost`

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use trackway_kernel::bpf_program::arguments::raw_tracepoint_type;
use trackway_kernel::bpf_program::attach::{AttachedProgram, LoadedProgram};
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::codegen::{EventNumber, ProgramMaps, generate_program};
use trackway_kernel::bpf_program::layout::BufferLayout;
use trackway_kernel::bpf_program::plan::EventPlan;
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::model::Event;
use trackway_kernel::catalogue::select::Selection;
use trackway_testkit::report_skipped;

/// Rounds for each variant.
const ROUNDS: usize = 40;
/// Events in one measurement.
const EVENTS: u32 = 1000;
/// Successive measurements of one variant.
const MEASUREMENTS_PER_TURN: usize = 8;

/// Measures a switch between two threads on one CPU that wake each other.
fn measure_switch() -> Duration {
    let (mut ping_out, mut ping_in) = std::io::pipe().expect("a pipe");
    let (mut pong_out, mut pong_in) = std::io::pipe().expect("a pipe");
    let other = std::thread::spawn(move || {
        let mut byte = [0];
        while ping_out.read(&mut byte).is_ok_and(|count| count > 0) {
            pong_in.write_all(&byte).expect("it is read");
        }
    });
    let mut go = || {
        ping_in.write_all(&[0]).expect("it is read");
        pong_out.read_exact(&mut [0]).expect("it is written");
    };
    (0..100).for_each(|_| go());
    let begin = Instant::now();
    (0..EVENTS / 2).for_each(|_| go());
    let took = begin.elapsed();
    drop(ping_in);
    other.join().expect("it ends");
    took / EVENTS
}

/// Measures the time of a system call.
fn measure_system_call() -> Duration {
    // SAFETY: getppid(2) has no arguments.
    let go = || unsafe { libc::syscall(libc::SYS_getppid) };
    let begin = Instant::now();
    (0..EVENTS).for_each(|_| {
        std::hint::black_box(go());
    });
    begin.elapsed() / EVENTS
}

struct ProgramVariant<'c> {
    event: &'c Event,
    code: Vec<u8>,
    raw: Option<u32>,
}

impl ProgramVariant<'_> {
    fn attach(&self) -> AttachedProgram {
        let attached = match self.raw {
            Some(id) => LoadedProgram::load_raw(&self.code, id).expect("it is taken").attach_raw(),
            None => LoadedProgram::load(&self.code)
                .expect("it is taken")
                .attach(self.event.id.expect("one")),
        };
        attached.expect("it is attached")
    }
}

fn compare_programs(event: &Event, btf: &Btf, go: fn() -> Duration) {
    let layout = BufferLayout::new(16, 4, 1).expect("a layout");
    let buffers = Buffers::new(layout, count_possible_cpus(), BufferMode::Overwrite)
        .expect("there was a map already");
    let code = |plan: &EventPlan| {
        generate_program(
            plan,
            &layout,
            ProgramMaps { buffers_fd: buffers.map_fd(), scope: None },
            EventNumber { id: 1, index: 0 },
        )
        .expect("it fits")
    };
    let arguments = EventPlan::from_arguments(event, btf, 3000).expect("it is in the table");
    let raw = raw_tracepoint_type(event, btf);
    let ways = [
        ProgramVariant { event, code: code(&arguments), raw },
        ProgramVariant { event, code: code(&EventPlan::from_record(event, 3000)), raw: None },
    ];
    let mut took: [Vec<Duration>; 3] = Default::default();
    let mut ends: [(Duration, Duration); 2] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..3 {
            let at = (round + turn) % 3;
            let mut measure = || took[at].extend((0..MEASUREMENTS_PER_TURN).map(|_| go()));
            let Some(way) = ways.get(at) else {
                measure();
                continue;
            };
            let begin = Instant::now();
            let attached = way.attach();
            ends[at].0 += begin.elapsed();
            measure();
            let begin = Instant::now();
            drop(attached);
            ends[at].1 += begin.elapsed();
        }
    }
    let of = |took: &mut Vec<Duration>| {
        took.sort();
        (took[0].as_nanos() as f64, took[took.len() / 2].as_nanos() as f64)
    };
    let [raw, record, none] = took.each_mut().map(of);
    let says = |name: &str, (least, median): (f64, f64), at: usize| {
        println!(
            "{}, {name}: {} instructions; adds {} ns (least), {} (median); to load and attach \
             {:?}, to detach {:?}",
            event.name,
            ways[at].code.len() / 8,
            least - none.0,
            median - none.1,
            ends[at].0 / ROUNDS as u32,
            ends[at].1 / ROUNDS as u32,
        );
    };
    println!("{}: untraced {} ns (least), {} (median)", event.name, none.0, none.1);
    says("from arguments", raw, 0);
    says("from the record", record, 1);
}

/// Returns the number of possible CPUs.
fn count_possible_cpus() -> usize {
    // SAFETY: the call takes no address.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).expect("a number")
}

/// Measures switches and system calls with both kinds of program, in turns, at a real-time
/// priority, and prints the added time.
fn main() {
    let Ok(catalogue) = Catalogue::open() else { return report_skipped("there is no catalogue") };
    let Some(btf) = catalogue.btf() else {
        return report_skipped("the kernel does not tell its types");
    };
    // SAFETY: an all-zero `cpu_set_t` is valid; the calls only read it.
    unsafe {
        let mut one: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
        let first = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first);
    }
    type Measurement = fn() -> Duration;
    let go: [(&str, Measurement); 3] = [
        ("sched:sched_switch", measure_switch),
        ("sched:sched_waking", measure_switch),
        ("raw_syscalls:sys_exit", measure_system_call),
    ];
    for (name, go) in go {
        let selection = Selection::new(&[name]).expect("a pattern");
        let event = catalogue.select(&selection).expect("it is there").events.remove(0);
        compare_programs(&event, btf, go);
    }
}
