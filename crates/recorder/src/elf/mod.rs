//! Properties of an ELF file: whether it is static, and its needed libraries and instrumentation
//! points.
//!
//! The module reads only the needed parts of a file: programs of 100 MB are examined while their
//! first events fill buffers. Files may be hostile: `object` checks every offset, sizes are
//! bounded, and an invalid file has no properties.

pub(crate) mod event_notes;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, PT_INTERP};
use object::endian::Endianness;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef};
use trackway_schema::EventDescription;

/// Largest file that is examined, in bytes.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// Most sections of instrumentation points that are examined; a linker makes only one.
const NOTES_MAX: usize = 16;
/// Largest section of instrumentation points, in bytes: some ten thousand points.
const NOTES_BYTES_MAX: u64 = 4 << 20;
/// Most libraries of a program that are examined.
const LIBRARIES_MAX: usize = 256;

/// Debian's library subfolder for this architecture.
pub(crate) const MULTIARCH: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-linux-gnu"
} else if cfg!(target_arch = "riscv64") {
    "riscv64-linux-gnu"
} else {
    "x86_64-linux-gnu"
};

/// True if programs of this architecture contain the names of their instrumentation points (the
/// header writes SDT notes where it can).
pub(crate) const HAS_POINTS: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Function that the header calls at the start of a program, as a weak symbol.
const REGISTER_SYMBOL: &str = "trackway_abi_register";

/// Properties of an ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Module {
    /// True for an executable that no dynamic loader runs: no library can be preloaded.
    pub is_static: bool,
    /// Names of the file's instrumentation points (SDT notes): `provider:name`.
    pub points: BTreeSet<String>,
    /// Events that the file describes; `None` if an event cannot be read.
    pub events: Option<Vec<EventDescription>>,
    /// Names of the libraries that the file needs.
    pub needed: Vec<String>,
    /// True if the file was compiled with the header: it refers to the library's only function.
    pub registers: bool,
}

impl Module {
    /// Returns true if the file has events of Trackway: SDT notes may belong to other tracers only.
    pub(crate) fn has_events(&self) -> bool {
        self.events.as_ref().is_none_or(|events| !events.is_empty())
    }
}

/// Reads the 64-bit ELF file at `path`; `None` if the file is not ELF (for example, a script).
pub fn read_module(path: &Path) -> Option<Module> {
    let status = fs::metadata(path).ok()?;
    if !status.is_file() || status.len() > FILE_BYTES_MAX {
        return None;
    }
    parse_module(&ReadCache::new(fs::File::open(path).ok()?))
}

fn parse_module<'data, R: ReadRef<'data>>(bytes: R) -> Option<Module> {
    let file = ElfFile64::<Endianness, R>::parse(bytes).ok()?;
    let endian = file.endian();
    let segments = file.elf_program_headers();
    let has = |kind| segments.iter().any(|segment| segment.p_type(endian) == kind);
    let executable = file.elf_header().e_type(endian) == object::elf::ET_EXEC
        || file.elf_header().e_type(endian) == object::elf::ET_DYN && file.entry() != 0;
    let mut points = BTreeSet::new();
    let notes = file.sections().filter(|section| section.name() == Ok(".note.stapsdt"));
    let notes = notes.filter(|section| section.size() <= NOTES_BYTES_MAX).take(NOTES_MAX);
    for data in notes.filter_map(|section| section.data().ok()) {
        read_notes(data, &mut points);
    }
    Some(Module {
        is_static: executable && !has(PT_INTERP) && !is_library(&file),
        points,
        events: event_notes::read_events(&file),
        needed: needed_libraries(&file, bytes).unwrap_or_default(),
        registers: file
            .dynamic_symbols()
            .any(|symbol| symbol.is_undefined() && symbol.name() == Ok(REGISTER_SYMBOL)),
    })
}

/// Returns true for a library: it has dynamic symbols, even if it has an entry point like
/// libc.so.6.
fn is_library<'data>(file: &ElfFile64<'data, Endianness, impl ReadRef<'data>>) -> bool {
    file.dynamic_symbols().next().is_some()
}

fn needed_libraries<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    bytes: R,
) -> Option<Vec<String>> {
    let endian = file.endian();
    let sections = file.elf_section_table();
    let (dynamic, strings) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, strings).ok()?;
    let names = dynamic
        .iter()
        .take_while(|entry| entry.tag32(endian) != Some(0))
        .filter(|entry| entry.tag32(endian) == Some(DT_NEEDED))
        .filter_map(|entry| strings.get(entry.val32(endian)?).ok())
        .filter_map(|name| core::str::from_utf8(name).ok().map(str::to_owned))
        .take(LIBRARIES_MAX);
    Some(names.collect())
}

/// Reads SDT notes (SystemTap wiki, "UserSpaceProbeImplementation"): three addresses, then
/// provider, name and arguments, each ended by NUL.
fn read_notes(mut data: &[u8], points: &mut BTreeSet<String>) {
    const KIND: u32 = 3;
    const ADDRESSES_BYTES: usize = 24;
    while let Some((head, rest)) = data.split_at_checked(12) {
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&head[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let name_bytes = (word(0) as usize).next_multiple_of(4);
        let body_bytes = (word(4) as usize).next_multiple_of(4);
        let Some((name, rest)) = rest.split_at_checked(name_bytes) else { return };
        let Some((body, rest)) = rest.split_at_checked(body_bytes.min(rest.len())) else { return };
        if word(8) == KIND && name.starts_with(b"stapsdt\0") {
            let mut texts = body.get(ADDRESSES_BYTES..).unwrap_or(&[]).split(|&byte| byte == 0);
            if let (Some(provider), Some(name)) = (texts.next(), texts.next()) {
                let text = [provider, b":", name].concat();
                points.insert(String::from_utf8_lossy(&text).into_owned());
            }
        }
        data = rest;
    }
}

/// Events and points of program files and the libraries that they need, as far as a library is in a
/// usual folder or beside its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramInstrumentation {
    /// Names of instrumentation points: `provider:name`.
    pub points: BTreeSet<String>,
    /// Events that the files describe.
    pub events: Vec<EventDescription>,
    /// True if there are further events that cannot be read.
    pub hides_events: bool,
    /// True if one of the files was compiled with the header.
    pub registers: bool,
}

/// Examines `files` and the libraries that they need.
pub fn scan_instrumentation(files: &[PathBuf]) -> ProgramInstrumentation {
    let usual = [format!("/lib/{MULTIARCH}"), format!("/usr/lib/{MULTIARCH}")];
    let usual = usual.iter().map(String::as_str).chain(["/lib64", "/usr/lib", "/usr/local/lib"]);
    let extra = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let mut reach = ProgramInstrumentation::default();
    let mut seen: HashSet<PathBuf> = HashSet::new();
    let mut open: VecDeque<PathBuf> = files.iter().cloned().collect();
    while let Some(path) = open.pop_front() {
        if seen.len() >= LIBRARIES_MAX || !seen.insert(path.clone()) {
            continue;
        }
        let Some(module) = read_module(&path) else { continue };
        reach.points.extend(module.points);
        reach.hides_events |= module.events.is_none();
        reach.events.extend(module.events.into_iter().flatten());
        reach.registers |= module.registers;
        let beside = path.parent().map(Path::to_owned);
        for name in module.needed {
            let folders = extra.split(':').chain(usual.clone());
            let folders = folders.filter(|folder| !folder.is_empty());
            let found = folders
                .map(PathBuf::from)
                .chain(beside.clone())
                .map(|folder| folder.join(&name))
                .find(|file| file.is_file());
            open.extend(found);
        }
    }
    reach
}

/// Returns the name of the AddressSanitizer runtime that the program at `path` needs: the program
/// refuses to run if another library is loaded before it. Clang links it statically by default,
/// which is no problem.
pub fn needed_sanitizer(path: &Path) -> Option<String> {
    read_module(path)?.needed.into_iter().find(|name| name.starts_with("libasan.so"))
}

/// Returns the interpreter of a script: the text after `#!`.
pub fn script_interpreter(path: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut head = [0; 256];
    let count = fs::File::open(path).ok()?.read(&mut head).ok()?;
    let line = head[..count].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let text = core::str::from_utf8(line).ok()?;
    text.split_whitespace().next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_dynamic_and_needs_libc() {
        let module = read_module(&std::env::current_exe().unwrap()).unwrap();
        assert!(!module.is_static);
        assert!(module.needed.iter().any(|name| name.starts_with("libc.so")), "{module:?}");
    }

    /// Returns the bytes that the calling thread has read (proc_pid_io(5)); `None` where the kernel
    /// does not count them.
    fn bytes_read() -> Option<u64> {
        let text = fs::read_to_string("/proc/thread-self/io").ok()?;
        text.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
    }

    #[test]
    fn of_a_large_program_little_is_read() {
        const LARGE_BYTES: u64 = FILE_BYTES_MAX - 1;
        let folder = trackway_testkit::TemporaryFolder::new_in(&std::env::temp_dir());
        let large = folder.path().join("large");
        fs::copy(std::env::current_exe().unwrap(), &large).unwrap();
        let own = read_module(&large).unwrap();
        fs::File::options().write(true).open(&large).unwrap().set_len(LARGE_BYTES).unwrap();
        let Some(before) = bytes_read() else {
            return eprintln!("skipped, because the kernel does not count what is read");
        };
        assert_eq!(read_module(&large), Some(own));
        let read = bytes_read().unwrap() - before;
        assert!(read < LARGE_BYTES / 8, "{read} bytes");
    }

    #[test]
    fn damaged_files_say_nothing() {
        let bytes = fs::read("/proc/self/exe").unwrap();
        for cut in [0, 4, 63, 64, 200, 5000] {
            let _ = parse_module(&bytes[..cut]);
        }
        let mut points = BTreeSet::new();
        read_notes(&[0xff; 64], &mut points);
        read_notes(&[8, 0, 0, 0, 255, 255, 0, 0, 3, 0, 0, 0], &mut points);
        assert!(points.is_empty());
    }

    #[test]
    fn notes_are_read() {
        let mut note = Vec::new();
        note.extend(8_u32.to_le_bytes());
        let body = [&[0; 24][..], b"app\0request\0-4@%eax\0"].concat();
        note.extend((body.len() as u32).to_le_bytes());
        note.extend(3_u32.to_le_bytes());
        note.extend(b"stapsdt\0");
        note.extend(&body);
        let mut points = BTreeSet::new();
        read_notes(&note, &mut points);
        assert_eq!(points, BTreeSet::from(["app:request".to_owned()]));
    }
}
