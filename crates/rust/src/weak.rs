//! Functions of libtrackway.so, which may be absent.

/// Returns the library's function of this name and type, or `None` if the library is absent or
/// lacks it. The library is preloaded or linked, or never loaded. Returns `None` on unsupported
/// machines.
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
        // SAFETY: reads the address of a weak symbol from the global offset table; zero without it.
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
        // SAFETY: reads the address of a weak symbol from the global offset table; zero without it.
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
        // SAFETY: null means `None`; otherwise the address is that of a function with this type.
        unsafe { core::mem::transmute::<*mut (), Option<$function>>(address) }
    }};
}

pub(crate) use weak_function;
