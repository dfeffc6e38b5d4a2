//! How calls change the table: files are opened, duplicated, accepted, locked, and change their modes.

use std::ffi::c_int;

use crate::descriptor::holder::Holder;
use crate::descriptor::kind::Kind;
use crate::descriptor::table::{file, known};
use crate::descriptor::traits::Trait;

/// A trait of the file `fd` may just have changed: it is asked for again; for all files, if another
/// number may refer to this one.
pub(crate) fn changed(fd: c_int, what: Trait) {
    match known(fd) {
        Some(file) => file.changed(what),
        None => what.changed(),
    }
}

/// These two numbers refer to the same open file now, if they refer to one.
pub(crate) fn duplicated(one: c_int, other: c_int) {
    if one >= 0 && other >= 0 && one != other {
        for fd in [one, other] {
            if let Some(file) = file(fd) {
                file.duplicated();
            }
        }
    }
}

/// `fd` is a new file's number. If an earlier file of this number was closed unseen, its record is cleared.
pub(crate) fn opened(fd: c_int) {
    if let Some(file) = known(fd) {
        file.forget();
    }
}

/// The number `fd` was closed.
#[inline]
pub(crate) fn closed(fd: c_int) {
    if let Some(file) = known(fd) {
        file.closed();
    }
}

/// `connection` was accepted from `listener`, so the kernel need not be asked what it is.
pub(crate) fn accepted(listener: c_int, connection: c_int) {
    opened(connection);
    if file(listener).is_some_and(|file| file.holder(listener) == Holder::Listener) {
        if let Some(file) = file(connection) {
            file.found(Kind::Socket, Holder::Ring);
        }
    }
}

/// The open file `fd` has a lock or an address now, so no ring may hold it until it is closed.
pub(crate) fn claimed(fd: c_int) {
    if let Some(file) = file(fd) {
        file.found(file.kind(fd), Holder::Process);
    }
}

/// `new` is a duplicate of `old` now; the call has closed the file that `new` referred to before.
///
/// `new` was a file's number all the time, so a call on it is no mistake of the program's: one that came
/// after `prepare_to_close` has recorded what the old file was.
pub(crate) fn replaced(old: c_int, new: c_int) {
    if let Some(file) = known(new).filter(|_| old != new) {
        file.forget();
        file.closed();
    }
    duplicated(old, new);
}
