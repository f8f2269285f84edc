//! Detection of valgrind(1), which walks through all memory that the program has mapped.

/// Number of the client request (`RUNNING_ON_VALGRIND` in valgrind's manual, "The Client Request
/// mechanism"). The number and the instructions below are valgrind's interface.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const RUNNING_ON_VALGRIND: u64 = 0x1001;

/// Returns true if the program runs in valgrind. Uses instructions that do nothing on a processor,
/// and that valgrind takes for a request. No system call; any thread, any signal handler.
pub fn runs_in_valgrind() -> bool {
    #[cfg(target_arch = "x86_64")]
    let depth = {
        let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
        let mut depth = 0_u64;
        // SAFETY: rdi is rotated by 128 bits in all, which changes nothing; an exchange of a
        // register with itself neither. valgrind reads the request, and writes rdx.
        unsafe {
            core::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") request.as_ptr(),
                inout("rdx") depth,
                inout("rdi") 0_u64 => _,
                options(nostack),
            );
        }
        depth
    };
    #[cfg(target_arch = "aarch64")]
    let depth = {
        let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
        let mut depth = 0_u64;
        // SAFETY: x12 is rotated by 128 bits in all, which changes nothing; nor does "or" of a
        // register with itself. valgrind reads the request, and writes x3.
        unsafe {
            core::arch::asm!(
                "ror x12, x12, #3",
                "ror x12, x12, #13",
                "ror x12, x12, #51",
                "ror x12, x12, #61",
                "orr x10, x10, x10",
                in("x4") request.as_ptr(),
                inout("x3") depth,
                inout("x12") 0_u64 => _,
                options(nostack),
            );
        }
        depth
    };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let depth = 0_u64;
    depth != 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_processor_does_not_say_so() {
        assert!(!super::runs_in_valgrind());
    }
}
