//! Our own program for `fetch`.

use std::time::Instant;

use super::client::{Client, Errand, Way};
use super::{SEQUENTIAL, allocations};
use crate::answer::{Account, Failure, Round};
use crate::own::Words;
use crate::unit::ns;

/// Takes a sample in this process.
pub(crate) fn take(words: Words<'_>) -> Result<Account, Failure> {
    let way = match words.need("unit")? {
        SEQUENTIAL => Way::Sequential,
        _ => Way::Each(words.unit()?),
    };
    let requests = words.number("units", 1)?;
    let read_size = words.number("read_size", 0)?;
    let client = Client::new(Errand {
        requests,
        url: words.need("url")?.to_owned(),
        body: words.number("body", 0)?,
        keep_alive: words.flag("keep_alive")?,
        read_size: usize::try_from(read_size).map_err(|_| {
            Failure::new(format!("read_size {read_size} is more than memory can hold"))
        })?,
    });
    let mut received = 0;
    let mut passes = 0;
    let mut pass = || -> Result<Round, Failure> {
        let start = Instant::now();
        received += client.fetch_all(way)?;
        passes += 1;
        Ok(Round { create_ns: 0, run_ns: ns(start.elapsed()) })
    };
    let warmup = words.warm_up(&mut pass)?;
    let mut account = Account { units: requests, warmup, ..Account::default() };
    words.phase("base")?;
    for _ in 0..words.number("rounds", 1)? {
        account.rounds.push(pass()?);
    }
    words.phase("done")?;
    if words.flag("count")? {
        let (outcome, counted) = allocations::count(pass);
        outcome?;
        if let Some(counted) = counted {
            // Far below 2^53, where a float is exact.
            account.figures.insert("bytes_allocated".into(), counted.bytes as f64);
            account.figures.insert("objects_allocated".into(), counted.objects as f64);
        }
    }
    account.more.insert("requests".into(), (requests * passes).into());
    account.more.insert("body_bytes".into(), received.into());
    Ok(account)
}
