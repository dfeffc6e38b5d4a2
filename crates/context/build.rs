//! Tells the crate which sanitizer it is built with, as `cfg(carefree_asan)` and `cfg(carefree_tsan)`.
//!
//! The compiler's own `cfg(sanitize = "address")` is for nightly compilers only, so the crate could
//! not name it. Cargo passes it on to build scripts, though.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(carefree_asan, carefree_tsan)");
    let sanitizers = env::var("CARGO_CFG_SANITIZE").unwrap_or_default();
    for (sanitizer, name) in [("address", "carefree_asan"), ("thread", "carefree_tsan")] {
        if sanitizers.split(',').any(|enabled| enabled == sanitizer) {
            println!("cargo::rustc-cfg={name}");
        }
    }
}
