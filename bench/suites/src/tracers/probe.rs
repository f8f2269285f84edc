//! The place of a workload's probe, from its note in the format of <sys/sdt.h>, version 3
//! (SystemTap wiki, UserSpaceProbeImplementation), and the arguments that a uprobe event fetches
//! there.

use std::fs;
use std::path::Path;

use object::{Object as _, ObjectSection as _, ObjectSegment as _};

use trackway_bench_engine::error::{Error, Result};

/// Section of the notes.
const SECTION: &str = ".note.stapsdt";
/// Owner of the notes, and their type.
const OWNER: &[u8] = b"stapsdt\0";
const KIND: u32 = 3;
/// Bytes of a note's head: length of the owner, length of the description, type.
const HEAD_BYTES: usize = 12;
/// Bytes of the addresses before the strings: addresses of the probe, of the section for
/// prelinking, and of the semaphore.
const ADDRESSES_BYTES: usize = 24;

/// A probe of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Offset of the probe in the program's file.
    pub(crate) offset: u64,
    /// First argument of the probe, in the syntax of uprobe events: `value=%di:u32`.
    pub(crate) fetch: String,
}

impl Probe {
    /// Finds the probe `lab:NAME` of a 64-bit program that was compiled on this machine.
    pub(crate) fn find(program: &Path, name: &str) -> Result<Self> {
        let bytes = fs::read(program).map_err(Error::io(format!("cannot read {program:?}")))?;
        let what = program.display().to_string();
        let wrong = |message: &str| Error::output(&what, message);
        let file = object::File::parse(&*bytes).map_err(|error| Error::output(&what, error))?;
        let section = file.section_by_name(SECTION).ok_or_else(|| wrong("it has no probes"))?;
        let notes = section.data().map_err(|error| Error::output(&what, error))?;
        let (address, argument) =
            find_probe_note(notes, name).ok_or_else(|| wrong("it has no probe of that name"))?;
        let is_there =
            |from: u64, bytes: u64| (from..from.saturating_add(bytes)).contains(&address);
        let mut segments = file.segments();
        let segment = segments.find(|one| is_there(one.address(), one.size()));
        let segment = segment.ok_or_else(|| wrong("its probe is in no segment"))?;
        let fetch = translate_argument(&argument).ok_or_else(|| {
            Error::output(&what, format!("where '{argument}' is, uprobe events cannot be told"))
        })?;
        Ok(Self { offset: address - segment.address() + segment.file_range().0, fetch })
    }
}

/// Returns the address and the first argument of the probe `lab:NAME`.
fn find_probe_note(mut notes: &[u8], name: &str) -> Option<(u64, String)> {
    while let Some(head) = notes.get(..HEAD_BYTES) {
        let number = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let owner_bytes = usize::try_from(number(0)?).ok()?.checked_next_multiple_of(4)?;
        let length = usize::try_from(number(4)?).ok()?;
        let begin = HEAD_BYTES.checked_add(owner_bytes)?;
        let description = notes.get(begin..begin.checked_add(length)?)?;
        if notes.get(HEAD_BYTES..begin)? == OWNER && number(8)? == KIND {
            let address = u64::from_ne_bytes(description.get(..8)?.try_into().ok()?);
            let mut texts = description.get(ADDRESSES_BYTES..)?.split(|&byte| byte == 0);
            let mut text = || std::str::from_utf8(texts.next()?).ok();
            if (text()?, text()?) == ("lab", name) {
                return Some((address, text()?.split(' ').next()?.to_owned()));
            }
        }
        notes = notes.get(begin.checked_add(length.checked_next_multiple_of(4)?)?..)?;
    }
    None
}

/// Translates an argument such as `4@%edi` or `4@w1`, of unsigned numbers in registers, to the
/// kernel's syntax.
fn translate_argument(argument: &str) -> Option<String> {
    let (size, workspace) = argument.split_once('@')?;
    let bits = 8 * size.parse::<u32>().ok().filter(|size| [1, 2, 4, 8].contains(size))?;
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let register = if let Some(name) = workspace.strip_prefix('%') {
        // x86-64: the kernel's name of eax and rax is ax, of r8d is r8.
        let name = name.trim_start_matches(['e', 'r']);
        let is_numbered = name.starts_with(|one: char| one.is_ascii_digit());
        let name = name.trim_end_matches('d');
        if is_numbered { format!("r{name}") } else { name.to_owned() }
    } else {
        // AArch64: the kernel's name of w1 is x1.
        format!("x{}", workspace.strip_prefix(['w', 'x'])?)
    };
    is_word(&register).then(|| format!("value=%{register}:u{bits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_called_as_the_kernel_does() {
        let found =
            ["4@%edi", "8@%rax", "4@%r8d", "4@%r12", "4@w1", "8@x20"].map(translate_argument);
        let expected = [
            "value=%di:u32",
            "value=%ax:u64",
            "value=%r8:u32",
            "value=%r12:u32",
            "value=%x1:u32",
            "value=%x20:u64",
        ];
        assert_eq!(found.each_ref().map(|it| it.as_deref().unwrap_or("none")), expected);
        for other in ["4@-20(%rbp)", "4@$17", "-4@%edi", "3@%edi", "%edi", ""] {
            assert_eq!(translate_argument(other), None, "{other}");
        }
    }

    #[test]
    fn notes_are_found_by_name_and_never_read_beyond_their_end() {
        let one = |name: &str, argument: &str| {
            let texts = format!("lab\0{name}\0{argument}\0");
            let mut bytes = Vec::new();
            let length = (ADDRESSES_BYTES + texts.len()) as u32;
            for number in [OWNER.len() as u32, length, KIND] {
                bytes.extend(number.to_ne_bytes());
            }
            bytes.extend(OWNER);
            for address in [0x1720_u64, 0, 0] {
                bytes.extend(address.to_ne_bytes());
            }
            bytes.extend(texts.bytes());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let notes = [one("other", "8@%rax"), one("number", "4@%edi")].concat();
        assert_eq!(find_probe_note(&notes, "number"), Some((0x1720, "4@%edi".to_owned())));
        assert_eq!(find_probe_note(&notes, "none"), None);
        for length in 0..notes.len() - 4 {
            assert_eq!(find_probe_note(&notes[..length], "number"), None, "{length}");
        }
    }
}
