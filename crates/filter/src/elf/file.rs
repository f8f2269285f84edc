//! Reads an ELF file's sections, functions and relocations in one pass; the file may be hostile.

use std::collections::{BTreeMap, HashMap};

use object::elf::{R_BPF_64_32, R_BPF_64_64, SHF_EXECINSTR, SHF_WRITE};
use object::endian::LittleEndian;
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{
    Architecture, Object as _, ObjectSection as _, ObjectSymbol as _, Relocation as Read,
    RelocationFlags, RelocationTarget, SectionFlags, SectionIndex, SectionKind, SymbolIndex,
    SymbolKind,
};
use trackway_jit::insn::{INSN_BYTES, Insn};

use super::error::Error;
use super::{FILE_BYTES_MAX, FILE_PARTS_MAX, NAME_BYTES_MAX, source};

/// A section that filters can use: code or read-only data.
pub(super) struct Section<'d> {
    pub(super) name: String,
    pub(super) index: SectionIndex,
    pub(super) data: &'d [u8],
    pub(super) is_code: bool,
    /// True if relocations change the section's data.
    pub(super) is_relocated: bool,
}

/// Index of a function in [`File::functions`].
pub(super) type FunctionId = usize;

/// A function in a section.
pub(super) struct Function {
    symbol: SymbolIndex,
    /// Index of the function's section in [`File::sections`].
    pub(super) section: usize,
    /// Instructions of the function, as a range in its section.
    pub(super) insns: std::ops::Range<usize>,
}

/// The kind of instruction that a relocation changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The operand of [`trackway_jit::insn::LDDW`].
    Wide,
    /// The target of a call.
    Call,
    /// Another relocation type, by its number.
    Other(u32),
}

/// A relocation of an instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relocation {
    pub(super) kind: Kind,
    target: Option<SymbolIndex>,
}

/// The target of a relocation.
pub(super) enum Target {
    /// An offset in bytes into a section, by its index in [`File::sections`].
    Section(usize, u64),
    /// A symbol outside the sections that filters can use: the reason, and the symbol's name.
    Nowhere(&'static str, String),
}

/// An ELF file whose contents were read.
pub(super) struct File<'d> {
    elf: ElfFile64<'d, LittleEndian>,
    sections: Vec<Section<'d>>,
    by_index: HashMap<usize, usize>,
    /// Section indices by name; `None` for names of several sections.
    by_name: HashMap<String, Option<usize>>,
    functions: Vec<Function>,
    relocations: BTreeMap<(usize, usize), Relocation>,
    source: source::Lines<'d>,
}

impl<'d> File<'d> {
    /// Reads the bytes of an ELF file.
    pub(super) fn read(bytes: &'d [u8]) -> Result<Self, Error> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Error::new(format!("it is longer than {FILE_BYTES_MAX} bytes")));
        }
        let no_elf = |error| {
            let error = Error::new(format!("it is no object file for BPF: {error}"));
            error.with_hint("clang -O2 -target bpf -c makes one")
        };
        let elf =
            ElfFile64::<LittleEndian>::parse(bytes).map_err(|error| no_elf(error.to_string()))?;
        let kind = elf.elf_header().e_type(LittleEndian);
        if elf.architecture() != Architecture::Bpf || kind != object::elf::ET_REL {
            return Err(no_elf("it is for something else".into()));
        }
        let mut file = Self {
            elf,
            sections: Vec::new(),
            by_index: HashMap::new(),
            by_name: HashMap::new(),
            functions: Vec::new(),
            relocations: BTreeMap::new(),
            source: source::Lines::default(),
        };
        file.read_sections()?;
        file.read_functions()?;
        file.read_relocations()?;
        file.read_source();
        Ok(file)
    }

    fn read_sections(&mut self) -> Result<(), Error> {
        for section in self.elf.sections() {
            let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
            let is_code = sh_flags & u64::from(SHF_EXECINSTR) != 0;
            let is_writable = sh_flags & u64::from(SHF_WRITE) != 0;
            let is_data = matches!(
                section.kind(),
                SectionKind::ReadOnlyData | SectionKind::ReadOnlyString | SectionKind::Data
            );
            if is_writable || !is_code && !is_data {
                continue;
            }
            // Section names may overlap, so their total length may exceed the file's.
            let name = section.name().map_err(|error| Error::new(error.to_string()))?;
            if name.len() > NAME_BYTES_MAX || self.sections.len() == FILE_PARTS_MAX {
                let why = format!("it has more than {FILE_PARTS_MAX} sections, or long names");
                return Err(Error::new(why));
            }
            let name = name.to_owned();
            let data = section.data();
            let data = data.map_err(|error| Error::new(format!("section {name}: {error}")))?;
            if is_code && !data.len().is_multiple_of(INSN_BYTES) {
                let why = format!("section {name} is not made of whole instructions");
                return Err(Error::new(why));
            }
            self.by_index.insert(section.index().0, self.sections.len());
            let is_relocated = section.relocations().next().is_some();
            let index = section.index();
            let place = self.sections.len();
            let named = self.by_name.entry(name.clone());
            named.and_modify(|known| *known = None).or_insert(Some(place));
            self.sections.push(Section { name, index, data, is_code, is_relocated });
        }
        Ok(())
    }

    fn read_functions(&mut self) -> Result<(), Error> {
        for symbol in self.elf.symbols() {
            let section = symbol.section_index().and_then(|index| self.by_index.get(&index.0));
            let Some(&section) = section else { continue };
            if symbol.kind() != SymbolKind::Text || !self.sections[section].is_code {
                continue;
            }
            if self.functions.len() == FILE_PARTS_MAX {
                return Err(Error::new(format!("it has more than {FILE_PARTS_MAX} functions")));
            }
            let end = symbol.address().checked_add(symbol.size());
            let is_whole = |bytes: &u64| bytes.is_multiple_of(INSN_BYTES as u64);
            let insns = end
                .filter(|end| *end <= self.sections[section].data.len() as u64)
                .filter(|end| is_whole(end) && is_whole(&symbol.address()))
                .filter(|_| symbol.size() > 0)
                .map(|end| symbol.address() as usize / INSN_BYTES..end as usize / INSN_BYTES);
            let Some(insns) = insns else {
                let of = &self.sections[section].name;
                let name = self.symbol_name(symbol.index());
                let why = format!("symbol {name} is not made of whole instructions of {of}");
                return Err(Error::new(why));
            };
            self.functions.push(Function { symbol: symbol.index(), section, insns });
        }
        // In file order, so that a search by the first instruction finds each function.
        self.functions.sort_by_key(|function| (function.section, function.insns.start));
        for pair in self.functions.windows(2) {
            if pair[0].section == pair[1].section && pair[0].insns.end > pair[1].insns.start {
                let [first, second] = [&pair[0], &pair[1]].map(|of| self.symbol_name(of.symbol));
                let why = format!("symbols {first} and {second} overlap");
                return Err(Error::new(why));
            }
        }
        Ok(())
    }

    fn read_relocations(&mut self) -> Result<(), Error> {
        for (section, of) in self.sections.iter().enumerate().filter(|(_, of)| of.is_code) {
            let Ok(read) = self.elf.section_by_index(of.index) else { continue };
            for (offset, relocation) in read.relocations() {
                let insn = usize::try_from(offset).unwrap_or(usize::MAX);
                let is_insn = insn.is_multiple_of(INSN_BYTES) && insn < of.data.len();
                let place = (section, insn / INSN_BYTES);
                let relocation = kind_of(&relocation);
                if !is_insn || self.relocations.insert(place, relocation).is_some() {
                    let of = &of.name;
                    let why = format!("section {of} has a wrong relocation at byte {offset}");
                    return Err(Error::new(why));
                }
            }
        }
        Ok(())
    }

    fn read_source(&mut self) {
        let data = |name| self.elf.section_by_name(name).and_then(|section| section.data().ok());
        if let (Some(types), Some(more)) = (data(".BTF"), data(".BTF.ext")) {
            self.source = source::Lines::new(types, more);
        }
    }

    pub(super) fn sections(&self) -> &[Section<'d>] {
        &self.sections
    }

    /// Returns the section of this name; fails if there are several.
    pub(super) fn section(&self, name: &str) -> Result<Option<&Section<'d>>, Error> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Some(place)) => Ok(self.sections.get(*place)),
            Some(None) => Err(Error::new(format!("there are two sections {name}"))),
        }
    }

    /// Returns a symbol's name, shortened for messages.
    fn symbol_name(&self, symbol: SymbolIndex) -> String {
        let symbol = self.elf.symbol_by_index(symbol).ok();
        let name = symbol.and_then(|symbol| symbol.name_bytes().ok()).unwrap_or(b"?");
        String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]).into_owned()
    }

    /// Returns a function's name.
    pub(super) fn name(&self, id: FunctionId) -> String {
        self.symbol_name(self.functions[id].symbol)
    }

    pub(super) fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id]
    }

    /// Returns the function that begins at this instruction of a section, by its ELF index.
    pub(super) fn function_at(&self, section: SectionIndex, insn: usize) -> Option<FunctionId> {
        self.function_in(*self.by_index.get(&section.0)?, insn)
    }

    /// Finds a function like [`Self::function_at`], by the section's index in [`Self::sections`].
    pub(super) fn function_in(&self, section: usize, insn: usize) -> Option<FunctionId> {
        let key = |function: &Function| (function.section, function.insns.start);
        self.functions.binary_search_by_key(&(section, insn), key).ok()
    }

    /// Returns an instruction of a section; beyond the end, one with an invalid opcode.
    pub(super) fn insn(&self, section: usize, insn: usize) -> Insn {
        let bytes = self.sections[section].data.get(insn.saturating_mul(INSN_BYTES)..);
        let bytes = bytes.and_then(|bytes| bytes.first_chunk());
        bytes.map_or(Insn::default(), |bytes| Insn::decode(*bytes))
    }

    pub(super) fn relocation(&self, section: usize, insn: usize) -> Option<Relocation> {
        self.relocations.get(&(section, insn)).copied()
    }

    /// Returns the target of a relocation.
    pub(super) fn target(&self, relocation: Relocation) -> Target {
        let symbol = relocation.target.and_then(|index| self.elf.symbol_by_index(index).ok());
        let Some(symbol) = symbol else { return Target::Nowhere("is nothing", "?".into()) };
        // Relocations of static symbols may name the section instead of the symbol.
        let section = || self.elf.section_by_index(symbol.section_index()?).ok();
        let name = || match self.symbol_name(symbol.index()) {
            name if !name.is_empty() => name,
            _ => {
                section().and_then(|section| Some(section.name().ok()?.into())).unwrap_or_default()
            }
        };
        if symbol.is_undefined() {
            return Target::Nowhere("is not in the file", name());
        }
        let section = symbol.section_index().and_then(|index| self.by_index.get(&index.0));
        match section {
            Some(&section) => Target::Section(section, symbol.address()),
            None => Target::Nowhere("is a variable that can be written", name()),
        }
    }

    /// Returns the source line of an instruction.
    pub(super) fn source(&self, section: usize, insn: usize) -> Option<String> {
        self.source.find(&self.sections[section].name, insn * INSN_BYTES)
    }
}

fn kind_of(relocation: &Read) -> Relocation {
    let RelocationFlags::Elf { r_type } = relocation.flags() else {
        return Relocation { kind: Kind::Other(u32::MAX), target: None };
    };
    let kind = match r_type {
        R_BPF_64_64 => Kind::Wide,
        R_BPF_64_32 => Kind::Call,
        other => Kind::Other(other),
    };
    let target = match relocation.target() {
        RelocationTarget::Symbol(index) => Some(index),
        _ => None,
    };
    Relocation { kind, target }
}
