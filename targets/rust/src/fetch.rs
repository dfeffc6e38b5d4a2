//! The fetch workload of docs/targets.md: GETs by reqwest, one after the other or by a task each;
//! or by ureq over may's sockets, by a coroutine each.

use std::time::Instant;

use reqwest::header::CONNECTION;
use tokio::runtime::Runtime;

use crate::counting;
use crate::may_client;
use crate::{Account, Orders, Round, Usage};

/// What to get, and how.
#[derive(Clone)]
pub struct Errand {
    pub url: String,
    /// The body each GET has to bring, bytes.
    pub body: u64,
    pub keep_alive: bool,
    /// Bytes to ask the client for at a time; 0: as it likes.
    pub read_size: usize,
}

impl Errand {
    /// Whether what came is what was to come.
    pub fn check(&self, status: impl std::fmt::Display, is_ok: bool, length: u64) -> Result<u64, String> {
        if is_ok && length == self.body {
            return Ok(length);
        }
        Err(format!("{status} with {length} bytes, not 200 with {}", self.body))
    }
}

/// tokio's tasks, and the client for them.
#[derive(Clone)]
struct Client {
    client: reqwest::Client,
    errand: Errand,
}

impl Client {
    async fn get(&self) -> Result<u64, String> {
        let mut request = self.client.get(&self.errand.url);
        if !self.errand.keep_alive {
            request = request.header(CONNECTION, "close");
        }
        let answer = request.send().await.map_err(|error| told(&error))?;
        let status = answer.status();
        let length = answer.bytes().await.map_err(|error| told(&error))?.len() as u64;
        self.errand.check(status, status == 200, length)
    }

    async fn fetch_all(&self, count: u64, sequential: bool) -> Result<u64, String> {
        let mut received = 0;
        if sequential {
            for _ in 0..count {
                received += self.get().await?;
            }
            return Ok(received);
        }
        let spawn = |_| {
            let client = self.clone();
            tokio::spawn(async move { client.get().await })
        };
        let tasks: Vec<_> = (0..count).map(spawn).collect();
        for task in tasks {
            received += task.await.expect("no unit panics")?;
        }
        Ok(received)
    }
}

/// An error and what led to it: reqwest's own line does not tell.
fn told(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", told(source)),
        None => error.to_string(),
    }
}

pub fn take(orders: &Orders) -> Result<Account, String> {
    let count = orders.number("units", 1)?;
    let errand = Errand {
        url: orders.word("url").to_owned(),
        body: orders.number("body", 0)?,
        keep_alive: orders.is_set("keep_alive")?,
        read_size: orders.number("read_size", 0)? as usize,
    };
    if orders.word("unit") == "may" {
        let client = may_client::Client::new(errand, count);
        return take_rounds(orders, || client.fetch_all(count));
    }
    if errand.read_size > 0 {
        return Err("reqwest hands over what has come; it cannot be told how much to read".into());
    }
    let sequential = orders.word("unit") == "sequential";
    let client = reqwest::Client::builder().no_proxy().build().map_err(|error| told(&error))?;
    let client = Client { client, errand };
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    take_rounds(orders, || runtime.block_on(client.fetch_all(count, sequential)))
}

fn take_rounds(
    orders: &Orders,
    mut fetch_all: impl FnMut() -> Result<u64, String>,
) -> Result<Account, String> {
    let (mut received, mut passes) = (0, 0);
    let mut pass = || {
        let start = Instant::now();
        received += fetch_all()?;
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
        let (outcome, counted) = counting::count(pass);
        outcome?;
        if let Some(counted) = counted {
            account.figures.insert("bytes_allocated", counted.bytes);
            account.figures.insert("objects_allocated", counted.objects);
        }
    }
    account.more.insert("requests", passes * orders.number("units", 1)?);
    account.more.insert("body_bytes", received);
    Ok(account)
}
