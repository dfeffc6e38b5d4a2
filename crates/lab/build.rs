//! Captures what records say of the lab's own build, and takes the targets in, so that the program has
//! them wherever it is.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (name, variable) in [("LAB_TARGET", "TARGET"), ("LAB_OPT_LEVEL", "OPT_LEVEL")] {
        println!("cargo::rustc-env={name}={}", env::var(variable).unwrap_or_default());
    }
    targets();
}

/// Writes a list of all files of the folders in `targets/` that are targets, with their content. (The
/// programs that these are checked by, `targets/by-hand`, are none.)
fn targets() {
    // Asked for when it runs: a folder of builds may have been copied from elsewhere.
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let top = Path::new(&here).join("../../targets");
    println!("cargo::rerun-if-changed={}", top.display());
    let mut files = Vec::new();
    for folder in fs::read_dir(&top).into_iter().flatten().flatten() {
        if folder.path().join("target.toml").is_file() {
            collect(&folder.path(), &mut files);
        }
    }
    files.sort();
    let mut code = String::from("/// Our targets: path and content of each file.\n");
    code += "static SHIPPED: &[(&str, &[u8])] = &[\n";
    for file in files {
        let name = file.strip_prefix(&top).expect("it is in there");
        // Writing to a string cannot fail.
        let _ = writeln!(code, "    ({name:?}, include_bytes!({file:?})),");
    }
    code += "];\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("targets.rs");
    fs::write(out, code).expect("the folder for what is built can be written");
}

/// Files, but not what a build in the folder itself has left behind.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" && name != "__pycache__" {
                collect(&path, files);
            }
        } else {
            files.push(path);
        }
    }
}
