//! The first waits of a process come all at once: what they need is set up only once.

use std::env;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

use carefree::{Runtime, scope};

const CHILD: &str = "CAREFREE_TEST_START";

#[test]
fn many_fibers_wait_first() {
    if env::var_os(CHILD).is_none() {
        for _ in 0..12 {
            let output = Command::new(env::current_exe().unwrap())
                .args(["--exact", "start::many_fibers_wait_first"])
                .env(CHILD, "1")
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        return;
    }
    Runtime::builder().carriers(8).build().unwrap().run(|| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        scope(|s| {
            for _ in 0..200 {
                s.spawn(|| (&reader).read_exact(&mut [0]).unwrap());
            }
            carefree::yield_now();
            writer.write_all(&[0; 200]).unwrap();
        });
    });
}
