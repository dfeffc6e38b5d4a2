//! Replacements of libc's functions in a static program: their system calls.

/// Defines a function with libc's signature that makes system call `SYS_$number`, padding the
/// arguments with zeros. It takes nothing but numbers and [`User`](crate::call::user::User)s.
macro_rules! system_call {
    (fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = $number:ident) => {
        extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            let given: &[usize] = &[$($crate::call::sys::Word::from($argument).number()),*];
            let mut arguments = [0; 6];
            arguments[..given.len()].copy_from_slice(given);
            // SAFETY: the manual page has these arguments, in this order. The pointers among them are `User`s:
            // the call does there what the program has asked for, and none of those that are made here goes
            // to other memory or changes the address space.
            $crate::call::answer::answer(unsafe {
                carefree_ground::kernel::call(libc::$number, arguments)
            }) as $result
        }
    };
}
