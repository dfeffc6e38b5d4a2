//! What becomes of a call that reads or writes: by what its file is.

use crate::call::answer::Answer;
use crate::call::buffers::LONGEST;
use crate::descriptor;
use crate::descriptor::kind::Kind;
use crate::descriptor::storage::Storage;
use crate::io::call::{Call, Way};
use crate::io::seekable;
use crate::io::stream_read::get;
use crate::io::stream_write::put;
use crate::wait::offload;

/// Makes a call that reads or writes.
#[inline]
pub(crate) fn perform(call: &Call) -> Answer {
    if call.never_waits() {
        return call.plainly();
    }
    if call.given.single().is_some_and(|one| one.iov_len > LONGEST) {
        return offload::on_file(call.fd, || call.plainly());
    }
    let file = descriptor::file(call.fd);
    let seen = descriptor::seen(file, call.fd);
    {
        if seen.storage != Storage::None && !is_for_the_reactor(call, seen.storage) {
            return seekable::perform(call, seen);
        }
        if call.given.single().is_some_and(|one| one.iov_len == 0) {
            return without_a_byte(call, seen.kind);
        }
        match call.way {
            Way::Read => get(call, file),
            Way::Write => put(call, file),
        }
    }
}

/// Whether a call on a file with a position can be left to the reactor: parts of a read at an offset
/// can be joined, and it moves nothing.
fn is_for_the_reactor(call: &Call, storage: Storage) -> bool {
    call.way == Way::Read
        && call.flags == 0
        && call.at.number() >= 0
        && matches!(storage, Storage::Disk | Storage::Other)
}

/// Reads or writes no bytes: what that means, the kind of file says (an eventfd refuses it), and
/// `preadv2`, which does not ask the file, says something else.
#[cold]
fn without_a_byte(call: &Call, kind: Kind) -> Answer {
    match kind {
        Kind::Socket | Kind::Pipe => call.plainly(),
        _ if descriptor::is_blocking(call.fd) => offload::on_file(call.fd, || call.plainly()),
        _ => call.plainly(),
    }
}
