//! Tests filters in C, from clang's object file to the kernel.

use std::path::Path;
use std::process::Command;

use trackway_filter::elf;
use trackway_jit::helper::Word;
use trackway_jit::verify::{Rules, State, verify};
use trackway_kernel::bpf_filter::scratch::ScratchArea;
use trackway_kernel::bpf_filter::translate::translate_filter;
use trackway_testkit::{TemporaryFolder, report_skipped};

use super::load_filter;

/// A filter with functions, one of them for elements, with both kinds of strings, more than ten
/// predicates, and state.
const FILTER: &str = r#"
#include <trackway/filter.h>
struct event { trackway_string path; trackway_signed size; trackway_sequence ids; };
#define TRACKWAY_NEEDS_event "string path\n" "signed size\n" "sequence ids\n"

TRACKWAY_FUNCTION trackway_unsigned is_size(const void *frame, trackway_unsigned element)
{
    const struct event *event = frame;
    return (trackway_signed)element == event->size;
}

TRACKWAY_FUNCTION trackway_unsigned is_odd(const struct event *event, trackway_signed size)
{
    return size != 3 && size != 7 && size != 22 && size != 35 && size != 36 && size != 41 &&
           size != 43 && size != 60 && size != 71 && size != 80 && size != 93 && (size & 1) &&
           TRACKWAY_LENGTH(event->path) < 40;
}

TRACKWAY_FILTER(event, event)
{
    if (trackway_any(event, event->ids, TRACKWAY_ELEMENT_U16, is_size))
        return 1;
    if (!trackway_string_matches(event, event->path, TRACKWAY_STRING("/a*/c")))
        return 0;
    return is_odd(event, event->size) && trackway_count(event, 0) < 2;
}
"#;

fn compile_c_filter() -> Vec<u8> {
    let folder = TemporaryFolder::new();
    let (source, output) = (folder.join("filter.c"), folder.join("filter.o"));
    std::fs::write(&source, FILTER).expect("written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-target", "bpf", "-c"]).arg(&source).arg("-I").arg(include);
    let result = clang.arg("-o").arg(&output).output().expect("clang runs");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    std::fs::read(&output).expect("an object")
}

#[test]
fn filters_in_c_run_in_the_kernel() {
    if Command::new("clang").arg("--version").output().is_err() {
        return report_skipped("clang is not installed");
    }
    let object =
        elf::read_filters(&compile_c_filter()).unwrap_or_else(|error| panic!("{error}")).object;
    let alternative = &object.alternatives[0];
    let insns = &alternative.programs[0];
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
    let program = trackway_jit::program::Program::new(&bytes).expect("a program");
    let mut states = vec![State::FREE; program.len() + 1];
    let rules = Rules::new(alternative.needs.len());
    let verified = verify(program, rules, &mut states).expect("verified");
    let translated = translate_filter(&verified, object.cells, &alternative.constants)
        .expect("the kernel can do it");
    let Some(loaded) = load_filter(&translated) else { return };
    let loaded = loaded.unwrap_or_else(|refused| panic!("{refused}"));
    let mut area = ScratchArea::new(&alternative.constants).expect("few constants");
    for (path, size, ids, expected) in [
        ("/ab/c", 1, &[][..], true),
        ("/ab/c", 2, &[], false),
        ("/ab/c", 35, &[], false),
        ("/ab/d", 5, &[4, 6], false),
        ("/ab/d", 5, &[4, 5], true),
        ("/ab/c", -1, &[0xffff_u16], true),
        ("/ab/c", 5, &[], false),
    ] {
        let mut bytes = path.as_bytes().to_vec();
        bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        let word = |offset: usize, length: usize| {
            let (offset, length) = (offset as u32, length as u32);
            Word { offset, length, is_constant: false }.to_bits()
        };
        let size_bits = i64::from(size).cast_unsigned();
        let slots = [word(0, path.len()), size_bits, word(path.len(), ids.len())];
        area.fill(&slots, &bytes).expect("a small event");
        let taken = loaded.passes(&mut area).expect("the kernel runs it");
        assert_eq!(taken, expected, "{path} {size} {ids:?}");
    }
}
