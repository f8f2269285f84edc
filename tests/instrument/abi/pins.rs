//! Contract with compiled programs: symbols, names and layouts, as numbers.
//!
//! Changing the numbers is not enough to mend a failing test: the version rules are in
//! include/trackway/abi/abi.h (C structures) and crates/abi (the window).

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use trackway_abi::{ABI_VERSION, record, region, session, window};
use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

/// Symbols that libtrackway.so exports, without the functions of the C library that it wraps.
const EXPECTED_EXPORTS: [&str; 11] = [
    "trackway_abi_context_clear",
    "trackway_abi_context_get",
    "trackway_abi_context_put",
    "trackway_abi_context_set",
    "trackway_abi_context_set_text",
    "trackway_abi_copy",
    "trackway_abi_register",
    "trackway_abi_snapshot",
    "trackway_dynamic_describe",
    "trackway_dynamic_enabled",
    "trackway_dynamic_record",
];
/// Newest version of the C library that libtrackway.so may need, according to README.md.
const GLIBC_MINOR_MAX: u32 = 35;

fn run_tool(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the names that a library defines for others, sorted.
fn exported_names(library: &Path) -> Vec<String> {
    let symbols = run_tool("nm", &["-D", "--defined-only", "--format=posix"], library);
    let names = symbols.lines().filter_map(|line| line.split(' ').next());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn is_c_library_name(name: &str) -> bool {
    let name = CString::new(name).expect("a name");
    // SAFETY: the name is a C string; the address that is found is not used.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
}

#[test]
fn the_library_exports_its_functions_and_wrappers_and_nothing_else() {
    if !has("nm") || !has("readelf") {
        return report_skipped("nm and readelf are not installed");
    }
    let library = build_dir().join("libtrackway.so");
    let (ours, others): (Vec<String>, Vec<String>) =
        exported_names(&library).into_iter().partition(|name| name.starts_with("trackway"));
    assert_eq!(ours, EXPECTED_EXPORTS);
    for wrapped in ["clone", "vfork"] {
        assert!(others.iter().any(|name| name == wrapped), "{others:?}");
    }
    for name in others {
        assert!(is_c_library_name(&name), "{name} is not a function of the C library");
    }
    let dynamic = run_tool("readelf", &["-dW"], &library);
    assert!(dynamic.contains("soname: [libtrackway.so.1]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        assert!(line.contains("[libc.so.6]") || line.contains("[ld-linux"), "{line}");
    }
    let versions = run_tool("readelf", &["-VW"], &library);
    for version in versions.split("GLIBC_2.").skip(1) {
        let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
        let minor: u32 = digits.parse().expect("a version");
        assert!(minor <= GLIBC_MINOR_MAX, "GLIBC_2.{minor}");
    }
}

/// Any other symbol of a preloaded library would replace the program's own symbol.
#[test]
fn preload_helpers_export_wrappers_and_nothing_else() {
    if !has("nm") {
        return report_skipped("nm is not installed");
    }
    let fixture = Fixture::new("abi-helpers");
    let sources = fs::read_dir(source_dir().join("preload")).expect("a folder").flatten();
    let mut count = 0;
    for source in sources
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|of| of == "c"))
    {
        let library = fixture.path("helper.so");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-I"]);
        cc.arg(source_dir().join("include")).arg(&source).arg("-o").arg(&library);
        assert!(cc.status().expect("cc runs").success(), "{}", source.display());
        // The linker defines a section's bounds; each module has its own.
        for name in
            exported_names(&library).iter().filter(|name| !name.ends_with("_trackway_events"))
        {
            assert!(is_c_library_name(name), "{}: {name}", source.display());
            count += 1;
        }
    }
    assert!(count >= 10, "{count} wrappers");
}

/// C expressions, and their values.
const LAYOUT_VALUES: [(&str, usize); 69] = [
    ("TRACKWAY_ABI_VERSION", 1),
    ("TRACKWAY_ABI_HEADROOM", 128),
    ("TRACKWAY_ABI_TAILROOM", 8),
    ("TRACKWAY_ABI_PAYLOAD_MAX", 4000),
    ("TRACKWAY_ABI_CUT", 1 << 63),
    ("TRACKWAY_DYNAMIC_MAX", 1024),
    ("sizeof(struct trackway_abi_label)", 24),
    ("offsetof(struct trackway_abi_label, first)", 0),
    ("offsetof(struct trackway_abi_label, last)", 8),
    ("offsetof(struct trackway_abi_label, name)", 16),
    ("sizeof(struct trackway_abi_field)", 24),
    ("offsetof(struct trackway_abi_field, name)", 0),
    ("offsetof(struct trackway_abi_field, labels)", 8),
    ("offsetof(struct trackway_abi_field, scalar)", 16),
    ("offsetof(struct trackway_abi_field, shape)", 17),
    ("offsetof(struct trackway_abi_field, length)", 18),
    ("offsetof(struct trackway_abi_field, reserved)", 20),
    ("sizeof(struct trackway_abi_event)", 72),
    ("offsetof(struct trackway_abi_event, enabled)", 0),
    ("offsetof(struct trackway_abi_event, emit)", 8),
    ("offsetof(struct trackway_abi_event, off)", 16),
    ("offsetof(struct trackway_abi_event, index)", 20),
    ("offsetof(struct trackway_abi_event, version)", 24),
    ("offsetof(struct trackway_abi_event, size)", 26),
    ("offsetof(struct trackway_abi_event, level)", 28),
    ("offsetof(struct trackway_abi_event, field_count)", 29),
    ("offsetof(struct trackway_abi_event, reserved)", 30),
    ("offsetof(struct trackway_abi_event, provider)", 32),
    ("offsetof(struct trackway_abi_event, name)", 40),
    ("offsetof(struct trackway_abi_event, fields)", 48),
    ("offsetof(struct trackway_abi_event, library)", 56),
    ("offsetof(struct trackway_abi_event, known)", 64),
    ("sizeof(struct trackway_abi_argument)", 16),
    ("offsetof(struct trackway_abi_argument, at)", 0),
    ("offsetof(struct trackway_abi_argument, length)", 8),
    ("sizeof(struct trackway_abi_library)", 24),
    ("offsetof(struct trackway_abi_library, size)", 0),
    ("offsetof(struct trackway_abi_library, filtered)", 4),
    ("offsetof(struct trackway_abi_library, ask)", 8),
    ("offsetof(struct trackway_abi_library, emit_asked)", 16),
    ("sizeof(struct trackway_abi_context)", 32),
    ("offsetof(struct trackway_abi_context, kind)", 4),
    ("offsetof(struct trackway_abi_context, place)", 8),
    ("offsetof(struct trackway_abi_context, provider)", 16),
    ("offsetof(struct trackway_abi_context, name)", 24),
    ("sizeof(struct trackway_abi_context_value)", 40),
    ("offsetof(struct trackway_abi_context_value, is_set)", 32),
    ("TRACKWAY_ABI_CONTEXT_SIGNED", 1),
    ("TRACKWAY_ABI_CONTEXT_UNSIGNED", 2),
    ("TRACKWAY_ABI_CONTEXT_FLOAT", 3),
    ("TRACKWAY_ABI_CONTEXT_STRING", 4),
    ("sizeof(struct trackway_value)", 16),
    ("offsetof(struct trackway_value, as)", 0),
    ("offsetof(struct trackway_value, length)", 8),
    ("TRACKWAY_ABI_I8", 1),
    ("TRACKWAY_ABI_I64", 4),
    ("TRACKWAY_ABI_U8", 5),
    ("TRACKWAY_ABI_U64", 8),
    ("TRACKWAY_ABI_X8", 9),
    ("TRACKWAY_ABI_X64", 12),
    ("TRACKWAY_ABI_F32", 13),
    ("TRACKWAY_ABI_BOOL", 15),
    ("TRACKWAY_ABI_SCALAR", 0),
    ("TRACKWAY_ABI_STR", 1),
    ("TRACKWAY_ABI_TEXT", 2),
    ("TRACKWAY_ABI_ARRAY", 3),
    ("TRACKWAY_ABI_SEQUENCE", 4),
    ("TRACKWAY_ABI_ENUMERATION", 5),
    ("TRACKWAY_DEBUG", 14),
];

/// `crates/agent/src/abi.rs` asserts the same layout for its structures.
#[test]
fn the_structures_of_the_headers_lie_where_they_lay() {
    let fixture = Fixture::new("abi-layout");
    let mut text = "#include <trackway/trackway.h>\n#include <trackway/dynamic.h>\n".to_owned();
    for (expression, value) in LAYOUT_VALUES {
        let check = format!("({expression}) == {value}u, \"{expression} is not {value}\"");
        writeln!(text, "#ifdef __cplusplus\nstatic_assert({check});\n#else").unwrap();
        writeln!(text, "_Static_assert({check});\n#endif").unwrap();
    }
    text.push_str("int main(void) { return 0; }\n");
    fixture.compile("layout", &text, false, &["-std=c11", "-Wall", "-Wextra"]);
    if has("c++") {
        fixture.compile_with("c++", "layout.cc", &text, false, &["-std=c++11", "-Wall", "-Wextra"]);
    }
}

/// Formats the layout of a structure as a line: its size, and the offsets of its fields.
macro_rules! line {
    ($structure:ty: $($field:ident),+) => {
        format!(
            "{} {}:{}\n",
            stringify!($structure),
            size_of::<$structure>(),
            [$(format!(" {}@{}", stringify!($field), offset_of!($structure, $field))),+].concat()
        )
    };
}

/// The window of version 2, in bytes.
const WINDOW_LAYOUT: &str = "\
window::Header 64: magic@0 version@8 rseq_works@12 backed@16 arena_used@24 events_refused@28 \
events_revision@32 events_used@36
window::Process 64: pid@0 incarnation@4 pid_namespace@8 since_ns@16 image@24
window::Event 64: enabled@0 state@4 hash@8 description_offset@16 description_bytes@20
session::Clock 64: sequence@0 base_tsc@8 multiplier@16 base_ns@24 span@32 epoch@40
session::Session 5312: generation@0 state@8 flags@12 lease_until_ns@16 contexts@24 cpus@28 \
sub_shift@32 count_shift@36 claim_sub_shift@40 next_id@44 control_offset@48 ids_offset@56 \
discards_offset@64 processes@72 cut_event@76 records_cut@80 token@88 recorder_pid@96 uid@100 \
recorder_pid_namespace@104 recorder_since_ns@112 realtime_offset_ns@120 trace_uuid@128 \
rules_bytes@144 path_bytes@148 clock@192 rules@256 path@2304 departed@4352 rules_revision@4356 \
blocking_ns@4360 successor@4368 snapshot_requests@4372 spare_cpus@4376 stream_class@4380 \
process_rules_bytes@4384 name_bytes@4388 channel_bytes@4392 process_rules@4396 name@4908 \
channel@4972 filters@5040 interpreters@5048 applications_bytes@5052 applications@5056
offsets 4096 266240 528384 790528 1052672 2097152
maxima 32 4096 4096 262144
regions 256 256 12 84 3 2
records 128 8 4000 4096
";

#[test]
fn the_window_lies_where_it_lay() {
    let mut found = line!(window::Header: magic, version, rseq_works, backed, arena_used,
        events_refused, events_revision, events_used);
    found += &line!(window::Process: pid, incarnation, pid_namespace, since_ns, image);
    found += &line!(window::Event: enabled, state, hash, description_offset, description_bytes);
    found += &line!(session::Clock: sequence, base_tsc, multiplier, base_ns, span, epoch);
    found += &line!(session::Session: generation, state, flags, lease_until_ns, contexts, cpus,
        sub_shift, count_shift, claim_sub_shift, next_id, control_offset, ids_offset,
        discards_offset, processes, cut_event, records_cut, token, recorder_pid, uid,
        recorder_pid_namespace, recorder_since_ns, realtime_offset_ns, trace_uuid, rules_bytes,
        path_bytes, clock, rules, path, departed, rules_revision, blocking_ns, successor,
        snapshot_requests, spare_cpus, stream_class, process_rules_bytes, name_bytes,
        channel_bytes, process_rules, name, channel, filters, interpreters, applications_bytes,
        applications);
    let numbers = |name: &str, numbers: &[usize]| {
        let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
        format!("{name}{numbers}\n")
    };
    found += &numbers(
        "offsets",
        &[
            window::SESSIONS_OFFSET,
            window::PROCESSES_OFFSET,
            window::EVENTS_OFFSET,
            window::GRANULE_MAP_OFFSET,
            window::ARENA_OFFSET,
            window::DATA_OFFSET,
        ],
    );
    found += &numbers(
        "maxima",
        &[session::SESSIONS_MAX, window::PROCESSES_MAX, window::EVENTS_MAX, window::GRANULES_MAX],
    );
    found += &numbers(
        "regions",
        &[
            region::CONTROL_BYTES,
            region::SUB_COUNT_MAX,
            region::PAGE_SHIFT as usize,
            region::SUB_HEADER_BYTES,
            region::REGIONS_PER_CPU,
            region::CLAIM_REGIONS_PER_CPU,
        ],
    );
    found += &numbers(
        "records",
        &[
            record::HEADROOM_BYTES,
            record::TAILROOM_BYTES,
            record::PAYLOAD_BYTES_MAX,
            record::RECORD_BYTES_MAX,
        ],
    );
    assert_eq!(ABI_VERSION, 2, "a new version has a layout of its own: write it down here");
    assert_eq!(found, WINDOW_LAYOUT, "the layout has changed: raise trackway_abi::ABI_VERSION");
}
