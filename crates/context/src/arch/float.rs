//! The floating-point control words: how results are rounded and which exceptions trap.
//!
//! Rust code runs under the default words; C code may set others (`fesetround`, `-ffast-math`). A
//! function that C code calls, and that switches by
//! [`switch_thread_from_rust`](super::switch_thread_from_rust), must load the default words first
//! and restore the caller's before it returns.

/// The control words of a thread or fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatControl {
    #[cfg(target_arch = "x86_64")]
    mxcsr: u32,
    #[cfg(target_arch = "x86_64")]
    x87: u16,
    #[cfg(target_arch = "aarch64")]
    fpcr: u64,
}

/// The bits of MXCSR that record exceptions and control nothing.
#[cfg(target_arch = "x86_64")]
const RECORDED: u32 = 0x3f;

impl FloatControl {
    /// The words that a thread starts with.
    pub const DEFAULT: FloatControl = FloatControl {
        #[cfg(target_arch = "x86_64")]
        mxcsr: 0x1f80,
        #[cfg(target_arch = "x86_64")]
        x87: 0x37f,
        #[cfg(target_arch = "aarch64")]
        fpcr: 0,
    };

    /// The calling thread's words.
    #[inline(always)]
    pub fn current() -> FloatControl {
        let mut control = FloatControl::DEFAULT;
        // SAFETY: stores 4 and 2 bytes to fields of those sizes.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "stmxcsr [{mxcsr}]",
                "fnstcw [{x87}]",
                mxcsr = in(reg) &raw mut control.mxcsr,
                x87 = in(reg) &raw mut control.x87,
                options(nostack, preserves_flags),
            );
        }
        // SAFETY: reads a register.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "mrs {}, fpcr", out(reg) control.fpcr,
                options(nomem, nostack, preserves_flags),
            );
        }
        control
    }

    /// Whether these words round and trap as the default ones do.
    #[inline(always)]
    pub fn is_default(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.mxcsr & !RECORDED == FloatControl::DEFAULT.mxcsr
            && self.x87 == FloatControl::DEFAULT.x87;
        #[cfg(target_arch = "aarch64")]
        return self == FloatControl::DEFAULT;
    }

    /// Loads these words into the processor.
    ///
    /// # Safety
    /// Rust code may compute with floating-point numbers under the default words only. Other words
    /// may be restored only when control returns to the code that had set them, with no such
    /// computation before.
    #[inline(always)]
    pub unsafe fn put_in_force(self) {
        // SAFETY: both words were read from the registers, so loading them does not fault; the
        // caller runs no floating-point Rust code under words other than the default.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "ldmxcsr [{mxcsr}]",
                "fldcw [{x87}]",
                mxcsr = in(reg) &raw const self.mxcsr,
                x87 = in(reg) &raw const self.x87,
                options(nostack, preserves_flags, readonly),
            );
        }
        // SAFETY: programs may write the register; the caller runs no floating-point Rust code
        // under a word other than the default.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "msr fpcr, {}", in(reg) self.fpcr,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}
