//! The server of the `fetch` workload by itself, to try a target's program by hand:
//!
//! ```text
//! $ cargo run -p carefree-workloads --example fetch_server -- 20 1024 chunked
//! http://127.0.0.1:41023/
//! ```
//!
//! Latency in milliseconds, bytes of the body, `fixed` or `chunked`. It serves until its standard
//! input ends, and then tells what it did.

use std::io::{self, Read};
use std::time::Duration;

use carefree_workloads::fetch::{Encoding, Server, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut settings = Settings::default();
    if let Some(latency) = arguments.first() {
        settings.latency = Duration::from_millis(latency.parse()?);
    }
    if let Some(body) = arguments.get(1) {
        settings.body = body.parse()?;
    }
    if let Some(encoding) = arguments.get(2) {
        settings.encoding = encoding.parse::<Encoding>()?;
    }
    let server = Server::start(settings)?;
    println!("{}", server.url());
    io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:?}", server.stop());
    Ok(())
}
