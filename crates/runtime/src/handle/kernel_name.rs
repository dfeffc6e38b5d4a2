//! A fiber's name as `pthread_getname_np` gets and sets it: at most 15 bytes.

use crate::fiber::current::{current_fiber, without_parking};
pub use crate::fiber::names::KernelName;
use crate::fiber::names::Names;

/// The calling fiber's name in at most 15 bytes; `None` if it has none, or on a plain thread.
///
/// ```
/// use carefree_runtime::{Builder, kernel_name::kernel_name};
///
/// let named = Builder::new().name("a name of many letters".into()).spawn(kernel_name)?;
/// assert_eq!(&named.join().unwrap().unwrap(), b"a name of many \0");
/// assert_eq!(carefree_runtime::run(kernel_name), None);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn kernel_name() -> Option<KernelName> {
    let names = current_fiber()?.header().names()?;
    let name = *names.kernel.lock();
    (name[0] != 0).then_some(name)
}

/// Sets what [`kernel_name`] says of the calling fiber, and no other name; `false` on a plain thread.
pub fn set_kernel_name(name: KernelName) -> bool {
    let Some(me) = current_fiber() else { return false };
    // Renaming must not park the fiber, so neither must the allocator.
    let names = without_parking(|| me.header().ensure_names(Names::new(None, name)));
    *names.kernel.lock() = name;
    true
}
