//! The fuzzers' targets without a fuzzer: every input of the corpus, and some changes of each, must
//! be read without a panic, within the target's bounds on work and memory. `make fuzz` searches
//! further.

use std::fs;
use std::path::PathBuf;

use trackway_fuzz_targets::{TARGETS, Target, find_target, mutate_input};
use trackway_testkit::{CountingAllocator, measure_allocations};
use trackway_tests::source_dir;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Number of changed copies that are tried for each input.
const MUTATIONS_PER_INPUT: u64 = 300;

fn read_corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = source_dir().join("fuzz/corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let read = |path: PathBuf| (path.clone(), fs::read(path).expect("an input"));
    paths.into_iter().map(read).collect()
}

fn check_input(target: &Target, bytes: &[u8]) {
    let (values, allocated) = measure_allocations(|| (target.run)(bytes));
    target.check(bytes, values, allocated.most_bytes, allocated.times);
}

/// Reports the input under which a target panics.
struct ReportInputOnPanic<'text>(&'text PathBuf, Option<u64>);

impl Drop for ReportInputOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {:?}, change {:?}", self.0, self.1);
        }
    }
}

fn run_target_on_corpus(name: &str) {
    let target = find_target(name).expect("a target");
    let corpus = read_corpus(target);
    assert!(!corpus.is_empty(), "no inputs for {name}");
    for (path, bytes) in &corpus {
        let _report = ReportInputOnPanic(path, None);
        check_input(target, bytes);
    }
    for (path, bytes) in &corpus {
        for seed in 0..MUTATIONS_PER_INPUT {
            let _report = ReportInputOnPanic(path, Some(seed));
            check_input(target, &mutate_input(bytes, seed));
        }
    }
}

#[test]
fn metadata_in_tsdl() {
    run_target_on_corpus("tsdl");
}

#[test]
fn packets() {
    run_target_on_corpus("packets");
}

#[test]
fn metadata_and_packets_of_ctf_2() {
    run_target_on_corpus("ctf2");
}

#[test]
fn folders() {
    run_target_on_corpus("folder");
}

#[test]
fn files_of_sessions() {
    run_target_on_corpus("spec");
}

#[test]
fn requests_to_a_session() {
    run_target_on_corpus("control");
}

#[test]
fn filters_as_people_write_them() {
    run_target_on_corpus("expression");
}

#[test]
fn filters_in_c() {
    run_target_on_corpus("elf");
}

#[test]
fn filters_for_traced_programs() {
    run_target_on_corpus("filter");
}

#[test]
fn formats_of_kernel_events() {
    run_target_on_corpus("format");
}

#[test]
fn types_of_the_kernel() {
    run_target_on_corpus("btf");
}

#[test]
fn pages_of_the_kernels_buffers() {
    run_target_on_corpus("ftrace");
}

/// A bound that cannot be exceeded would detect nothing.
#[test]
fn bounds_can_be_broken() {
    let target = find_target("tsdl").expect("a target");
    let broken = std::panic::catch_unwind(|| target.check(b"1234", 0, u64::MAX, 0));
    assert!(broken.is_err());
    let (kept, allocated) = measure_allocations(|| vec![0_u8; 1 << 20]);
    assert!(allocated.most_bytes >= kept.len() as u64, "allocations are counted");
}

#[test]
fn every_target_has_its_inputs_and_its_test() {
    let mut folders: Vec<_> = fs::read_dir(source_dir().join("fuzz/corpus"))
        .expect("fuzz/corpus")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    folders.sort();
    let mut names: Vec<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    names.sort();
    assert_eq!(folders, names);
    let text = fs::read_to_string(source_dir().join("tests/fuzz.rs")).expect("this file");
    for name in names {
        assert!(text.contains(&format!("run_target_on_corpus(\"{name}\")")), "no test of {name}");
    }
}
