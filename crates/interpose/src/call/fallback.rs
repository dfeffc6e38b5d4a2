//! Replacements of libc's functions in a static program: their system calls.

/// Defines a function with libc's signature that makes system call `SYS_$number`, padding the
/// arguments with zeros.
macro_rules! system_call {
    (fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = $number:ident) => {
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            let given = [$($crate::call::sys::Word::from($argument).number()),*];
            let mut arguments = [0; 6];
            arguments[..given.len()].copy_from_slice(&given);
            // SAFETY: the system call of this name takes these arguments: the manual page has it.
            $crate::call::answer::answer(unsafe {
                carefree_ground::kernel::call(libc::$number, arguments)
            }) as $result
        }
    };
}
