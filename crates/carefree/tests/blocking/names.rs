//! Looking up names.

use std::ffi::CStr;
use std::mem;
use std::net::ToSocketAddrs;
use std::process::Command;
use std::ptr;

use carefree::{run, scope, spawn};
use libc::addrinfo;

use crate::common::*;

#[test]
fn many_fibers_look_up_addresses() {
    run(|| {
        scope(|s| {
            for port in 1..200u16 {
                s.spawn(move || {
                    let name = if port % 2 == 0 { "localhost" } else { "127.0.0.1" };
                    let found: Vec<_> = (name, port).to_socket_addrs().unwrap().collect();
                    assert!(found.iter().any(|address| address.ip().is_loopback()), "{found:?}");
                    assert!(found.iter().all(|address| address.port() == port));
                });
            }
        });
    });
}

#[test]
fn what_cannot_be_found_is_an_error() {
    run(|| {
        // SAFETY: strings, hints, and a place for the answer.
        unsafe {
            let mut found: *mut addrinfo = ptr::null_mut();
            let mut hints: addrinfo = mem::zeroed();
            hints.ai_flags = libc::AI_NUMERICHOST;
            let failed = libc::getaddrinfo(c"no number".as_ptr(), ptr::null(), &hints, &mut found);
            assert_eq!(failed, libc::EAI_NONAME);
            let none = ptr::null();
            assert_eq!(libc::getaddrinfo(none, none, none.cast(), &mut found), libc::EAI_NONAME);
            hints.ai_flags = 0;
            hints.ai_family = 12345;
            let failed = libc::getaddrinfo(c"localhost".as_ptr(), none, &hints, &mut found);
            assert_eq!(failed, libc::EAI_FAMILY);
        }
    });
}

/// The caller was not cancelled: it should not be told so.
#[test]
fn a_lookup_without_memory_says_so() {
    const CHILD: &str = "CAREFREE_TEST_LOOKUP_WITHOUT_MEMORY";
    if std::env::var_os(CHILD).is_some() {
        let fiber = carefree::Builder::new().stack_size(64 << 10);
        let answer = fiber.spawn(|| {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            let used = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
            let limit = libc::rlimit { rlim_cur: used + (64 << 20), rlim_max: libc::RLIM_INFINITY };
            let mut found: *mut addrinfo = ptr::null_mut();
            // SAFETY: a limit; a string, no hints, and a place for the answer.
            unsafe {
                assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0);
                let mut look_up = || {
                    // Stacks that were promised before are used up, also those that another carrier gives back late.
                    while carefree::Builder::new().spawn(carefree::park).is_ok() {}
                    let none = ptr::null();
                    libc::getaddrinfo(c"localhost".as_ptr(), none, none.cast(), &mut found)
                };
                (0..100).map(|_| look_up()).find(|&answer| answer != 0)
            }
        });
        assert_eq!(answer.unwrap().join().unwrap(), Some(libc::EAI_MEMORY));
        return;
    }
    if carefree::platform().tls == carefree::TlsMode::Threads {
        return println!("skipped: no fiber is started where threads stand for them");
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "names::a_lookup_without_memory_says_so", "--test-threads=1"])
        .env(CHILD, "1")
        // A fiber of its own for the look-up takes more than is left.
        .env("CAREFREE_STACK", "1G")
        // What is left is for the program, and not for another carrier or another arena of malloc's.
        .env("CAREFREE_CARRIERS", "1")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_hints_count() {
    run(|| {
        // SAFETY: strings, hints, and a place for the answer; the list is read before it is freed.
        unsafe {
            let mut found: *mut addrinfo = ptr::null_mut();
            let mut hints: addrinfo = mem::zeroed();
            hints.ai_family = libc::AF_INET;
            hints.ai_socktype = libc::SOCK_DGRAM;
            hints.ai_flags = libc::AI_CANONNAME;
            let failed =
                libc::getaddrinfo(c"localhost".as_ptr(), c"123".as_ptr(), &hints, &mut found);
            assert_eq!(failed, 0);
            assert!(!(*found).ai_canonname.is_null());
            // There may be several lines for the name in `/etc/hosts`.
            let mut next = found;
            while !next.is_null() {
                assert_eq!((*next).ai_family, libc::AF_INET);
                assert_eq!((*next).ai_socktype, libc::SOCK_DGRAM);
                let address = &*(*next).ai_addr.cast::<libc::sockaddr_in>();
                assert_eq!(u16::from_be(address.sin_port), 123);
                next = (*next).ai_next;
            }

            let mut host = [0; 64];
            let named = libc::getnameinfo(
                (*found).ai_addr,
                (*found).ai_addrlen,
                host.as_mut_ptr(),
                host.len() as libc::socklen_t,
                ptr::null_mut(),
                0,
                0,
            );
            assert_eq!(named, 0);
            assert_ne!(host[0], 0);
            libc::freeaddrinfo(found);
        }
    });
}

#[test]
fn an_interrupted_lookup_says_why() {
    run(|| {
        let fiber = spawn(|| {
            carefree::sleep(LONG);
            let mut found = ptr::null_mut();
            // SAFETY: strings, hints, and a place for the answer.
            let failed = unsafe {
                libc::getaddrinfo(c"localhost".as_ptr(), ptr::null(), ptr::null(), &mut found)
            };
            (failed, errno())
        });
        fiber.cancel();
        assert_eq!(fiber.join().unwrap(), (libc::EAI_SYSTEM, libc::ECANCELED));
    });
}

#[test]
fn users_and_groups() {
    on_one_carrier(|| {
        // SAFETY: strings and places for the answers, which are read before the next call.
        unsafe {
            let root = libc::getpwuid(0);
            if root.is_null() {
                return eprintln!("skipped: there is no user 0");
            }
            let name = CStr::from_ptr((*root).pw_name).to_owned();
            let mut buffer = [0; 2048];
            let mut user: libc::passwd = mem::zeroed();
            let mut found = ptr::null_mut();
            let place = buffer.as_mut_ptr();
            let failed = libc::getpwnam_r(name.as_ptr(), &mut user, place, 2048, &mut found);
            assert_eq!((failed, user.pw_uid), (0, 0));
            assert!(ptr::eq(found, &user));
            let failed = libc::getpwnam_r(name.as_ptr(), &mut user, place, 1, &mut found);
            assert_eq!(failed, libc::ERANGE);
            assert!(libc::getgrnam(c"there is no such group".as_ptr()).is_null());
        }
    });
}
