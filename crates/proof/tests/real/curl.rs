//! libcurl: a C library that waits in `poll`, loaded when the test runs.

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use carefree::scope;
use libloading::Library;

use crate::kit::{http::HttpServer, many, on_a_fiber, skipped, together};

// From curl/curl.h, whose values are part of a stable interface.
const URL: c_int = 10_002;
const WRITE_DATA: c_int = 10_001;
const WRITE_FUNCTION: c_int = 20_011;
const TIMEOUT_MILLISECONDS: c_int = 155;
const NO_SIGNAL: c_int = 99;
const VERIFY_PEER: c_int = 64;
const RESPONSE_CODE: c_int = 0x20_0002;
const OPERATION_TIMED_OUT: c_int = 28;

type Easy = *mut c_void;

/// The easy interface.
struct Curl {
    init: unsafe extern "C" fn() -> Easy,
    setopt: unsafe extern "C" fn(Easy, c_int, ...) -> c_int,
    perform: unsafe extern "C" fn(Easy) -> c_int,
    getinfo: unsafe extern "C" fn(Easy, c_int, ...) -> c_int,
    cleanup: unsafe extern "C" fn(Easy),
    _library: Library,
}

impl Curl {
    fn load() -> Option<Arc<Curl>> {
        // SAFETY: libcurl's initialisers are sound, and these are the signatures of its header.
        unsafe {
            let Ok(library) = Library::new("libcurl.so.4") else {
                skipped("libcurl (libcurl4) is not installed");
                return None;
            };
            Some(Arc::new(Curl {
                init: *library.get(b"curl_easy_init\0").unwrap(),
                setopt: *library.get(b"curl_easy_setopt\0").unwrap(),
                perform: *library.get(b"curl_easy_perform\0").unwrap(),
                getinfo: *library.get(b"curl_easy_getinfo\0").unwrap(),
                cleanup: *library.get(b"curl_easy_cleanup\0").unwrap(),
                _library: library,
            }))
        }
    }

    /// Fetches `url`: its status and text, or curl's error code.
    fn get(&self, url: &str, limit: Duration) -> Result<(c_long, String), c_int> {
        unsafe extern "C" fn append(
            data: *const c_char,
            size: usize,
            count: usize,
            text: *mut c_void,
        ) -> usize {
            // SAFETY: curl passes the pointer that was set below, and a buffer of this length.
            unsafe {
                let text = &mut *text.cast::<Vec<u8>>();
                text.extend_from_slice(std::slice::from_raw_parts(data.cast(), size * count));
            }
            size * count
        }
        let url = CString::new(url).unwrap();
        let mut text = Vec::<u8>::new();
        let mut status: c_long = 0;
        // SAFETY: each option has a value of the type that it takes, which is alive until the cleanup.
        unsafe {
            let easy = (self.init)();
            assert!(!easy.is_null());
            let write: unsafe extern "C" fn(*const c_char, usize, usize, *mut c_void) -> usize =
                append;
            (self.setopt)(easy, URL, url.as_ptr());
            (self.setopt)(easy, WRITE_FUNCTION, write);
            (self.setopt)(easy, WRITE_DATA, &raw mut text);
            (self.setopt)(easy, NO_SIGNAL, 1 as c_long);
            (self.setopt)(easy, VERIFY_PEER, 0 as c_long);
            (self.setopt)(easy, TIMEOUT_MILLISECONDS, limit.as_millis() as c_long);
            let error = (self.perform)(easy);
            (self.getinfo)(easy, RESPONSE_CODE, &raw mut status);
            (self.cleanup)(easy);
            if error != 0 {
                return Err(error);
            }
        }
        Ok((status, String::from_utf8(text).unwrap()))
    }
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn transfers_wait_together_and_not_in_turn() {
    let Some(curl) = Curl::load() else { return };
    // On one carrier: if `poll` blocked it, the server could not answer.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let server = HttpServer::plain(Duration::from_millis(100));
        let fibers = many(100);
        together(Duration::from_millis(100) * fibers as u32, || {
            scope(|s| {
                for number in 0..fibers {
                    let (curl, server) = (&curl, &server);
                    s.spawn(move || {
                        let path = format!("curl/{number}");
                        let (status, text) = curl.get(&server.url(&path), LIMIT).unwrap();
                        assert_eq!((status, text), (200, format!("you asked for /{path}")));
                    });
                }
            });
        });
    });
}

#[test]
fn transfers_over_tls() {
    let Some(curl) = Curl::load() else { return };
    on_a_fiber(move || {
        let server = HttpServer::over_tls(Duration::from_millis(5));
        scope(|s| {
            for _ in 0..many(20) {
                s.spawn(|| assert_eq!(curl.get(&server.url("tls"), LIMIT).unwrap().0, 200));
            }
        });
    });
}

#[test]
fn curls_timeout_ends_a_transfer() {
    let Some(curl) = Curl::load() else { return };
    on_a_fiber(move || {
        let server = HttpServer::plain(Duration::from_secs(3600));
        let begun = Instant::now();
        let limit = Duration::from_millis(50);
        assert_eq!(curl.get(&server.url("slow"), limit), Err(OPERATION_TIMED_OUT));
        assert!(begun.elapsed() >= limit);
    });
}
