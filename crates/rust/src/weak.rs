//! Functions of libtrackway.so, which is there or not.

/// The function of this name and type, if the library is there and has it: it is preloaded or
/// linked, or never comes. `None` on machines that are not supported.
macro_rules! weak_function {
    ($symbol:literal as $function:ty) => {{
        let address: *mut ();
        #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
        // SAFETY: reads the address of a weak symbol from the global offset table; zero without it.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        #[cfg(all(target_os = "linux", target_arch = "aarch64", target_pointer_width = "64"))]
        // SAFETY: likewise.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("adrp {0}, :got:", $symbol),
                concat!("ldr {0}, [{0}, :got_lo12:", $symbol, "]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        #[cfg(all(target_os = "linux", target_arch = "riscv64"))]
        // SAFETY: likewise.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("lga {}, ", $symbol),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        #[cfg(not(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"),
            target_pointer_width = "64",
        )))]
        {
            address = core::ptr::null_mut();
        }
        // SAFETY: null is None, and else it is the function of that declaration.
        unsafe { core::mem::transmute::<*mut (), Option<$function>>(address) }
    }};
}

pub(crate) use weak_function;
