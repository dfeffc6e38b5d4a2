//! The floating-point control words: how results are rounded and which exceptions trap.
//!
//! Rust code runs under the default ones; C code may set others (`fesetround`, `-ffast-math`). Who
//! is called from C and switches by [`switch_thread_from_rust`](super::switch_thread_from_rust)
//! puts the default ones in force meanwhile.

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
    /// Those that a thread starts with.
    pub const DEFAULT: FloatControl = FloatControl {
        #[cfg(target_arch = "x86_64")]
        mxcsr: 0x1f80,
        #[cfg(target_arch = "x86_64")]
        x87: 0x37f,
        #[cfg(target_arch = "aarch64")]
        fpcr: 0,
    };

    /// Those in force.
    #[inline(always)]
    pub fn current() -> FloatControl {
        let mut control = FloatControl::DEFAULT;
        // SAFETY: stores the words where there is room for them.
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

    /// Whether they round and trap as the default ones do.
    #[inline(always)]
    pub fn is_default(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.mxcsr & !RECORDED == FloatControl::DEFAULT.mxcsr
            && self.x87 == FloatControl::DEFAULT.x87;
        #[cfg(target_arch = "aarch64")]
        return self == FloatControl::DEFAULT;
    }

    /// Puts them in force.
    ///
    /// # Safety
    /// Rust code that computes with floating-point numbers may run under the default ones alone: it
    /// is for who returns to the code that had set these.
    #[inline(always)]
    pub unsafe fn put_in_force(self) {
        // SAFETY: loads the words from where they are; the rest is the caller's promise.
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
        // SAFETY: writes a register; the rest is the caller's promise.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "msr fpcr, {}", in(reg) self.fpcr,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}
