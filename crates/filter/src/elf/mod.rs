//! Filters in C: from the output of `clang -O2 -target bpf -c` to an object.
//!
//! The file may be hostile. The used parts are copied into an object of Trackway's own format, with
//! functions in call order, and verified with the checks of the programs that run filters. Nothing
//! else of the file is kept. Section names and formats: docs/design/0008-filters.md, "Filters in
//! C"; the macros are in `include/trackway/filter.h`.
//!
//! | part | task |
//! |---|---|
//! | `file` | reads sections, functions and relocations in one pass |
//! | `needs` | parses the slots of a frame |
//! | `link` | links a program from functions and constants |
//! | `blocks` | orders the instructions of a function |
//! | `state` | counts the cells that programs use |
//! | `source` | finds source lines, if the file has debug information |

mod blocks;
mod error;
mod file;
mod link;
mod needs;
mod source;
mod state;

use trackway_jit::INSTRUCTIONS_MAX;
use trackway_jit::block::BLOCK_BYTES_MAX;
use trackway_jit::insn::INSN_BYTES;
use trackway_jit::program::Program;
use trackway_jit::verify::{Reason, Rules, State, verify};

use crate::object::{Alternative, Object};
use file::File;
use link::{Constants, LinkedProgram};

pub use error::{Error, Location};
pub(crate) use needs::is_path;

/// Maximum size of an ELF file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of sections, and of functions, in a file.
const FILE_PARTS_MAX: usize = 1024;
/// Maximum length of a section name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Maximum size of an object, in bytes: a larger one would fit no session.
pub const OBJECT_BYTES_MAX: usize = BLOCK_BYTES_MAX / 2;
/// Upper bound of each header's size in an object, in bytes: of a program, of an alternative (with
/// its padding), and of the object.
const HEAD_BYTES: usize = 8;
/// Size of a need without its path, in bytes.
const NEED_BYTES: usize = 2;
/// Maximum number of filters in a file, and of programs in a filter.
const COUNT_MAX: usize = 255;
/// Prefix of the names of sections with programs.
const PROGRAMS_PREFIX: &str = "trackway/";
/// Prefix of the names of sections with needs.
const NEEDS_PREFIX: &str = "trackway_needs/";

/// The filters of an ELF file.
#[derive(Debug, Clone, PartialEq)]
pub struct Filters {
    /// The filters as alternatives of one object, in the order of the file.
    pub object: Object,
    /// Names of the filters.
    pub names: Vec<String>,
}

/// Converts an ELF file to the bytes of a verified object of at most [`OBJECT_BYTES_MAX`].
///
/// # Errors
///
/// Returns why the file has no valid filter, or does not fit an object, and the location.
pub fn convert_to_object(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let encoded = read_filters(bytes)?.object.encode();
    encoded.map_err(|error| Error::new(error.to_string()))
}

/// Reads and verifies the filters of an ELF file.
///
/// # Errors
///
/// Fails like [`convert_to_object()`].
pub fn read_filters(bytes: &[u8]) -> Result<Filters, Error> {
    let file = File::read(bytes)?;
    let mut budget = ObjectBudget { left: OBJECT_BYTES_MAX };
    budget.take(HEAD_BYTES)?;
    let mut filters =
        Filters { object: Object { cells: 0, alternatives: Vec::new() }, names: Vec::new() };
    for section in file.sections() {
        let Some(name) = section.name.strip_prefix(PROGRAMS_PREFIX) else { continue };
        if name.contains('/') {
            continue;
        }
        if filters.names.iter().any(|known| known == name) || filters.names.len() == COUNT_MAX {
            let why = format!("section {} is one too many of its kind", section.name);
            return Err(Error::new(why));
        }
        let (alternative, cells) = read_alternative(&file, name, &mut budget)?;
        filters.object.cells = filters.object.cells.max(cells);
        filters.object.alternatives.push(alternative);
        filters.names.push(name.to_owned());
    }
    if filters.names.is_empty() {
        let why = "there is no filter in it: no section is called trackway/NAME";
        return Err(Error::new(why).with_hint("TRACKWAY_FILTER(NAME, frame) makes one"));
    }
    check_section_owners(&file, &filters.names)?;
    Ok(filters)
}

/// Checks that every section with programs or needs belongs to a filter: a misspelt name is an
/// error.
fn check_section_owners(file: &File<'_>, names: &[String]) -> Result<(), Error> {
    for section in file.sections() {
        let of =
            section.name.strip_prefix(NEEDS_PREFIX).or(section.name.strip_prefix(PROGRAMS_PREFIX));
        let of = of.map(|rest| rest.split_once('/').map_or(rest, |(name, _)| name));
        if let Some(name) = of.filter(|name| !names.iter().any(|known| known == name)) {
            let section = &section.name;
            let why =
                format!("section {section} belongs to no filter: there is no trackway/{name}");
            return Err(Error::new(why));
        }
    }
    Ok(())
}

/// The remaining bytes of [`OBJECT_BYTES_MAX`].
struct ObjectBudget {
    left: usize,
}

impl ObjectBudget {
    fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Error::new(format!("its filters are longer than {OBJECT_BYTES_MAX} bytes"))
        })?;
        Ok(())
    }
}

/// Reads a filter with its programs, and the number of its cells.
fn read_alternative(
    file: &File<'_>,
    name: &str,
    budget: &mut ObjectBudget,
) -> Result<(Alternative, usize), Error> {
    let needs_section = format!("{NEEDS_PREFIX}{name}");
    let Some(text) = file.section(&needs_section)? else {
        let why = format!("{PROGRAMS_PREFIX}{name} has no section {needs_section}");
        return Err(Error::new(why).with_hint("its macro is TRACKWAY_NEEDS_NAME"));
    };
    let mut needs = needs::parse_needs(text.data)
        .map_err(|why| Error::new(format!("section {needs_section}: {why}")))?;
    let mut constants = Constants::default();
    let mut programs = Vec::new();
    let (mut slots_read, mut cells) = (0, 0);
    for (number, entry) in find_entries(file, name)?.into_iter().enumerate() {
        let linked = link::link_program(file, entry, &mut constants)?;
        budget.take(HEAD_BYTES + linked.insns.len() * INSN_BYTES)?;
        let facts = verify_program(file, &linked, needs.len(), number as u8)?;
        slots_read |= facts.slots_read;
        cells = cells.max(facts.cells);
        programs.push(linked.insns);
    }
    budget.take(2 * HEAD_BYTES + constants.bytes().len())?;
    needs::drop_unread_needs(&mut needs, slots_read);
    budget.take(needs.iter().map(|need| NEED_BYTES + need.path.len()).sum())?;
    Ok((Alternative { needs, constants: constants.into_bytes(), programs }, cells))
}

/// Finds the entry functions of a filter's programs, in the order of their numbers.
fn find_entries(file: &File<'_>, name: &str) -> Result<Vec<file::FunctionId>, Error> {
    let numbered = format!("{PROGRAMS_PREFIX}{name}/");
    let others = file.sections().iter().filter_map(|section| section.name.strip_prefix(&numbered));
    let count = 1 + others.count();
    let mut entries = Vec::new();
    for number in 0..count {
        let section = match number {
            0 => format!("{PROGRAMS_PREFIX}{name}"),
            _ => format!("{numbered}{number}"),
        };
        let Some(found) = file.section(&section)? else {
            let why = format!("section {section} is missing: programs are counted from 1");
            return Err(Error::new(why));
        };
        if number >= COUNT_MAX {
            return Err(Error::new(format!("section {section} is one too many of its kind")));
        }
        let entry = file.function_at(found.index, 0);
        entries.push(entry.ok_or_else(|| {
            Error::new(format!("section {section} does not begin with a function"))
        })?);
    }
    Ok(entries)
}

/// Facts that the verifier found about a program.
struct ProgramFacts {
    /// Slots that the program reads: bit n for slot n.
    slots_read: u64,
    cells: usize,
}

/// Verifies a program, and describes a rejection with its location.
fn verify_program(
    file: &File<'_>,
    linked: &LinkedProgram,
    slots: usize,
    number: u8,
) -> Result<ProgramFacts, Error> {
    let bytes: Vec<u8> = linked.insns.iter().flat_map(|insn| insn.encode()).collect();
    let Some(program) = Program::new(&bytes) else {
        return Err(Error::new(format!("a program has more than {INSTRUCTIONS_MAX} instructions")));
    };
    let mut states = vec![State::FREE; program.len() + 1];
    let rules = Rules { number, ..Rules::new(slots) };
    match verify(program, rules, &mut states) {
        Ok(verified) => {
            let slots_read = verified.summary().slots_read;
            Ok(ProgramFacts { slots_read, cells: state::count_cells(program) })
        }
        Err(rejection) => {
            let hint = match rejection.reason {
                Reason::Backward => Some("#pragma clang loop unroll(full) in front of the loop"),
                Reason::NoMemory(_) => Some(
                    "tables are not to be had: strings go through TRACKWAY_STRING, \
                     and clang -fno-jump-tables makes no tables of its own",
                ),
                Reason::NotFrame => Some("a helper's first argument is the frame as it came"),
                _ => None,
            };
            let why = rejection.reason.to_string();
            let error = match linked.location_of(file, program, rejection.insn) {
                Some(place) => Error::at(place, why),
                None => Error::new(why),
            };
            Err(match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            })
        }
    }
}
