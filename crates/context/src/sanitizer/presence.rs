//! Which sanitizer is in the program, even if only its C code was built with one.

use std::ffi::CStr;

/// The address of a symbol, or null if it does not exist. Unlike `dlsym` this also finds symbols
/// that are linked into the program itself and not exported, such as those of Rust's and clang's
/// sanitizers.
macro_rules! weak {
    ($name:literal) => {{
        let address: *const u8;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads the entry that the linker makes for the symbol in the global offset table.
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, preserves_flags, readonly, pure),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: loads the entry that the linker makes for the symbol in the global offset table.
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

/// The name of the sanitizer in this program, if there is one.
pub(crate) fn present() -> Option<&'static str> {
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

/// Whether a loaded (perhaps preloaded) library exports the symbol.
fn is_exported(name: &CStr) -> bool {
    // SAFETY: the name is a C string; dlsym only looks it up.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
}
