//! The resolver's settings of a fiber (`_res`), for the thread that makes its call.
//!
//! Each thread has a `struct __res_state`, and so has each fiber. `res_init` fills it in from `/etc/resolv.conf`, and a
//! program may change servers, options and times there before it asks.
//!
//! # A copy is put in force
//!
//! To that state belong sockets, memory and, by an index that only libc understands, a counted reference to what libc has
//! read of `/etc/resolv.conf`. So the state is not moved, and the fiber keeps its own. The thread gets a copy that has
//! none of these: no sockets, memory of its own for servers and names, and no index. libc takes such a state for one that
//! the program has changed, and follows it (`maybe_init` in glibc's `resolv_context.c`). `__res_nclose` frees what the
//! copy has, or libc has added to it, and drops no reference.
//!
//! A state that the program has *not* changed follows the file, even one that was written since. A copy would not; but
//! then none is needed, for the thread's own state follows it as well. So a copy is made only where the fiber's state
//! differs from a fresh one, after libc has brought it up to date.
//!
//! What is lost: connections that `RES_STAYOPEN` keeps, and the seventh and later names of a search list in the file where
//! the program has changed something else.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use libc::{sockaddr_in, sockaddr_in6};

const SERVERS: usize = 3;
const NAMES: usize = 6;
const SORTED: usize = 10;

const RES_INIT: c_ulong = 1;
const RES_STAYOPEN: c_ulong = 0x100;
/// `RES_F_VC` and `RES_F_CONN`.
const CONNECTED: c_uint = 3;

/// `struct __res_state` of 64-bit machines.
#[derive(Clone, Copy)]
#[repr(C)]
struct State {
    retrans: c_int,
    retry: c_int,
    options: c_ulong,
    servers: c_int,
    addresses: [sockaddr_in; SERVERS],
    id: u16,
    search: [*const c_char; NAMES + 1],
    domain: [c_char; 256],
    pfcode: c_ulong,
    /// Four bits of `ndots`, four of `nsort`, and `ipv6_unavail`.
    bits: u32,
    sorted: [[u32; 2]; SORTED],
    unused_hooks: [*mut c_void; 2],
    h_errno: c_int,
    connection: c_int,
    flags: c_uint,
    hole: u32,
    asked: u16,
    map: [u16; SERVERS],
    sockets: [c_int; SERVERS],
    six: u16,
    init: u16,
    longer: [*mut sockaddr_in6; SERVERS],
    index: u64,
}

const _: () = assert!(size_of::<State>() == 568 && mem::offset_of!(State, asked) == 512);

unsafe extern "C" {
    fn __res_state() -> *mut State;
    fn __res_ninit(state: *mut State) -> c_int;
    fn __res_nclose(state: *mut State);
}

/// The address of a server, where it has one.
#[derive(PartialEq)]
enum Server {
    Short(u16, u32),
    Long(u16, [u8; 16], u32),
    None,
}

impl State {
    fn servers(&self) -> usize {
        usize::try_from(self.servers).unwrap_or(0).min(SERVERS)
    }

    /// # Safety
    /// It is a state that libc would use.
    unsafe fn server(&self, index: usize) -> Server {
        let short = &self.addresses[index];
        if short.sin_family != 0 {
            return Server::Short(short.sin_port, short.sin_addr.s_addr);
        }
        // SAFETY: null, or the address that libc would ask.
        match unsafe { self.longer[index].as_ref() } {
            Some(long) => Server::Long(long.sin6_port, long.sin6_addr.s6_addr, long.sin6_scope_id),
            None => Server::None,
        }
    }

    /// # Safety
    /// It is a state that libc would use.
    unsafe fn names(&self) -> impl Iterator<Item = &CStr> {
        let names = self.search[..NAMES].iter().take_while(|name| !name.is_null());
        // SAFETY: strings that libc would read.
        names.map(|name| unsafe { CStr::from_ptr(*name) })
    }

    /// Whether both say the same of what to ask, and how.
    ///
    /// # Safety
    /// They are states that libc would use.
    unsafe fn is_like(&self, other: &State) -> bool {
        const COUNTS: u32 = 0xff;
        let plain = |state: &State| {
            (state.options, state.retrans, state.retry, state.bits & COUNTS, state.servers())
        };
        let sorted = ((self.bits >> 4 & 15) as usize).min(SORTED);
        plain(self) == plain(other)
            && self.sorted[..sorted] == other.sorted[..sorted]
            // SAFETY: as this function demands.
            && (0..self.servers()).all(|at| unsafe { self.server(at) == other.server(at) })
            // SAFETY: as this function demands.
            && unsafe { self.names().eq(other.names()) }
    }
}

/// Settings that the calling fiber has made.
pub(super) struct Settings {
    state: State,
    /// What `search` points to.
    _names: Vec<CString>,
}

// SAFETY: to have an address does no harm. What those of `Settings` lead to is its own.
unsafe impl Send for State {}

impl Settings {
    /// Those of the calling fiber, unless it has left them as they are. `refresh` makes a call that asks no server, at
    /// which libc looks whether `/etc/resolv.conf` has changed.
    #[inline]
    pub(super) fn of_caller(refresh: impl Fn()) -> Option<Settings> {
        // SAFETY: the caller's own.
        let own = unsafe { __res_state() };
        // SAFETY: as above.
        if unsafe { (*own).options } & RES_INIT == 0 {
            return None;
        }
        Settings::if_changed(own, &refresh)
    }

    #[cold]
    #[inline(never)]
    fn if_changed(own: *mut State, refresh: &dyn Fn()) -> Option<Settings> {
        // SAFETY: the caller's `errno`.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: the caller's own state, which is initialized; no call of the resolver's is under way on this fiber.
        let changed = unsafe {
            !is_fresh(&*own) && {
                refresh();
                !is_fresh(&*own)
            }
        };
        // SAFETY: as above.
        let settings = changed.then(|| unsafe { Settings::copy(&*own) });
        // SAFETY: the caller's `errno`.
        unsafe { *libc::__errno_location() = errno };
        settings
    }

    /// # Safety
    /// It is a state that libc would use.
    unsafe fn copy(own: &State) -> Settings {
        // SAFETY: as this function demands.
        let names: Vec<CString> = unsafe { own.names() }.map(CStr::to_owned).collect();
        let mut search = [ptr::null(); NAMES + 1];
        for (place, name) in search.iter_mut().zip(&names) {
            *place = name.as_ptr();
        }
        let mut longer = [ptr::null_mut::<sockaddr_in6>(); SERVERS];
        for (index, place) in longer.iter_mut().enumerate().take(own.servers()) {
            let from = own.longer[index];
            if own.addresses[index].sin_family == 0 && !from.is_null() {
                // SAFETY: an address that libc would ask is copied to new memory, unless there is none.
                unsafe {
                    *place = libc::malloc(size_of::<sockaddr_in6>()).cast();
                    if let Some(to) = place.as_mut() {
                        *to = *from;
                    }
                }
            }
        }
        let state = State {
            servers: own.servers() as c_int,
            options: own.options & !RES_STAYOPEN,
            flags: own.flags & !CONNECTED,
            connection: -1,
            asked: 0,
            sockets: [-1; SERVERS],
            search,
            longer,
            index: 0,
            ..*own
        };
        Settings { state, _names: names }
    }

    /// Calls `call` with these settings in force for the calling thread.
    pub(super) fn in_force<R>(&mut self, call: impl FnOnce() -> R) -> R {
        // SAFETY: the thread's own, which is in no call of the resolver's; and while it is in one, what this copy points
        // to stays.
        unsafe { ptr::swap(__res_state(), &raw mut self.state) };
        let result = call();
        // SAFETY: the thread is in no such call any more.
        unsafe { ptr::swap(__res_state(), &raw mut self.state) };
        result
    }

    /// Tells the calling fiber's own state of the error that a call has ended with.
    pub(super) fn tell_error(&self) {
        // SAFETY: the caller's own.
        unsafe { (*__res_state()).h_errno = self.state.h_errno };
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: its sockets and addresses are its own, and it has no index.
        unsafe { __res_nclose(&raw mut self.state) };
    }
}

/// Whether a state is as `res_init` would make it now.
///
/// # Safety
/// It is a state that libc would use.
unsafe fn is_fresh(own: &State) -> bool {
    let mut fresh = MaybeUninit::<State>::zeroed();
    // SAFETY: zeros are a state that was not initialized; and if it was, it is closed when it was compared.
    unsafe {
        if __res_ninit(fresh.as_mut_ptr()) != 0 {
            return false;
        }
        let is_like = own.is_like(fresh.assume_init_ref());
        __res_nclose(fresh.as_mut_ptr());
        is_like
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn __res_init() -> c_int;
    }

    /// What a test looks at of the calling thread's state.
    fn own() -> &'static mut State {
        // SAFETY: this thread's, which no other looks at.
        unsafe { &mut *__res_state() }
    }

    #[test]
    fn only_what_was_changed_is_copied() {
        let refreshes = std::cell::Cell::new(0);
        let settings = || Settings::of_caller(|| refreshes.set(refreshes.get() + 1));
        assert!(settings().is_none());
        // SAFETY: no preconditions.
        assert_eq!(unsafe { __res_init() }, 0);
        assert!(settings().is_none() && refreshes.get() == 0);
        own().retry += 1;
        own().search[0] = c"name.example".as_ptr();
        own().search[1] = ptr::null();
        own().addresses[0].sin_family = 0;
        // SAFETY: memory for an address; zeros are one.
        let place = unsafe { libc::calloc(1, size_of::<sockaddr_in6>()) }.cast::<sockaddr_in6>();
        // SAFETY: as above.
        unsafe { (*place).sin6_port = 53 };
        own().longer[0] = place;
        own().servers = 1;
        let mut settings = settings().unwrap();
        assert_eq!(refreshes.get(), 1);
        let asked = *own();
        let handle = std::thread::spawn(move || {
            let before = own().options;
            settings.in_force(|| {
                // SAFETY: states of libc's.
                assert!(unsafe { own().is_like(&asked) });
                assert!(own().longer[0] != asked.longer[0] && own().search[0] != asked.search[0]);
                own().h_errno = 4;
            });
            assert!(own().options == before && own().longer[0].is_null());
            settings
        });
        handle.join().unwrap().tell_error();
        assert_eq!(own().h_errno, 4);
        assert!(own().longer[0] == place && own().retry == asked.retry);
    }
}
