//! Hundreds of fibers share a few connections to PostgreSQL.
//!
//! ```text
//! cargo run --release --example pg_pool -- --database "host=/var/run/postgresql user=postgres"
//! ```
//!
//! The pool is r2d2, the client the postgres crate: blocking code, and here nothing blocks. On
//! threads it would look the same, with a thread for each client.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use postgres::NoTls;
use r2d2_postgres::PostgresConnectionManager;

type Pool = r2d2::Pool<PostgresConnectionManager<NoTls>>;

/// Asks a database from many fibers over a pool of connections.
#[derive(Debug, Parser)]
struct Args {
    /// Where the database is: `key=value` pairs, or a `postgresql://` URL.
    #[arg(long, value_name = "WHERE", default_value = "host=/var/run/postgresql user=postgres")]
    database: String,
    /// Fibers that ask.
    #[arg(long, default_value_t = 500)]
    fibers: usize,
    /// Questions that each asks.
    #[arg(long, default_value_t = 10)]
    queries: usize,
    /// Connections that they share.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match carefree::run(|| ask(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pg_pool: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(args: &Args) -> Result<(), String> {
    let config: postgres::Config =
        args.database.parse().map_err(|error| format!("--database: {}", chain(&error)))?;
    // The pool would retry for long, and its error says less.
    let mut client = config
        .connect(NoTls)
        .map_err(|error| format!("cannot connect to \"{}\": {}", args.database, chain(&error)))?;
    let version = client.query_one("show server_version", &[]).map_err(|error| chain(&error))?;
    let version: String = version.get(0);
    drop(client);
    let pool: Pool = r2d2::Pool::builder()
        .max_size(args.connections)
        .connection_timeout(Duration::from_secs(60))
        .build(PostgresConnectionManager::new(config, NoTls))
        .map_err(|error| chain(&error))?;
    let begun = Instant::now();
    let fibers: Vec<_> = (0..args.fibers)
        .map(|number| {
            let (pool, queries) = (pool.clone(), args.queries);
            carefree::spawn(move || one_fiber(&pool, number, queries))
        })
        .collect();
    let mut took = Vec::new();
    for fiber in fibers {
        took.extend(fiber.join().map_err(|_| "a fiber panicked")??);
    }
    let all = begun.elapsed();
    took.sort();
    let at = |hundredth: usize| took.get(took.len() * hundredth / 100).copied().unwrap_or_default();
    println!(
        "PostgreSQL {version}: {} queries by {} fibers over {} connections in {:.1?}: {:.0} a second",
        took.len(),
        args.fibers,
        args.connections,
        all,
        took.len() as f64 / all.as_secs_f64()
    );
    println!(
        "one took {:.1?} at the median, {:.1?} at 99 of 100, waiting for a connection included",
        at(50),
        at(99)
    );
    Ok(())
}

/// Asks again and again, with a connection of its own for each question; how long each took.
fn one_fiber(pool: &Pool, number: usize, queries: usize) -> Result<Vec<Duration>, String> {
    let number = number as i64;
    (0..queries)
        .map(|_| {
            let begun = Instant::now();
            let mut client = pool.get().map_err(|error| chain(&error))?;
            let row = client
                .query_one("select $1::int8 + 1", &[&number])
                .map_err(|error| chain(&error))?;
            match row.get::<_, i64>(0) {
                sum if sum == number + 1 => Ok(begun.elapsed()),
                other => Err(format!("the database says that {number} + 1 = {other}")),
            }
        })
        .collect()
}

/// An error in one line, with what caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text += ": ";
            text += &more;
        }
        cause = error.source();
    }
    text
}
