//! The floating-point control words, by which results are rounded and exceptions trap; and the exceptions that were raised.
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

/// The control words of a thread or fiber, and the exceptions that it has raised (`fetestexcept`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatState {
    // (The parts of a `FloatControl`, which with the status takes half as much again.)
    #[cfg(target_arch = "x86_64")]
    mxcsr: u32,
    #[cfg(target_arch = "x86_64")]
    x87: u16,
    #[cfg(target_arch = "x86_64")]
    status: u16,
    #[cfg(target_arch = "aarch64")]
    fpcr: u64,
    #[cfg(target_arch = "aarch64")]
    fpsr: u64,
}

/// The exceptions in the x87's status word.
#[cfg(target_arch = "x86_64")]
const EXCEPTIONS: u16 = 0x3f;

impl FloatState {
    /// That of a thread that has set and raised nothing.
    pub const DEFAULT: FloatState = FloatState {
        #[cfg(target_arch = "x86_64")]
        mxcsr: FloatControl::DEFAULT.mxcsr,
        #[cfg(target_arch = "x86_64")]
        x87: FloatControl::DEFAULT.x87,
        #[cfg(target_arch = "x86_64")]
        status: 0,
        #[cfg(target_arch = "aarch64")]
        fpcr: FloatControl::DEFAULT.fpcr,
        #[cfg(target_arch = "aarch64")]
        fpsr: 0,
    };

    /// The calling thread's.
    #[inline(always)]
    pub fn current() -> FloatState {
        let control = FloatControl::current();
        #[cfg(target_arch = "x86_64")]
        return FloatState { mxcsr: control.mxcsr, x87: control.x87, status: status() };
        #[cfg(target_arch = "aarch64")]
        {
            let fpsr;
            // SAFETY: reads a register.
            unsafe {
                std::arch::asm!(
                    "mrs {}, fpsr", out(reg) fpsr,
                    options(nomem, nostack, preserves_flags),
                );
            }
            FloatState { fpcr: control.fpcr, fpsr }
        }
    }

    /// The control words.
    #[inline(always)]
    pub fn control(self) -> FloatControl {
        #[cfg(target_arch = "x86_64")]
        return FloatControl { mxcsr: self.mxcsr, x87: self.x87 };
        #[cfg(target_arch = "aarch64")]
        return FloatControl { fpcr: self.fpcr };
    }

    /// Puts [`DEFAULT`](FloatState::DEFAULT) in force, whatever is now.
    #[inline(always)]
    pub fn reset() {
        // SAFETY: the default words, without exceptions; programs may write these registers.
        unsafe {
            // To read the words, and to compare them, takes more: `stmxcsr` is the slow one.
            FloatControl::DEFAULT.put_in_force();
            #[cfg(target_arch = "x86_64")]
            if status() & EXCEPTIONS != 0 {
                set_exceptions(0);
            }
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!("msr fpsr, xzr", options(nomem, nostack, preserves_flags));
        }
    }

    /// Puts the words in force, and has just these exceptions raised, where the default words are in force now.
    ///
    /// # Safety
    /// As for [`FloatControl::put_in_force`].
    #[inline(always)]
    pub unsafe fn put_in_force(self) {
        // SAFETY: as this function demands. Programs may write these registers, and the words come from them.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            {
                // To compare takes less than to load.
                if FloatControl::current().mxcsr != self.mxcsr
                    || self.x87 != FloatControl::DEFAULT.x87
                {
                    self.control().put_in_force();
                }
                if (status() ^ self.status) & EXCEPTIONS != 0 {
                    set_exceptions(self.status & EXCEPTIONS);
                }
            }
            #[cfg(target_arch = "aarch64")]
            {
                if !self.control().is_default() {
                    self.control().put_in_force();
                }
                std::arch::asm!(
                    "msr fpsr, {}", in(reg) self.fpsr,
                    options(nomem, nostack, preserves_flags),
                );
            }
        }
    }
}

/// The x87's status word.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn status() -> u16 {
    let status;
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!(
            "fnstsw ax", out("ax") status,
            options(nomem, nostack, preserves_flags),
        );
    }
    status
}

/// Has the x87 have raised just these exceptions.
///
/// # Safety
/// None of them traps, or the caller is about to return to the code that has raised it.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
unsafe fn set_exceptions(exceptions: u16) {
    if exceptions == 0 {
        // SAFETY: writes a register.
        unsafe { std::arch::asm!("fnclex", options(nomem, nostack, preserves_flags)) };
        return;
    }
    // The environment, whose second word is the status.
    let mut environment = [0u32; 7];
    let place = environment.as_mut_ptr();
    // SAFETY: stores 28 bytes where there is room for them. (It masks all exceptions, until the words are loaded.)
    unsafe { std::arch::asm!("fnstenv [{}]", in(reg) place, options(nostack, preserves_flags)) };
    // SAFETY: the status is there; what is loaded is what was stored, but for the exceptions.
    unsafe {
        let status = place.add(1);
        status.write(status.read() & !u32::from(EXCEPTIONS) | u32::from(exceptions));
        std::arch::asm!("fldenv [{}]", in(reg) place, options(nostack, preserves_flags));
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_put_back() {
        let before = FloatState::current();
        let zero = std::hint::black_box(0.0f32);
        std::hint::black_box(1.0 / zero);
        let divided = FloatState::current();
        assert_ne!(divided.mxcsr & 4, 0);
        for exceptions in [0x20, 0, 0x3f, 4, 0] {
            let wanted = FloatState { status: exceptions, ..divided };
            // SAFETY: the control words are the default ones.
            unsafe { wanted.put_in_force() };
            let now = FloatState::current();
            assert_eq!(now.control(), divided.control());
            assert_eq!(now.status & EXCEPTIONS, exceptions);
            // SAFETY: the default ones.
            unsafe { FloatState::DEFAULT.put_in_force() };
            let now = FloatState::current();
            assert_eq!((now.mxcsr, now.x87, now.status & EXCEPTIONS), (0x1f80, 0x37f, 0));
        }
        // SAFETY: those that were in force.
        unsafe { before.put_in_force() };
    }
}
