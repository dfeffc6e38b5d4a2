//! A small HTTP server on fibers, plain or over TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree::JoinHandle;

/// A server that answers `GET /PATH` with `you asked for /PATH`, after a while.
pub(crate) struct HttpServer {
    address: SocketAddr,
    /// The number of connections accepted.
    pub(crate) connections: Arc<AtomicUsize>,
    accepting: Option<JoinHandle<()>>,
    /// Its certificate, which is self-signed.
    pub(crate) certificate: Option<rustls::pki_types::CertificateDer<'static>>,
}

impl HttpServer {
    pub(crate) fn plain(delay: Duration) -> HttpServer {
        HttpServer::start(None, delay)
    }

    pub(crate) fn over_tls(delay: Duration) -> HttpServer {
        let signed = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        let certificate = signed.cert.der().clone();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .unwrap();
        let mut server = HttpServer::start(Some(Arc::new(config)), delay);
        server.certificate = Some(certificate);
        server
    }

    fn start(tls: Option<Arc<rustls::ServerConfig>>, delay: Duration) -> HttpServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = connections.clone();
        let accepting = carefree::spawn(move || {
            // Until the fiber is cancelled.
            while let Ok((stream, _)) = listener.accept() {
                accepted.fetch_add(1, Ordering::Relaxed);
                let tls = tls.clone();
                carefree::spawn(move || {
                    // A client may close the connection at any time.
                    let _ = serve(stream, tls, delay);
                });
            }
        });
        HttpServer { address, connections, accepting: Some(accepting), certificate: None }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let port = self.address.port();
        match self.certificate {
            Some(_) => format!("https://localhost:{port}/{path}"),
            None => format!("http://127.0.0.1:{port}/{path}"),
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.cancel();
            let _ = accepting.join();
        }
    }
}

fn serve(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    delay: Duration,
) -> io::Result<()> {
    match tls {
        None => answer_all(stream, delay),
        Some(config) => {
            let connection = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
            answer_all(rustls::StreamOwned::new(connection, stream), delay)
        }
    }
}

fn answer_all(mut stream: impl Read + Write, delay: Duration) -> io::Result<()> {
    let mut input = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        while let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&input[..end]).into_owned();
            input.drain(..end + 4);
            let path = head.split(' ').nth(1).unwrap_or_default();
            carefree::sleep(delay);
            let text = format!("you asked for {path}");
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
            stream.flush()?;
        }
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => input.extend_from_slice(&buffer[..read]),
        }
    }
}
