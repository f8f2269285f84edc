//! Links a program from the functions that it calls, callers first: so all calls go forward, as the
//! verifier requires. (`blocks` makes the jumps go forward.)

use std::collections::BTreeMap;

use trackway_jit::insn::{CALL, Insn, LDDW, LDDW_FUNCTION, call, class, jump};
use trackway_jit::listing::Line;
use trackway_jit::program::Program;
use trackway_jit::{FUNCTIONS_MAX, INSTRUCTIONS_MAX};

use super::blocks::{Item, item_offsets, jump_target, order_items};
use super::error::{Error, Location};
use super::file::{File, FunctionId, Kind, Target};

/// A jump whose distance is in its immediate.
const LONG: u8 = class::JMP32 | jump::JA;

/// A program, and the origins of its instructions.
pub(super) struct LinkedProgram {
    pub(super) insns: Vec<Insn>,
    /// Function of each instruction, and its index in the section.
    origins: Vec<(FunctionId, usize)>,
}

impl LinkedProgram {
    /// Returns the location in the file of a program's instruction.
    pub(super) fn location_of(
        &self,
        file: &File<'_>,
        program: Program<'_>,
        insn: usize,
    ) -> Option<Location> {
        let &(id, at) = self.origins.get(insn)?;
        Some(Location {
            code: Line::of(program, insn).to_string(),
            ..instruction_location(file, id, at)
        })
    }
}

/// Describes an instruction of a section before linking.
fn instruction_location(file: &File<'_>, function: FunctionId, insn: usize) -> Location {
    let section = file.function(function).section;
    let line = Line { insn: file.insn(section, insn), next: file.insn(section, insn + 1) };
    Location {
        function: file.name(function),
        section: file.sections()[section].name.clone(),
        insn,
        code: line.to_string(),
        source: file.source(section, insn),
    }
}

/// Constants of a filter: the sections that its programs refer to, each complete.
#[derive(Default)]
pub(super) struct Constants {
    bytes: Vec<u8>,
    /// Offset of each section among the constants.
    starts: BTreeMap<usize, usize>,
}

impl Constants {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the start of a section among the constants.
    fn start(&mut self, file: &File<'_>, section: usize) -> Result<usize, String> {
        if let Some(&start) = self.starts.get(&section) {
            return Ok(start);
        }
        let of = &file.sections()[section];
        if of.is_relocated {
            return Err(format!("section {} has addresses in it", of.name));
        }
        let start = self.bytes.len();
        if of.data.len() > usize::from(u16::MAX) - start {
            return Err(format!("there are more than {} bytes of constants", u16::MAX));
        }
        self.bytes.extend(of.data);
        self.starts.insert(section, start);
        Ok(start)
    }
}

/// An instruction after its relocation.
enum ResolvedInsn {
    /// The instruction itself.
    Plain(Insn),
    /// A call of a function, or its address.
    Function(FunctionId),
    /// A load of a constant.
    Number(u64),
}

/// Links the program that begins with a function.
pub(super) fn link_program(
    file: &File<'_>,
    entry: FunctionId,
    constants: &mut Constants,
) -> Result<LinkedProgram, Error> {
    let mut order = CallOrder { file, done: Vec::new(), open: Vec::new(), insns: 0 };
    order.visit(entry, constants)?;
    // Callees are finished before their callers, so the reverse order puts callers first.
    let functions = order.done.into_iter().rev();
    let functions =
        functions.map(|id| Ok((id, order_items(read_function_items(file, id, constants)?))));
    let functions: Vec<(FunctionId, Vec<Item>)> = functions.collect::<Result<_, Error>>()?;
    let mut starts = BTreeMap::new();
    let mut end = 0;
    for (id, items) in &functions {
        starts.insert(*id, end);
        end += item_offsets(items).1;
    }
    let mut linked =
        LinkedProgram { insns: Vec::with_capacity(end), origins: Vec::with_capacity(end) };
    for (id, items) in &functions {
        linked.push(*id, items, &starts);
    }
    Ok(linked)
}

impl LinkedProgram {
    /// Appends a function to the program, given the starts of all functions.
    fn push(&mut self, id: FunctionId, items: &[Item], starts: &BTreeMap<FunctionId, usize>) {
        let (places, _) = item_offsets(items);
        let place = |at: usize| places.binary_search_by_key(&at, |place| place.0).ok();
        let start = self.insns.len();
        for item in items {
            let here = self.insns.len() as i64;
            let mut insn = item.insn;
            if let Some(callee) = item.callee {
                insn.immediate = (starts[&callee] as i64 - here - 1) as i32;
            }
            if let Some(place) = item.target.and_then(place) {
                let distance = (start + places[place].1) as i64 - here - 1;
                match insn.op {
                    LONG => insn.immediate = distance as i32,
                    // The distance fits 16 bits: programs are short enough.
                    _ => insn.offset = distance as i16,
                }
            }
            for insn in [Some(insn), item.half].into_iter().flatten() {
                self.insns.push(insn);
                self.origins.push((id, item.at));
            }
        }
    }
}

/// Reads the instructions of a function, and applies their relocations.
fn read_function_items(
    file: &File<'_>,
    id: FunctionId,
    constants: &mut Constants,
) -> Result<Vec<Item>, Error> {
    let function = file.function(id);
    let mut items = Vec::with_capacity(function.insns.len());
    let mut insns = function.insns.clone();
    while let Some(at) = insns.next() {
        let insn = file.insn(function.section, at);
        let half = match insn.op {
            LDDW => insns.next().map(|half| file.insn(function.section, half)),
            _ => None,
        };
        let item = Item { at, insn, half, callee: None, target: jump_target(at, insn) };
        let low = |number: u64| number as u32 as i32;
        items.push(match resolve_instruction(file, id, at, constants)? {
            ResolvedInsn::Plain(insn) => Item { insn, ..item },
            ResolvedInsn::Function(callee) if insn.op == LDDW => {
                let insn = Insn { src: LDDW_FUNCTION, ..insn };
                Item { insn, half: Some(Insn::default()), callee: Some(callee), ..item }
            }
            ResolvedInsn::Function(callee) => Item { callee: Some(callee), ..item },
            ResolvedInsn::Number(number) => {
                let half = Insn { immediate: low(number >> 32), ..Insn::default() };
                let insn = Insn { immediate: low(number), ..insn };
                Item { insn, half: Some(half), ..item }
            }
        });
    }
    Ok(items)
}

/// Functions in the order of the search, callees before their callers.
struct CallOrder<'f, 'd> {
    file: &'f File<'d>,
    done: Vec<FunctionId>,
    /// Chain of calls that leads to the current function.
    open: Vec<FunctionId>,
    insns: usize,
}

impl CallOrder<'_, '_> {
    /// Visits a function and its callees. The depth is at most the number of functions.
    fn visit(&mut self, id: FunctionId, constants: &mut Constants) -> Result<(), Error> {
        let function = self.file.function(id);
        self.insns += function.insns.len();
        let many = self.open.len() + self.done.len() >= FUNCTIONS_MAX;
        if many || self.insns > INSTRUCTIONS_MAX {
            let of = self.file.name(self.open.first().copied().unwrap_or(id));
            return Err(Error::new(format!(
                "{of}, with what it calls, has more than {INSTRUCTIONS_MAX} instructions or \
                 {FUNCTIONS_MAX} functions"
            )));
        }
        self.open.push(id);
        for at in function.insns.clone() {
            if let ResolvedInsn::Function(callee) =
                resolve_instruction(self.file, id, at, constants)?
            {
                if self.open.contains(&callee) {
                    let why = format!("{} calls itself", self.file.name(callee));
                    return Err(Error::at(instruction_location(self.file, id, at), why));
                }
                if !self.done.contains(&callee) {
                    self.visit(callee, constants)?;
                }
            }
        }
        self.open.pop();
        self.done.push(id);
        Ok(())
    }
}

/// Resolves an instruction of a function.
fn resolve_instruction(
    file: &File<'_>,
    id: FunctionId,
    at: usize,
    constants: &mut Constants,
) -> Result<ResolvedInsn, Error> {
    let function = file.function(id);
    let insn = file.insn(function.section, at);
    let wrong = |why: String| Error::at(instruction_location(file, id, at), why);
    let is_call = insn.op == CALL && insn.src == call::FUNCTION;
    let is_wide = insn.op == LDDW && insn.src == 0 && at + 1 < function.insns.end;
    let Some(relocation) = file.relocation(function.section, at) else {
        if !is_call {
            return Ok(ResolvedInsn::Plain(insn));
        }
        let start = at as i64 + 1 + i64::from(insn.immediate);
        return resolve_callee(file, function.section, start).map_err(wrong);
    };
    let (section, address) = match file.target(relocation) {
        Target::Section(section, address) => (section, address),
        Target::Nowhere(why, name) => {
            let hint = match why {
                "is not in the file" => "helpers have names that begin with trackway_",
                _ => "what is kept from one event to the next is in cells: trackway_count and more",
            };
            return Err(wrong(format!("{name} {why}")).with_hint(hint));
        }
    };
    match (relocation.kind, is_call, is_wide) {
        (Kind::Call, true, _) => {
            let start = (address / 8) as i64 + 1 + i64::from(insn.immediate);
            resolve_callee(file, section, start).map_err(wrong)
        }
        (Kind::Wide, _, true) => {
            let high = file.insn(function.section, at + 1).immediate as u32;
            let added = u64::from(high) << 32 | u64::from(insn.immediate as u32);
            let address = address.wrapping_add(added);
            if file.sections()[section].is_code {
                let start = i64::try_from(address / 8).unwrap_or(i64::MAX);
                return resolve_callee(file, section, start).map_err(wrong);
            }
            let start = constants.start(file, section).map_err(wrong)?;
            Ok(ResolvedInsn::Number(address.wrapping_add(start as u64)))
        }
        (Kind::Other(kind), ..) => Err(wrong(format!("a relocation of kind {kind}"))),
        _ => Err(wrong("a relocation that does not belong to such an instruction".into())),
    }
}

fn resolve_callee(file: &File<'_>, section: usize, start: i64) -> Result<ResolvedInsn, String> {
    let found = usize::try_from(start).ok().and_then(|start| file.function_in(section, start));
    found.map(ResolvedInsn::Function).ok_or_else(|| {
        let of = &file.sections()[section].name;
        format!("no function begins at instruction {start} of section {of}")
    })
}
