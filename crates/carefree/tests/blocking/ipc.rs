//! Message queues and semaphores.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree::{run, scope, spawn};
use libc::{c_int, c_void, sembuf, timespec};

use crate::common::*;

/// A POSIX queue for four messages of eight bytes; `None` where there are none to be had.
fn queue() -> Option<Queue> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = CString::new(format!("/carefree-{}-{number}", std::process::id())).unwrap();
    // SAFETY: a name and what the queue shall be like; it loses its name at once.
    unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        attributes.mq_maxmsg = 4;
        attributes.mq_msgsize = 8;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let queue = libc::mq_open(name.as_ptr(), flags, 0o600 as libc::mode_t, &raw mut attributes);
        if queue < 0 {
            eprintln!("skipped: no message queues here ({})", errno());
            return None;
        }
        libc::mq_unlink(name.as_ptr());
        Some(Queue(queue))
    }
}

#[derive(Clone, Copy)]
struct Queue(c_int);

impl Queue {
    fn send(self, text: &[u8]) -> Result<i64, c_int> {
        // SAFETY: a text and its length.
        checked(unsafe { libc::mq_send(self.0, text.as_ptr().cast(), text.len(), 0) })
    }

    fn receive(self) -> Result<Vec<u8>, c_int> {
        let mut buffer = [0u8; 8];
        let place = buffer.as_mut_ptr().cast();
        // SAFETY: there is room for the answer.
        let got = checked(unsafe { libc::mq_receive(self.0, place, 8, ptr::null_mut()) } as i64)?;
        Ok(buffer[..got as usize].to_vec())
    }
}

#[test]
fn messages_of_posix_queues() {
    on_one_carrier(|| {
        let Some(queue) = queue() else { return };
        let receiving = spawn(move || {
            (0..10u8).for_each(|number| assert_eq!(queue.receive(), Ok(vec![number])));
        });
        carefree::sleep(MOMENT);
        for number in 0..10 {
            queue.send(&[number]).unwrap();
        }
        receiving.join().unwrap();
        // Full, until a message is received.
        let sending =
            spawn(move || (0..10u8).for_each(|number| _ = queue.send(&[number]).unwrap()));
        carefree::sleep(MOMENT);
        assert!(!sending.is_finished());
        (0..10u8).for_each(|number| assert_eq!(queue.receive(), Ok(vec![number])));
        sending.join().unwrap();

        let mut buffer = [0; 8];
        // SAFETY: there is room for the answers.
        unsafe {
            let mut time: timespec = std::mem::zeroed();
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
            time.tv_sec += 1;
            let begun = Instant::now();
            let none = ptr::null_mut();
            let got = while_another_runs(|| {
                libc::mq_timedreceive(queue.0, buffer.as_mut_ptr(), 8, none, &time)
            });
            assert_eq!(checked(got as i64), Err(libc::ETIMEDOUT));
            assert!(begun.elapsed() >= Duration::from_millis(900));
        }
        assert_eq!(queue.send(b"too long for it"), Err(libc::EMSGSIZE));
        assert_eq!(Queue(987_654).receive(), Err(libc::EBADF));
        assert_eq!(cancelled(move || queue.receive()), Err(libc::ECANCELED));
        assert_eq!(timed_out(|| queue.receive()), Err(libc::ETIMEDOUT));
    });
}

#[repr(C)]
struct Message {
    kind: libc::c_long,
    text: [u8; 8],
}

#[test]
fn a_posix_queue_that_stays_full_is_given_up_in_time() {
    on_one_carrier(|| {
        let Some(queue) = queue() else { return };
        (0..4u8).for_each(|number| assert_eq!(queue.send(&[number]), Ok(0)));
        let send = |seconds: i64| {
            let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: a place for the time, and a text of one byte.
            checked(unsafe {
                libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
                time.tv_sec += seconds;
                libc::mq_timedsend(queue.0, b"x".as_ptr().cast(), 1, 0, &raw const time)
            })
        };
        assert_eq!(send(-1), Err(libc::ETIMEDOUT));
        let receiving = spawn(move || {
            carefree::sleep(MOMENT * 4);
            queue.receive()
        });
        assert_eq!(while_another_runs(|| send(60)), Ok(0));
        assert_eq!(receiving.join().unwrap(), Ok(vec![0]));
        // SAFETY: it is ours.
        unsafe { libc::mq_close(queue.0) };
    });
}

/// A System V queue.
struct SystemV(c_int);

impl Drop for SystemV {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::msgctl(self.0, libc::IPC_RMID, ptr::null_mut()) };
    }
}

fn send(queue: c_int, kind: libc::c_long, text: &[u8; 8], flags: c_int) -> Result<i64, c_int> {
    let message = Message { kind, text: *text };
    // SAFETY: a message and the length of its text.
    checked(unsafe { libc::msgsnd(queue, (&raw const message).cast::<c_void>(), 8, flags) })
}

fn receive(queue: c_int, kind: libc::c_long, flags: c_int) -> Result<[u8; 8], c_int> {
    let mut message = Message { kind: 0, text: [0; 8] };
    let place = (&raw mut message).cast::<c_void>();
    // SAFETY: there is room for the answer.
    let got = checked(unsafe { libc::msgrcv(queue, place, 8, kind, flags) } as i64)?;
    assert_eq!(got, 8);
    Ok(message.text)
}

#[test]
fn messages_of_system_v() {
    on_one_carrier(|| {
        // SAFETY: no memory is involved.
        let queue = SystemV(unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) });
        assert!(queue.0 >= 0);
        let number = queue.0;
        assert_eq!(receive(number, 0, libc::IPC_NOWAIT), Err(libc::ENOMSG));
        let receiving = spawn(move || (receive(number, 2, 0), receive(number, 1, 0)));
        carefree::sleep(MOMENT);
        send(number, 1, b"kind one", 0).unwrap();
        send(number, 2, b"kind two", 0).unwrap();
        assert_eq!(receiving.join().unwrap(), (Ok(*b"kind two"), Ok(*b"kind one")));
        // Full, until a message is received.
        let mut sent = 0;
        while send(number, 1, b"filling!", libc::IPC_NOWAIT).is_ok() {
            sent += 1;
        }
        assert_eq!(errno(), libc::EAGAIN);
        let sending = spawn(move || send(number, 1, b"too many", 0));
        carefree::sleep(MOMENT);
        assert!(!sending.is_finished());
        for _ in 0..sent {
            assert_eq!(receive(number, 0, 0), Ok(*b"filling!"));
        }
        sending.join().unwrap().unwrap();
        assert_eq!(receive(number, 0, 0), Ok(*b"too many"));
        assert_eq!(cancelled(move || receive(number, 0, 0)), Err(libc::ECANCELED));
        assert_eq!(timed_out(|| receive(number, 0, 0)), Err(libc::ETIMEDOUT));
        // The queue is removed while a fiber waits.
        let receiving = spawn(move || receive(number, 0, 0));
        carefree::sleep(MOMENT);
        drop(queue);
        let removed = receiving.join().unwrap().unwrap_err();
        assert!([libc::EIDRM, libc::EINVAL].contains(&removed), "{removed}");
    });
}

unsafe extern "C" {
    fn semtimedop(
        set: c_int,
        changes: *mut sembuf,
        count: usize,
        timeout: *const timespec,
    ) -> c_int;
}

fn change(set: c_int, by: i16, flags: c_int) -> Result<i64, c_int> {
    let mut change = sembuf { sem_num: 0, sem_op: by, sem_flg: flags as i16 };
    // SAFETY: one change.
    checked(unsafe { libc::semop(set, &raw mut change, 1) })
}

#[test]
fn semaphores_of_system_v() {
    run(|| {
        // SAFETY: no memory is involved.
        let set = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        assert!(set >= 0);
        assert_eq!(change(set, -1, libc::IPC_NOWAIT), Err(libc::EAGAIN));
        let inside = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..100 {
                s.spawn(|| {
                    change(set, -1, 0).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    carefree::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    change(set, 1, 0).unwrap();
                });
            }
            carefree::sleep(MOMENT);
            change(set, 1, 0).unwrap();
        });
        change(set, -1, 0).unwrap();
        let begun = Instant::now();
        let time = timespec { tv_sec: 0, tv_nsec: 30_000_000 };
        let mut take = sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
        // SAFETY: one change and a time.
        let taken = unsafe { semtimedop(set, &raw mut take, 1, &time) };
        assert_eq!(checked(taken), Err(libc::EAGAIN));
        assert!(begun.elapsed() >= Duration::from_millis(30));
        assert_eq!(cancelled(move || change(set, -1, 0)), Err(libc::ECANCELED));
        assert_eq!(timed_out(|| change(set, -1, 0)), Err(libc::ETIMEDOUT));
        // Changes by a thread are noticed as well.
        let taking = spawn(move || change(set, -1, 0));
        carefree::sleep(MOMENT);
        std::thread::spawn(move || change(set, 1, 0).unwrap()).join().unwrap();
        taking.join().unwrap().unwrap();
        // SAFETY: it is ours.
        unsafe { libc::semctl(set, 0, libc::IPC_RMID) };
        assert_eq!(change(set, 1, 0), Err(libc::EINVAL));
    });
}

/// A wrong time fails the call, also where that could be made at once, and nothing is changed.
#[test]
fn a_semaphore_is_left_alone_if_the_time_is_wrong() {
    fn answers() -> Vec<(Result<i64, c_int>, c_int)> {
        let wrong = timespec { tv_sec: 0, tv_nsec: -1 };
        let nowhere = ptr::without_provenance(8);
        // SAFETY: no memory is involved.
        let set = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        assert!(set >= 0);
        let mut answers = Vec::new();
        for flags in [0, libc::IPC_NOWAIT] {
            for by in [1, -1] {
                for time in [&raw const wrong, nowhere] {
                    let mut changes = [sembuf { sem_num: 0, sem_op: by, sem_flg: flags as i16 }];
                    // SAFETY: a change that is there; the kernel checks where the time is.
                    answers.push(unsafe {
                        let told = checked(semtimedop(set, changes.as_mut_ptr(), 1, time));
                        (told, libc::semctl(set, 0, libc::GETVAL))
                    });
                }
            }
        }
        // SAFETY: it is ours; too many changes are none.
        unsafe {
            answers.push((checked(semtimedop(set, ptr::null_mut(), 1 << 20, &raw const wrong)), 0));
            libc::semctl(set, 0, libc::IPC_RMID);
        }
        answers
    }
    let native = std::thread::spawn(answers).join().unwrap();
    assert!(native.iter().all(|(told, left)| told.is_err() && *left == 0), "{native:?}");
    assert_eq!(run(answers), native);
}

#[test]
fn the_longest_waiter_is_served_first() {
    let in_order: Vec<_> = (0..6).collect();
    // SAFETY: no memory is involved.
    let [messages, set] = unsafe {
        let queue = libc::msgget(libc::IPC_PRIVATE, 0o600);
        [queue, libc::semget(libc::IPC_PRIVATE, 1, 0o600)]
    };
    let messages = SystemV(messages);
    let number = messages.0;
    let receive = move || _ = receive(number, 0, 0).unwrap();
    assert_eq!(served(6, receive, move || _ = send(number, 1, b"for one ", 0)), in_order);
    let lower = move || _ = change(set, -1, 0);
    assert_eq!(served(6, lower, move || _ = change(set, 1, 0)), in_order);
    // SAFETY: it is ours.
    unsafe { libc::semctl(set, 0, libc::IPC_RMID) };
    let Some(Queue(queue)) = queue() else { return };
    let receive = move || _ = Queue(queue).receive().unwrap();
    assert_eq!(served(6, receive, move || _ = Queue(queue).send(b"x").unwrap()), in_order);
    // SAFETY: it is ours.
    unsafe { libc::mq_close(queue) };
}

/// Waiters that want what they were not first to wait for are passed over, and only these.
#[test]
fn a_waiter_gets_the_message_that_it_waits_for() {
    run(|| {
        // SAFETY: no memory is involved.
        let queue = SystemV(unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) });
        let number = queue.0;
        let third = spawn(move || receive(number, 3, 0));
        carefree::sleep(MOMENT);
        let any = spawn(move || receive(number, 0, 0));
        carefree::sleep(MOMENT);
        send(number, 3, b"a third!", 0).unwrap();
        assert_eq!(third.join().unwrap(), Ok(*b"a third!"));
        send(number, 9, b"a ninth!", 0).unwrap();
        assert_eq!(any.join().unwrap(), Ok(*b"a ninth!"));
        assert_eq!(receive(number, 0, libc::IPC_NOWAIT), Err(libc::ENOMSG));
    });
}

/// No receiver starves where others come again at once.
#[test]
fn loops_of_receivers_get_as_much_each() {
    const EACH: usize = 50;
    let Some(queue) = queue() else { return };
    let counts = on_one_carrier(move || {
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                spawn(move || (0..).take_while(|_| queue.receive().unwrap() != b"end").count())
            })
            .collect();
        carefree::sleep(MOMENT);
        for _ in 0..4 * EACH {
            queue.send(b"x").unwrap();
            // All wait again.
            carefree::sleep(Duration::from_micros(200));
        }
        (0..4).for_each(|_| _ = queue.send(b"end").unwrap());
        receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(counts.iter().all(|count| (EACH / 2..EACH * 2).contains(count)), "{counts:?}");
    // SAFETY: it is ours.
    unsafe { libc::mq_close(queue.0) };
}

/// Changes of several semaphores at once, of as many as are copied elsewhere too, wait and go on; one of which some
/// must not wait fails by that.
#[test]
fn several_changes_are_made_together_or_not() {
    const MANY: usize = 40;
    on_one_carrier(|| {
        // SAFETY: no memory is involved.
        let set = unsafe { libc::semget(libc::IPC_PRIVATE, MANY as c_int, 0o600) };
        assert!(set >= 0);
        let all = move |by: i16, count: usize, flags: [c_int; 2]| {
            let mut changes: Vec<_> = (0..count)
                .map(|number| sembuf {
                    sem_num: number as u16,
                    sem_op: by,
                    sem_flg: flags[usize::from(number > 0)] as i16,
                })
                .collect();
            // SAFETY: as many changes.
            checked(unsafe { libc::semop(set, changes.as_mut_ptr(), count) })
        };
        for count in [2, MANY] {
            let waiting = spawn(move || all(-1, count, [0, 0]));
            carefree::sleep(MOMENT);
            assert!(!waiting.is_finished());
            // Not all that it needs.
            change(set, 1, 0).unwrap();
            carefree::sleep(MOMENT);
            assert!(!waiting.is_finished());
            change(set, -1, libc::IPC_NOWAIT).unwrap();
            all(1, count, [0, 0]).unwrap();
            assert_eq!(waiting.join().unwrap(), Ok(0));
            assert_eq!(all(-1, count, [libc::IPC_NOWAIT; 2]), Err(libc::EAGAIN));
            assert_eq!(all(-1, count, [libc::IPC_NOWAIT, 0]), Err(libc::EAGAIN));
        }
        let nothing = ptr::null_mut();
        // SAFETY: no changes are read; the kernel checks where one is.
        unsafe {
            assert_eq!(checked(libc::semop(set, nothing, 0)), Err(libc::EINVAL));
            assert_eq!(checked(libc::semop(set, nothing, 1)), Err(libc::EFAULT));
            assert_eq!(checked(libc::semop(set, nothing, 1 << 20)), Err(libc::E2BIG));
            libc::semctl(set, 0, libc::IPC_RMID);
        }
    });
}
