//! Writes that the kernel cuts short or refuses: a full disk, a limit, a quota.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::sync::Mutex;

use crate::common::*;

/// A call's result, and the file's position and length after it.
type Step = (Result, Result, u64);

/// A file system in memory, mounted as long as this lives.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn tmpfs<'a>(place: &'a Path, options: &str) -> io::Result<Mounted<'a>> {
        let (path, options) = (name(place), CString::new(options).unwrap());
        let tmpfs = c"tmpfs".as_ptr();
        // SAFETY: strings.
        let result =
            unsafe { libc::mount(tmpfs, path.as_ptr(), tmpfs, 0, options.as_ptr().cast()) };
        if result == 0 { Ok(Mounted(place)) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // SAFETY: a string.
        unsafe { libc::umount2(name(self.0).as_ptr(), libc::MNT_DETACH) };
    }
}

fn name(path: &Path) -> CString {
    CString::new(path.to_str().unwrap()).unwrap()
}

/// Writes in all ways until the file takes nothing more, and a few times after that.
fn fill(file: &File, sizes: &[usize]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut refused = 0;
    while refused < 6 {
        let (length, number) = (sizes[steps.len() % sizes.len()], steps.len());
        let bytes = text(length);
        let (head, tail) = bytes.split_at(length / 3);
        let end = file.metadata().unwrap().len();
        let result = match number % 3 {
            0 => write(file, bytes.as_ptr().cast(), length),
            1 => writev(file, &[buffer(head), buffer(tail)]),
            _ => pwrite(file, bytes.as_ptr().cast(), length, end as i64),
        };
        if number % 3 == 2 {
            seek(file, file.metadata().unwrap().len() as i64);
        }
        refused += usize::from(result.is_err());
        steps.push((result, position(file), file.metadata().unwrap().len()));
    }
    steps
}

/// Runs `f` alone, on a thread or on a fiber.
fn once<T: Send>(on: On, f: impl FnOnce() -> T + Send) -> T {
    let value = Mutex::new(None);
    on.run(vec![Box::new(|| *value.lock().unwrap() = Some(f()))]);
    value.into_inner().unwrap().unwrap()
}

const SIZES: [usize; 4] = [1000, 70_000, 3, 200_000];

#[test]
fn a_full_file_system() {
    // A process that another test starts may hold a removed file, and its space, until its exec.
    if alone("limits::a_full_file_system") {
        return;
    }
    let folder = Folder::new();
    let mounted = match Mounted::tmpfs(folder.path(), "size=1000k") {
        Ok(mounted) => mounted,
        Err(error) => return eprintln!("skipped: no file system can be mounted: {error}"),
    };
    let steps = alike(|on| {
        let path = folder.path().join("file");
        // As `std` writes.
        let text = text(1_500_000);
        let whole = once(on, || fs::write(&path, &text).map_err(|error| error.kind()));
        let written = fs::read(&path).unwrap();
        assert!(text.starts_with(&written), "what was written is what was to be written");
        fs::remove_file(&path).unwrap();
        let steps = once(on, || fill(&folder.file("file"), &SIZES));
        let appended = once(on, || {
            fs::remove_file(&path).unwrap();
            let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
            let written = (&file).write_all(&text).map_err(|error| error.raw_os_error());
            (written, position(&file))
        });
        (whole, written.len(), steps, appended)
    });
    assert_eq!(steps.0, Err(io::ErrorKind::StorageFull));
    assert!(steps.2.iter().any(|(result, ..)| *result == Err(libc::ENOSPC)));
    drop(mounted);
}

#[test]
fn a_device_that_is_always_full() {
    let answers = alike(|on| {
        let file = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        once(on, || {
            let bytes = text(300_000);
            let mut answers = Vec::new();
            for length in [0, 1, 5000, 300_000] {
                answers.push(write(&file, bytes.as_ptr().cast(), length));
                answers.push(writev(&file, &[buffer(&bytes[..length])]));
            }
            let mut room = vec![1u8; 200_000];
            answers.push(read(&file, room.as_mut_ptr().cast(), room.len()));
            assert!(room.iter().all(|byte| *byte == 0));
            answers
        })
    });
    assert_eq!(answers[2], Err(libc::ENOSPC));
}

const LIMITED: &str = "CAREFREE_TEST_LIMITED";
const FILE: &str = "CAREFREE_TEST_FILE";

/// Runs in a process of its own with a limit to the size of files.
#[test]
fn the_longest_file_that_a_process_may_write() {
    if let Some(how) = std::env::var_os(LIMITED) {
        let how = how.into_string().unwrap();
        let path = std::env::var_os(FILE).unwrap();
        let limit = libc::rlimit { rlim_cur: 500_000, rlim_max: 500_000 };
        // SAFETY: a limit; a handler that does nothing, or none.
        unsafe {
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
            let action = if how.contains("ignored") { libc::SIG_IGN } else { libc::SIG_DFL };
            libc::signal(libc::SIGXFSZ, action);
        }
        let go = |on| {
            let file = OpenOptions::new().write(true).read(true).open(&path).unwrap();
            println!("<{:?}>", once(on, || fill(&file, &SIZES)));
        };
        return if how.contains("fibers") {
            carefree::run(|| go(On::Fibers));
        } else {
            go(On::Threads);
        };
    }
    let folder = Folder::new();
    for place in ["disk", "memory"] {
        let mounted = (place == "memory").then(|| Mounted::tmpfs(folder.path(), "size=10m"));
        if let Some(Err(error)) = mounted {
            return eprintln!("skipped: no file system can be mounted: {error}");
        }
        let answers = ["threads", "fibers"].map(|on| {
            ["ignored", "deadly"].map(|action| {
                let file = folder.file("limited");
                let output = std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "limits::the_longest_file_that_a_process_may_write"])
                    .arg("--nocapture")
                    .env(LIMITED, format!("{on} {action}"))
                    .env(FILE, folder.path().join("limited"))
                    .output()
                    .unwrap();
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let steps = text.split(['<', '>']).nth(1).map(str::to_owned);
                (output.status.signal(), steps, content(&file))
            })
        });
        let [[ignored, deadly], on_fibers] = &answers;
        assert_eq!(deadly.0, Some(libc::SIGXFSZ), "{place}");
        assert!(ignored.1.as_ref().unwrap().contains(&format!("Err({})", libc::EFBIG)));
        for (fiber, thread) in on_fibers.iter().zip([ignored, deadly]) {
            assert_eq!((fiber.0, &fiber.1), (thread.0, &thread.1), "{place}");
            assert!(fiber.2 == thread.2, "{place}: other bytes");
        }
    }
}

const QUOTA: &str = "CAREFREE_TEST_QUOTA";

/// Runs in a process of a user with a quota, which root does not have.
#[test]
fn a_quota_that_is_used_up() {
    if let Some(on) = std::env::var_os(QUOTA) {
        let path = std::env::var_os(FILE).unwrap();
        let go = |on| {
            let file = OpenOptions::new().write(true).read(true).open(&path).unwrap();
            println!("<{:?}>", once(on, || fill(&file, &SIZES)));
        };
        return if on == "fibers" { carefree::run(|| go(On::Fibers)) } else { go(On::Threads) };
    }
    let folder = Folder::new();
    let options = "size=10m,usrquota_block_hardlimit=500k,mode=0777";
    let _mounted = match Mounted::tmpfs(folder.path(), options) {
        Ok(mounted) => mounted,
        Err(error) => return eprintln!("skipped: no file system with quotas: {error}"),
    };
    const USER: u32 = 54_321;
    // In a place where that user may execute it.
    let program = folder.path().join("program");
    carefree_testing::artifact::copy_program(std::env::current_exe().unwrap(), &program);
    let answers = ["threads", "fibers"].map(|on| {
        let path = folder.path().join("file");
        let _ = fs::remove_file(&path);
        let file = File::create(&path).unwrap();
        std::os::unix::fs::fchown(&file, Some(USER), Some(USER)).unwrap();
        let output = std::process::Command::new(&program)
            .args(["--exact", "limits::a_quota_that_is_used_up", "--nocapture"])
            .uid(USER)
            .gid(USER)
            .env(QUOTA, on)
            .env(FILE, &path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let steps = text.split(['<', '>']).nth(1).map(str::to_owned);
        let steps = steps.unwrap_or_else(|| {
            panic!("{text}{}", String::from_utf8_lossy(&output.stderr));
        });
        (steps, fs::read(&path).unwrap())
    });
    let [threads, fibers] = answers;
    assert!(threads.0.contains(&format!("Err({})", libc::EDQUOT)), "{}", threads.0);
    assert_eq!(fibers.0, threads.0);
    assert!(fibers.1 == threads.1, "other bytes");
}
