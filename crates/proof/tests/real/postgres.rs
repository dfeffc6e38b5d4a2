//! The postgres crate against a PostgreSQL server started by the test.
//!
//! Each client of the crate has a tokio runtime, which waits in `epoll_wait`.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carefree::{scope, spawn};
use postgres::error::SqlState;
use postgres::{Client, NoTls};
use r2d2_postgres::PostgresConnectionManager;

use crate::kit::{folder::Server, many, on_a_fiber, skipped, until};

/// A cluster that listens on a Unix socket only.
struct Postgres {
    server: Server,
    config: postgres::Config,
}

impl Postgres {
    fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            skipped("postgresql is not installed");
            return None;
        };
        let mut server = Server::new();
        let data = server.folder().join("data");
        let made = server
            .command(programs.join("initdb"))
            .args(["--auth", "trust", "--username", "tester", "--no-sync", "--no-locale"])
            .args(["--encoding", "UTF8", "--pgdata"])
            .arg(&data)
            .status();
        assert!(made.unwrap().success());
        let mut command = server.command(programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(server.folder());
        for setting in ["listen_addresses=", "fsync=off", "logging_collector=off"] {
            command.args(["-c", setting]);
        }
        command.stderr(std::process::Stdio::null());
        server.start(&mut command);
        let mut config = Client::configure();
        config.host_path(server.folder()).user("tester").dbname("postgres");
        until("PostgreSQL answers", || config.connect(NoTls).is_ok());
        Some(Postgres { server, config })
    }

    fn client(&self) -> Client {
        self.config.connect(NoTls).unwrap()
    }
}

/// The folder of the newest PostgreSQL's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin"));
    let on_path = std::env::var_os("PATH")?;
    let on_path = std::env::split_paths(&on_path).collect::<Vec<_>>();
    let all = found.chain(on_path);
    all.filter(|folder| folder.join("initdb").exists() && folder.join("postgres").exists()).max()
}

/// One test, since making the cluster takes longer than all the rest.
#[test]
fn clients_of_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    on_a_fiber(move || {
        queries(&postgres);
        a_pool(&postgres);
        waiting_for_a_lock(&postgres);
        limits_of_time(&postgres);
        notifications(&postgres);
        large_results(&postgres);
        the_end_of_the_server(&postgres);
    });
}

fn queries(postgres: &Postgres) {
    let mut client = postgres.client();
    client.batch_execute("create table fruit (name text primary key, stock int not null)").unwrap();
    let mut transaction = client.transaction().unwrap();
    let insert = transaction.prepare("insert into fruit values ($1, $2)").unwrap();
    for (name, stock) in [("pear", 3), ("fig", 5)] {
        assert_eq!(transaction.execute(&insert, &[&name, &stock]).unwrap(), 1);
    }
    transaction.commit().unwrap();
    let rows = client.query("select name, stock from fruit order by stock", &[]).unwrap();
    let rows: Vec<(String, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [("pear".into(), 3), ("fig".into(), 5)]);
    let error = client.execute("insert into fruit values ('fig', 1)", &[]).unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION));
    client.simple_query("select nonsense").unwrap_err();
}

fn a_pool(postgres: &Postgres) {
    let manager = PostgresConnectionManager::new(postgres.config.clone(), NoTls);
    let pool = r2d2::Pool::builder().max_size(8).build(manager).unwrap();
    pool.get()
        .unwrap()
        .batch_execute("create table count (n int); insert into count values (0)")
        .unwrap();
    let fibers = many(200);
    scope(|s| {
        for number in 0..fibers as i32 {
            let pool = pool.clone();
            s.spawn(move || {
                let mut client = pool.get().unwrap();
                let row = client.query_one("select $1::int * 2", &[&number]).unwrap();
                assert_eq!(row.get::<_, i32>(0), number * 2);
                client.execute("update count set n = n + 1", &[]).unwrap();
            });
        }
    });
    let row = pool.get().unwrap().query_one("select n from count", &[]).unwrap();
    assert_eq!(row.get::<_, i32>(0), fibers as i32);
}

/// One fiber waits in the database for another: on one carrier this ends only if waiting parks.
fn waiting_for_a_lock(postgres: &Postgres) {
    let (mut first, mut second) = (postgres.client(), postgres.client());
    carefree::Runtime::builder().carriers(1).build().unwrap().run(move || {
        let mut transaction = first.transaction().unwrap();
        transaction.execute("update fruit set stock = 10 where name = 'fig'", &[]).unwrap();
        let waiting = spawn(move || {
            second
                .query_one(
                    "update fruit set stock = stock + 1 where name = 'fig' returning stock",
                    &[],
                )
                .unwrap()
                .get::<_, i32>(0)
        });
        carefree::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished());
        transaction.commit().unwrap();
        assert_eq!(waiting.join().unwrap(), 11);
    });
}

fn limits_of_time(postgres: &Postgres) {
    let mut client = postgres.client();
    client.batch_execute("set statement_timeout = 50").unwrap();
    let begun = Instant::now();
    let error = client.execute("select pg_sleep(1000)", &[]).unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    // Another connection cancels it.
    client.batch_execute("set statement_timeout = 0").unwrap();
    let token = client.cancel_token();
    let waiting = spawn(move || client.execute("select pg_sleep(1000)", &[]).unwrap_err());
    // A request before the query cancels nothing.
    until_the_server_sleeps(postgres);
    token.cancel_query(NoTls).unwrap();
    assert_eq!(waiting.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
}

fn notifications(postgres: &Postgres) {
    use postgres::fallible_iterator::FallibleIterator;
    let mut listener = postgres.client();
    listener.batch_execute("listen news").unwrap();
    let listening = spawn(move || {
        let mut notifications = listener.notifications();
        let mut waiting = notifications.blocking_iter();
        waiting.next().unwrap().unwrap().payload().to_owned()
    });
    postgres.client().batch_execute("notify news, 'rain'").unwrap();
    assert_eq!(listening.join().unwrap(), "rain");
}

fn large_results(postgres: &Postgres) {
    scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let rows = postgres
                    .client()
                    .query("select n, repeat('x', 200) from generate_series(1, 5000) n", &[])
                    .unwrap();
                assert!(rows.iter().zip(1..).all(|(row, n)| row.get::<_, i32>(0) == n));
                assert_eq!(rows.len(), 5000);
            });
        }
    });
}

fn the_end_of_the_server(postgres: &Postgres) {
    let mut client = postgres.client();
    let waiting = spawn(move || client.execute("select pg_sleep(1000)", &[]).unwrap_err());
    until_the_server_sleeps(postgres);
    postgres.server.signal(libc::SIGQUIT);
    let error = waiting.join().unwrap();
    // The server sends a message, or just closes the connection.
    let gone = error.source().is_some_and(|source| source.is::<std::io::Error>());
    assert!(error.is_closed() || error.code().is_some() || gone, "{error:?}");
}

/// Waits until a client's `pg_sleep` is under way.
fn until_the_server_sleeps(postgres: &Postgres) {
    let mut client = postgres.client();
    until("a query sleeps", || {
        let sleeping = "select 1 from pg_stat_activity where wait_event = 'PgSleep'";
        !client.query(sleeping, &[]).unwrap().is_empty()
    });
}
