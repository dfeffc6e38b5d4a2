//! The backend of servers that ask one for each request: the lab's own, slow, and with an answer
//! that only the backend knows.

use std::io;
use std::time::Duration;

use crate::fetch::{Secret, Server, Settings, Tally};

/// How long a connection of the server's may say nothing. Longer than a sample takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// A backend that is running. It ends when this is dropped.
#[derive(Debug)]
pub struct Backend {
    server: Server,
    secret: Secret,
}

impl Backend {
    /// Starts a backend that answers this long after it was asked.
    ///
    /// # Errors
    /// When there is no port, descriptor or thread to be had.
    pub fn start(latency: Duration) -> io::Result<Backend> {
        let secret = Secret::default();
        let settings = Settings { latency, patience: PATIENCE, ..Settings::default() };
        let server = Server::start_with_secret(settings, secret.clone())?;
        Ok(Backend { server, secret })
    }

    /// Where it listens, without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// What it answers to a GET of this target, such as `/17`.
    pub fn answer_to(&self, target: &str) -> String {
        self.secret.answer_to(target)
    }

    /// What it has done so far.
    pub fn tally(&self) -> Tally {
        self.server.tally()
    }
}
