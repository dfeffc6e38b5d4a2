//! SQLite: C code that sleeps while the database is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carefree::scope;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::kit::{LONG, many, on_a_fiber, until};

#[test]
fn writers_wait_for_each_other() {
    on_a_fiber(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database");
        let open = || {
            let connection = Connection::open(&path).unwrap();
            connection.busy_timeout(LONG).unwrap();
            connection
        };
        open().execute_batch("pragma synchronous = off; create table t (n integer)").unwrap();
        let (fibers, rounds) = (many(16), 3);
        scope(|s| {
            for number in 0..fibers {
                let open = &open;
                s.spawn(move || {
                    let mut connection = open();
                    for round in 0..rounds {
                        let transaction = connection
                            .transaction_with_behavior(TransactionBehavior::Immediate)
                            .unwrap();
                        transaction
                            .execute(
                                "insert into t values (?1)",
                                [(number * rounds + round) as i64],
                            )
                            .unwrap();
                        // The transaction is held over a wait.
                        carefree::yield_now();
                        transaction.commit().unwrap();
                    }
                });
            }
        });
        let (count, sum): (i64, i64) = open()
            .query_row("select count(*), sum(n) from t", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        let all = (fibers * rounds) as i64;
        assert_eq!((count, sum), (all, all * (all - 1) / 2));
    });
}

#[test]
fn a_busy_database_times_out() {
    // On one carrier: if it were blocked, the writer could not continue.
    carefree::Runtime::builder().carriers(1).build().unwrap().run(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("database");
        let mut writer = Connection::open(&path).unwrap();
        writer.execute_batch("create table t (n integer)").unwrap();
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Exclusive).unwrap();
        let refused = Arc::new(AtomicBool::new(false));
        let flag = refused.clone();
        let waiting = carefree::spawn(move || {
            let reader = Connection::open(&path).unwrap();
            reader.busy_timeout(Duration::from_millis(20)).unwrap();
            let count = |reader: &Connection| {
                reader.query_row("select count(*) from t", [], |row| row.get::<_, i64>(0))
            };
            let busy = count(&reader).unwrap_err();
            assert_eq!(busy.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
            flag.store(true, Ordering::Release);
            reader.busy_timeout(LONG).unwrap();
            count(&reader).unwrap()
        });
        until("it is refused", || refused.load(Ordering::Acquire));
        carefree::sleep(Duration::from_millis(10));
        transaction.execute("insert into t values (1)", []).unwrap();
        transaction.commit().unwrap();
        assert_eq!(waiting.join().unwrap(), 1);
    });
}
