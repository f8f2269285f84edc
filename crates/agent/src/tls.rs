//! Thread-local memory, by the initial-exec model (ELF TLS ABI): an offset from the thread pointer
//! that is fixed when the library is loaded. A thread has this memory from its first instruction
//! on; finding it calls nothing and allocates nothing.
//!
//! Rust's `thread_local!` in a shared library allocates at a thread's first access, which may be
//! inside malloc. So symbols are defined in assembly, in static TLS.

/// Defines a symbol of `bytes` zeroed bytes, with this alignment, in each thread's memory.
macro_rules! define {
    ($symbol:literal, bytes = $bytes:expr, alignment = $alignment:literal) => {
        core::arch::global_asm!(
            ".pushsection .tbss,\"awT\",@nobits",
            concat!(".balign ", $alignment),
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ",@object"),
            concat!(".size ", $symbol, ",{bytes}"),
            concat!($symbol, ":"),
            ".zero {bytes}",
            ".popsection",
            bytes = const $bytes,
        );
    };
}

/// Returns the address of the calling thread's copy of a symbol that `define` made.
macro_rules! address_of {
    ($symbol:literal) => {{
        let address: *mut _;
        // SAFETY: reads the symbol's offset from the GOT and adds the thread pointer; both are
        // constant for a thread.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                concat!("mov {address}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                "add {address}, qword ptr fs:[0]",
                address = out(reg) address,
                options(nostack, pure, readonly),
            );
        }
        // SAFETY: the offset and the thread pointer are constant for a thread.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                concat!("adrp {address}, :gottprel:", $symbol),
                concat!("ldr {address}, [{address}, :gottprel_lo12:", $symbol, "]"),
                "mrs {pointer}, tpidr_el0",
                "add {address}, {address}, {pointer}",
                address = out(reg) address,
                pointer = out(reg) _,
                options(nostack, pure, readonly, preserves_flags),
            );
        }
        // SAFETY: the offset and the thread pointer are constant for a thread.
        #[cfg(target_arch = "riscv64")]
        unsafe {
            core::arch::asm!(
                concat!("la.tls.ie {address}, ", $symbol),
                "add {address}, {address}, tp",
                address = out(reg) address,
                options(nostack, pure, readonly, preserves_flags),
            );
        }
        address
    }};
}

/// Returns the first eight bytes of the calling thread's copy of a symbol that `define` made.
macro_rules! first_word {
    ($symbol:literal) => {{
        #[cfg(target_arch = "x86_64")]
        {
            let word: u64;
            // SAFETY: as in `address_of`. The symbol has eight bytes, which only the thread and its
            // signal handlers change.
            unsafe {
                core::arch::asm!(
                    concat!("mov {word}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov {word}, qword ptr fs:[{word}]",
                    word = out(reg) word,
                    options(nostack, readonly, preserves_flags),
                );
            }
            word
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let address: *const u64 = $crate::tls::address_of!($symbol);
            // SAFETY: the address is the thread's own, of at least eight bytes.
            unsafe { address.read_volatile() }
        }
    }};
}

pub(crate) use {address_of, define};

/// Bytes of a thread's line: one cache line of the static TLS surplus of glibc.
pub(crate) const LINE_BYTES: usize = 64;

define!("trackway_thread", bytes = LINE_BYTES, alignment = 64);

/// Returns the address of the calling thread's line, which no two living threads share.
#[inline(always)]
pub(crate) fn thread_line<T>() -> *mut T {
    address_of!("trackway_thread")
}

/// Returns the first eight bytes of the calling thread's line.
#[inline(always)]
pub(crate) fn line_first_word() -> u64 {
    first_word!("trackway_thread")
}
