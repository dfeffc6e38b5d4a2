//! How a call that reads or writes is made, depending on its file.

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

/// Whether the reactor can make a call on a file with a position: only a read at an offset, which moves no
/// position and whose parts can be joined.
fn is_for_the_reactor(call: &Call, storage: Storage) -> bool {
    call.way == Way::Read
        && call.flags == 0
        && call.at.number() >= 0
        && matches!(storage, Storage::Disk | Storage::Other)
}

/// Reads or writes no bytes. What that does depends on the kind of file (an eventfd refuses it); `preadv2`
/// does not ask the file and would answer otherwise.
#[cold]
fn without_a_byte(call: &Call, kind: Kind) -> Answer {
    match kind {
        Kind::Socket | Kind::Pipe => call.plainly(),
        _ if descriptor::is_blocking(call.fd) => offload::on_file(call.fd, || call.plainly()),
        _ => call.plainly(),
    }
}
