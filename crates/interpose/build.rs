//! Tells the crate that it is built with a sanitizer, as `cfg(carefree_sanitized)`: the compiler's own
//! `cfg(sanitize)` is for nightly compilers only, but cargo passes it on to build scripts.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(carefree_sanitized)");
    if std::env::var_os("CARGO_CFG_SANITIZE").is_some() {
        println!("cargo::rustc-cfg=carefree_sanitized");
    }
}
