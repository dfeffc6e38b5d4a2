//! One server under load: started, warmed up, loaded by `wrk`, measured, ended.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use carefree_lab::plan::pin_command;

/// What a server did under load.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Requests answered a second.
    pub rate: f64,
    /// The server's processor time for one request.
    pub cpu: Duration,
    /// 99 of 100 requests were answered within this.
    pub p99: Duration,
}

/// Starts `server` on `core`, loads it from `other` for `time` over `connections`.
///
/// # Errors
/// When the server or `wrk` cannot be run, or say something unexpected.
pub fn measure(
    server: &mut Command,
    core: usize,
    other: usize,
    connections: usize,
    time: Duration,
) -> io::Result<Figures> {
    let server = Server::start(server, core)?;
    // Every connection once, and whatever compiles or grows on the way.
    wrk(&server.address, other, connections, Duration::from_secs(1))?;
    let before = server.cpu()?;
    let load = wrk(&server.address, other, connections, time)?;
    let used = server.cpu()?.saturating_sub(before);
    if load.requests == 0 {
        return Err(io::Error::other("not one request was answered"));
    }
    Ok(Figures {
        rate: load.requests as f64 / load.seconds,
        cpu: Duration::from_nanos(used.as_nanos() as u64 / load.requests),
        p99: load.p99,
    })
}

/// A server that runs; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(command: &mut Command, core: usize) -> io::Result<Server> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        pin_command(command, core);
        let mut process = command.spawn()?;
        let out = process.stdout.take().expect("it was piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on ").unwrap_or_default().to_owned();
        let server = Server { process, address };
        if server.address.is_empty() {
            return Err(io::Error::other(format!("it said {line:?}, not where it listens")));
        }
        Ok(server)
    }

    /// Processor time of all its threads so far, also of those that have ended: the kernel keeps
    /// it for the process, in hundredths of a second.
    fn cpu(&self) -> io::Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        ticks(&text)
            .map(|ticks| Duration::from_millis(10 * ticks))
            .ok_or_else(|| io::Error::other(format!("cannot read {text:?}")))
    }
}

/// User and system time in a process's `stat`: its 14th and 15th field. The second, its name, is in
/// parentheses and may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What `wrk` counted.
struct Load {
    requests: u64,
    seconds: f64,
    p99: Duration,
}

fn wrk(address: &str, core: usize, connections: usize, time: Duration) -> io::Result<Load> {
    let mut command = Command::new("wrk");
    command
        .args(["--threads", "1", "--latency", "--connections", &connections.to_string()])
        .args(["--duration", &format!("{}s", time.as_secs().max(1))])
        .arg(format!("http://{address}/"));
    pin_command(&mut command, core);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("wrk said {text:?} {said:?}"))
    })
}

fn parse(text: &str) -> Option<Load> {
    let after =
        |label: &str| text.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
    let line = text.lines().find(|line| line.contains("requests in"))?;
    let (requests, rest) = line.trim().split_once(" requests in ")?;
    let refused = text.contains("Non-2xx");
    Some(Load {
        requests: if refused { 0 } else { requests.parse().ok()? },
        seconds: span(rest.split(',').next()?)?.as_secs_f64(),
        p99: span(after("99%")?)?,
    })
}

/// A time as `wrk` writes it: `1.20ms`, `3.00s`.
fn span(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_user_and_system() {
        let stat = "4242 (a) b) S 1 4242 4242 0 -1 4194304 90 0 0 0 12 30 5 6 20 0 1 0 77 88 99";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("4242 (cut) S 1"), None);
    }

    #[test]
    fn what_wrk_says_is_understood() {
        let text = "Running 4s test @ http://127.0.0.1:1/\n  Latency Distribution\n     50%  559.00us\n     99%    1.20ms\n  54251 requests in 4.07s, 4.04MB read\nRequests/sec:  13329.48\n";
        let load = parse(text).unwrap();
        assert_eq!((load.requests, load.seconds), (54251, 4.07));
        assert_eq!(load.p99, Duration::from_micros(1200));
        assert!(parse("unable to connect").is_none());
        let refused = text.to_owned() + "  Non-2xx or 3xx responses: 5\n";
        assert_eq!(parse(&refused).unwrap().requests, 0);
    }
}
