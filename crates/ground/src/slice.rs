//! How soon the kernel runs a thread that becomes ready.
//!
//! The kernel shares the processors out in slices, of a few milliseconds as a rule. While threads that compute are
//! within theirs, one that wakes has to wait. Since Linux 6.12 a thread can ask for shorter slices: it gets as much
//! of the processors as before, but when it wakes it goes before those with longer ones. Older kernels ignore that,
//! and nothing depends on it.

use crate::kernel;

/// Nanoseconds of the shortest slice that the kernel gives.
const SHORTEST: u64 = 100_000;

/// `struct sched_attr` of `sched_setattr(2)`, in its first version.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of an ordinary policy: nanoseconds of a slice.
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The length of a thread's slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice(u64);

/// Has the kernel give the calling thread short slices. Threads that it starts have them, too. Returns what it had
/// before; `None` if the kernel refuses, or the thread's policy is one without slices.
///
/// ```
/// if let Some(usual) = carefree_ground::slice::shorten() {
///     carefree_ground::slice::set(usual);
/// }
/// ```
pub fn shorten() -> Option<Slice> {
    let usual = Slice(attributes()?.runtime);
    set(Slice(SHORTEST)).then_some(usual)
}

/// Has the kernel give the calling thread slices of this length. Returns whether it accepts that.
pub fn set(slice: Slice) -> bool {
    let Some(mut attributes) = attributes() else { return false };
    attributes.runtime = slice.0;
    let arguments = [0, (&raw const attributes) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel reads a `sched_attr`, of the size that it names.
    unsafe { kernel::call(libc::SYS_sched_setattr, arguments) }.is_ok()
}

/// Those of the calling thread, if its policy is an ordinary one.
fn attributes() -> Option<Attributes> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    let arguments = [0, (&raw mut attributes) as usize, size, 0, 0, 0];
    // SAFETY: the kernel writes no more than `size` bytes.
    unsafe { kernel::call(libc::SYS_sched_getattr, arguments) }.ok()?;
    let ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH].map(|policy| policy as u32);
    ordinary.contains(&attributes.policy).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_what_it_was_made_and_what_it_was_before() {
        std::thread::spawn(|| {
            let before = attributes().expect("an ordinary policy");
            let Some(usual) = shorten() else { return eprintln!("skipped: the kernel refuses") };
            let short = attributes().expect("the same policy");
            // Kernels before 6.12 know no slices of a thread's own.
            assert!(short.runtime == SHORTEST || short.runtime == before.runtime);
            assert_eq!((short.policy, short.nice), (before.policy, before.nice));
            let child = std::thread::spawn(|| attributes().map(|of| of.runtime));
            assert_eq!(child.join().unwrap(), Some(short.runtime));
            assert!(set(usual));
            assert_eq!(attributes().expect("the same policy").runtime, before.runtime);
        })
        .join()
        .unwrap();
    }
}
