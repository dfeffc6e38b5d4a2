//! A chat over TCP: two fibers for each connection, one that reads and one that writes.
//!
//! ```text
//! cargo run --release --example chat_server
//! nc 127.0.0.1 7000        # in as many terminals as you like
//! ```
//!
//! It is written as for threads, with the locks, channels and streams of `std`: with
//! `std::thread::spawn` in place of `carefree::spawn` it runs on threads.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Parser;

/// Passes each line to all other connections. Stop it with Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    listen: SocketAddr,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let listener = match TcpListener::bind(args.listen) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("chat_server: cannot listen on {}: {error}", args.listen);
            return ExitCode::FAILURE;
        }
    };
    match listener.local_addr() {
        Ok(address) => println!("listening on {address}"),
        Err(error) => eprintln!("chat_server: {error}"),
    }
    carefree::run(|| {
        let room = Arc::new(Room::default());
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let room = room.clone();
                    carefree::spawn(move || {
                        // A broken connection counts as having left.
                        let _ = take_part(stream, &room);
                    });
                }
                Err(error) => {
                    eprintln!("chat_server: a connection was turned away: {error}");
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
    })
}

/// Longer lines are cut into several.
const LINE_MAX: u64 = 1000;
/// Messages that wait for a slow reader; one that falls further behind misses some.
const BEHIND: usize = 100;

/// Serves one connection from its first line to its last.
fn take_part(stream: TcpStream, room: &Room) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    writer.write_all(b"What is your name? ")?;
    let Some(name) = line(&mut lines)? else { return Ok(()) };
    let (send, receive) = mpsc::sync_channel::<Arc<str>>(BEHIND);
    if let Err(why) = room.enter(&name, send) {
        return writeln!(writer, "{why}");
    }
    // It ends when the connection is closed, or when the room has dropped the sender.
    carefree::spawn(move || -> io::Result<()> {
        for text in receive {
            writer.write_all(text.as_bytes())?;
        }
        Ok(())
    });
    let talked = talk(&mut lines, &name, room);
    room.leave(&name);
    room.tell_others(&name, &format!("* {name} has left\n"));
    talked
}

fn talk(lines: &mut impl BufRead, name: &str, room: &Room) -> io::Result<()> {
    while let Some(text) = line(lines)? {
        if !text.is_empty() {
            room.tell_others(name, &format!("{name}: {text}\n"));
        }
    }
    Ok(())
}

/// The next line without its end; none at the end.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    match from.take(LINE_MAX).read_until(b'\n', &mut bytes)? {
        0 => Ok(None),
        _ => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
    }
}

/// The names of all who are here, each with the channel for messages to it.
#[derive(Default)]
struct Room {
    here: Mutex<HashMap<String, SyncSender<Arc<str>>>>,
}

impl Room {
    /// Adds a name; tells it which others are here, and tells them. All at once: one that enters next
    /// hears only of what comes after.
    fn enter(&self, name: &str, sender: SyncSender<Arc<str>>) -> Result<(), &'static str> {
        if name.is_empty() {
            return Err("Please give a name.");
        }
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        if here.contains_key(name) {
            return Err("That name is taken.");
        }
        let mut others: Vec<&str> = here.keys().map(String::as_str).collect();
        others.sort();
        let others = if others.is_empty() { "you alone".to_owned() } else { others.join(", ") };
        let _ = sender.try_send(format!("here are {others}\n").into());
        send_to(here.values(), &format!("* {name} is here\n"));
        here.insert(name.to_owned(), sender);
        Ok(())
    }

    fn leave(&self, name: &str) {
        self.here.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn tell_others(&self, name: &str, text: &str) {
        let here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        send_to(here.iter().filter(|(other, _)| *other != name).map(|(_, sender)| sender), text);
    }
}

fn send_to<'a>(senders: impl Iterator<Item = &'a SyncSender<Arc<str>>>, text: &str) {
    let text: Arc<str> = text.into();
    for sender in senders {
        // Full: a connection that does not read misses it.
        let _ = sender.try_send(text.clone());
    }
}
