//! Constructors that wait, while the loader holds its lock.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carefree_runtime::{spawn, yield_now};

use crate::{Crowd, FIXED, Library, alone, build, on_fibers};

/// A pipe: its reading end and its writing end.
fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: two places to write to; then two descriptors that nothing else has.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

/// A library whose constructor waits.
struct Waiting {
    path: PathBuf,
    begun: File,
    go: File,
    /// The constructor's ends.
    _ends: [File; 2],
}

impl Waiting {
    fn build(directory: &Path) -> Option<Waiting> {
        let (begun, says) = pipe();
        let (hears, go) = pipe();
        let begins = format!("-DBEGUN={}", says.as_raw_fd());
        let goes_on = format!("-DGO={}", hears.as_raw_fd());
        let path = build(directory, "waits.so", "waits.c", &[FIXED, &begins, &goes_on])?;
        Some(Waiting { path, begun, go, _ends: [says, hears] })
    }
}

struct Dropped;

impl Drop for Dropped {
    fn drop(&mut self) {
        std::hint::black_box(self);
    }
}

thread_local! {
    static VARIABLE: Dropped = const { Dropped };

}

#[test]
fn others_go_on_while_a_constructor_waits() {
    let _alone = alone();
    on_fibers(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut waiting) = Waiting::build(directory.path()) else { return };
        let other = build(directory.path(), "other.so", "variables.c", &[FIXED]).unwrap();
        let crowd = Crowd::new(10);
        let path = waiting.path.clone();
        let loads = spawn(move || Library::open(&path));
        waiting.begun.read_exact(&mut [0]).unwrap();
        // These wait for the loader: to register a destructor, to load another library. (This fiber would
        // wait too, if it first used something with a destructor now: a channel, for example.)
        let (mut there, says) = pipe();
        let says = Arc::new(says);
        let more = |_| {
            let says = Arc::clone(&says);
            spawn(move || {
                (&*says).write_all(b"x").unwrap();
                VARIABLE.with(|_| ());
            })
        };
        let more: Vec<_> = (0..40).map(more).collect();
        there.read_exact(&mut [0; 40]).unwrap();
        let loads_other = spawn(move || Library::open(&other));
        for _ in 0..20 {
            yield_now();
        }
        // None of these waits is cut short.
        loads_other.cancel();
        more.iter().for_each(|fiber| fiber.cancel());
        waiting.go.write_all(b"x").unwrap();
        let library = loads.join().unwrap();
        assert_eq!(library.call(c"initial_at_load"), 1);
        crowd.spoil(library);
        let other = loads_other.join().unwrap();
        crowd.spoil(other);
        more.into_iter().for_each(|fiber| fiber.join().unwrap());
        crowd.end();
        [library, other].into_iter().for_each(Library::close);
    });
}
