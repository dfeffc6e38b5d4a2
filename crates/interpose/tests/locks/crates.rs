//! parking_lot and crossbeam-channel on fibers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use carefree_runtime::{sleep, spawn};

use crate::common::{Unit, on_fibers, own_tls};

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn parking_lot_locks_and_conditions() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        use parking_lot::{Condvar, Mutex};
        let state = Arc::new((Mutex::new(0usize), Condvar::new()));
        let units: Vec<_> = (0..30)
            .map(|number| {
                let state = Arc::clone(&state);
                Unit::mixed(number, move || {
                    for _ in 0..30 {
                        let mut turn = state.0.lock();
                        while *turn % 30 != number {
                            state.1.wait(&mut turn);
                        }
                        *turn += 1;
                        state.1.notify_all();
                    }
                })
            })
            .collect();
        units.into_iter().for_each(Unit::join);
        assert_eq!(*state.0.lock(), 900);
    });
}

#[test]
fn parking_lot_times_out_and_reads() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let lock = Arc::new(parking_lot::RwLock::new(1));
        let held = lock.write();
        let theirs = Arc::clone(&lock);
        let late = spawn(move || theirs.try_read_for(SHORT).is_none());
        assert!(late.join().unwrap());
        let theirs = Arc::clone(&lock);
        let reader = spawn(move || *theirs.read());
        sleep(SHORT);
        drop(held);
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn crossbeam_channels() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        for room in [Some(0), Some(2), None] {
            let (send, receive) = match room {
                Some(room) => crossbeam_channel::bounded(room),
                None => crossbeam_channel::unbounded(),
            };
            let units: Vec<_> = (0..6)
                .map(|number| {
                    let send = send.clone();
                    Unit::mixed(number, move || (0..100usize).for_each(|n| send.send(n).unwrap()))
                })
                .collect();
            drop(send);
            let sum = Arc::new(AtomicUsize::new(0));
            let receivers: Vec<_> = (0..3)
                .map(|number| {
                    let (receive, sum) = (receive.clone(), Arc::clone(&sum));
                    Unit::mixed(number, move || {
                        for n in receive {
                            sum.fetch_add(n, SeqCst);
                        }
                    })
                })
                .collect();
            units.into_iter().for_each(Unit::join);
            receivers.into_iter().for_each(Unit::join);
            assert_eq!(sum.load(SeqCst), 6 * 4950);
        }
    });
}

#[test]
fn crossbeam_selects() {
    on_fibers(|| {
        if !own_tls() {
            return;
        }
        let (send_one, one) = crossbeam_channel::bounded(0);
        let (send_two, two) = crossbeam_channel::bounded(0);
        // Both channels stay connected until the end, or receiving from one whose sender is done would fail.
        let _connected = (send_one.clone(), send_two.clone());
        let fibers = [
            spawn(move || (0..50).for_each(|n| send_one.send(n).unwrap())),
            spawn(move || (0..50).for_each(|n| send_two.send(n).unwrap())),
        ];
        let mut sum = 0;
        for _ in 0..100 {
            crossbeam_channel::select! {
                recv(one) -> n => sum += n.unwrap(),
                recv(two) -> n => sum += n.unwrap(),
                default(Duration::from_secs(30)) => panic!("nothing came"),
            }
        }
        assert_eq!(sum, 2 * 1225);
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}
