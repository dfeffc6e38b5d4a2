//! The name of a fiber by the kernel's measure.

use crate::fiber::current::{current_fiber, without_parking};
pub use crate::fiber::names::KernelName;
use crate::fiber::names::Names;

/// The name of the calling fiber by the kernel's measure; `None` if it was never named, or on a plain
/// thread.
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

/// Renames the calling fiber as far as [`kernel_name`] goes, and nothing else; `false` on a plain
/// thread.
pub fn set_kernel_name(name: KernelName) -> bool {
    let Some(me) = current_fiber() else { return false };
    // An allocator must not park a fiber that asks for its name in a place where it must not wait.
    let names = without_parking(|| me.header().ensure_names(Names::new(None, name)));
    *names.kernel.lock() = name;
    true
}
