//! Processes with fibers in each: this program, run again for a share of the people each.
//!
//! They are started anew, for a process that runs fibers on threads cannot be forked. The time this
//! takes is in the figure, as it would be in any such program.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::meal::{Fed, How, Meal};
use crate::answer::{Failure, Round};
use crate::unit::{Unit, ns};

pub(super) fn serve(unit: Unit, meal: &Meal) -> Result<Fed, Failure> {
    let start = Instant::now();
    let mut children = Vec::new();
    for share in meal.shares() {
        let child = again(unit, &share)
            .and_then(|mut command| command.spawn())
            .map_err(|error| Failure::new(format!("a process could not be started: {error}")));
        match child {
            Ok(child) => children.push(child),
            Err(failure) => {
                children.iter_mut().for_each(give_up);
                return Err(failure);
            }
        }
    }
    let mut fed = Fed::default();
    for child in children {
        let output = child
            .wait_with_output()
            .map_err(|error| Failure::new(format!("a process was lost: {error}")))?;
        let (switches_made, eaten) = account(&output.stdout).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stdout);
            Failure::new(format!("a process did not say what it did, but: {}", said.trim()))
        })?;
        fed.switches_made += switches_made;
        fed.eaten += eaten;
    }
    fed.times = Round { create_ns: 0, run_ns: ns(start.elapsed()) };
    Ok(fed)
}

/// This program with the arguments before its orders, and orders for a share.
fn again(unit: Unit, share: &Meal) -> std::io::Result<Command> {
    let is_order = |argument: &std::ffi::OsString| argument.to_string_lossy().contains('=');
    let mut command = Command::new(env::current_exe()?);
    command
        .args(env::args_os().skip(1).take_while(|argument| !is_order(argument)))
        .args(["workload=feed".to_owned(), format!("unit={unit}"), format!("how={}", How::Units)])
        .args([format!("units={}", share.people), format!("nutrients={}", share.nutrients)])
        .arg(format!("yields={}", u8::from(share.yields)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Ends a process that is not needed any more; it may have ended by itself.
fn give_up(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The switches made and what was eaten, from a sample's line.
fn account(printed: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(printed).ok()?;
    let line: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
    let sample = line.get("sample")?;
    let eaten = sample.get("eaten")?.as_u64()?;
    Some((sample.get("switches_made")?.as_u64()?, eaten))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_line_is_understood_and_anything_else_is_not() {
        let line = br#"{"sample":{"switches_made":12,"eaten":90,"rounds":[]}}"#;
        assert_eq!(account(line), Some((12, 90)));
        assert_eq!(
            account(b"chatter\n{\"sample\":{\"switches_made\":1,\"eaten\":3}}\n"),
            Some((1, 3))
        );
        assert_eq!(account(b"{\"failure\":{\"message\":\"no\"}}"), None);
        assert_eq!(account(b""), None);
    }
}
