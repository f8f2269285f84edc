//! A program, put together of the functions that it calls, callers first: so that all calls go
//! forward, as the verifier asks.

use std::collections::BTreeMap;

use trackway_jit::insn::{CALL, Insn, LDDW, LDDW_FUNCTION, call};
use trackway_jit::listing::Line;
use trackway_jit::program::Program;
use trackway_jit::{FUNCTIONS_MAX, INSTRUCTIONS_MAX};

use super::error::{Error, Place};
use super::file::{File, FunctionId, Kind, Target};

/// A program, and where its functions are from.
pub(super) struct Linked {
    pub(super) insns: Vec<Insn>,
    /// Its functions, with where they begin.
    functions: Vec<(usize, FunctionId)>,
}

impl Linked {
    /// Where in the file an instruction of the program is from.
    pub(super) fn place(&self, file: &File<'_>, program: Program<'_>, insn: usize) -> Place {
        let before = self.functions.iter().rev().find(|&&(start, _)| start <= insn);
        let &(start, id) = before.unwrap_or(&self.functions[0]);
        let at = file.function(id).insns.start + (insn - start);
        Place { code: Line::of(program, insn).to_string(), ..place(file, id, at) }
    }
}

/// An instruction of a section, as the file has it.
fn place(file: &File<'_>, function: FunctionId, insn: usize) -> Place {
    let section = file.function(function).section;
    let line = Line { insn: file.insn(section, insn), next: file.insn(section, insn + 1) };
    Place {
        function: file.name(function),
        section: file.sections()[section].name.clone(),
        insn,
        code: line.to_string(),
        source: file.source(section, insn),
    }
}

/// The constants of a filter: sections that its programs name, whole.
#[derive(Default)]
pub(super) struct Constants {
    bytes: Vec<u8>,
    /// Where a section begins in them.
    starts: BTreeMap<usize, usize>,
}

impl Constants {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Where a section begins among the constants.
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

/// What an instruction comes to.
enum Resolved {
    /// Itself.
    Plain(Insn),
    /// A call of a function, or its address.
    Function(FunctionId),
    /// A load of a number.
    Number(u64),
}

/// The program that begins with a function.
pub(super) fn program(
    file: &File<'_>,
    entry: FunctionId,
    constants: &mut Constants,
) -> Result<Linked, Error> {
    let mut order = Order { file, done: Vec::new(), open: Vec::new(), insns: 0 };
    order.visit(entry, constants)?;
    let mut linked = Linked { insns: Vec::new(), functions: Vec::new() };
    let mut starts = BTreeMap::new();
    let mut start = 0;
    // Whoever is done first is called by those that are done later.
    for id in order.done.into_iter().rev() {
        starts.insert(id, start);
        linked.functions.push((start, id));
        start += file.function(id).insns.len();
    }
    for &(start, id) in &linked.functions {
        let function = file.function(id);
        let mut insns = function.insns.clone();
        while let Some(at) = insns.next() {
            let insn = file.insn(function.section, at);
            let here = start + (at - function.insns.start);
            let distance = |callee| (starts[&callee] as i64 - here as i64 - 1) as i32;
            let low = |number: u64| number as u32 as i32;
            match resolve(file, id, at, constants)? {
                Resolved::Plain(plain) => linked.insns.push(plain),
                Resolved::Function(callee) if insn.op == LDDW => {
                    let immediate = distance(callee);
                    linked.insns.push(Insn { src: LDDW_FUNCTION, immediate, ..insn });
                    linked.insns.push(Insn::default());
                    insns.next();
                }
                Resolved::Function(callee) => {
                    linked.insns.push(Insn { immediate: distance(callee), ..insn });
                }
                Resolved::Number(number) => {
                    linked.insns.push(Insn { immediate: low(number), ..insn });
                    let half = Insn { immediate: low(number >> 32), ..Insn::default() };
                    linked.insns.push(half);
                    insns.next();
                }
            }
        }
    }
    Ok(linked)
}

/// Functions, each behind all that it calls.
struct Order<'f, 'd> {
    file: &'f File<'d>,
    done: Vec<FunctionId>,
    /// Those that are being looked at, each called by the one before.
    open: Vec<FunctionId>,
    insns: usize,
}

impl Order<'_, '_> {
    /// Goes no deeper than there are functions in a program.
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
            if let Resolved::Function(callee) = resolve(self.file, id, at, constants)? {
                if self.open.contains(&callee) {
                    let why = format!("{} calls itself", self.file.name(callee));
                    return Err(Error::at(place(self.file, id, at), why));
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

/// What an instruction of a function comes to.
fn resolve(
    file: &File<'_>,
    id: FunctionId,
    at: usize,
    constants: &mut Constants,
) -> Result<Resolved, Error> {
    let function = file.function(id);
    let insn = file.insn(function.section, at);
    let wrong = |why: String| Error::at(place(file, id, at), why);
    let is_call = insn.op == CALL && insn.src == call::FUNCTION;
    let is_wide = insn.op == LDDW && insn.src == 0 && at + 1 < function.insns.end;
    let Some(relocation) = file.relocation(function.section, at) else {
        if !is_call {
            return Ok(Resolved::Plain(insn));
        }
        let start = at as i64 + 1 + i64::from(insn.immediate);
        return callee(file, function.section, start).map_err(wrong);
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
            callee(file, section, start).map_err(wrong)
        }
        (Kind::Wide, _, true) => {
            let high = file.insn(function.section, at + 1).immediate as u32;
            let added = u64::from(high) << 32 | u64::from(insn.immediate as u32);
            let address = address.wrapping_add(added);
            if file.sections()[section].is_code {
                let start = i64::try_from(address / 8).unwrap_or(i64::MAX);
                return callee(file, section, start).map_err(wrong);
            }
            let start = constants.start(file, section).map_err(wrong)?;
            Ok(Resolved::Number(address.wrapping_add(start as u64)))
        }
        (Kind::Other(kind), ..) => Err(wrong(format!("a relocation of kind {kind}"))),
        _ => Err(wrong("a relocation that does not belong to such an instruction".into())),
    }
}

fn callee(file: &File<'_>, section: usize, start: i64) -> Result<Resolved, String> {
    let found = usize::try_from(start).ok().and_then(|start| file.function_in(section, start));
    found.map(Resolved::Function).ok_or_else(|| {
        let of = &file.sections()[section].name;
        format!("no function begins at instruction {start} of section {of}")
    })
}
