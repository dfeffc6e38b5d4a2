//! Simplifies a program that differs: removes steps and other parts for as long as it still differs.

use std::time::{Duration, Instant};

use crate::call::{Buffer, Call, Lies, Via};
use crate::compare::{Difference, Made, Verdict, Workers};
use crate::crowd::Crowd;
use crate::object::Object;
use crate::program::{Program, Sequence};

/// Simplifies `program` for as long as `time`.
pub fn shrink(
    workers: &mut Workers,
    program: Program,
    difference: Difference,
    time: Duration,
) -> (Program, Difference) {
    let until = Instant::now() + time;
    let mut found = (program, difference);
    let mut next = 0;
    loop {
        let candidates = simpler(&found.0, &found.1);
        // Goes on behind the part removed: parts that could not be removed before rarely can be later.
        let Some(candidate) = candidates.into_iter().nth(next) else { return found };
        if Instant::now() >= until {
            return found;
        }
        match workers.compare(&candidate, &[found.1.mode]) {
            Verdict::Differs(difference) => found = (candidate, *difference),
            _ => next += 1,
        }
    }
}

/// What is simpler than `program`, the simplest first. Each is smaller by a measure, so this ends.
fn simpler(program: &Program, difference: &Difference) -> Vec<Program> {
    match program {
        Program::Sequence(sequence) => {
            let simpler = simpler_sequences(sequence, difference);
            simpler.into_iter().map(Program::Sequence).collect()
        }
        Program::Crowd(crowd) => simpler_crowds(crowd).into_iter().map(Program::Crowd).collect(),
    }
}

fn simpler_sequences(sequence: &Sequence, difference: &Difference) -> Vec<Sequence> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Sequence)| {
        let mut copy = sequence.clone();
        change(&mut copy);
        if copy != *sequence {
            all.push(copy);
        }
    };
    if let (Made::Lines(one), Made::Lines(other)) = (&difference.threads, &difference.fibers) {
        let at = one.iter().zip(other).position(|(one, other)| one != other);
        with(&|copy| copy.steps.truncate(at.map_or(usize::MAX, |at| at + 1)));
    }
    with(&|copy| copy.storm = None);
    with(&|copy| copy.file_limit = None);
    for at in (0..sequence.steps.len()).rev() {
        with(&|copy| _ = copy.steps.remove(at));
    }
    // Slots keep their numbers where one object stands in for another that fills as many.
    with(&|copy| _ = copy.objects.pop());
    for at in 0..sequence.objects.len() {
        with(&|copy| match &mut copy.objects[at] {
            Object::Pipe { .. } | Object::Sockets { .. } => {
                copy.objects.splice(at..=at, [Object::Closed, Object::Closed]);
            }
            object => *object = Object::Closed,
        });
        with(&|copy| match &mut copy.objects[at] {
            Object::Pipe { nonblocking, .. }
            | Object::File { nonblocking, .. }
            | Object::Sockets { nonblocking, .. }
            | Object::Event { nonblocking, .. }
            | Object::Timer { nonblocking, .. } => *nonblocking = false,
            _ => {}
        });
        with(&|copy| {
            if let Object::File { length, .. } = &mut copy.objects[at] {
                *length = 0;
            }
        });
    }
    for at in 0..sequence.steps.len() {
        with(&|copy| copy.steps[at].via = Via::Function);
        for which in 0..4 {
            with(&|copy| {
                if let Some(buffer) = buffers(&mut copy.steps[at].call).into_iter().nth(which) {
                    buffer.lies = Lies::Well;
                    buffer.length = buffer.length.min(200_000);
                }
            });
            with(&|copy| {
                if let Some(buffer) = buffers(&mut copy.steps[at].call).into_iter().nth(which) {
                    buffer.length = buffer.length.min(8);
                }
            });
        }
    }
    all
}

fn buffers(call: &mut Call) -> Vec<&mut Buffer> {
    match call {
        Call::Read { to, .. }
        | Call::ReadAt { to, .. }
        | Call::Receive { to, .. }
        | Call::ReceiveFrom { to, .. }
        | Call::ReceiveFiles { to, .. } => vec![to],
        Call::Write { from, .. }
        | Call::WriteAt { from, .. }
        | Call::Send { from, .. }
        | Call::SendFiles { from, .. } => vec![from],
        Call::ReceiveMany { to: all, .. } | Call::SendMany { from: all, .. } => {
            all.iter_mut().collect()
        }
        Call::ReadList { list, .. }
        | Call::WriteList { list, .. }
        | Call::ReadListAt { list, .. }
        | Call::WriteListAt { list, .. }
        | Call::ReadFlagged { list, .. }
        | Call::WriteFlagged { list, .. }
        | Call::ReceiveMessage { list, .. }
        | Call::SendMessage { list, .. }
        | Call::GiveMemory { list, .. } => list.buffers.iter_mut().collect(),
        _ => Vec::new(),
    }
}

fn simpler_crowds(crowd: &Crowd) -> Vec<Crowd> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Crowd)| {
        let mut copy = crowd.clone();
        change(&mut copy);
        if copy != *crowd {
            all.push(copy);
        }
    };
    with(&|copy| match copy {
        Crowd::Records(records) => records.reads = false,
        Crowd::Flow(flow) => flow.polls = false,
        _ => {}
    });
    with(&|copy| match copy {
        Crowd::Records(records) => records.vectored = false,
        Crowd::Readers(readers) => readers.vectored = false,
        Crowd::Flow(flow) => flow.spliced = false,
        _ => {}
    });
    with(&|copy| match copy {
        Crowd::Records(records) => records.lanes = 2,
        Crowd::Readers(readers) => readers.lanes = 2,
        Crowd::Flow(flow) => flow.writers = 1,
        Crowd::Counter(counter) => counter.adders = 1,
        Crowd::Race(race) => race.waiters = 1,
    });
    with(&|copy| match copy {
        Crowd::Flow(flow) => flow.readers = 1,
        Crowd::Counter(counter) => counter.takers = 1,
        _ => {}
    });
    all
}
