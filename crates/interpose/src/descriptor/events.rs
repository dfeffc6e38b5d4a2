//! What calls do to what is known: files that are opened, duplicated, accepted, locked, and changed.

use std::ffi::c_int;

use crate::descriptor::holder::Holder;
use crate::descriptor::kind::Kind;
use crate::descriptor::table::{file, known};
use crate::descriptor::traits::Trait;

/// A trait of the file `fd` may just have been changed: it is asked for again, or all files' if
/// another number may be the same file's.
pub(crate) fn changed(fd: c_int, what: Trait) {
    match known(fd) {
        Some(file) => file.changed(what),
        None => what.changed(),
    }
}

/// These two numbers, if they are numbers of files, now go by the same one.
pub(crate) fn duplicated(one: c_int, other: c_int) {
    if one >= 0 && other >= 0 && one != other {
        for fd in [one, other] {
            if let Some(file) = file(fd) {
                file.duplicated();
            }
        }
    }
}

/// `fd` is a new file's number. If it was another one's, which was closed where that is not seen, what is
/// known of that one is forgotten.
pub(crate) fn opened(fd: c_int) {
    if let Some(file) = known(fd) {
        file.forget();
    }
}

/// `connection` was accepted from `listener`: then it need not be asked what it is.
pub(crate) fn accepted(listener: c_int, connection: c_int) {
    opened(connection);
    if file(listener).is_some_and(|file| file.holder(listener) == Holder::Listener) {
        if let Some(file) = file(connection) {
            file.found(Kind::Socket, Holder::Ring);
        }
    }
}

/// The open file that goes by `fd` has a lock or an address, so it must not be held by a ring from now
/// on until it is closed.
pub(crate) fn claimed(fd: c_int) {
    if let Some(file) = file(fd) {
        file.found(file.kind(fd), Holder::Process);
    }
}

/// `new` is a duplicate of `old` from now on, by a call that has closed the file it was before.
///
/// `new` was a file's all the time, so calls on it are no mistake: one that came after
/// [`prepare_to_close`] has learned what the old file was.
pub(crate) fn replaced(old: c_int, new: c_int) {
    if let Some(file) = known(new).filter(|_| old != new) {
        file.forget();
    }
    duplicated(old, new);
}
