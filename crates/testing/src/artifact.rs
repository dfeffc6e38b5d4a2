//! What cargo does not build for a test because the test does not link it: tests have it built.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds `what`, a package and what of it, in the profile and the target folder of the calling test. Returns
/// the folder of that profile.
///
/// # Panics
/// If it cannot be built.
pub fn build(what: &[&str]) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    // target/PROFILE/deps/test
    let folder = test.parent().and_then(Path::parent).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package"]).args(what).env_remove("LD_PRELOAD");
    build.arg("--target-dir").arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "{what:?} cannot be built");
    folder.to_owned()
}

/// `libcarefree.so`, which `carefree run` has the loader load first. It lies beside the program `carefree`.
pub fn preload() -> &'static Path {
    static PRELOAD: OnceLock<PathBuf> = OnceLock::new();
    PRELOAD.get_or_init(|| build(&["carefree-preload"]).join("libcarefree.so"))
}

/// Copies a program that is to be executed. A process of its own writes the copy: what another test starts meanwhile
/// would inherit a file that this one has open for writing, and the kernel executes none that is (`ETXTBSY`).
///
/// # Panics
/// It cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(status.is_ok_and(|status| status.success()), "{:?} is not copied", from.as_ref());
}
