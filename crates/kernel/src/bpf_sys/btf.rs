//! BTF types of a program's functions (Documentation/bpf/btf.rst). The kernel requires these types
//! for programs that take a function's address.

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const FUNCTION: u32 = 12;
const FUNCTION_TYPE: u32 = 13;
/// The shift of the kind in a type's second word.
const KIND_SHIFT: u32 = 24;
/// Size of a record that gives the type of the function at an instruction.
pub(crate) const INFO_BYTES: u32 = 8;

/// BTF types of a program's functions.
#[derive(Debug)]
pub(crate) struct Btf {
    /// The types for BPF_BTF_LOAD.
    pub(crate) types: Vec<u8>,
    /// The records for BPF_PROG_LOAD: `instruction u32 | type u32` for each function.
    pub(crate) infos: Vec<u8>,
}

/// Describes functions by their first instructions and their names.
pub(crate) fn describe_functions(functions: &[(usize, String)]) -> Btf {
    let word = |bytes: &mut Vec<u8>, word: u32| bytes.extend(word.to_le_bytes());
    let (mut types, mut strings, mut infos) = (Vec::new(), vec![0], Vec::new());
    // Type 1: the prototype of all functions. Static functions need no arguments.
    for field in [0, FUNCTION_TYPE << KIND_SHIFT, 0] {
        word(&mut types, field);
    }
    for (number, (insn, name)) in (2..).zip(functions) {
        for field in [strings.len() as u32, FUNCTION << KIND_SHIFT, 1] {
            word(&mut types, field);
        }
        strings.extend(name.bytes());
        strings.push(0);
        word(&mut infos, *insn as u32);
        word(&mut infos, number);
    }
    let mut header = MAGIC.to_le_bytes().to_vec();
    header.extend([1, 0]);
    let sizes = [HEADER_BYTES, 0, types.len(), types.len(), strings.len()];
    sizes.iter().for_each(|&size| word(&mut header, size as u32));
    Btf { types: [header, types, strings].concat(), infos }
}
