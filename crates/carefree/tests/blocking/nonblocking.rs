//! Files in non-blocking mode.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use carefree::run;

fn eventfd(flags: i32) -> File {
    // SAFETY: a new descriptor, owned by nothing else.
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
        // Fills it: the most it holds is one less than all ones.
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

/// What an eventfd never takes it refuses at once, full or not; and while one fiber waits for more room than there
/// is, its carrier runs the others.
#[test]
fn a_full_eventfd_keeps_nothing_but_its_writers() {
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let event = eventfd(libc::EFD_SEMAPHORE);
        let fd = event.as_raw_fd();
        let write = |bytes: &[u8]| {
            // SAFETY: bytes to read.
            let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
            if written >= 0 {
                Ok(written)
            } else {
                Err(std::io::Error::last_os_error().raw_os_error())
            }
        };
        let refused = || {
            for bytes in [&b""[..], &[1; 7], &u64::MAX.to_ne_bytes()] {
                assert_eq!(write(bytes), Err(Some(libc::EINVAL)), "{bytes:?}");
            }
        };
        refused();
        assert_eq!(write(&(u64::MAX - 3).to_ne_bytes()), Ok(8));
        refused();
        assert_eq!(write(&2u64.to_ne_bytes()), Ok(8));
        refused();
        // SAFETY: a pointer that leads nowhere.
        assert_eq!(unsafe { libc::write(fd, 8 as *const _, 8) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        let mut reader = event.try_clone().unwrap();
        let mut read = || {
            let mut count = [0; 8];
            reader.read_exact(&mut count).unwrap();
            u64::from_ne_bytes(count)
        };
        let writing = carefree::spawn(move || (&event).write(&2u64.to_ne_bytes()));
        // The first makes room for 1, the second for 2.
        for _ in 0..2 {
            carefree::sleep(Duration::from_millis(5));
            assert!(!writing.is_finished());
            assert_eq!(read(), 1);
        }
        assert_eq!(writing.join().unwrap().unwrap(), 8);
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
        // Drops it from the page cache, if the kernel agrees, so that a read must fetch it.
        // SAFETY: a call with numbers.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        std::io::Seek::rewind(&mut file).unwrap();
        let mut got = Vec::new();
        file.read_to_end(&mut got).unwrap();
        assert!(got == text);
    });
}

/// Descriptors of one socket, made in all possible ways.
fn duplicates(socket: &UnixStream) -> Vec<UnixStream> {
    let own = |fd: RawFd| {
        assert!(fd >= 0);
        // SAFETY: a new descriptor, owned by nothing else.
        UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    let fd = socket.as_raw_fd();
    let taken = || UnixStream::pair().unwrap().0;
    // SAFETY: calls with numbers; nothing owns those that are replaced.
    unsafe {
        use std::os::fd::IntoRawFd;
        vec![
            own(libc::dup(fd)),
            own(libc::dup2(fd, taken().into_raw_fd())),
            own(libc::dup3(fd, taken().into_raw_fd(), libc::O_CLOEXEC)),
            own(libc::fcntl(fd, libc::F_DUPFD, 0)),
            socket.try_clone().unwrap(),
        ]
    }
}

/// Waits for the socket in vain, so that the kind of file is noted. (The kernel, which counts ticks, may end a thread's
/// wait a little early.)
fn wait_once(mut socket: &UnixStream, limit: Duration) {
    socket.set_read_timeout(Some(limit)).unwrap();
    let begun = Instant::now();
    assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() >= limit / 2);
}

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(20);

/// A read that must not wait.
fn answers_at_once(mut socket: &UnixStream) {
    let begun = Instant::now();
    assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(begun.elapsed() < LONG);
}

#[test]
fn a_mode_changed_through_another_number_is_noticed() {
    run(|| {
        let (here, _there) = UnixStream::pair().unwrap();
        for other in duplicates(&here) {
            wait_once(&here, SHORT);
            here.set_read_timeout(Some(LONG)).unwrap();
            other.set_nonblocking(true).unwrap();
            answers_at_once(&here);
            here.set_nonblocking(false).unwrap();
            wait_once(&other, SHORT);
            other.set_read_timeout(Some(LONG)).unwrap();
            here.set_nonblocking(true).unwrap();
            answers_at_once(&other);
            other.set_nonblocking(false).unwrap();
        }
    });
}

#[test]
fn a_time_limit_set_through_another_number_holds() {
    run(|| {
        let (mut here, _there) = UnixStream::pair().unwrap();
        for other in duplicates(&here) {
            wait_once(&here, SHORT);
            other.set_read_timeout(Some(10 * SHORT)).unwrap();
            let begun = Instant::now();
            let error = here.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            assert!(begun.elapsed() >= 5 * SHORT);
        }
    });
}

/// `read` and `write` of a socket take another path once a fiber has waited for it.
#[test]
fn plain_reads_and_writes_of_a_socket() {
    run(|| {
        let (here, mut there) = UnixStream::pair().unwrap();
        wait_once(&here, SHORT);
        wait_once(&there, SHORT);
        there.set_read_timeout(None).unwrap();
        let fd = here.as_raw_fd();
        let mut buffer = [0u8; 8];
        // SAFETY: calls with numbers and memory that is there.
        let mut read = |length| unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), length) };
        // SAFETY: calls with numbers and memory that is there.
        let write = |text: &[u8]| unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
        assert_eq!(read(0), 0);
        there.write_all(b"abc").unwrap();
        assert_eq!(read(8), 3);
        assert_eq!(write(b""), 0);
        // More than fits. In blocking mode the call returns when all is written.
        let much = vec![7; 4 << 20];
        let reading = carefree::spawn(move || {
            let mut got = vec![0; 4 << 20];
            there.read_exact(&mut got).unwrap();
            assert!(got.iter().all(|&byte| byte == 7));
            there
        });
        assert_eq!(write(&much), 4 << 20);
        drop(reading.join().unwrap());
        // A process that another test forks may keep the other end open.
        here.set_read_timeout(None).unwrap();
        assert_eq!(read(8), 0);
        here.set_nonblocking(true).unwrap();
        assert_eq!(read(8), 0);
        // The number is given to another file, which is no socket.
        let event = eventfd(0);
        // SAFETY: a new descriptor takes the place of ours.
        unsafe { libc::syscall(libc::SYS_dup3, event.as_raw_fd(), fd, 0) };
        assert_eq!(write(&3u64.to_ne_bytes()), 8);
        assert_eq!(read(8), 8);
        assert_eq!(buffer, 3u64.to_ne_bytes());
    });
}

/// A child that shares its parent's memory until its exec closes descriptors of its own. What the parent has
/// noted about its files stays.
#[test]
fn a_child_in_the_parents_memory_closes_its_own_files() {
    extern "C" fn close_it(fd: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the child's own copy.
        unsafe { libc::close(fd as libc::c_int) }
    }
    run(|| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let other = reader.try_clone().unwrap();
        // The file is noted as one that waits.
        let written = carefree::spawn(move || {
            carefree::sleep(Duration::from_millis(1));
            writer.write_all(b"x").unwrap();
            writer
        });
        (&reader).read_exact(&mut [0]).unwrap();
        let _writer = written.join().unwrap();
        let mut stack = vec![0u64; 8192];
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child has a stack of its own, and ends before this goes on.
        let child = unsafe {
            libc::clone(close_it, top.cast(), flags, other.as_raw_fd() as *mut libc::c_void)
        };
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: a place for the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        other.set_nonblocking(true).unwrap();
        let error = carefree::timeout(Duration::from_secs(60), || (&reader).read(&mut [0]));
        assert_eq!(error.unwrap().unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}
