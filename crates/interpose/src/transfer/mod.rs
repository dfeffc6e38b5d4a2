//! `sendfile`, `splice` and their kin: moving data from file to file.
//!
//! The kernel moves data without waiting if it is told to (`SPLICE_F_NONBLOCK`), but the flag is only for
//! pipes: the call still waits for a socket in blocking mode. Against a slow peer, neither polling nor the
//! reactor's own operation (which occupies one of the kernel's few threads) helps. So on a fiber
//!
//! * `sendfile` to a stream socket in blocking mode reads and writes; to a pipe it is a `splice`;
//! * `splice` from a pipe to such a socket copies what is in the pipe, sends the copy, and then removes from
//!   the pipe what the socket has accepted; fibers that do so with the same pipe do it one at a time;
//! * all else is tried, and tried again when both ends are ready;
//! * between files that have a position, which ends by itself, the carrier moves a little that is in memory, and a
//!   thread that may block all else.
//!
//! A call to a file in non-blocking mode does not wait, and the kernel makes it.
//!
//! In one case `splice` still blocks the carrier: from a socket, if another reader takes the data between the
//! poll and the call. And in one case the result differs from a thread's: a reader of a pipe from which another
//! fiber splices to a socket may read data that the splice sends as well.

pub mod copy;
mod ends;
pub mod sendfile;
pub mod splice;
