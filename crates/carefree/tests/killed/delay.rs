//! What may reach the neighbour some milliseconds late: the ends of pipes and connections.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::case::{Case, Look};
use crate::free::{fifo, open, terminal};
use crate::process::checked;

/// Whether one of `events` has come.
fn has_come(fd: RawFd, events: i16) -> io::Result<()> {
    let mut file = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    match checked(unsafe { libc::poll(&raw mut file, 1, 0) })? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// The neighbour waits for the end of what it reads.
pub(crate) const LAST_WRITER_OF_A_PIPE: Case = Case {
    name: "end of a pipe, for its reader",
    must_be_free: false,
    prepare: |place| {
        drop(fifo(&place.path));
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut reader = options.open(&place.path).unwrap();
        Box::new(move || {
            Box::new(move || {
                while reader.read(&mut [0; 65536])? > 0 {}
                Ok(())
            }) as Look
        })
    },
    wait: |on, place| {
        let mut writer = OpenOptions::new().write(true).open(&place.path).unwrap();
        on.spawn(move || drop(writer.write_all(&[0; 1 << 20])));
    },
};

/// The neighbour learns that its reader is gone.
pub(crate) const LAST_READER_OF_A_PIPE: Case = Case {
    name: "end of a pipe, for its writer",
    must_be_free: false,
    prepare: |place| {
        // Kept open for both until the other process has its end.
        let both = fifo(&place.path);
        let writer = OpenOptions::new().write(true).open(&place.path).unwrap();
        Box::new(move || {
            drop(both);
            Box::new(move || has_come(writer.as_raw_fd(), 0)) as Look
        })
    },
    wait: |on, place| {
        let mut reader = OpenOptions::new().read(true).open(&place.path).unwrap();
        on.spawn(move || drop(reader.read(&mut [0; 64])));
    },
};

pub(crate) const CONNECTION: Case = Case {
    name: "end of a connection",
    must_be_free: false,
    prepare: |place| {
        let listener = TcpListener::bind(place.address).unwrap();
        Box::new(move || {
            let (stream, _) = listener.accept().unwrap();
            Box::new(move || {
                let _alive = &listener;
                has_come(stream.as_raw_fd(), libc::POLLIN)
            })
        })
    },
    wait: |on, place| {
        let mut stream = TcpStream::connect(place.address).unwrap();
        on.spawn(move || drop(stream.read(&mut [0; 64])));
    },
};

/// The neighbour has the slave's side of a pseudoterminal.
pub(crate) const TERMINAL_MASTER: Case = Case {
    name: "hang-up of a terminal",
    must_be_free: false,
    prepare: |place| {
        let path = place.path.clone();
        Box::new(move || {
            let slave = open(&path);
            Box::new(move || has_come(slave.as_raw_fd(), 0))
        })
    },
    wait: |on, place| {
        let mut master = terminal(&place.path);
        on.spawn(move || drop(master.read(&mut [0; 64])));
    },
};
