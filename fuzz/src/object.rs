//! What a program has open at its start: files, pipes, sockets and other descriptors.

use serde::{Deserialize, Serialize};

/// The file system of a file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Place {
    /// The file system of temporary files.
    Disk,
    Memory,
    /// A small file system that is soon full.
    Small,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Access {
    Read,
    Write,
    Both,
    /// Both, with `O_APPEND`.
    Append,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Family {
    Stream,
    Datagram,
    Packet,
    Tcp,
    Udp,
}

/// What is open.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Object {
    File {
        place: Place,
        access: Access,
        length: u32,
        nonblocking: bool,
    },
    /// The last file, opened once more.
    Again {
        access: Access,
    },
    Pipe {
        nonblocking: bool,
        packets: bool,
        small: bool,
    },
    Sockets {
        family: Family,
        nonblocking: bool,
    },
    Listener {
        nonblocking: bool,
    },
    Event {
        value: u32,
        semaphore: bool,
        nonblocking: bool,
    },
    Timer {
        fires: bool,
        nonblocking: bool,
    },
    Epoll,
    Null,
    Zero,
    Full,
    Directory,
    Closed,
}
