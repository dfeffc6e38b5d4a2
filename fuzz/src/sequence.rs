//! Runs a sequence on one lane.

use std::collections::HashMap;
use std::time::Duration;

use crate::going::{Going, plan};
use crate::lane::Lanes;
use crate::memory::{Digest, Memory};
use crate::outcome::Outcome;
use crate::perform::{let_shutdown_arrive, perform, take_sent_by_reference};
use crate::program::Sequence;
use crate::rescue::Rescuer;
use crate::storm;
use crate::world::World;

/// Runs `sequence`: a line for each step, and for what is left at the end.
pub(crate) fn run(sequence: Sequence, lanes: Lanes, patience: Duration) -> Vec<String> {
    let storm = sequence.storm.map(storm::blow);
    let rescuer = Rescuer::start(lanes, patience);
    let lane = lanes.spawn(move || {
        let mut going = Going {
            world: World::new(&sequence.objects),
            memory: Memory::new(),
            watched: HashMap::new(),
        };
        let _limit = sequence.file_limit.map(FileLimit::set);
        let mut lines = Vec::new();
        for (number, step) in sequence.steps.iter().enumerate() {
            let plan = plan(&going, &step.call);
            let call = || perform(&mut going, step, number);
            let (Outcome { result, more }, waited) = rescuer.around(plan, call);
            let mut line = format!("{result}{more}");
            if waited.is_some() {
                line += " (waited)";
            }
            let mut came = waited.unwrap_or_default();
            take_sent_by_reference(&going, &step.call, &mut came);
            let_shutdown_arrive(&going, &step.call);
            if !came.is_empty() {
                let mut digest = Digest::new();
                digest.add(&came);
                line += &format!(", {} bytes came out, {:016x}", came.len(), digest.value());
            }
            lines.push(line);
        }
        drop(_limit);
        lines.extend(going.world.finish());
        (lines, rescuer)
    });
    let (lines, rescuer) = lane.join();
    rescuer.end();
    drop(storm);
    lines
}

/// `RLIMIT_FSIZE` as long as it is there.
struct FileLimit(libc::rlimit);

impl FileLimit {
    fn set(bytes: u32) -> FileLimit {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: numbers that live until then.
        unsafe {
            libc::getrlimit(libc::RLIMIT_FSIZE, &mut before);
            let now = libc::rlimit { rlim_cur: u64::from(bytes), ..before };
            libc::setrlimit(libc::RLIMIT_FSIZE, &now);
        }
        FileLimit(before)
    }
}

impl Drop for FileLimit {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &self.0) };
    }
}
