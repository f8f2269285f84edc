//! Measures text search in the kernel: figures for docs/design/0011. As root: `cargo run --release
//! -p trackway-kernel --example search`

use std::io;
use std::time::{Duration, Instant};

use trackway_filter::compile::compile;
use trackway_filter::layout::{Layout, Member, Type};
use trackway_jit::helper::Word;
use trackway_jit::program::Program;
use trackway_jit::verify::{Rules, State, verify};
use trackway_kernel::bpf_filter::loaded_filter::LoadedFilter;
use trackway_kernel::bpf_filter::scratch::ScratchArea;
use trackway_kernel::bpf_filter::translate::translate_filter;

/// Runs of each filter; the least time counts.
const RUNS: usize = 2000;
/// Loads of each filter.
const LOADS: usize = 20;

struct Case {
    name: &'static str,
    filter: String,
    path: Vec<u8>,
    other: Vec<u8>,
}

fn build_cases() -> Vec<Case> {
    let nearly = |letters: usize| format!("{}b", "a".repeat(letters - 1));
    let found = |letters: usize| format!("contains(path, \"{}\")", nearly(letters));
    let case = |name, filter: &str, path: &[u8]| Case {
        name,
        filter: filter.to_owned(),
        path: path.to_vec(),
        other: Vec::new(),
    };
    let many: Vec<String> = (15..=30).map(found).collect();
    let [short, long] = [[b'a'; 200].as_slice(), &[b'a'; 1022]];
    let name = b"/etc/passwd";
    vec![
        case("nothing", "length(path) > 4000", name),
        case("*b*c*.so in a short name", "path == \"*b*c*.so\"", name),
        case("*b*c*.so in 1,022 bytes", "path == \"*b*c*.so\"", &b"bc".repeat(511)),
        case("24 letters in 200", &found(24), short),
        case("30 letters in 1,022", &found(30), long),
        case("16 times up to 30 letters in 1,022", &many.join(" || "), long),
        case("100 letters in 1,022", &found(100), long),
        Case {
            other: nearly(500).into_bytes(),
            ..case("a field of 500 in one of 1,022", "contains(path, other)", long)
        },
        case("1,022 bytes that are the same", "path == other", long),
        case(
            "a prefix of 40 letters",
            "starts_with(path, \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\")",
            long,
        ),
    ]
}

/// Returns the CPU time of this thread.
fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec`.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "threads have a clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures the time of loading, in CPU time of this thread, and of running.
fn measure_case(case: &Case) -> io::Result<(Duration, Duration)> {
    let member = |name: &str| Member { name: name.to_owned(), of: Type::String };
    let layout = Layout { fields: vec![member("path"), member("other")], ..Layout::default() };
    let compiled = compile(&case.filter, &layout).expect("a filter");
    let alternative = compiled.alternative;
    let bytes: Vec<u8> = alternative.programs[0].iter().flat_map(|insn| insn.encode()).collect();
    let program = Program::new(&bytes).expect("a program");
    let mut states = vec![State::FREE; program.len() + 1];
    let rules = Rules::new(alternative.needs.len());
    let verified = verify(program, rules, &mut states).expect("verified");
    let translated =
        translate_filter(&verified, 0, &alternative.constants).expect("the kernel can do it");
    let load = |_| {
        let begin = thread_cpu_time();
        let loaded = LoadedFilter::new(&translated).expect("the kernel takes it");
        (thread_cpu_time() - begin, loaded)
    };
    let (took, loaded) = (0..LOADS).map(load).min_by_key(|(took, _)| *took).expect("some");
    let mut other = case.other.clone();
    if case.filter == "path == other" {
        other.clone_from(&case.path);
    }
    let word = |offset: usize, length: usize| {
        let (offset, length) = (offset as u32, length as u32);
        Word { offset, length, is_constant: false }.to_bits()
    };
    let slot = |path: &str| match path {
        "path" => word(0, case.path.len()),
        _ => word(case.path.len(), other.len()),
    };
    let slots: Vec<u64> = alternative.needs.iter().map(|need| slot(&need.path)).collect();
    let mut area = ScratchArea::new(&alternative.constants).expect("few constants");
    area.fill(&slots, &[&case.path[..], &other].concat()).expect("few bytes");
    loaded.passes(&mut area)?;
    let mut least = Duration::MAX;
    for _ in 0..RUNS {
        let begin = Instant::now();
        loaded.run_again()?;
        least = least.min(begin.elapsed());
    }
    Ok((took, least))
}

fn main() -> io::Result<()> {
    let mut nothing = Duration::ZERO;
    for case in build_cases() {
        let (load, ask) = measure_case(&case)?;
        if case.name == "nothing" {
            nothing = ask;
        }
        println!(
            "{}: {:.2} µs (least of {RUNS}); to load {:.2} ms",
            case.name,
            (ask.as_nanos() as f64 - nothing.as_nanos() as f64) / 1e3,
            load.as_secs_f64() * 1e3
        );
    }
    Ok(())
}
