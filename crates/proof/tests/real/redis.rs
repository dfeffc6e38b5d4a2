//! The redis crate against a redis-server started by the test.

use std::process::Command;
use std::time::{Duration, Instant};

use carefree::{scope, spawn};
use redis::{Client, Commands, Connection};

use crate::kit::{folder::Server, many, on_a_fiber, skipped, until};

/// A server on a Unix socket.
struct Redis {
    server: Server,
    client: Client,
}

impl Redis {
    fn start() -> Option<Redis> {
        if Command::new("redis-server").arg("--version").output().is_err() {
            skipped("redis-server is not installed");
            return None;
        }
        let mut server = Server::new();
        let socket = server.folder().join("redis");
        let mut command = server.command("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
        server.start(&mut command);
        let client = Client::open(format!("redis+unix://{}", socket.display())).unwrap();
        until("redis answers", || client.get_connection().is_ok());
        Some(Redis { server, client })
    }

    fn connection(&self) -> Connection {
        self.client.get_connection().unwrap()
    }
}

#[test]
fn values_and_pipelines() {
    let Some(redis) = Redis::start() else { return };
    on_a_fiber(move || {
        let mut connection = redis.connection();
        let () = connection.set("fruit", "pear").unwrap();
        assert_eq!(connection.get::<_, String>("fruit").unwrap(), "pear");
        let fibers = many(100);
        scope(|s| {
            for number in 0..fibers {
                let redis = &redis;
                s.spawn(move || {
                    let mut connection = redis.connection();
                    let key = format!("key {number}");
                    let (first, second, text): (u32, u32, String) = redis::pipe()
                        .atomic()
                        .incr(&key, 1)
                        .incr(&key, 10)
                        .get(&key)
                        .query(&mut connection)
                        .unwrap();
                    assert_eq!((first, second, text.as_str()), (1, 11, "11"));
                    let () = connection.incr("all", 1).unwrap();
                });
            }
        });
        assert_eq!(connection.get::<_, usize>("all").unwrap(), fibers);
        // More than a socket's buffer.
        let large = vec![b'x'; 4_000_000];
        let () = connection.set("large", &large).unwrap();
        assert!(connection.get::<_, Vec<u8>>("large").unwrap() == large);
    });
}

#[test]
fn hundreds_of_fibers_share_a_pool() {
    let Some(redis) = Redis::start() else { return };
    on_a_fiber(move || {
        let pool = r2d2::Pool::builder().max_size(8).build(redis.client.clone()).unwrap();
        let fibers = many(500);
        scope(|s| {
            for _ in 0..fibers {
                let pool = pool.clone();
                s.spawn(move || {
                    for _ in 0..2 {
                        let mut connection = pool.get().unwrap();
                        let () = connection.incr("count", 1).unwrap();
                    }
                });
            }
        });
        let count: usize = pool.get().unwrap().get("count").unwrap();
        assert_eq!(count, 2 * fibers);
    });
}

#[test]
fn messages_reach_all_subscribers() {
    let Some(redis) = Redis::start() else { return };
    on_a_fiber(move || {
        let listeners: Vec<_> = (0..many(40))
            .map(|_| {
                let mut connection = redis.connection();
                spawn(move || {
                    let mut messages = connection.as_pubsub();
                    messages.subscribe("news").unwrap();
                    let first: String = messages.get_message().unwrap().get_payload().unwrap();
                    let second: String = messages.get_message().unwrap().get_payload().unwrap();
                    (first, second)
                })
            })
            .collect();
        let mut connection = redis.connection();
        until("all have subscribed", || {
            let count: (String, usize) =
                redis::cmd("PUBSUB").arg("NUMSUB").arg("news").query(&mut connection).unwrap();
            count.1 == listeners.len()
        });
        for text in ["one", "two"] {
            let heard: usize = connection.publish("news", text).unwrap();
            assert_eq!(heard, listeners.len());
        }
        for listener in listeners {
            assert_eq!(listener.join().unwrap(), ("one".into(), "two".into()));
        }
    });
}

#[test]
fn a_blocking_command_waits_for_another_fiber() {
    let Some(redis) = Redis::start() else { return };
    // On one carrier: the sender can only run while the other fiber is parked.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let mut connection = redis.connection();
        let waiting = spawn(move || connection.blpop::<_, (String, String)>("queue", 0.0).unwrap());
        carefree::sleep(Duration::from_millis(10));
        assert!(!waiting.is_finished());
        let () = redis.connection().rpush("queue", "work").unwrap();
        assert_eq!(waiting.join().unwrap().1, "work");
    });
}

#[test]
fn a_server_that_hangs_is_timed_out() {
    let Some(redis) = Redis::start() else { return };
    on_a_fiber(move || {
        let mut connection = redis.connection();
        let limit = Duration::from_millis(30);
        connection.set_read_timeout(Some(limit)).unwrap();
        redis.server.signal(libc::SIGSTOP);
        let begun = Instant::now();
        let error = connection.get::<_, String>("fruit").unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(begun.elapsed() >= limit - Duration::from_millis(1));
        redis.server.signal(libc::SIGCONT);
        let () = redis.connection().set("fruit", "fig").unwrap();
    });
}
