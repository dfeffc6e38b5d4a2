//! Sets of processors.

use std::ffi::c_int;
use std::ptr;

use carefree_ground::kernel;
use carefree_ground::lock::Lock;
use carefree_runtime::wait::without_parking;

/// Processors: as many as a `cpu_set_t` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Set([u64; 16]);

/// All sets that threads have asked for. They are few, and never freed.
static SETS: Lock<Vec<&'static Set>> = Lock::new(Vec::new());
/// The most sets that are stored; a thread that asks for another one is told that there is no memory.
const MOST: usize = 4096;

impl Set {
    /// Those of a kernel thread of this number, or of the calling one for 0.
    ///
    /// # Errors
    /// With the `errno`: when the kernel knows of more processors than there is room for, or of no such thread.
    pub(super) fn of_kernel_thread(number: c_int) -> Result<Set, c_int> {
        let mut set = Set([0; 16]);
        let place = ptr::from_mut(&mut set) as usize;
        // SAFETY: the kernel writes so many bytes to the set at most.
        unsafe {
            kernel::call(
                libc::SYS_sched_getaffinity,
                [number as usize, size_of::<Set>(), place, 0, 0, 0],
            )
        }
        .map(|_| set)
    }

    /// Gives them to a kernel thread of this number, or to the calling one for 0.
    ///
    /// # Errors
    /// With the `errno`.
    pub(super) fn give_to(&self, number: c_int) -> Result<(), c_int> {
        let place = ptr::from_ref(self) as usize;
        // SAFETY: the kernel reads the set.
        unsafe {
            kernel::call(
                libc::SYS_sched_setaffinity,
                [number as usize, size_of::<Set>(), place, 0, 0, 0],
            )
        }
        .map(|_| ())
    }

    pub(super) fn united(&self, other: &Set) -> Set {
        Set(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The same, as one of [`SETS`]; `None` if there are too many.
    pub(super) fn stored(self) -> Option<&'static Set> {
        without_parking(|| {
            let mut sets = SETS.lock();
            if let Some(stored) = sets.iter().find(|stored| ***stored == self) {
                return Some(*stored);
            }
            (sets.len() < MOST).then(|| {
                let stored: &'static Set = Box::leak(Box::new(self));
                sets.push(stored);
                stored
            })
        })
    }
}
