//! ureq with rustls: HTTP clients on fibers, against servers on fibers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use carefree::scope;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::kit::{http::HttpServer, many, on_a_fiber, together};

/// A client that trusts the server's certificate.
fn client(server: &HttpServer) -> Agent {
    let certificate = server.certificate.as_ref().unwrap();
    let root = Certificate::from_der(certificate).to_owned();
    let tls = TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(vec![root]))).build();
    Agent::config_builder().tls_config(tls).build().new_agent()
}

fn get(agent: &Agent, url: &str) -> Result<String, ureq::Error> {
    agent.get(url).call()?.body_mut().read_to_string()
}

#[test]
fn hundreds_of_fibers_fetch_over_tls() {
    on_a_fiber(|| {
        let server = HttpServer::over_tls(Duration::from_millis(5));
        let agent = client(&server);
        scope(|s| {
            for number in 0..many(100) {
                let (server, agent) = (&server, &agent);
                s.spawn(move || {
                    for round in 0..2 {
                        let path = format!("{number}/{round}");
                        let text = get(agent, &server.url(&path)).unwrap();
                        assert_eq!(text, format!("you asked for /{path}"));
                    }
                });
            }
        });
    });
}

#[test]
fn a_kept_connection_is_used_again() {
    on_a_fiber(|| {
        let server = HttpServer::over_tls(Duration::ZERO);
        let agent = client(&server);
        for _ in 0..20 {
            get(&agent, &server.url("again")).unwrap();
        }
        assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn an_unknown_certificate_is_refused() {
    on_a_fiber(|| {
        let server = HttpServer::over_tls(Duration::ZERO);
        assert!(get(&Agent::new_with_defaults(), &server.url("")).is_err());
    });
}

#[test]
fn requests_wait_together_and_not_in_turn() {
    // On one carrier: a waiting fiber must not keep the others from running.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let server = HttpServer::plain(Duration::from_millis(100));
        let agent = Agent::new_with_defaults();
        let fibers = many(200);
        // One after the other they would take five seconds in a forced mode, and twenty otherwise.
        together(Duration::from_millis(100) * fibers as u32, || {
            scope(|s| {
                for _ in 0..fibers {
                    s.spawn(|| get(&agent, &server.url("slow")).unwrap());
                }
            });
        });
    });
}

#[test]
fn a_timeout_ends_a_request() {
    on_a_fiber(|| {
        let server = HttpServer::plain(Duration::from_secs(3600));
        // ureq's own limit …
        let limit = Some(Duration::from_millis(30));
        let agent = Agent::config_builder().timeout_global(limit).build().new_agent();
        assert!(matches!(get(&agent, &server.url("")), Err(ureq::Error::Timeout(_))));
        // … and one by `carefree::timeout`, which is an error of the socket to ureq.
        let agent = Agent::new_with_defaults();
        let mut result = None;
        let limited = carefree::timeout(Duration::from_millis(30), || {
            result = Some(get(&agent, &server.url("")));
        });
        assert!(limited.is_err() && result.unwrap().is_err());
    });
}

#[test]
fn cancellation_ends_a_request() {
    on_a_fiber(|| {
        let server = HttpServer::plain(Duration::from_secs(3600));
        let url = server.url("");
        let fetching = carefree::spawn(move || get(&Agent::new_with_defaults(), &url).is_err());
        carefree::sleep(Duration::from_millis(20));
        fetching.cancel();
        assert!(fetching.join().unwrap());
    });
}
