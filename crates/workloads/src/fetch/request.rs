//! The head of a request: a GET by HTTP/1.0 or 1.1, which is all that the workload's clients send.

/// The longest head that is read, bytes. Clients send some hundred.
pub(crate) const HEAD_MOST: usize = 16 << 10;

/// Fields in a head. Clients send some ten; and the list lies on the stack.
const FIELDS_MOST: usize = 32;

/// What the bytes received so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The head has not ended yet.
    Partial,
    Request(Request),
    /// Anything else. The connection is closed after the error: where the next request would begin
    /// is not known.
    Refused,
}

/// A request that can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The head's length, bytes.
    pub(crate) head: usize,
    /// HTTP/1.1, in which an answer may come in chunks; 1.0 has none.
    pub(crate) chunks: bool,
    /// Whether the connection is to be kept for a further request.
    pub(crate) keep: bool,
}

/// Reads the head of a request, if all of it is there.
pub(crate) fn parse(received: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MOST];
    let mut request = httparse::Request::new(&mut fields);
    let request = match request.parse(received) {
        Ok(httparse::Status::Partial) if received.len() < HEAD_MOST => return Parsed::Partial,
        Ok(httparse::Status::Complete(head)) => judge(head, &request),
        _ => None,
    };
    request.map_or(Parsed::Refused, Parsed::Request)
}

fn judge(head: usize, request: &httparse::Request<'_, '_>) -> Option<Request> {
    let chunks = request.version == Some(1);
    let (mut close, mut keep, mut body, mut hosts) = (false, false, false, 0);
    for field in request.headers.iter() {
        let value = field.value.trim_ascii();
        match field.name.to_ascii_lowercase().as_str() {
            "connection" => {
                close |= has_token(value, "close");
                keep |= has_token(value, "keep-alive");
            }
            "content-length" => body |= value != b"0",
            "transfer-encoding" => body = true,
            "host" => hosts += 1,
            _ => {}
        }
    }
    // RFC 9112, 3.2: one Host in HTTP/1.1, at most one in 1.0.
    let host = hosts == 1 || hosts == 0 && !chunks;
    let get = request.method == Some("GET") && !body && host;
    get.then_some(Request { head, chunks, keep: !close && (chunks || keep) })
}

fn has_token(list: &[u8], token: &str) -> bool {
    list.split(|&byte| byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Request(request) => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_head_is_awaited_to_its_end_and_what_follows_is_left() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..end]), Parsed::Partial, "{end}");
        }
        assert_eq!(request(&format!("{text}GET /next")).head, text.len());
    }

    #[test]
    fn connections_are_kept_as_the_version_and_the_client_say() {
        let kept = |version: &str, field: &str| {
            request(&format!("GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n")).keep
        };
        assert!(kept("1.1", ""));
        assert!(kept("1.1", "Connection: keep-alive\r\n"));
        assert!(!kept("1.1", "Connection: close\r\n"));
        assert!(!kept("1.1", "connection: Upgrade , CLOSE\r\n"));
        assert!(!kept("1.0", ""));
        assert!(kept("1.0", "Connection: Keep-Alive\r\n"));
        assert!(!kept("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
    }

    #[test]
    fn anything_but_a_get_without_a_body_is_refused() {
        let with = |field: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        assert!(request(&with("Content-Length: 0")).chunks);
        for text in [
            with("Content-Length: 12"),
            with("Transfer-Encoding: chunked"),
            with(&"X: 1\r\n".repeat(FIELDS_MOST + 1)),
            with(&format!("X: {}", "x".repeat(HEAD_MOST))),
            with("Host: b"),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "\u{1}\u{2}\r\n\r\n".to_owned(),
            "GET / HTTP/2.0\r\n\r\n".to_owned(),
            "POST / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        ] {
            let start = &text[..text.len().min(60)];
            assert_eq!(
                parse(&text.as_bytes()[..text.len().min(HEAD_MOST)]),
                Parsed::Refused,
                "{start}"
            );
        }
    }
}
