//! What a client asks for: the head of an HTTP/1.x request, checked.

/// The longest head that is read, bytes. Clients send some hundred.
pub(crate) const HEAD_MOST: usize = 16 << 10;

/// The longest body that is read and thrown away, bytes. A GET has none as a rule.
const BODY_MOST: u64 = 1 << 20;

const FIELDS_MOST: usize = 100;

/// What to do with the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// There is no whole head yet.
    Partial,
    /// A request that can be answered.
    Request(Request),
    /// A request that gets an error, after which the connection is closed: where the next one
    /// would begin is not known.
    Refused(Refusal),
}

/// A request that can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The head's length, bytes.
    pub(crate) head: usize,
    /// The length of the body that follows it and is thrown away, bytes.
    pub(crate) body: u64,
    /// HEAD: everything but the body is wanted.
    pub(crate) head_only: bool,
    /// HTTP/1.1, in which an answer may come in chunks; 1.0 has none.
    pub(crate) chunks: bool,
    /// Whether the connection is to be kept for a further request.
    pub(crate) keep: bool,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    TooSlow,
    NotAllowed,
    LengthRequired,
    TooLarge,
    HeadTooLarge,
    UnknownMethod,
    UnknownVersion,
}

impl Refusal {
    /// The status line's code and words, as RFC 9110 has them.
    pub(crate) fn status(self) -> &'static str {
        match self {
            Refusal::Malformed => "400 Bad Request",
            Refusal::NotAllowed => "405 Method Not Allowed",
            Refusal::TooSlow => "408 Request Timeout",
            Refusal::LengthRequired => "411 Length Required",
            Refusal::TooLarge => "413 Content Too Large",
            Refusal::HeadTooLarge => "431 Request Header Fields Too Large",
            Refusal::UnknownMethod => "501 Not Implemented",
            Refusal::UnknownVersion => "505 HTTP Version Not Supported",
        }
    }
}

/// Reads the head of a request, if all of it is there.
pub(crate) fn parse(received: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MOST];
    let mut request = httparse::Request::new(&mut fields);
    let head = match request.parse(received) {
        Ok(httparse::Status::Complete(head)) if head <= HEAD_MOST => head,
        Ok(httparse::Status::Partial) if received.len() < HEAD_MOST => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused(Refusal::HeadTooLarge);
        }
        Err(httparse::Error::Version) => return Parsed::Refused(Refusal::UnknownVersion),
        Err(_) => return Parsed::Refused(Refusal::Malformed),
    };
    match judge(head, &request) {
        Ok(request) => Parsed::Request(request),
        Err(refusal) => Parsed::Refused(refusal),
    }
}

fn judge(head: usize, request: &httparse::Request<'_, '_>) -> Result<Request, Refusal> {
    let chunks = request.version == Some(1);
    let mut hosts = 0;
    let mut length = None;
    let (mut close, mut keep, mut expects) = (false, false, false);
    for field in request.headers.iter() {
        let value = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if field.name.eq_ignore_ascii_case("connection") {
            close |= has_token(value, "close");
            keep |= has_token(value, "keep-alive");
        } else if field.name.eq_ignore_ascii_case("expect") {
            expects = true;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            // RFC 9110, 15.5.12: a server may insist on a length.
            return Err(Refusal::LengthRequired);
        } else if field.name.eq_ignore_ascii_case("content-length") {
            let told = decimal(value).ok_or(Refusal::Malformed)?;
            if length.is_some_and(|known| known != told) {
                return Err(Refusal::Malformed);
            }
            length = Some(told);
        }
    }
    // RFC 9112, 3.2: one Host in HTTP/1.1, at most one in 1.0.
    if hosts > 1 || (chunks && hosts == 0) {
        return Err(Refusal::Malformed);
    }
    let head_only = match request.method.unwrap_or_default() {
        "GET" => false,
        "HEAD" => true,
        "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => {
            return Err(Refusal::NotAllowed);
        }
        _ => return Err(Refusal::UnknownMethod),
    };
    let body = length.unwrap_or(0);
    if body > BODY_MOST {
        return Err(Refusal::TooLarge);
    }
    // Whoever waits for "100 Continue" may send its body or not: only a new connection is sure to
    // begin with a request.
    let unsure = expects && body > 0;
    Ok(Request {
        head,
        body: if unsure { 0 } else { body },
        head_only,
        chunks,
        keep: !unsure && !close && (chunks || keep),
    })
}

fn has_token(list: &[u8], token: &str) -> bool {
    list.split(|&byte| byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Digits alone: a sign, which `parse` would take, is no length.
fn decimal(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
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

    fn refusal(text: &str) -> Refusal {
        match parse(text.as_bytes()) {
            Parsed::Refused(refusal) => refusal,
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
    fn version_1_0_needs_no_host_and_gets_no_chunks() {
        assert!(!request("GET / HTTP/1.0\r\n\r\n").chunks);
        assert!(request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").chunks);
        assert_eq!(refusal("GET / HTTP/1.1\r\n\r\n"), Refusal::Malformed);
        assert_eq!(refusal("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), Refusal::Malformed);
    }

    #[test]
    fn bodies_are_measured_or_refused() {
        let with = |field: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        assert_eq!(request(&with("Content-Length: 12")).body, 12);
        assert_eq!(request(&with("Content-Length: 12\r\nContent-Length: 12")).body, 12);
        let twice = with("Content-Length: 12\r\nContent-Length: 13");
        assert_eq!(refusal(&twice), Refusal::Malformed);
        assert_eq!(refusal(&with("Content-Length: +1")), Refusal::Malformed);
        assert_eq!(refusal(&with("Content-Length: 1048577")), Refusal::TooLarge);
        assert_eq!(refusal(&with("Transfer-Encoding: chunked")), Refusal::LengthRequired);
        let unsure = request(&with("Content-Length: 12\r\nExpect: 100-continue"));
        assert!(!unsure.keep && unsure.body == 0);
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        assert_eq!(refusal("\u{1}\u{2}\r\n\r\n"), Refusal::Malformed);
        assert_eq!(refusal("GET / HTTP/2.0\r\n\r\n"), Refusal::UnknownVersion);
        assert_eq!(refusal("POST / HTTP/1.1\r\nHost: a\r\n\r\n"), Refusal::NotAllowed);
        assert_eq!(refusal("FETCH / HTTP/1.1\r\nHost: a\r\n\r\n"), Refusal::UnknownMethod);
        assert!(request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").head_only);
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(HEAD_MOST));
        assert_eq!(refusal(&long), Refusal::HeadTooLarge);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(FIELDS_MOST + 1));
        assert_eq!(refusal(&many), Refusal::HeadTooLarge);
    }
}
