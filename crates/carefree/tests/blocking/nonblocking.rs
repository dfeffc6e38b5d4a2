//! Files in non-blocking mode that are no sockets.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;

use carefree::run;

fn eventfd(flags: i32) -> File {
    // SAFETY: a new descriptor, owned by nobody else.
    unsafe {
        let fd = libc::eventfd(0, flags);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    }
}

#[test]
fn an_eventfd_counts_without_waiting() {
    run(|| {
        let mut event = eventfd(libc::EFD_NONBLOCK);
        for _ in 0..20 {
            let error = event.read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            // The kernel knows no `RWF_NOWAIT` for these writes.
            for _ in 0..3 {
                assert_eq!(event.write(&1u64.to_ne_bytes()).unwrap(), 8);
            }
            let mut count = [0; 8];
            assert_eq!(event.read(&mut count).unwrap(), 8);
            assert_eq!(u64::from_ne_bytes(count), 3);
        }
        // Full: one less than all ones is the most it holds.
        event.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        let error = event.write(&1u64.to_ne_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn an_eventfd_in_blocking_mode_is_waited_for() {
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let mut event = eventfd(0);
        let mut writer = event.try_clone().unwrap();
        let writing = carefree::spawn(move || {
            for _ in 0..5 {
                carefree::sleep(std::time::Duration::from_millis(1));
                writer.write_all(&7u64.to_ne_bytes()).unwrap();
            }
        });
        let mut sum = 0;
        while sum < 35 {
            let mut count = [0; 8];
            event.read_exact(&mut count).unwrap();
            sum += u64::from_ne_bytes(count);
        }
        writing.join().unwrap();
    });
}

#[test]
fn a_regular_file_is_always_ready() {
    run(|| {
        let path = std::env::temp_dir().join(format!("carefree-{}", std::process::id()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        let text = vec![7; 3_000_000];
        file.write_all(&text).unwrap();
        file.sync_all().unwrap();
        // Out of memory, as far as the kernel agrees: what is read has to be fetched first.
        // SAFETY: a call with numbers.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        std::io::Seek::rewind(&mut file).unwrap();
        let mut got = Vec::new();
        file.read_to_end(&mut got).unwrap();
        assert!(got == text);
    });
}
