//! Captures the compiler's version: `std::thread`, one of the units, is part of the compiler's release,
//! so the compiler's version is that unit's version.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        // "rustc 1.95.0 (59807616e 2026-04-14)": the second word is the version.
        .and_then(|line| line.split_whitespace().nth(1).map(str::to_owned))
        .unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=WORKLOADS_RUSTC_VERSION={version}");
}
