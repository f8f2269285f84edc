//! Fuzz targets: the code of reader, recorder and traced program that gets untrusted bytes, each
//! part as a function of bytes. The fuzzers (`fuzz/`) call these functions, and so does the smoke
//! test (`tests/fuzz.rs`), with a fixed corpus.
//!
//! A target panics if its code panics, or violates a property that the target checks. It returns
//! the amount of work, so that a test can compare the work with the input's size. The caller
//! measures the memory.
#![deny(unsafe_code)]

mod elf;
mod expression;
mod filter;
mod folder;
mod ftrace;
mod kernel;
mod metadata;
mod mutate;
mod packets;
mod session;

pub use elf::compile_elf;
pub use expression::compile_expression;
pub use filter::run_filters;
pub use folder::read_folder;
pub use ftrace::read_ftrace;
pub use kernel::{read_btf, read_format};
pub use metadata::read_tsdl;
pub use mutate::mutate_input;
pub use packets::read_packets;
pub use session::{read_control, read_spec};

/// A fuzz target: an input of the reader, of the recorder, or of a traced program.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target: its folder in `fuzz/corpus`, and its name for `make fuzz TARGET=`.
    pub name: &'static str,
    /// Reads the bytes, and returns the work: the number of values produced.
    pub run: fn(&[u8]) -> u64,
    /// Limit of values, the unit of work.
    pub values: Bound,
    /// Limit of memory allocated at once, in bytes.
    pub memory: Bound,
    /// Limit of allocations.
    pub allocations: Bound,
}

impl Target {
    /// Compares the cost of reading `bytes` with this target's bounds.
    ///
    /// # Panics
    /// Panics if the cost exceeds a bound.
    pub fn check(&self, bytes: &[u8], values: u64, memory: u64, allocations: u64) {
        let size = bytes.len();
        for (what, much, bound) in [
            ("values", values, self.values),
            ("bytes of memory", memory, self.memory),
            ("allocations", allocations, self.allocations),
        ] {
            let most = bound.of(size);
            assert!(much <= most, "{}: {much} {what} of {size} bytes, {most} at most", self.name);
        }
    }
}

/// A bound that grows linearly with the input.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Amount for each byte of input.
    pub per_byte: u64,
    /// Amount for any input.
    pub base: u64,
}

impl Bound {
    /// Returns the bound for an input of `bytes` bytes.
    pub const fn of(self, bytes: usize) -> u64 {
        self.per_byte * bytes as u64 + self.base
    }
}

/// Limit of memory for metadata: a type for each byte, and some types for any metadata.
const MEMORY: Bound = Bound { per_byte: 256, base: 16 << 20 };
/// Limit of allocations for metadata: some for each token, and for the types of any metadata.
const ALLOCATIONS: Bound = Bound { per_byte: 16, base: 256 << 10 };

/// All fuzz targets.
pub const TARGETS: [Target; 12] = [
    Target {
        name: "tsdl",
        run: read_tsdl,
        values: Bound { per_byte: 1, base: 1 },
        memory: MEMORY,
        allocations: ALLOCATIONS,
    },
    Target {
        name: "packets",
        run: read_packets,
        values: packets::VALUES,
        memory: MEMORY,
        allocations: ALLOCATIONS,
    },
    // Same function as `packets`, but with a corpus in JSON.
    Target {
        name: "ctf2",
        run: read_packets,
        values: packets::VALUES,
        memory: MEMORY,
        allocations: ALLOCATIONS,
    },
    Target {
        name: "folder",
        run: read_folder,
        values: folder::LINES,
        memory: folder::MEMORY,
        allocations: folder::ALLOCATIONS,
    },
    Target {
        name: "spec",
        run: read_spec,
        values: session::VALUES,
        memory: session::MEMORY,
        allocations: session::ALLOCATIONS,
    },
    Target {
        name: "control",
        run: read_control,
        values: session::VALUES,
        memory: session::MEMORY,
        allocations: session::ALLOCATIONS,
    },
    Target {
        name: "expression",
        run: compile_expression,
        values: expression::INSNS,
        memory: expression::MEMORY,
        allocations: expression::ALLOCATIONS,
    },
    Target {
        name: "elf",
        run: compile_elf,
        values: elf::INSNS,
        memory: elf::MEMORY,
        allocations: elf::ALLOCATIONS,
    },
    Target {
        name: "filter",
        run: run_filters,
        values: filter::STEPS,
        memory: filter::MEMORY,
        allocations: filter::ALLOCATIONS,
    },
    Target {
        name: "format",
        run: read_format,
        values: kernel::VALUES,
        memory: kernel::MEMORY,
        allocations: kernel::ALLOCATIONS,
    },
    Target {
        name: "btf",
        run: read_btf,
        values: kernel::VALUES,
        memory: kernel::MEMORY,
        allocations: kernel::ALLOCATIONS,
    },
    Target {
        name: "ftrace",
        run: read_ftrace,
        values: ftrace::RECORDS,
        memory: ftrace::MEMORY,
        allocations: ftrace::ALLOCATIONS,
    },
];

/// Returns the target with this name.
pub fn find_target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
