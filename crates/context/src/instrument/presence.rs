//! Which sanitizer is in the program, be it that only its C code was built with one.

use std::ffi::CStr;

/// Asks for a symbol that need not exist: null where it does not. Unlike `dlsym` this finds what is
/// linked into the program itself and not exported, as Rust's and clang's sanitizers are.
macro_rules! weak {
    ($name:literal) => {{
        let address: *const u8;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads an entry of the table of addresses, which the linker makes for it.
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly, pure),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly, pure),
            );
        }
        address
    }};
}

/// The name of the sanitizer that keeps state for each thread here.
pub(crate) fn sanitizer() -> Option<&'static str> {
    let linked = [
        (weak!("__asan_init"), c"__asan_init", "AddressSanitizer"),
        (weak!("__hwasan_init"), c"__hwasan_init", "HWAddressSanitizer"),
        (weak!("__lsan_init"), c"__lsan_init", "LeakSanitizer"),
        (weak!("__msan_init"), c"__msan_init", "MemorySanitizer"),
        (weak!("__tsan_init"), c"__tsan_init", "ThreadSanitizer"),
    ];
    let found = linked.iter().find(|(address, name, _)| !address.is_null() || is_exported(name));
    found.map(|(.., sanitizer)| *sanitizer)
}

/// Whether a library that was loaded has it, be it preloaded.
fn is_exported(name: &CStr) -> bool {
    // SAFETY: the name is a C string; dlsym only looks it up.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}
