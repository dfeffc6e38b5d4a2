//! The fetch workload of docs/targets.md: GETs by reqwest, one after the other or by a task each.
//!
//! may has no client: those of other crates would block its threads.

use std::time::Instant;

use reqwest::header::CONNECTION;
use reqwest::Client;
use tokio::runtime::Runtime;

use crate::counting;
use crate::{Account, Orders, Round, Usage};

#[derive(Clone)]
struct Errand {
    client: Client,
    url: String,
    body: u64,
    keep_alive: bool,
}

impl Errand {
    async fn get(&self) -> Result<u64, String> {
        let mut request = self.client.get(&self.url);
        if !self.keep_alive {
            request = request.header(CONNECTION, "close");
        }
        let answer = request.send().await.map_err(|error| told(&error))?;
        let status = answer.status();
        let length = answer.bytes().await.map_err(|error| told(&error))?.len() as u64;
        if status != 200 || length != self.body {
            return Err(format!("{status} with {length} bytes, not 200 with {}", self.body));
        }
        Ok(length)
    }
}

/// An error and what led to it: reqwest's own line does not tell.
fn told(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", told(source)),
        None => error.to_string(),
    }
}

async fn fetch_all(errand: &Errand, count: u64, sequential: bool) -> Result<u64, String> {
    let mut received = 0;
    if sequential {
        for _ in 0..count {
            received += errand.get().await?;
        }
        return Ok(received);
    }
    let spawn = |_| {
        let errand = errand.clone();
        tokio::spawn(async move { errand.get().await })
    };
    let tasks: Vec<_> = (0..count).map(spawn).collect();
    for task in tasks {
        received += task.await.expect("no unit panics")?;
    }
    Ok(received)
}

pub fn take(orders: &Orders) -> Result<Account, String> {
    if orders.is_set("read_size")? {
        return Err("reqwest hands over what has come; it cannot be told how much to read".into());
    }
    let count = orders.number("units", 1)?;
    let sequential = orders.word("unit") == "sequential";
    let keep_alive = orders.is_set("keep_alive")?;
    let client = Client::builder().no_proxy().build().map_err(|error| told(&error))?;
    let errand = Errand {
        client,
        url: orders.word("url").to_owned(),
        body: orders.number("body", 0)?,
        keep_alive,
    };
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let (mut received, mut passes) = (0, 0);
    let mut pass = || {
        let start = Instant::now();
        received += runtime.block_on(fetch_all(&errand, count, sequential))?;
        passes += 1;
        Ok::<u128, String>(start.elapsed().as_nanos())
    };
    let mut account = Account::default();
    for _ in 0..orders.number("warmup", 0)? {
        let (rounds, ns) = account.warmup.unwrap_or_default();
        account.warmup = Some((rounds + 1, ns + pass()?));
    }
    orders.phase("base");
    let before = Usage::now();
    for _ in 0..orders.number("rounds", 1)? {
        account.rounds.push(Round { create_ns: 0, run_ns: pass()?, made: 0 });
    }
    account.usage = Usage::since(before);
    orders.phase("done");
    if orders.is_set("count")? {
        let (outcome, bytes, objects) = counting::count(pass);
        outcome?;
        account.figures.insert("bytes_allocated", bytes);
        account.figures.insert("objects_allocated", objects);
    }
    account.more.insert("requests", passes * count);
    account.more.insert("body_bytes", received);
    Ok(account)
}
