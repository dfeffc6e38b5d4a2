//! `sendfile`, `splice` and their kin: moving data from file to file.
//!
//! The kernel moves data without waiting where it is told to (`SPLICE_F_NONBLOCK`), but that holds for
//! pipes only: a socket in blocking mode is waited for all the same, and neither readiness nor the
//! reactor's own operation (which keeps a thread of the kernel's, of which there are few) helps
//! against a slow peer. So on a fiber
//!
//! * `sendfile` to a stream socket in blocking mode reads and writes; to a pipe it is a `splice`;
//! * `splice` from a pipe to such a socket copies what is in the pipe, and takes out of it what the
//!   socket has taken; fibers that do so with the same pipe take turns;
//! * anything else is tried, and tried again when both ends are ready;
//! * what moves data between disks, and so ends by itself, is done by a thread that may block.
//!
//! To a file in non-blocking mode nothing waits, and the kernel does it.
//!
//! One case is left in which `splice` blocks the carrier: out of a socket, when somebody else reads
//! from the same socket between the look and the call. And one in which it is not as on a thread: who
//! *reads* from a pipe while another fiber splices from it to a socket may read what that one sends.

mod ends;
pub mod sendfile;
pub mod splice;
