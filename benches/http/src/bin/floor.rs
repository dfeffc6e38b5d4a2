//! The floor: an epoll loop that parses nothing and gives every request the same answer, written
//! out beforehand. No server that calls `epoll_wait`, receives and sends can take less processor
//! time; the difference to the floor is what a server itself does.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\
    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nHello, World!";

/// Stands for the listener, in an event.
const LISTENER: u64 = u64::MAX;

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    // SAFETY: calls with numbers.
    let epoll = unsafe {
        libc::listen(listener.as_raw_fd(), 4096);
        libc::epoll_create1(libc::EPOLL_CLOEXEC)
    };
    watch(epoll, listener.as_raw_fd(), LISTENER);
    println!("listening on {}", listener.local_addr()?);

    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1024];
    let mut buffer = [0; 4096];
    loop {
        // SAFETY: there is room for so many events.
        let ready =
            unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), events.len() as i32, -1) };
        for event in &events[..usize::try_from(ready).unwrap_or(0)] {
            if event.u64 == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    let number = stream.as_raw_fd();
                    connections.resize_with(connections.len().max(number as usize + 1), || None);
                    watch(epoll, number, number as u64);
                    connections[number as usize] = Some(stream);
                }
                continue;
            }
            let slot = &mut connections[event.u64 as usize];
            let Some(stream) = slot else { continue };
            let open = match stream.read(&mut buffer) {
                Ok(0) => false,
                Ok(_) => stream.write_all(ANSWER).is_ok(),
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            };
            if !open {
                *slot = None;
            }
        }
    }
}

/// Has `epoll` report under `token` what comes to `fd`.
fn watch(epoll: i32, fd: i32, token: u64) {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
    // SAFETY: the event is valid to read.
    unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
}
