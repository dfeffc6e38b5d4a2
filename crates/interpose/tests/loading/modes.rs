//! The whole program again, over the other reactor.

use std::process::Command;

#[test(seconds = 600)]
fn over_epoll() {
    const FORCED: &str = "CAREFREE_TEST_FORCED";
    if std::env::var_os(FORCED).is_some() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "modes::"])
        .env(FORCED, "1")
        .env("CAREFREE_REACTOR", "epoll")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("a_fiber_loads_a_library_beside_others ... ok"), "{text}\n{errors}");
}
