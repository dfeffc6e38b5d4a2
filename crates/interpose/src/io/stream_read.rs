//! Reading what has no position, and at an offset: see [`stream`](crate::io::stream).

use std::ffi::c_int;

use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;

use crate::call::answer::Answer;
use crate::descriptor;
use crate::descriptor::kind::Kind;
use crate::descriptor::low_water;
use crate::descriptor::{File, Limit};
use crate::io::call::Call;
use crate::io::rest::Rest;
use crate::io::stream::{
    Tried, has_rare_flags, is_impatient, is_misplaced, look_after_try, must_wait, without_waiting,
};
use crate::io::{seekable, terminal};
use crate::wait::multi_step::MultiStep;
use crate::wait::offload;
use crate::wait::parking::{self, On, Parked};

/// Reads: what is there, or else what comes.
pub(crate) fn get(call: &Call, file: Option<&'static File>) -> Answer {
    let fd = call.fd;
    // A read at an offset is always tried: a reactor would ignore the offset of a file without a position.
    let is_placed = call.at.number() >= 0;
    if !is_placed && call.flags == 0 && file.is_some_and(File::was_impatient) {
        return call.plainly();
    }
    let mut rest = Rest::all(call);
    let seat = Seat::new();
    let mut steps = MultiStep::of(file, fd, &seat);
    let is_tried =
        is_placed || file.is_none_or(|file| file.is_worth_a_try() || !file.is_blocking(fd));
    let tried = match is_tried {
        true => get_at_once(&mut rest, file, &mut steps)?,
        false => Tried::Unknown,
    };
    if let Tried::Over(got) = tried {
        return Ok(got);
    }
    rest.buffers.look()?;
    if rest.buffers.is_absurd() || rest.buffers.left() == 0 {
        return call.plainly();
    }
    if is_impatient(file, fd) {
        return without_waiting(&rest, tried);
    }
    get_rest(&mut rest, file, &mut steps)
}

/// Reads what is there without waiting.
fn get_at_once(
    rest: &mut Rest,
    file: Option<&File>,
    steps: &mut MultiStep,
) -> Result<Tried, c_int> {
    let (call, fd) = (rest.whole, rest.whole.fd);
    loop {
        let tried = rest.call().at_once();
        match tried {
            Ok(read) => {
                // SAFETY: the kernel has read the descriptions for the try.
                unsafe { rest.buffers.seen() };
                if let Some(file) = file {
                    file.tried(true);
                }
                // From a regular file, what is not in memory yet is waited for.
                if !goes_on(rest, read, file, steps) {
                    return rest.or_so_far(tried).map(Tried::Over);
                }
                rest.advance(read);
            }
            Err(errno) if must_wait(errno) => {
                look_after_try(&mut rest.buffers, errno)?;
                if let Some(file) = file {
                    file.tried(false);
                }
                if errno == libc::EAGAIN {
                    return Ok(Tried::WouldWait);
                }
                if is_misplaced(call, file) {
                    return seekable::perform(call, descriptor::seen(file, fd)).map(Tried::Over);
                }
                if errno == libc::EOPNOTSUPP && has_rare_flags(call) {
                    return offload::on_file(fd, || call.plainly()).map(Tried::Over);
                }
                return Ok(Tried::Unknown);
            }
            Err(_) => return rest.or_so_far(tried).map(Tried::Over),
        }
    }
}

/// Reads the rest when there is something to read.
fn get_rest(rest: &mut Rest, file: Option<&File>, steps: &mut MultiStep) -> Answer {
    let (call, fd) = (rest.whole, rest.whole.fd);
    if low_water::is_above(fd, rest.buffers.left()) {
        let rest = rest.call();
        return steps.offload(|| rest.plainly());
    }
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    if file.is_none_or(|file| file.kind(fd) == Kind::Device) {
        terminal::stop_in_background(fd)?;
        match terminal::wait(fd, on, rest.buffers.left()) {
            terminal::Waited::AsEver => {}
            terminal::Waited::GivenUp => return Ok(rest.done),
            // There is something to read, or the read answers at once that there is nothing.
            terminal::Waited::Over => return call.plainly(),
            terminal::Waited::Several => return offload::on_file(fd, || call.plainly()),
            terminal::Waited::Failed(errno) => return Err(errno),
        }
    }
    loop {
        let answer = match parking::perform(&rest.operation(), on) {
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
                let rest = rest.call();
                steps.offload(|| rest.plainly())
            }
            Parked::Answered(answer) => answer,
            // Of a socket less than `SO_RCVLOWAT` may be there, which the kernel returns when the time is up.
            Parked::Late => rest.call().at_once(),
        };
        match answer {
            // A reactor may read only a part from a regular file; on a thread, a read gets all.
            Ok(read) if goes_on(rest, read, file, steps) => rest.advance(read),
            answer => return rest.or_so_far(answer),
        }
    }
}

/// Whether a call goes on after it has read so many bytes of what was left: only at an offset of a regular file, until
/// it has all, or the file has no more.
fn goes_on(rest: &Rest, read: usize, file: Option<&File>, steps: &mut MultiStep) -> bool {
    let call = rest.whole;
    read != 0
        && read < rest.buffers.left()
        && call.at.number() >= 0
        && file.is_some_and(|file| file.kind(call.fd) == Kind::Regular)
        && steps.go_on()
}
