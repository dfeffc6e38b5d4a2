//! The descriptors that a sequence has open.

use std::ffi::{CString, c_int};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::IntoRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::memory::Digest;
use crate::object::{Access, Family, Object, Place};
use crate::system::read_ready;

/// Bytes of the file system that is soon full.
pub(crate) const SMALL: u32 = 256 * 1024;
/// A number that no file has.
const NONE: c_int = 1_000_000;

static DIRECTORIES: OnceLock<Directories> = OnceLock::new();

#[derive(Debug)]
struct Directories {
    disk: PathBuf,
    memory: PathBuf,
    small: Option<PathBuf>,
}

/// Mounts a small file system that this process alone sees. Before the process has a second thread.
fn mount_small(at: &Path) -> io::Result<()> {
    let check = |done: c_int| if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: it asks for a number.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let space = if user == 0 { libc::CLONE_NEWNS } else { libc::CLONE_NEWNS | libc::CLONE_NEWUSER };
    // SAFETY: a call with numbers.
    check(unsafe { libc::unshare(space) })?;
    if user != 0 {
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    }
    let null = std::ptr::null();
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: C strings.
    check(unsafe { libc::mount(null, c"/".as_ptr(), null, private, null.cast()) })?;
    let target = CString::new(at.to_str().expect("a path of ours"))?;
    let options = CString::new(format!("size={SMALL}"))?;
    let (name, kind) = (c"carefree-fuzz".as_ptr(), c"tmpfs".as_ptr());
    // SAFETY: as above.
    check(unsafe { libc::mount(name, target.as_ptr(), kind, 0, options.as_ptr().cast()) })
}

/// Makes the directories that files are made in, beneath `disk`. Once a process, and before it has a
/// second thread. Whether there is a small file system.
pub(crate) fn prepare(disk: &Path) -> bool {
    let process = std::process::id();
    let own = disk.join(format!("{process}"));
    let small = own.join("small");
    std::fs::create_dir_all(&small).expect("a directory for files");
    let memory = PathBuf::from(format!("/dev/shm/carefree-fuzz-{process}"));
    let memory = match std::fs::create_dir_all(&memory) {
        Ok(()) => memory,
        Err(_) => own.clone(),
    };
    let mounted = mount_small(&small).is_ok();
    let small = mounted.then_some(small);
    DIRECTORIES.set(Directories { disk: own, memory, small }).expect("prepared once");
    mounted
}

/// Removes what [`prepare`] has made outside its directory.
pub(crate) fn clean() {
    if let Some(directories) = DIRECTORIES.get() {
        let _ = std::fs::remove_dir_all(&directories.memory);
    }
}

pub(crate) fn directory(place: Place) -> &'static Path {
    let directories = DIRECTORIES.get().expect("a worker has directories");
    match place {
        Place::Disk => &directories.disk,
        Place::Memory => &directories.memory,
        Place::Small => directories.small.as_ref().unwrap_or(&directories.memory),
    }
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    File,
    PipeReads,
    PipeWrites,
    Socket(Family),
    Listener,
    Event,
    Timer,
    Epoll,
    /// One that never waits.
    Other,
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) fd: c_int,
    pub(crate) what: What,
    /// The object's number: both ends of a pipe have the same.
    object: usize,
    end: u8,
}

/// The slots.
#[derive(Debug, Default)]
pub(crate) struct World {
    slots: Vec<Slot>,
    /// The files' paths, by object.
    paths: Vec<(usize, PathBuf)>,
    objects: usize,
}

fn checked(fd: c_int) -> c_int {
    assert!(fd >= 0, "cannot open: {}", io::Error::last_os_error());
    fd
}

fn mode(nonblocking: bool) -> c_int {
    if nonblocking { libc::O_NONBLOCK } else { 0 }
}

fn set_nonblocking(fd: c_int, on: bool) {
    if on {
        // SAFETY: calls with numbers.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
    }
}

pub(crate) fn open(path: &Path, flags: c_int) -> c_int {
    let path = CString::new(path.to_str().expect("a path of ours")).expect("no NUL");
    // SAFETY: a C string.
    checked(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) })
}

fn flags(access: Access) -> c_int {
    match access {
        Access::Read => libc::O_RDONLY,
        Access::Write => libc::O_WRONLY,
        Access::Both => libc::O_RDWR,
        Access::Append => libc::O_RDWR | libc::O_APPEND,
    }
}

/// Two connected sockets.
pub(crate) fn connected(family: Family) -> [c_int; 2] {
    let kind = match family {
        Family::Tcp => return connected_by_tcp().expect("TCP on loopback"),
        Family::Udp => return connected_by_udp().expect("UDP on loopback"),
        Family::Stream => libc::SOCK_STREAM,
        Family::Datagram => libc::SOCK_DGRAM,
        Family::Packet => libc::SOCK_SEQPACKET,
    };
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    let done =
        unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    checked(done);
    ends
}

fn connected_by_tcp() -> io::Result<[c_int; 2]> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok([one.into_raw_fd(), other.into_raw_fd()])
}

fn connected_by_udp() -> io::Result<[c_int; 2]> {
    let [one, other] = [0, 0].map(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)));
    let (one, other) = (one?, other?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok([one.into_raw_fd(), other.into_raw_fd()])
}

/// A pipe: the end that reads, and the one that writes.
pub(crate) fn pipe(flags: c_int) -> [c_int; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), flags | libc::O_CLOEXEC) });
    ends
}

impl World {
    pub(crate) fn new(objects: &[Object]) -> World {
        let mut world = World::default();
        for object in objects {
            world.open(*object);
        }
        if world.slots.is_empty() {
            world.add(What::Closed, NONE, 0);
        }
        world
    }

    fn add(&mut self, what: What, fd: c_int, end: u8) {
        self.slots.push(Slot { fd, what, object: self.objects, end });
    }

    fn open(&mut self, object: Object) {
        match object {
            Object::File { place, access, length, nonblocking } => {
                let path = directory(place).join(format!("file-{}", self.objects));
                let bytes: Vec<u8> = (0..length).map(|at| (at * 13 + at / 255) as u8).collect();
                // As much as there is room for.
                let _ = std::fs::write(&path, bytes);
                let fd = open(&path, flags(access) | mode(nonblocking));
                self.paths.push((self.objects, path));
                self.add(What::File, fd, 0);
            }
            Object::Again { access } => match self.paths.last() {
                Some((_, path)) => {
                    let fd = open(path, flags(access));
                    self.add(What::File, fd, 0);
                }
                None => self.add(What::Closed, NONE, 0),
            },
            Object::Pipe { nonblocking, packets, small } => {
                let packets = if packets { libc::O_DIRECT } else { 0 };
                let [reads, writes] = pipe(mode(nonblocking) | packets);
                if small {
                    // SAFETY: a call with numbers.
                    unsafe { libc::fcntl(writes, libc::F_SETPIPE_SZ, 4096) };
                }
                self.add(What::PipeReads, reads, 0);
                self.add(What::PipeWrites, writes, 1);
            }
            Object::Sockets { family, nonblocking } => {
                for (end, fd) in connected(family).into_iter().enumerate() {
                    set_nonblocking(fd, nonblocking);
                    self.add(What::Socket(family), fd, end as u8);
                }
            }
            Object::Listener { nonblocking } => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
                let fd = listener.into_raw_fd();
                set_nonblocking(fd, nonblocking);
                self.add(What::Listener, fd, 0);
            }
            Object::Event { value, semaphore, nonblocking } => {
                let kind = if semaphore { libc::EFD_SEMAPHORE } else { 0 };
                // SAFETY: a call with numbers.
                let fd = unsafe { libc::eventfd(value, kind | mode(nonblocking)) };
                self.add(What::Event, checked(fd), 0);
            }
            Object::Timer { fires, nonblocking } => {
                // SAFETY: a call with numbers.
                let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, mode(nonblocking)) };
                set_timer(checked(fd), fires);
                self.add(What::Timer, fd, 0);
            }
            Object::Epoll => {
                // SAFETY: a call with a number.
                let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
                self.add(What::Epoll, checked(fd), 0);
            }
            Object::Null => self.add(What::Other, open(Path::new("/dev/null"), libc::O_RDWR), 0),
            Object::Zero => self.add(What::Other, open(Path::new("/dev/zero"), libc::O_RDWR), 0),
            Object::Full => self.add(What::Other, open(Path::new("/dev/full"), libc::O_RDWR), 0),
            Object::Directory => {
                let fd = open(directory(Place::Disk), libc::O_RDONLY | libc::O_DIRECTORY);
                self.add(What::Other, fd, 0);
            }
            Object::Closed => self.add(What::Closed, NONE, 0),
        }
        self.objects += 1;
    }

    pub(crate) fn number(&self, slot: u8) -> usize {
        usize::from(slot) % self.slots.len()
    }

    pub(crate) fn slot(&self, slot: u8) -> Slot {
        self.slots[self.number(slot)]
    }

    pub(crate) fn fd(&self, slot: u8) -> c_int {
        self.slot(slot).fd
    }

    /// The other ends that are open of what `slot` is one end of.
    pub(crate) fn peer(&self, slot: Slot) -> Option<Slot> {
        let is_peer = |other: &&Slot| {
            other.object == slot.object && other.end != slot.end && other.what != What::Closed
        };
        self.slots.iter().find(is_peer).copied()
    }

    /// `slot` is closed now.
    pub(crate) fn closed(&mut self, slot: u8) {
        let number = self.number(slot);
        self.slots[number] = Slot { fd: NONE, what: What::Closed, object: usize::MAX, end: 0 };
    }

    /// `to` holds what `from` does, by the number `fd`. What was there, if it had another number, is
    /// closed first.
    pub(crate) fn copied(&mut self, from: u8, to: u8, fd: c_int) {
        let (from, to) = (self.number(from), self.number(to));
        if self.slots[to].fd != fd {
            self.close(to);
        }
        self.slots[to] = Slot { fd, ..self.slots[from] };
    }

    /// `to` holds an accepted connection.
    pub(crate) fn accepted(&mut self, to: u8, fd: c_int) {
        let to = self.number(to);
        self.close(to);
        let object = self.objects;
        self.objects += 1;
        self.slots[to] = Slot { fd, what: What::Socket(Family::Tcp), object, end: 0 };
    }

    fn close(&self, number: usize) {
        let slot = self.slots[number];
        if slot.what != What::Closed {
            // SAFETY: a number of ours.
            unsafe { libc::close(slot.fd) };
        }
    }

    /// What is left at the end: places, contents.
    pub(crate) fn finish(self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            match slot.what {
                What::File => {
                    // SAFETY: a call with numbers.
                    let place = unsafe { libc::lseek(slot.fd, 0, libc::SEEK_CUR) };
                    lines.push(format!("slot {number}: at {place}"));
                }
                What::PipeReads | What::Socket(_) | What::Event => {
                    let mut left = Vec::new();
                    read_ready(slot.fd, &mut left);
                    let mut digest = Digest::new();
                    digest.add(&left);
                    let (bytes, sum) = (left.len(), digest.value());
                    lines.push(format!("slot {number}: {bytes} bytes left, {sum:016x}"));
                }
                _ => {}
            }
        }
        for number in 0..self.slots.len() {
            self.close(number);
        }
        for (object, path) in &self.paths {
            let bytes = std::fs::read(path).unwrap_or_default();
            let mut digest = Digest::new();
            digest.add(&bytes);
            let (length, sum) = (bytes.len(), digest.value());
            lines.push(format!("file {object}: {length} bytes, {sum:016x}"));
            let _ = std::fs::remove_file(path);
        }
        lines
    }
}

/// Sets a timer to fire at once, or later than anything here waits.
pub(crate) fn set_timer(fd: c_int, fires: bool) -> c_int {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let value = libc::timespec { tv_sec: if fires { 0 } else { 1000 }, tv_nsec: 1 };
    let setting = libc::itimerspec { it_interval: zero, it_value: value };
    // SAFETY: it lives until the call returns.
    unsafe { libc::timerfd_settime(fd, 0, &setting, std::ptr::null_mut()) }
}
