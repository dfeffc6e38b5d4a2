//! Cancelling: exactly one completion comes.

use super::kit::*;
use carefree_reactor::{Driver, Kind};
use std::io::Write;
use std::os::unix::net::UnixStream;

over_all! {
    a_waiting_operation_ends_cancelled
    an_operation_not_yet_submitted_to_the_kernel_ends_cancelled
    a_completed_operation_keeps_its_result
    only_the_given_operation_is_cancelled
    an_unknown_token_cannot_be_cancelled
    an_operation_about_to_be_retried_ends_cancelled
    dropping_ends_operations_about_to_be_retried
}

fn a_waiting_operation_ends_cancelled(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    bench.start(2, poll(&reader, libc::POLLIN));
    bench.is_waiting(1);
    bench.driver.cancel(1);
    bench.driver.cancel(2);
    assert_eq!(bench.finish(1), -libc::ECANCELED);
    assert_eq!(bench.finish(2), -libc::ECANCELED);
    // It has consumed nothing.
    writer.write_all(b"abc").unwrap();
    assert_eq!(bench.run(read(&reader, &mut buffer)), 3);
}

fn an_operation_not_yet_submitted_to_the_kernel_ends_cancelled(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, _writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    bench.driver.cancel(1);
    assert_eq!(bench.finish(1), -libc::ECANCELED);
}

fn a_completed_operation_keeps_its_result(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    bench.poll();
    writer.write_all(b"abc").unwrap();
    bench.driver.cancel(1);
    match bench.finish(1) {
        3 => assert_eq!(&buffer[..3], b"abc"),
        // The kernel has not tried the pipe yet.
        result => {
            assert_eq!(result, -libc::ECANCELED);
            assert_eq!(bench.run(read(&reader, &mut buffer)), 3, "nothing is consumed");
        }
    }
    // After its completion, a token may be reused.
    bench.driver.cancel(1);
    bench.start(1, read(&reader, &mut buffer));
    bench.poll();
    writer.write_all(b"d").unwrap();
    assert_eq!(bench.finish(1), 1);
}

fn only_the_given_operation_is_cancelled(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffers = [[0u8; 1]; 3];
    for (token, buffer) in buffers.iter_mut().enumerate() {
        bench.start(token as u64, read(&reader, buffer));
    }
    bench.is_waiting(1);
    bench.driver.cancel(1);
    assert_eq!(bench.finish(1), -libc::ECANCELED);
    bench.is_waiting(0);
    bench.is_waiting(2);
    writer.write_all(b"xy").unwrap();
    assert_eq!((bench.finish(0), bench.finish(2)), (1, 1));
}

fn an_unknown_token_cannot_be_cancelled(kind: Kind) {
    let mut bench = Bench::new(kind);
    bench.driver.cancel(9);
    bench.poll();
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    bench.driver.cancel(9);
    bench.is_waiting(1);
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), 1);
}

/// A socket that has one byte, and its readers: the kernel makes all of them try when it next
/// processes them. Until then they are not where a cancel looks for them.
fn a_byte_for_many(driver: &mut Driver, buffers: &mut [[u8; 1]]) -> [UnixStream; 2] {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.write_all(b"x").unwrap();
    for (token, buffer) in buffers.iter_mut().enumerate() {
        let receive = receive(&reader, buffer, 0);
        // SAFETY: the callers keep the buffers longer than the driver or the operations.
        unsafe { driver.submit(token as u64, &receive) }.unwrap();
    }
    [reader, writer]
}

fn an_operation_about_to_be_retried_ends_cancelled(kind: Kind) {
    let mut bench = Bench::new(kind);
    let mut buffers = [[0u8; 1]; 8];
    let _sockets = a_byte_for_many(&mut bench.driver, &mut buffers);
    (0..8).for_each(|token| bench.driver.cancel(token));
    let results: Vec<_> = (0..8).map(|token| bench.finish(token)).collect();
    let read = results.iter().filter(|&&result| result == 1).count();
    let cancelled = results.iter().filter(|&&result| result == -libc::ECANCELED).count();
    assert!(read <= 1 && read + cancelled == 8, "{results:?}");
}

/// Hangs on failure.
fn dropping_ends_operations_about_to_be_retried(kind: Kind) {
    let mut buffers = [[0u8; 1]; 8];
    let mut driver = driver(kind);
    let _sockets = a_byte_for_many(&mut driver, &mut buffers);
}
