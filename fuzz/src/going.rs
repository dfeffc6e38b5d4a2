//! The state of a sequence that runs, and how the waits of its calls can be ended.

use std::collections::HashMap;
use std::ffi::c_int;

use crate::call::{Call, Moment};
use crate::memory::{Fill, Memory};
use crate::rescue::{Feed, Plan};
use crate::world::{Slot, What, World};

/// Bytes that a reading call is given when it waits.
const FEED: usize = 5;

/// The state of a sequence that runs.
#[derive(Debug)]
pub(crate) struct Going {
    pub(crate) world: World,
    pub(crate) memory: Memory,
    /// The slots that were added to each epoll instance, by its number.
    pub(crate) watched: HashMap<c_int, Vec<u8>>,
}

/// What a step's buffers are filled with.
pub(crate) fn fill(slot: Slot, step: usize) -> Fill {
    match slot.what {
        What::Event => Fill::Count([1, 2, 3, u64::MAX][step % 4]),
        _ => Fill::Step(step),
    }
}

fn feed(world: &World, slot: Slot, all: Option<u64>) -> Option<Feed> {
    match slot.what {
        What::PipeReads | What::Socket(_) => Some(match world.peer(slot) {
            Some(peer) => Feed::Bytes {
                into: peer.fd,
                count: all.map_or(FEED, |all| all.clamp(1, 200_000) as usize),
                out_of: slot.fd,
                always: all.is_some(),
            },
            None if slot.what == What::PipeReads => return None,
            None => Feed::End(slot.fd),
        }),
        What::Event => Some(Feed::Event(slot.fd)),
        What::Timer => Some(Feed::Timer(slot.fd)),
        What::Listener => Some(Feed::Connection(slot.fd)),
        _ => None,
    }
}

fn reads(world: &World, slot: u8, all: Option<u64>) -> Plan {
    Plan { feed: feed(world, world.slot(slot), all).into_iter().collect(), drain: Vec::new() }
}

fn writes(world: &World, slot: u8) -> Plan {
    let slot = world.slot(slot);
    match (slot.what, world.peer(slot)) {
        (What::PipeWrites | What::Socket(_), Some(peer)) => {
            Plan { feed: Vec::new(), drain: vec![peer.fd] }
        }
        (What::Socket(_), None) => Plan { feed: vec![Feed::End(slot.fd)], drain: Vec::new() },
        _ => Plan::default(),
    }
}

/// The first of `slots` that can be fed is, if the call waits at all.
fn any_of(world: &World, slots: impl Iterator<Item = u8>, moment: Moment) -> Plan {
    if moment != Moment::Late {
        return Plan::default();
    }
    let feeds = |slot| feed(world, world.slot(slot), None);
    let first = slots.filter_map(feeds).find(|feed| !matches!(feed, Feed::End(_)));
    Plan { feed: first.into_iter().collect(), drain: Vec::new() }
}

/// How the wait of `call` can be ended.
pub(crate) fn plan(going: &Going, call: &Call) -> Plan {
    let world = &going.world;
    let all = |flags: &c_int, length: u64| (flags & libc::MSG_WAITALL != 0).then_some(length);
    match call {
        Call::Read { fd, .. }
        | Call::ReadAt { fd, .. }
        | Call::ReadList { fd, .. }
        | Call::ReadListAt { fd, .. }
        | Call::ReadFlagged { fd, .. }
        | Call::ReceiveMany { fd, .. }
        | Call::Accept { fd, .. } => reads(world, *fd, None),
        Call::Receive { fd, to, flags }
        | Call::ReceiveFrom { fd, to, flags, .. }
        | Call::ReceiveFiles { fd, to, flags, .. } => reads(world, *fd, all(flags, to.length)),
        Call::ReceiveMessage { fd, list, flags } => {
            let length = list.buffers.iter().fold(0u64, |sum, one| sum.saturating_add(one.length));
            reads(world, *fd, all(flags, length))
        }
        Call::Write { fd, .. }
        | Call::WriteAt { fd, .. }
        | Call::WriteList { fd, .. }
        | Call::WriteListAt { fd, .. }
        | Call::WriteFlagged { fd, .. }
        | Call::Send { fd, .. }
        | Call::SendMany { fd, .. }
        | Call::SendFiles { fd, .. }
        | Call::SendMessage { fd, .. } => writes(world, *fd),
        Call::GiveMemory { fd, .. } => {
            let (from, to) = (reads(world, *fd, None), writes(world, *fd));
            if from.feed.is_empty() { to } else { from }
        }
        Call::SendFile { to, from, .. }
        | Call::Splice { to, from, .. }
        | Call::Tee { to, from, .. }
        | Call::CopyRange { to, from, .. } => Plan {
            feed: [reads(world, *from, None).feed, writes(world, *to).feed].concat(),
            drain: writes(world, *to).drain,
        },
        Call::Poll { files, moment, .. } | Call::PollMasked { files, moment, .. } => {
            let wanted = files.iter().filter(|(_, events)| events & libc::POLLIN != 0);
            any_of(world, wanted.map(|(slot, _)| *slot), *moment)
        }
        Call::Select { read, moment, .. } | Call::SelectMasked { read, moment } => {
            any_of(world, read.iter().copied(), *moment)
        }
        Call::EpollWait { epoll, moment, .. } | Call::EpollWaitMasked { epoll, moment, .. } => {
            let watched = going.watched.get(&world.fd(*epoll));
            any_of(world, watched.into_iter().flatten().copied(), *moment)
        }
        _ => Plan::default(),
    }
}

/// Milliseconds that a call may wait.
pub(crate) fn patience_of(going: &Going, call: &Call, moment: Moment) -> c_int {
    match moment {
        Moment::Now => 0,
        Moment::Late if !plan(going, call).feed.is_empty() => 3000,
        _ => 3,
    }
}
