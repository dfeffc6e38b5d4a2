//! Words of which each thread has its own, and each fiber with its own thread-local storage.
//!
//! A library finds its `thread_local!` variables through a function of the loader's (`__tls_get_addr`), because it may
//! be loaded when there are threads already, without room for them. Under `carefree run`, hand-overs from thread to
//! thread spent a good part of their time there. The words here lie at an offset from the thread pointer that the
//! loader fills in once: the *initial-exec* model of the ABI. glibc keeps some room in all threads for those of
//! libraries that come late (`rtld.optional_static_tls`).

/// Defines a word of which each thread has its own, null at first, with functions `get`, `set` and `offset` (in bytes,
/// from the thread pointer). The symbol must be unique in the program.
///
/// # Examples
///
/// ```
/// mod words {
///     carefree_context::thread_word! {
///         /// What the thread works on.
///         pub(super) WORK, "an_example_of_a_word"
///     }
/// }
/// use words::WORK;
///
/// let own = std::ptr::without_provenance_mut(1);
/// WORK.set(own);
/// let other = std::thread::spawn(|| WORK.get().is_null());
/// assert!(other.join().unwrap() && WORK.get() == own);
/// ```
#[macro_export]
macro_rules! thread_word {
    ($(#[$doc:meta])* $visibility:vis $name:ident, $symbol:literal) => {
        ::core::arch::global_asm!(
            concat!(".pushsection .tbss.", $symbol, ", \"awT\", @nobits"),
            ".balign 8",
            concat!(".type ", $symbol, ", @object"),
            concat!(".hidden ", $symbol),
            concat!(".globl ", $symbol),
            concat!($symbol, ":"),
            ".zero 8",
            concat!(".size ", $symbol, ", 8"),
            ".popsection",
        );

        $(#[$doc])*
        // (It is used as a static is.)
        #[allow(clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug)]
        $visibility struct $name;

        impl $name {
            /// The word's offset from the thread pointer, in bytes.
            #[inline(always)]
            $visibility fn offset(self) -> isize {
                let offset: isize;
                #[cfg(target_arch = "x86_64")]
                // SAFETY: reads what the loader has filled in before code of this object ran, and nothing else.
                unsafe {
                    ::core::arch::asm!(
                        concat!("mov {}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                        out(reg) offset,
                        options(nostack, preserves_flags, pure, readonly),
                    );
                }
                #[cfg(target_arch = "aarch64")]
                // SAFETY: reads what the loader has filled in before code of this object ran, and nothing else.
                unsafe {
                    ::core::arch::asm!(
                        concat!("adrp {0}, :gottprel:", $symbol),
                        concat!("ldr {0}, [{0}, :gottprel_lo12:", $symbol, "]"),
                        out(reg) offset,
                        options(nostack, preserves_flags, pure, readonly),
                    );
                }
                offset
            }

            /// The caller's word.
            #[inline(always)]
            $visibility fn get(self) -> *mut u8 {
                let offset = self.offset();
                let word: *mut u8;
                // Not `pure`: the compiler must not reuse the value across a switch.
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the word lies at this offset from the caller's thread pointer.
                unsafe {
                    ::core::arch::asm!(
                        "mov {}, qword ptr fs:[{}]",
                        out(reg) word,
                        in(reg) offset,
                        options(nostack, preserves_flags, readonly),
                    );
                }
                #[cfg(target_arch = "aarch64")]
                // SAFETY: the word lies at this offset from the caller's thread pointer.
                unsafe {
                    ::core::arch::asm!(
                        "mrs {0}, tpidr_el0",
                        "ldr {0}, [{0}, {1}]",
                        out(reg) word,
                        in(reg) offset,
                        options(nostack, preserves_flags, readonly),
                    );
                }
                word
            }

            /// Sets the caller's word.
            #[inline(always)]
            $visibility fn set(self, word: *mut u8) {
                let offset = self.offset();
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the word lies at this offset from the caller's thread pointer, and is the caller's own.
                unsafe {
                    ::core::arch::asm!(
                        "mov qword ptr fs:[{}], {}",
                        in(reg) offset,
                        in(reg) word,
                        options(nostack, preserves_flags),
                    );
                }
                #[cfg(target_arch = "aarch64")]
                // SAFETY: the word lies at this offset from the caller's thread pointer, and is the caller's own.
                unsafe {
                    ::core::arch::asm!(
                        "mrs {0}, tpidr_el0",
                        "str {2}, [{0}, {1}]",
                        out(reg) _,
                        in(reg) offset,
                        in(reg) word,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    };
}
