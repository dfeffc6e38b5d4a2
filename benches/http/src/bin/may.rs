//! The answer by may_minihttp on may's coroutines, on one worker.

use std::io;
use std::net::TcpListener;

use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(&mut self, _: Request, response: &mut Response) -> io::Result<()> {
        response.header("Content-Type: text/plain");
        response.body("Hello, World!");
        Ok(())
    }
}

fn main() -> io::Result<()> {
    may::config().set_workers(1);
    // It takes an address, and does not say which port it got: so one is looked for first.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let server = HttpServer(Hello).start(address)?;
    println!("listening on {address}");
    let _ = server.join();
    Ok(())
}
