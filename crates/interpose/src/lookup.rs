//! Looking up names: `getaddrinfo`, `gethostbyname`, `getpwnam` and their kin.
//!
//! libc asks servers and reads files for these by internal calls, which cannot be seen. So a thread that may
//! block makes them, and the fiber gets the `errno` and `h_errno` that they leave. Results in libc's own
//! memory are shared by the process, as ever; a program that needs them to last uses the forms whose names
//! end in `_r`.
//!
//! `getaddrinfo` of a fiber that is interrupted answers `EAI_SYSTEM` with the `errno` that says why; the
//! thread finishes later, and its result is dropped. The other calls are not cut short.
//!
//! The resolver's settings (`_res`) are those of the thread that makes the call.

#![allow(clippy::too_many_arguments, reason = "libc has such functions")]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ptr;

use carefree_runtime::{Builder, Cancelled, Interrupted, TimedOut};
use carefree_runtime::{offload, offload_unchecked};
use libc::{addrinfo, gid_t, sockaddr, socklen_t, uid_t};

use crate::call::answer::{interruption, set_errno};
use crate::call::user::User;

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

interpose! {
    /// `getaddrinfo(3)`.
    fn getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const addrinfo,
        found: *mut *mut addrinfo,
    ) -> c_int {
        // SAFETY: the caller's promise; the caller waits, or has what is used later copied.
        unsafe {
            if needs_no_lookup(node, service, hints) {
                return original(node, service, hints, found);
            }
            let question = Question::new(node, service, hints);
            match until_interrupted(move || question.ask()) {
                Ok((0, errno, answer)) => {
                    set_errno(errno);
                    found.write(answer.take());
                    0
                }
                Ok((failure, errno, _)) => {
                    set_errno(errno);
                    failure
                }
                Err(why) => {
                    set_errno(interruption(why));
                    libc::EAI_SYSTEM
                }
            }
        }
    }
}

interpose! {
    /// `getnameinfo(3)`.
    fn getnameinfo(
        address: *const sockaddr,
        length: socklen_t,
        host: *mut c_char,
        host_length: socklen_t,
        service: *mut c_char,
        service_length: socklen_t,
        flags: c_int,
    ) -> c_int {
        // SAFETY: the caller's promise, and the caller waits.
        unsafe {
            let numbers = libc::NI_NUMERICHOST | libc::NI_NUMERICSERV;
            if flags & numbers == numbers {
                return original(
                    address, length, host, host_length, service, service_length, flags,
                );
            }
            offload_unchecked(|| {
                original(address, length, host, host_length, service, service_length, flags)
            })
        }
    }
}

/// Whether a call of `getaddrinfo` asks no server and reads no file.
///
/// # Safety
/// As for `getaddrinfo`.
unsafe fn needs_no_lookup(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let flags = hints.as_ref().map_or(0, |hints| hints.ai_flags);
        let text = |text: *const c_char| (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes());
        let host = text(node).is_none_or(|name| {
            flags & libc::AI_NUMERICHOST != 0
                || std::str::from_utf8(name).is_ok_and(|name| name.parse::<IpAddr>().is_ok())
        });
        let port = text(service).is_none_or(|name| {
            flags & libc::AI_NUMERICSERV != 0 || name.iter().all(u8::is_ascii_digit)
        });
        host && port
    }
}

/// A copy of what `getaddrinfo` is asked, which may outlive the fiber's call.
struct Question {
    node: Option<CString>,
    service: Option<CString>,
    hints: Option<addrinfo>,
}

// SAFETY: the pointers in `hints` are null.
unsafe impl Send for Question {}

impl Question {
    /// # Safety
    /// As for `getaddrinfo`.
    unsafe fn new(node: *const c_char, service: *const c_char, hints: *const addrinfo) -> Question {
        let copy = |text: *const c_char| {
            // SAFETY: the caller's promise.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
        };
        // SAFETY: the caller's promise.
        let hints = unsafe { hints.as_ref() }.map(|hints| {
            // SAFETY: zeros and null pointers are hints.
            let mut copy: addrinfo = unsafe { MaybeUninit::zeroed().assume_init() };
            copy.ai_flags = hints.ai_flags;
            copy.ai_family = hints.ai_family;
            copy.ai_socktype = hints.ai_socktype;
            copy.ai_protocol = hints.ai_protocol;
            copy
        });
        Question { node: copy(node), service: copy(service), hints }
    }

    /// The result, `errno`, and the addresses.
    fn ask(self) -> (c_int, c_int, Addresses) {
        let text = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let mut found = Addresses(ptr::null_mut());
        let hints = self.hints.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: strings and hints that stay meanwhile, and a place for the answer.
        let failed = unsafe {
            getaddrinfo::original(text(&self.node), text(&self.service), hints, &raw mut found.0)
        };
        // SAFETY: the calling thread's own.
        (failed, unsafe { *libc::__errno_location() }, found)
    }
}

/// A list that `getaddrinfo` has made; freed unless it is taken.
struct Addresses(*mut addrinfo);

// SAFETY: a list in memory from `malloc`, which any thread may read and free.
unsafe impl Send for Addresses {}

impl Addresses {
    fn take(mut self) -> *mut addrinfo {
        std::mem::replace(&mut self.0, ptr::null_mut())
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: from `getaddrinfo`, and not taken.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

/// Has `f` run by a thread that may block, until the calling fiber is interrupted.
fn until_interrupted<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Interrupted> {
    carefree_runtime::interrupted()?;
    // Another fiber waits for the thread, and goes on waiting if this one is interrupted.
    let helper = Builder::new().name("looks up a name".into());
    // Without memory for a fiber, there is none for the result either.
    let Ok(helper) = helper.spawn(|| carefree_runtime::offload(f)) else {
        return Err(Interrupted::Cancelled);
    };
    helper.join().map_err(|payload| {
        if payload.is::<TimedOut>() {
            Interrupted::TimedOut
        } else if payload.is::<Cancelled>() {
            Interrupted::Cancelled
        } else {
            std::panic::resume_unwind(payload)
        }
    })
}

/// Defines functions that a thread of the pool runs.
macro_rules! elsewhere {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($name), "(3)`, on a thread that may block.")]
            safe fn $name($($argument: $type),*) -> $result {
                // SAFETY: the locations are those of the thread that makes the call, and of the fiber.
                unsafe {
                    let (result, h_errno) =
                        offload(|| (original($($argument),*), *__h_errno_location()));
                    *__h_errno_location() = h_errno;
                    result
                }
            }
        }
    )*};
}

/// A record that libc's headers describe, or room for one.
type Record = User<c_void>;
type Text = User<c_char>;

elsewhere! {
    gethostbyname(name: Text) -> Record;
    gethostbyname2(name: Text, family: c_int) -> Record;
    gethostbyaddr(address: User<c_void>, length: socklen_t, family: c_int) -> Record;
    gethostbyname_r(name: Text, host: Record, buffer: User<c_char>, length: usize,
        found: User<Record>, h_errno: User<c_int>) -> c_int;
    gethostbyname2_r(name: Text, family: c_int, host: Record, buffer: User<c_char>, length: usize,
        found: User<Record>, h_errno: User<c_int>) -> c_int;
    gethostbyaddr_r(address: User<c_void>, address_length: socklen_t, family: c_int, host: Record,
        buffer: User<c_char>, length: usize, found: User<Record>, h_errno: User<c_int>) -> c_int;

    getservbyname(name: Text, protocol: Text) -> Record;
    getservbyport(port: c_int, protocol: Text) -> Record;
    getservbyname_r(name: Text, protocol: Text, service: Record, buffer: User<c_char>,
        length: usize, found: User<Record>) -> c_int;
    getservbyport_r(port: c_int, protocol: Text, service: Record, buffer: User<c_char>,
        length: usize, found: User<Record>) -> c_int;
    getprotobyname(name: Text) -> Record;
    getprotobynumber(number: c_int) -> Record;
    getprotobyname_r(name: Text, protocol: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getprotobynumber_r(number: c_int, protocol: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getnetbyname(name: Text) -> Record;
    getnetbyaddr(network: u32, family: c_int) -> Record;

    getpwnam(name: Text) -> Record;
    getpwuid(user: uid_t) -> Record;
    getpwnam_r(name: Text, user: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getpwuid_r(user_id: uid_t, user: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getgrnam(name: Text) -> Record;
    getgrgid(group: gid_t) -> Record;
    getgrnam_r(name: Text, group: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getgrgid_r(group_id: gid_t, group: Record, buffer: User<c_char>, length: usize,
        found: User<Record>) -> c_int;
    getgrouplist(user: Text, group: gid_t, groups: User<gid_t>, count: User<c_int>) -> c_int;
    initgroups(user: Text, group: gid_t) -> c_int;

    res_query(name: Text, class: c_int, kind: c_int, answer: User<c_uchar>, length: c_int) -> c_int;
    res_search(name: Text, class: c_int, kind: c_int, answer: User<c_uchar>, length: c_int) -> c_int;
    res_nquery(state: Record, name: Text, class: c_int, kind: c_int, answer: User<c_uchar>,
        length: c_int) -> c_int;
    res_nsearch(state: Record, name: Text, class: c_int, kind: c_int, answer: User<c_uchar>,
        length: c_int) -> c_int;
    res_send(question: User<c_uchar>, question_length: c_int, answer: User<c_uchar>,
        length: c_int) -> c_int;
    res_nsend(state: Record, question: User<c_uchar>, question_length: c_int,
        answer: User<c_uchar>, length: c_int) -> c_int;
}
