//! Backtraces of other threads, from a copy of their stack.
//!
//! A thread is not unwound where it was interrupted: it may be doing anything, such as switching between
//! stacks, and an unwinder that trusts what it finds there may fault. Instead its registers and stack are
//! copied, and the watchdog walks the copy by the tables for exceptions. A word that is not in the copy just
//! ends the walk.
//!
//! Of a thread that sleeps in the kernel, only the stack pointer is known. That is enough for code without
//! frame pointers. For a function with a frame pointer, such as those of std, the walk searches the stack for
//! the call of that function: see [`called_from`].

#[cfg(target_arch = "x86_64")]
use std::ffi::c_int;
use std::ffi::c_void;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, NativeEndian, Pointer, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
};
use object::LittleEndian;
use object::elf::PT_GNU_EH_FRAME;
use object::read::elf::ProgramHeader as _;

#[cfg(target_arch = "x86_64")]
use super::image::read_memory;
use super::image::{Image, Images};

/// The registers that the tables use, by their numbers there.
const REGISTERS: usize = 32;
#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const STACK_POINTER: usize = 7;
    pub(super) const RETURN_ADDRESS: usize = 16;
    /// Registers that a function must preserve: rbx, rbp, r12 to r15.
    pub(super) const KEPT: &[usize] = &[3, 6, 12, 13, 14, 15];
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const STACK_POINTER: usize = 31;
    pub(super) const RETURN_ADDRESS: usize = 30;
    /// Registers that a function must preserve, and the link register, which a leaf function keeps.
    pub(super) const KEPT: &[usize] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30];
}

/// The most frames of a backtrace.
const FRAMES: usize = 64;

/// The registers of a thread, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) program_counter: u64,
    values: [Option<u64>; REGISTERS],
}

impl Registers {
    pub(super) fn new(program_counter: u64, stack_pointer: u64) -> Registers {
        let mut values = [None; REGISTERS];
        values[number::STACK_POINTER] = Some(stack_pointer);
        Registers { program_counter, values }
    }

    pub(super) fn stack_pointer(&self) -> u64 {
        self.values[number::STACK_POINTER].unwrap_or(0)
    }

    /// The registers that a signal handler is given.
    ///
    /// # Safety
    /// `context` is the third argument of a signal handler.
    pub(super) unsafe fn from_signal(context: *const c_void) -> Registers {
        // SAFETY: the kernel passes a whole `ucontext_t` to a handler, and this function demands such a
        // pointer.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        #[cfg(target_arch = "x86_64")]
        {
            let register = |index: c_int| machine.gregs[index as usize] as u64;
            let mut registers = Registers::new(register(libc::REG_RIP), register(libc::REG_RSP));
            for (number, index) in [
                (3, libc::REG_RBX),
                (6, libc::REG_RBP),
                (12, libc::REG_R12),
                (13, libc::REG_R13),
                (14, libc::REG_R14),
                (15, libc::REG_R15),
            ] {
                registers.values[number] = Some(register(index));
            }
            registers
        }
        #[cfg(target_arch = "aarch64")]
        {
            let mut registers = Registers::new(machine.pc, machine.sp);
            for number in number::KEPT {
                registers.values[*number] = Some(machine.regs[*number]);
            }
            registers
        }
    }
}

/// A piece of a stack, copied.
#[derive(Debug)]
pub(super) struct Copy<'a> {
    pub(super) address: u64,
    pub(super) bytes: &'a [u8],
}

impl Copy<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.address)?).ok()?;
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// A function on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// An address within the instruction that runs, or that called the next inner function.
    pub(super) address: u64,
    /// Where the function begins.
    pub(super) function: u64,
}

/// The functions on a stack, the innermost first.
pub(super) struct Frames {
    frames: [Frame; FRAMES],
    len: usize,
}

impl Frames {
    pub(super) const fn new() -> Frames {
        Frames { frames: [Frame { address: 0, function: 0 }; FRAMES], len: 0 }
    }
}

impl std::ops::Deref for Frames {
    type Target = [Frame];

    fn deref(&self) -> &[Frame] {
        &self.frames[..self.len]
    }
}

/// Where gimli keeps the rules for registers: within itself, not in allocated memory.
struct Inside;

impl UnwindContextStorage<usize> for Inside {
    type Rules = [(Register, RegisterRule<usize>); 64];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

type Context = UnwindContext<usize, Inside>;

/// The functions on a stack, the innermost first, as far as they can be found.
pub(super) fn walk(mut registers: Registers, stack: &Copy<'_>, images: &mut Images) -> Frames {
    let mut frames = Frames::new();
    let mut context = Context::new_in();
    let mut address = registers.program_counter;
    while frames.len < FRAMES {
        let before = registers.stack_pointer();
        let image = images.find(address).map(|image| images.get(image));
        let step = image.and_then(|image| {
            Step { address, registers, stack, context: &mut context, image }.caller()
        });
        let Some((function, outer)) = step else {
            if frames.len > 0 {
                break;
            }
            // No table covers the innermost function: libc's `clone` where it enters the kernel, or
            // hand-written code. As a rule such a function has pushed nothing, so the return address is on top.
            frames.push(Frame { address, function: address });
            let Some(returns) = stack.word(before) else { break };
            registers.values[number::STACK_POINTER] = Some(before.wrapping_add(8));
            address = returns.saturating_sub(1);
            continue;
        };
        frames.push(Frame { address, function });
        match outer {
            Some(outer) if outer.stack_pointer() >= before && outer.program_counter > 1 => {
                registers = outer;
                // A call may be the last instruction of its function.
                address = outer.program_counter - 1;
            }
            _ => break,
        }
    }
    frames
}

impl Frames {
    /// Adds a frame. There must be room.
    fn push(&mut self, frame: Frame) {
        self.frames[self.len] = frame;
        self.len += 1;
    }
}

/// One step outwards, by the tables of the object that has the address.
struct Step<'a> {
    address: u64,
    registers: Registers,
    stack: &'a Copy<'a>,
    context: &'a mut Context,
    image: &'a Image,
}

impl Step<'_> {
    /// Where the function begins, and the registers of its caller.
    fn caller(self) -> Option<(u64, Option<Registers>)> {
        let Step { address, registers, stack, context, image } = self;
        let header = image.headers().iter().find(|h| h.p_type(LittleEndian) == PT_GNU_EH_FRAME)?;
        let table = image.bias.wrapping_add(header.p_vaddr(LittleEndian));
        let bytes = header.data(LittleEndian, image.bytes()).ok()?;
        // As linkers write it. gimli's arithmetic could overflow with a wider number of entries.
        if *bytes.get(2)? != gimli::DW_EH_PE_udata4.0 {
            return None;
        }
        let bases = BaseAddresses::default().set_eh_frame_hdr(table);
        let index = EhFrameHdr::new(bytes, NativeEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(frames) = index.eh_frame_ptr() else { return None };
        let bases = bases.set_eh_frame(frames);
        // Its length is not given. It has an end mark, and ends within its segment.
        let section = EhFrame::new(image.from(frames, false)?, NativeEndian);
        let table = index.table()?;
        let Pointer::Direct(entry) = table.lookup(address, &bases).ok()? else { return None };
        let entry = EhFrameOffset(entry.checked_sub(frames)?.try_into().ok()?);
        let entry = section.fde_from_offset(&bases, entry, EhFrame::cie_from_offset).ok()?;
        if !entry.contains(address) {
            return None;
        }
        let row = entry.unwind_info_for_address(&section, &bases, context, address).ok();
        let function = entry.initial_address();
        let Some(row) = row else { return Some((function, None)) };
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
            return Some((function, None));
        };
        let frame = match registers.values.get(usize::from(register.0)).copied().flatten() {
            Some(base) => base.wrapping_add_signed(offset),
            None => match called_from(function, &registers, stack, image) {
                Some(frame) => frame,
                None => return Some((function, None)),
            },
        };
        let mut outer = Registers::new(0, frame);
        for kept in number::KEPT.iter().chain([&number::RETURN_ADDRESS]) {
            let same = || registers.values[*kept];
            outer.values[*kept] = match row.register(Register(*kept as u16)) {
                RegisterRule::Undefined if number::KEPT.contains(kept) => same(),
                RegisterRule::SameValue => same(),
                RegisterRule::Offset(offset) => stack.word(frame.wrapping_add_signed(offset)),
                RegisterRule::ValOffset(offset) => Some(frame.wrapping_add_signed(offset)),
                _ => None,
            };
        }
        let returns = outer.values[number::RETURN_ADDRESS];
        outer.program_counter = returns.unwrap_or(0);
        Some((function, returns.map(|_| outer)))
    }
}

/// Where the frame of `function` begins if its registers are not known: above the first word on the stack that
/// is the address behind a call of `function` in the same object.
#[cfg(target_arch = "x86_64")]
fn called_from(
    function: u64,
    registers: &Registers,
    stack: &Copy<'_>,
    image: &Image,
) -> Option<u64> {
    /// The length of the longest call instruction that is recognised.
    const CALL: u64 = 6;
    let follows_call = |returns: u64| {
        // Most words of a stack are no return addresses.
        let code = image.from(returns.wrapping_sub(CALL), true);
        let Some(code) = code.and_then(|code| code.first_chunk::<{ CALL as usize }>()) else {
            return false;
        };
        let offset = i32::from_ne_bytes([code[2], code[3], code[4], code[5]]).into();
        let target = returns.wrapping_add_signed(offset);
        match code {
            // A call through a pointer that the loader has filled in.
            [0xff, 0x15, ..] => {
                let mut pointer = [0; 8];
                read_memory(target, &mut pointer) == 8 && u64::from_ne_bytes(pointer) == function
            }
            [_, 0xe8, ..] => target == function,
            _ => false,
        }
    };
    let begin = registers.stack_pointer().checked_next_multiple_of(8)?;
    let end = stack.address.saturating_add(stack.bytes.len() as u64);
    let mut places = (begin..end).step_by(8);
    places.find(|place| stack.word(*place).is_some_and(follows_call)).map(|place| place + 8)
}

/// Calls are not searched for on this architecture.
#[cfg(target_arch = "aarch64")]
fn called_from(
    _function: u64,
    _registers: &Registers,
    _stack: &Copy<'_>,
    _image: &Image,
) -> Option<u64> {
    None
}
