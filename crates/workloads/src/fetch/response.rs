//! What the server answers.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::time::SystemTime;

use super::request::Request;
use crate::named;

/// The longest chunk, bytes. Small, so that a body of the default size comes in more than one and
/// a client that takes the first chunk for the whole is found out.
const CHUNK_MOST: usize = 512;

named! {
    /// How a body's end is known.
    #[derive(Default)]
    pub enum Encoding as "encoding" {
        /// Its length stands in the head.
        #[default]
        Fixed = "fixed",
        /// It comes in chunks, each with its length.
        Chunked = "chunked",
    }
}

/// A body, ready to be sent in either form.
#[derive(Debug)]
pub(crate) struct Body {
    encoding: Encoding,
    plain: Vec<u8>,
    chunked: Vec<u8>,
}

impl Body {
    pub(crate) fn new(length: usize, encoding: Encoding) -> Body {
        let plain: Vec<u8> = (b'a'..=b'z').cycle().take(length).collect();
        let mut chunked = Vec::new();
        if encoding == Encoding::Chunked {
            for chunk in plain.chunks(CHUNK_MOST) {
                // Writing to memory cannot fail.
                let _ = write!(chunked, "{:x}\r\n", chunk.len());
                chunked.extend_from_slice(chunk);
                chunked.extend_from_slice(b"\r\n");
            }
            chunked.extend_from_slice(b"0\r\n\r\n");
        }
        Body { encoding, plain, chunked }
    }

    /// A whole answer. It is sent by one write, so that head and body share their packets.
    pub(crate) fn answer(&self, request: &Request) -> Vec<u8> {
        match self.encoding == Encoding::Chunked && request.chunks {
            true => whole(request, None, &self.chunked),
            false => whole(request, Some(self.plain.len()), &self.plain),
        }
    }
}

/// An answer with a body that comes as it is, if its length is told, or in chunks.
fn whole(request: &Request, length: Option<usize>, body: &[u8]) -> Vec<u8> {
    let mut answer = Vec::with_capacity(body.len() + 256);
    start(&mut answer, "200 OK");
    let _ = match length {
        None => write!(answer, "Transfer-Encoding: chunked\r\n"),
        Some(length) => write!(answer, "Content-Length: {length}\r\n"),
    };
    let _ = write!(answer, "Content-Type: text/plain\r\n");
    if !request.keep {
        let _ = write!(answer, "Connection: close\r\n");
    } else if !request.chunks {
        // A client of HTTP/1.0 has to be told.
        let _ = write!(answer, "Connection: keep-alive\r\n");
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    answer
}

/// Makes an answer to each target that cannot be known without asking for it.
#[derive(Clone, Debug, Default)]
pub struct Secret(RandomState);

impl Secret {
    /// The answer's body: `carefree /17 9f3c51d2a4e8b706`, and the end of a line.
    pub fn answer_to(&self, target: &str) -> String {
        format!("carefree {target} {:016x}\n", self.0.hash_one(target))
    }
}

/// What a server answers with.
#[derive(Debug)]
pub(crate) enum Content {
    /// The same to every request.
    Same(Body),
    /// To each target its own.
    Own(Secret),
}

impl Content {
    /// A whole answer to a request of this target, and the length of its body.
    pub(crate) fn answer(&self, request: &Request, target: &str) -> (Vec<u8>, usize) {
        match self {
            Content::Same(body) => (body.answer(request), body.plain.len()),
            Content::Own(secret) => {
                let body = secret.answer_to(target);
                (whole(request, Some(body.len()), body.as_bytes()), body.len())
            }
        }
    }
}

/// The answer to anything that is no request of the workload's.
pub(crate) fn refuse() -> Vec<u8> {
    let mut answer = Vec::with_capacity(256);
    start(&mut answer, "400 Bad Request");
    answer.extend_from_slice(b"Content-Length: 0\r\nConnection: close\r\n\r\n");
    answer
}

fn start(answer: &mut Vec<u8>, status: &str) {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let _ = write!(answer, "HTTP/1.1 {status}\r\nDate: {date}\r\nServer: carefree-lab\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Request = Request { head: 0, chunks: true, keep: true };

    fn parts(answer: &[u8]) -> (String, Vec<u8>) {
        let text = String::from_utf8_lossy(answer);
        let at = text.find("\r\n\r\n").expect("an end of the head") + 4;
        (text[..at].to_owned(), answer[at..].to_vec())
    }

    #[test]
    fn a_fixed_body_has_its_length() {
        let (head, body) = parts(&Body::new(30, Encoding::Fixed).answer(&KEPT));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nDate: "), "{head}");
        assert!(head.contains("Content-Length: 30\r\n") && !head.contains("chunked"), "{head}");
        assert_eq!(body, b"abcdefghijklmnopqrstuvwxyzabcd");
    }

    #[test]
    fn chunks_add_up_and_end() {
        let (head, body) = parts(&Body::new(1_025, Encoding::Chunked).answer(&KEPT));
        assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("Content-Length"), "never both: {head}");
        let (mut rest, mut lengths) = (body.as_slice(), Vec::new());
        loop {
            let line = rest.iter().position(|&byte| byte == b'\r').expect("a length");
            let digits = std::str::from_utf8(&rest[..line]).expect("digits");
            let length = usize::from_str_radix(digits, 16).expect("a length");
            assert_eq!(&rest[line + 2 + length..line + 4 + length], b"\r\n");
            rest = &rest[line + 4 + length..];
            lengths.push(length);
            if length == 0 {
                break;
            }
        }
        assert_eq!((lengths, rest), (vec![512, 512, 1, 0], &b""[..]));
        let (_, empty) = parts(&Body::new(0, Encoding::Chunked).answer(&KEPT));
        assert_eq!(empty, b"0\r\n\r\n");
    }

    #[test]
    fn a_client_of_1_0_gets_no_chunks_and_is_told_that_the_connection_is_kept() {
        let old = Request { chunks: false, ..KEPT };
        let (head, body) = parts(&Body::new(3, Encoding::Chunked).answer(&old));
        assert!(head.contains("Content-Length: 3\r\n"), "{head}");
        assert!(head.contains("Connection: keep-alive\r\n"), "{head}");
        assert_eq!(body, b"abc");
        let last = Request { keep: false, ..KEPT };
        assert!(
            parts(&Body::new(3, Encoding::Fixed).answer(&last)).0.contains("Connection: close")
        );
    }
}
