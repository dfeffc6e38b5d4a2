//! Calls, as data.
//!
//! A call names files by the number of a *slot*, modulo the number of slots there are.

use serde::{Deserialize, Serialize};

/// Whether a call is made by its function or by its number.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Via {
    Function,
    Number,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Step {
    pub via: Via,
    pub call: Call,
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Lies {
    /// In mapped memory.
    Well,
    Null,
    /// In unmapped memory.
    Nowhere,
    /// At the end of mapped memory: this many bytes are in it.
    AtEdge(u32),
    /// In read-only memory.
    ReadOnly,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Buffer {
    pub length: u64,
    pub lies: Lies,
}

/// The list of a vectored call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct List {
    pub buffers: Vec<Buffer>,
    pub lies: Lies,
    /// Passed in place of the real count.
    pub count: Option<i32>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Moment {
    Now,
    Soon,
    /// Long enough for the rescuer to act first.
    Late,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Word {
    Good,
    Null,
    Nowhere,
    Unaligned,
    ReadOnly,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Span {
    Now,
    Soon,
    Negative,
    TooManyNanoseconds,
    Nowhere,
}

impl Span {
    /// What a call is given for it, if it is given anything.
    pub(crate) fn time(self) -> libc::timespec {
        let (tv_sec, tv_nsec) = match self {
            Span::Now | Span::Nowhere => (0, 0),
            Span::Soon => (0, 2_000_000),
            Span::Negative => (-1, 0),
            Span::TooManyNanoseconds => (0, 1_000_000_000),
        };
        libc::timespec { tv_sec, tv_nsec }
    }
}

type Slot = u8;

/// A call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Call {
    Read {
        fd: Slot,
        to: Buffer,
    },
    Write {
        fd: Slot,
        from: Buffer,
    },
    ReadAt {
        fd: Slot,
        to: Buffer,
        offset: i64,
    },
    WriteAt {
        fd: Slot,
        from: Buffer,
        offset: i64,
    },
    ReadList {
        fd: Slot,
        list: List,
    },
    WriteList {
        fd: Slot,
        list: List,
    },
    ReadListAt {
        fd: Slot,
        list: List,
        offset: i64,
    },
    WriteListAt {
        fd: Slot,
        list: List,
        offset: i64,
    },
    ReadFlagged {
        fd: Slot,
        list: List,
        offset: i64,
        flags: i32,
    },
    WriteFlagged {
        fd: Slot,
        list: List,
        offset: i64,
        flags: i32,
    },
    Receive {
        fd: Slot,
        to: Buffer,
        flags: i32,
    },
    Send {
        fd: Slot,
        from: Buffer,
        flags: i32,
    },
    ReceiveMessage {
        fd: Slot,
        list: List,
        flags: i32,
    },
    SendMessage {
        fd: Slot,
        list: List,
        flags: i32,
    },
    /// `recvfrom`, with so much room for an address.
    ReceiveFrom {
        fd: Slot,
        to: Buffer,
        flags: i32,
        room: u8,
    },
    /// `recvmmsg`: a message for each buffer, and how long to wait for further ones.
    ReceiveMany {
        fd: Slot,
        to: Vec<Buffer>,
        flags: i32,
        span: Option<Span>,
    },
    /// `sendmmsg`.
    SendMany {
        fd: Slot,
        from: Vec<Buffer>,
        flags: i32,
    },
    /// A message that carries `files` descriptors of one file.
    SendFiles {
        fd: Slot,
        from: Buffer,
        flags: i32,
        file: Slot,
        files: u8,
    },
    /// Receives a message, with room for `files` descriptors.
    ReceiveFiles {
        fd: Slot,
        to: Buffer,
        flags: i32,
        files: u8,
    },
    Accept {
        fd: Slot,
        to: Slot,
    },
    Seek {
        fd: Slot,
        offset: i64,
        whence: i32,
    },
    Truncate {
        fd: Slot,
        length: u32,
    },
    SendFile {
        to: Slot,
        from: Slot,
        offset: Option<i64>,
        count: u64,
    },
    Splice {
        from: Slot,
        from_offset: Option<i64>,
        to: Slot,
        to_offset: Option<i64>,
        length: u64,
        flags: u32,
    },
    Tee {
        from: Slot,
        to: Slot,
        length: u64,
        flags: u32,
    },
    GiveMemory {
        fd: Slot,
        list: List,
        flags: u32,
    },
    CopyRange {
        from: Slot,
        from_offset: Option<i64>,
        to: Slot,
        to_offset: Option<i64>,
        length: u64,
    },
    Sync {
        fd: Slot,
        data: bool,
    },
    Dup {
        fd: Slot,
        to: Slot,
    },
    DupOnto {
        fd: Slot,
        to: Slot,
    },
    Close {
        fd: Slot,
    },
    Shutdown {
        fd: Slot,
        how: i32,
    },
    SetNonblocking {
        fd: Slot,
        on: bool,
    },
    /// `O_APPEND`.
    SetAppending {
        fd: Slot,
        on: bool,
    },
    /// `O_NONBLOCK`, by `FIONBIO`.
    SetNonblockingByIoctl {
        fd: Slot,
        on: bool,
    },
    /// How many bytes there are to read.
    Available {
        fd: Slot,
    },
    /// `flock`, without waiting.
    Lock {
        fd: Slot,
        how: i32,
    },
    /// A lock of the open file, without waiting.
    LockRange {
        fd: Slot,
        kind: i16,
        start: u32,
        length: u32,
    },
    LimitReceiving {
        fd: Slot,
    },
    SetTimer {
        fd: Slot,
        fires: bool,
    },
    Poll {
        files: Vec<(Slot, i16)>,
        lies: Lies,
        moment: Moment,
    },
    PollMasked {
        files: Vec<(Slot, i16)>,
        moment: Moment,
        masked: bool,
    },
    Select {
        read: Vec<Slot>,
        write: Vec<Slot>,
        moment: Moment,
        lies: Lies,
    },
    EpollChange {
        epoll: Slot,
        fd: Slot,
        how: i32,
        events: u32,
    },
    EpollWait {
        epoll: Slot,
        most: i32,
        lies: Lies,
        moment: Moment,
    },
    /// As `Select`, and `EpollWait`: by `pselect` and `epoll_pwait`, with a mask of signals.
    SelectMasked {
        read: Vec<Slot>,
        moment: Moment,
    },
    EpollWaitMasked {
        epoll: Slot,
        most: i32,
        moment: Moment,
    },
    Futex {
        operation: i32,
        word: Word,
        second: Word,
        value: u32,
        span: Span,
    },
    Sleep {
        span: Span,
    },
}
