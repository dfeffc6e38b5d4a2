//! Settings in the environment take effect, and `platform` reports them.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::process::Command;

use carefree::{TlsMode, platform, run, spawn, yield_now};

const CHILD: &str = "CAREFREE_TEST_CHILD";

/// What a process reports of its platform after fibers have run in it.
fn with(variable: &str, value: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["the_child", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env(variable, value)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn the_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    // Before any fiber: the report must not depend on whether fibers have run.
    let before = format!("{:?}", platform());
    let sum = run(|| {
        let handles: Vec<_> = (0..20)
            .map(|n| {
                spawn(move || {
                    yield_now();
                    n
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum::<usize>()
    });
    assert_eq!(sum, 190);
    assert_eq!(before, format!("{:?}", platform()));
    println!("{before}");
    // SAFETY: looks a number up.
    println!("privileged: {}", unsafe { libc::getauxval(libc::AT_SECURE) } != 0);
}

/// A program with rights that its user does not have takes no settings from that user.
#[test]
fn a_program_with_rights_of_its_own_does_not_obey_its_user() {
    // These are invalid: a program that heeds one of them ends.
    const SETTINGS: [(&str, &str); 9] = [
        ("CAREFREE_CARRIERS", "none"),
        ("CAREFREE_OFFLOAD", "none"),
        ("CAREFREE_WATCH", "none"),
        ("CAREFREE_REACTOR", "none"),
        ("CAREFREE_URING", "none"),
        ("CAREFREE_TLS", "shared"),
        ("CAREFREE_TLS_RESERVE", "none"),
        ("CAREFREE_GUARDS", "mprotect"),
        ("CAREFREE_FSGSBASE", "off"),
    ];
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: only root can make a program of another user's");
    }
    let folder = std::env::temp_dir().join(format!("carefree-privileged-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("program");
    carefree_testing::artifact::copy_program(std::env::current_exe().unwrap(), &program);
    let run = |settings: &[(&str, &str)]| {
        let mut command = Command::new(&program);
        command.args(["the_child", "--exact", "--nocapture"]).env(CHILD, "1");
        command.envs(settings.iter().copied()).output().unwrap()
    };
    let said = |output: &std::process::Output| {
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = |line: &&str| line.starts_with("Platform") || line.starts_with("privileged");
        lines.lines().filter(said).collect::<Vec<_>>().join("\n")
    };
    let obeys = SETTINGS.map(|setting| {
        let output = run(&[setting]);
        !output.status.success() || said(&output) != said(&run(&[]))
    });
    // Owned by the user `nobody`, with whose rights root runs it.
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&program, mode).unwrap();
    let (left_alone, ordered_about) = (run(&[]), run(&SETTINGS));
    std::fs::remove_dir_all(&folder).unwrap();
    if !said(&left_alone).contains("privileged: true") {
        return println!("skipped: programs of the temporary folder get no rights");
    }
    let complaints = String::from_utf8_lossy(&ordered_about.stderr);
    assert!(ordered_about.status.success(), "{complaints}");
    assert_eq!(said(&ordered_about), said(&left_alone));
    // The others are not looked at in every mode.
    for ((variable, _), obeys) in SETTINGS.iter().zip(obeys).take(5) {
        assert!(obeys, "{variable} is not obeyed by others");
    }
}

#[test]
fn the_environment_is_obeyed() {
    assert!(with("CAREFREE_FSGSBASE", "off").contains("fsgsbase: false"));
    assert!(with("CAREFREE_TLS", "shared").contains("tls: Shared"));
    assert!(with("CAREFREE_TLS", "threads").contains("tls: Threads"));
    assert!(with("CAREFREE_GUARDS", "mprotect").contains("guards: Mprotect"));
}

#[test]
fn modes_are_explained() {
    let platform = platform();
    assert!(!platform.tls_reason.is_empty() && !platform.guards_reason.is_empty());
    assert_eq!(platform.tls != TlsMode::Own, platform.tls_bytes == 0);
}

/// Over io_uring it would stand still: while one thread waits in a ring, valgrind runs no other.
#[test(seconds = 120)]
fn programs_under_valgrind_wait_by_epoll() {
    if std::env::var_os("CAREFREE_TEST_RUNNER").is_some() {
        return println!("skipped: valgrind does not run in an emulator");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: valgrind is not installed");
    }
    let output = Command::new("valgrind")
        .arg("-q")
        .arg(std::env::current_exe().unwrap())
        .args(["the_child", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env_remove("CAREFREE_REACTOR")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("reactor: Some(Epoll)"), "{said}");
    assert!(said.contains("would stop all threads under valgrind"), "{said}");
}
