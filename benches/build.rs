//! Compiles the C++ shim over Boost.Fiber and Boost.Context when both are installed.
//!
//! They are no dependency: without them their column says "not installed".

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src/boost.cpp");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CXX");
    println!("cargo::rustc-check-cfg=cfg(has_boost)");
    if !libraries_found() {
        look_again();
        return;
    }
    let compiled = cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .define("NDEBUG", None)
        .file("src/boost.cpp")
        .cargo_warnings(false)
        .try_compile("carefree_benches_boost");
    if compiled.is_ok() {
        println!("cargo::rustc-link-lib=dylib=boost_fiber");
        println!("cargo::rustc-link-lib=dylib=boost_context");
        println!("cargo::rustc-cfg=has_boost");
    } else {
        look_again();
    }
}

/// Has cargo run this again as long as Boost.Fiber's header is missing: cargo takes a file that is
/// not there for changed. Without this Boost stays "not installed" after it was installed.
fn look_again() {
    println!("cargo::rerun-if-changed=/usr/include/boost/fiber/all.hpp");
}

/// Whether the linker will find Boost's libraries. (The headers are found by compiling.) The
/// compiler driver prints a path when it knows the file, and the bare name when it does not.
fn libraries_found() -> bool {
    let Ok(compiler) = cc::Build::new().cpp(true).try_get_compiler() else {
        return false;
    };
    ["libboost_fiber.so", "libboost_context.so"].iter().all(|library| {
        let printed = compiler.to_command().arg(format!("-print-file-name={library}")).output();
        printed.is_ok_and(|output| {
            let path = String::from_utf8_lossy(&output.stdout);
            Path::new(path.trim()).is_absolute()
        })
    })
}
