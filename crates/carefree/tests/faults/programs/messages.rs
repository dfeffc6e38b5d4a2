//! Messages, by `SOCK_DGRAM` and `SOCK_SEQPACKET`.

use std::os::fd::{AsRawFd, RawFd};

use carefree::{spawn, timeout_with_value};

use super::ends::make_pair;
use super::{finish, micros};
use crate::stream::{By, checked, compare, insist, write};

/// The length of the `n`th message.
fn length_of(n: u64) -> usize {
    (n as usize * 7919) % 1500 + 8
}

fn send_messages(fd: RawFd, messages: u64, random: &mut fastrand::Rng) {
    for n in 0..messages {
        let length = length_of(n);
        let by = By::draw(random, true);
        let sent = write(fd, 0, n << 20, length, by, random);
        assert_eq!(sent, Ok(length), "message {n} by {by:?}");
    }
}

fn receive_message(fd: RawFd, n: u64, random: &mut fastrand::Rng) -> Result<(), i32> {
    let mut buffer = vec![0u8; 4096];
    let at = buffer.as_mut_ptr().cast();
    // SAFETY: the buffer is as long.
    let got = insist(|| unsafe {
        checked(match random.bool() {
            true => libc::recv(fd, at, 4096, 0),
            false => libc::read(fd, at, 4096),
        } as i64)
    })?;
    assert_eq!(got, length_of(n), "message {n}");
    compare(0, n << 20, &buffer[..got]);
    Ok(())
}

/// Messages arrive whole and in order.
pub(super) fn messages(mut random: fastrand::Rng) {
    let kind = if random.bool() { libc::SOCK_DGRAM } else { libc::SOCK_SEQPACKET };
    let (here, there) = make_pair(kind, &mut random);
    let count = random.u64(1..60);
    let mut of_sender = random.fork();
    let sender = spawn(move || send_messages(there.as_raw_fd(), count, &mut of_sender));
    for n in 0..count {
        receive_message(here.as_raw_fd(), n, &mut random).unwrap();
    }
    finish([sender]);
}

/// Messages for a receiver whose calls time out again and again.
pub(super) fn late_messages(mut random: fastrand::Rng) {
    let (here, there) = make_pair(libc::SOCK_SEQPACKET, &mut random);
    let count = random.u64(1..40);
    let mut of_sender = random.fork();
    let sender = spawn(move || send_messages(there.as_raw_fd(), count, &mut of_sender));
    let mut n = 0;
    while n < count {
        let limit = micros(&mut random, 200);
        let fd = here.as_raw_fd();
        match timeout_with_value(limit, || receive_message(fd, n, &mut random)).0 {
            Ok(()) => n += 1,
            Err(libc::ETIMEDOUT) => {}
            Err(errno) => panic!("message {n}: errno {errno}"),
        }
    }
    finish([sender]);
}
