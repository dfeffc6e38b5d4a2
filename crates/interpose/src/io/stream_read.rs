//! Reading what has no position, and at an offset: see [`stream`](crate::io::stream).

use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;

use crate::call::answer::Answer;
use crate::descriptor;
use crate::descriptor::kind::Kind;
use crate::descriptor::low_water;
use crate::descriptor::{File, Limit};
use crate::io::call::Call;
use crate::io::stream::{
    has_rare_flags, is_impatient, is_misplaced, look_after_try, must_wait, operation, rest,
};
use crate::io::{seekable, terminal};
use crate::wait::multi_step::MultiStep;
use crate::wait::offload;
use crate::wait::parking::{self, On, Parked};

/// Reads.
pub(crate) fn get(call: &Call, file: Option<&'static File>) -> Answer {
    let fd = call.fd;
    // A read at an offset is always tried: a reactor would ignore the offset of a file without a position.
    let is_placed = call.at.number() >= 0;
    if !is_placed && call.flags == 0 && file.is_some_and(File::was_impatient) {
        return call.plainly();
    }
    let mut buffers = call.given.buffers();
    let seat = Seat::new();
    let mut steps = MultiStep::of(file, fd, &seat);
    let mut got = 0;
    let mut dry = false;
    if is_placed || file.is_none_or(|file| file.is_worth_a_try() || !file.is_blocking(fd)) {
        loop {
            match call.at_once(&buffers, call.at.further(got)) {
                Ok(read) => {
                    // SAFETY: the kernel has.
                    unsafe { buffers.seen() };
                    if let Some(file) = file {
                        file.tried(true);
                    }
                    got += read;
                    // From a regular file, what is not in memory yet is waited for.
                    if read == 0
                        || read >= buffers.left()
                        || !is_at_offset_of_regular(call, file)
                        || !steps.go_on()
                    {
                        return Ok(got);
                    }
                    buffers.advance(read);
                }
                Err(errno) if must_wait(errno) => {
                    look_after_try(&mut buffers, errno)?;
                    dry = errno == libc::EAGAIN;
                    if let Some(file) = file {
                        file.tried(false);
                    }
                    if !dry && is_misplaced(call, file) {
                        return seekable::perform(call, descriptor::seen(file, fd));
                    }
                    if errno == libc::EOPNOTSUPP && has_rare_flags(call) {
                        return offload::on_file(fd, || call.plainly());
                    }
                    break;
                }
                Err(errno) => return if got > 0 { Ok(got) } else { Err(errno) },
            }
        }
    }
    buffers.look()?;
    if buffers.is_absurd() || buffers.left() == 0 {
        return call.plainly();
    }
    if is_impatient(file, fd) {
        return match got {
            0 if dry => Err(libc::EAGAIN),
            // It cannot be tried (an eventfd, a terminal) and need not be: the call itself does not wait.
            0 => call.plainly(),
            _ => Ok(got),
        };
    }
    if low_water::is_above(fd, buffers.left()) {
        let rest = rest(call, &buffers, got);
        return steps.offload(|| rest.plainly());
    }
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    if file.is_none_or(|file| file.kind(fd) == Kind::Device) {
        terminal::stop_in_background(fd)?;
        match terminal::wait(fd, on, buffers.left()) {
            terminal::Waited::AsEver => {}
            terminal::Waited::GivenUp => return Ok(got),
            // There is something to read, or the read answers at once that there is nothing.
            terminal::Waited::Over => return call.plainly(),
            terminal::Waited::Several => return offload::on_file(fd, || call.plainly()),
            terminal::Waited::Failed(errno) => return Err(errno),
        }
    }
    loop {
        let op = operation(call, &buffers, got);
        let more = match parking::perform(&op, on) {
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
                let rest = rest(call, &buffers, got);
                steps.offload(|| rest.plainly())
            }
            Parked::Answered(answer) => answer,
            // Of a socket less than `SO_RCVLOWAT` may be there, which the kernel returns when the time is up.
            Parked::Late => call.at_once(&buffers, call.at.further(got)),
        };
        match more {
            Ok(read) => {
                got += read;
                // A reactor may read only a part from a regular file; on a thread, a read gets all.
                if read == 0
                    || read >= buffers.left()
                    || !is_at_offset_of_regular(call, file)
                    || !steps.go_on()
                {
                    return Ok(got);
                }
                buffers.advance(read);
            }
            Err(_) if got > 0 => return Ok(got),
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether a call is at an offset of a regular file: then a read goes on until it has all.
pub(crate) fn is_at_offset_of_regular(call: &Call, file: Option<&File>) -> bool {
    call.at.number() >= 0 && file.is_some_and(|file| file.kind(call.fd) == Kind::Regular)
}
