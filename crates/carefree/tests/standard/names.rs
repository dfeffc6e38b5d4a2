//! A fiber's name is where a thread's would be.

use std::sync::{Mutex, mpsc};
use std::thread;

use carefree::{Builder, run, spawn};

use crate::own;

/// std's name of the caller.
fn of_std() -> Option<String> {
    thread::current().name().map(str::to_owned)
}

fn of_libc() -> String {
    let mut name = [0u8; 16];
    // SAFETY: a buffer of 16 bytes, as the manual asks for; the answer ends with a NUL.
    let failed = unsafe {
        libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len())
    };
    assert_eq!(failed, 0);
    let end = name.iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(name[..end].to_vec()).unwrap()
}

fn named<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    Builder::new().name(name.into()).spawn(f).unwrap().join().unwrap()
}

#[test]
fn std_knows_a_fiber_by_its_name() {
    if !own() {
        return;
    }
    let both = || {
        carefree::yield_now();
        (of_std(), carefree::current().name().map(str::to_owned))
    };
    let worker = Some("worker".to_owned());
    assert_eq!(named("worker", both), (worker.clone(), worker.clone()), "spawned by a thread");
    assert_eq!(run(move || named("worker", both)), (worker.clone(), worker), "by a fiber");
    assert_eq!(spawn(both).join().unwrap(), (None, None), "unnamed");
    // Storage that a named fiber has used is the next one's, name and all forgotten.
    for round in 0..100 {
        let name = format!("fiber {round}");
        assert_eq!(named(&name, of_std), Some(name));
        assert_eq!(spawn(of_std).join().unwrap(), None);
    }
}

#[test]
fn a_scoped_fiber_has_its_name_too() {
    if !own() {
        return;
    }
    let text = String::from("scoped");
    let seen = carefree::scope(|s| {
        let builder = Builder::new().name(text.clone());
        builder.spawn_scoped(s, || (of_std(), text.len())).unwrap().join().unwrap()
    });
    assert_eq!(seen, (Some("scoped".into()), 6));
}

#[test]
fn what_a_named_fiber_returns_and_panics_with_arrives() {
    assert_eq!(named("large", || [7u8; 3000]), [7u8; 3000]);
    let captured = vec![1u8; 5000];
    assert_eq!(named("owner", move || captured.len()), 5000);
    let failed = Builder::new().name("panics".into()).spawn(|| panic!("on purpose")).unwrap();
    assert_eq!(*failed.join().unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    // Detached, its value is dropped all the same.
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let (sender, receiver) = mpsc::channel();
    drop(Builder::new().name("detached".into()).spawn(move || Tells(sender)).unwrap());
    receiver.recv().unwrap();
}

#[test]
fn libc_knows_the_name_and_the_carrier_keeps_its_own() {
    let thread = of_libc();
    assert_eq!(named("short", of_libc), "short");
    assert_eq!(named("longer than the kernel keeps", of_libc), "longer than the");
    let renamed = named("before", || {
        // SAFETY: a string of fewer than 16 bytes.
        let failed = unsafe { libc::pthread_setname_np(libc::pthread_self(), c"after".as_ptr()) };
        carefree::yield_now();
        (failed, of_libc(), carefree::current().name().map(str::to_owned))
    });
    assert_eq!(renamed, (0, "after".into(), Some("before".into())));
    let too_long = named("short", || {
        // SAFETY: a string.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), c"sixteen letters!".as_ptr()) }
    });
    assert_eq!(too_long, libc::ERANGE);
    let by_number = named("process control", || {
        let mut name = [0u8; 16];
        // SAFETY: 16 bytes, in and out.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, c"much too long for a name".as_ptr());
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        }
        (name, of_libc())
    });
    assert_eq!(by_number, (*b"much too long f\0", "much too long f".into()));
    // Neither the carriers nor the thread that spawned were renamed.
    let carriers = carefree::dump().matches("carrier").count();
    let names: Vec<String> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .collect();
    let still = names.iter().filter(|name| name.starts_with("carefree-")).count();
    assert!(still >= carriers, "{names:?}");
    assert_eq!(of_libc(), thread);
}

#[test]
fn a_name_in_bad_memory_is_refused() {
    let answers = named("named", || {
        // SAFETY: the kernel's answer to a pointer that leads nowhere is an error.
        [libc::PR_SET_NAME, libc::PR_GET_NAME].map(|option| unsafe {
            (libc::prctl(option, 8usize), std::io::Error::last_os_error().raw_os_error())
        })
    });
    assert_eq!(answers, [(-1, Some(libc::EFAULT)); 2]);
    assert_eq!(named("named", of_libc), "named");
}

#[test]
fn threads_are_started_as_ever() {
    let start = || {
        let thread = thread::Builder::new().name("a thread".into()).spawn(|| {
            let fiber = carefree::block_on(async { 1 });
            (fiber, of_std(), of_libc())
        });
        drop(thread::spawn(|| ()));
        thread.unwrap().join().unwrap()
    };
    let expected = (1, Some("a thread".into()), "a thread".into());
    assert_eq!(start(), expected, "by a thread");
    assert_eq!(named("its starter", start), expected, "by a fiber");
}

#[test]
fn a_panic_names_the_fiber() {
    if !own() {
        return;
    }
    let said = crate::child("names::panics_by_name");
    assert!(said.contains("thread 'worker' ("), "{said}");
    assert!(said.contains("thread '<unnamed>' ("), "{said}");
}

#[test]
fn panics_by_name() {
    if !crate::is_child() {
        return;
    }
    static TURN: Mutex<()> = Mutex::new(());
    let fails = || {
        let _turn = TURN.lock();
        panic!("on purpose");
    };
    Builder::new().name("worker".into()).spawn(fails).unwrap().join().unwrap_err();
    spawn(fails).join().unwrap_err();
}

/// Not even of the size by which the runtime tells what std starts for fibers.
#[test]
fn a_thread_that_is_larger_than_all_memory_is_refused() {
    let refused = |bytes| {
        let builder = thread::Builder::new().name("large".into()).stack_size(bytes);
        // It would have to be joined, and then answers.
        builder.spawn(|| ()).map(|thread| thread.join().unwrap()).is_err()
    };
    for bytes in [1 << 62, carefree_runtime::standard::MARK] {
        assert!(refused(bytes));
        assert!(run(move || refused(bytes)));
        assert!(named("named", move || refused(bytes)));
    }
    if own() {
        assert_eq!(named("after", of_libc), "after");
    }
}
