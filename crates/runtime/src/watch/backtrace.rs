//! A backtrace in words: what helps somebody find the place in their own program.
//!
//! With optimization, most of what is on a stack is of the standard library or of this crate: a
//! `collect` alone is ten functions. Of each row of such functions only the outermost is shown, the
//! one that was called by name, and how many there are within it. What lies around a fiber's own
//! function is not shown at all.
//!
//! Whose a function is, and where the fiber's own begins, is told by the *files* the functions are
//! in. Names would not do: with line tables only, as in many release builds, a function's is `live`
//! or `{closure#0}`. Addresses would not do either: a fiber's first functions are made anew for each
//! type of closure, and may be inlined into each other. Where there are no line tables, there are the
//! whole names of the symbol table, and these tell as well.

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree_context::loader;

use super::name::{narrow, without_types};
use super::unwind::{Frame, headers};

/// Functions shown at most: the innermost half and the outermost.
const FUNCTIONS: usize = 32;
/// Characters of a line at most, which its reader's terminal has as a rule.
const WIDTH: usize = 120;
/// What stands before each function.
const MARGIN: usize = 6;
/// What stands before each place.
const INDENT: &str = "             at ";

/// A function on a stack, inlined or not.
#[derive(Clone, Debug)]
struct Function {
    name: String,
    place: Option<(PathBuf, Option<u32>)>,
    whose: Whose,
    /// A fiber's first function: outside it there is nothing of the program's.
    first: bool,
    /// The name is but a place in a file, which was stripped of names.
    nameless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The program's, a library's, or nobody knows whose.
    Program,
    Std,
    Carefree,
}

/// Backtraces under way: each is made by a thread of its own.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
/// As many as there may be. Where a fork was made amid one, those of the child wait for ever for it.
const MOST: usize = 4;

/// Whether there are so many under way that no other should be begun.
pub(super) fn are_enough() -> bool {
    UNDER_WAY.load(Ordering::Relaxed) >= MOST
}

/// A backtrace in words.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) lines: Vec<String>,
    /// Some functions have no names: the program was stripped of them.
    pub(super) nameless: bool,
}

/// The functions on a stack by name.
pub(super) fn words(frames: &[Frame]) -> Words {
    learn_libraries();
    UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    let functions = functions(frames);
    let words = Words {
        lines: shorten(&functions),
        nameless: functions.iter().any(|function| function.nameless),
    };
    // What was read of the program's symbols is tens of MiB (44 after one report of a small release
    // build, 10 when it has been let go), and the next report may never come.
    if UNDER_WAY.fetch_sub(1, Ordering::Relaxed) == 1 {
        ::backtrace::clear_symbol_cache();
    }
    words
}

/// Has the list of libraries read, which is done with the first address, once in a process. A fork
/// amid that would leave the child with the loader's lock held.
fn learn_libraries() {
    loader::asking(|| ::backtrace::resolve(ptr::null_mut(), |_| {}));
}

fn functions(frames: &[Frame]) -> Vec<Function> {
    let rooms = Rooms::get();
    let mut functions = Vec::new();
    for frame in frames {
        let known = functions.len();
        // It takes one off to be within the instruction that called; we have done so.
        ::backtrace::resolve((frame.address + 1) as *mut _, |symbol| {
            let Some(name) = symbol.name() else { return };
            let place = symbol.filename().map(|file| (file.to_owned(), symbol.lineno()));
            // Without the hash.
            functions.push(rooms.function(&format!("{name:#}"), place));
        });
        if functions.len() == known {
            let (name, nameless) = place_in_file(frame.address);
            let (place, whose) = (None, Whose::Program);
            functions.push(Function { name, place, whose, first: false, nameless });
        }
        if functions.last().is_some_and(|function| function.first) {
            break;
        }
    }
    functions
}

/// `program+0x1234`: the file that was loaded there and the place as the file has it, which is not
/// another one in each run. `addr2line` takes that. Also whether there is such a file: the kernel's own
/// code (the vDSO) lies in none.
fn place_in_file(address: u64) -> (String, bool) {
    let mut found = None;
    loader::any_object(|object| {
        let begin = object.dlpi_addr;
        let mut extents = headers(object).iter().filter(|header| header.p_type == libc::PT_LOAD);
        let within = extents.any(|header| {
            let from = begin.wrapping_add(header.p_vaddr);
            (from..from.wrapping_add(header.p_memsz)).contains(&address)
        });
        if within {
            let name = match object.dlpi_name.is_null() {
                true => c"",
                // SAFETY: a C string of the loader's, which stays during the visit.
                false => unsafe { CStr::from_ptr(object.dlpi_name) },
            };
            let name = name.to_string_lossy().into_owned();
            found = Some((PathBuf::from(name), address.wrapping_sub(begin)));
        }
        within
    });
    let Some((path, place)) = found else { return (format!("{address:#x}"), false) };
    // The program itself has no name there.
    let path = match path.file_name() {
        Some(_) => path,
        None => std::env::current_exe().unwrap_or_default(),
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    (format!("{}+{place:#x}", name.unwrap_or_default()), path.is_absolute())
}

/// Where the sources of this crate and of its neighbours lay when they were compiled, as the line
/// tables have it.
#[derive(Debug, Default)]
struct Rooms {
    /// The file with a fiber's first functions.
    spawn: PathBuf,
    /// Each with its `src`.
    folders: Vec<PathBuf>,
}

impl Rooms {
    /// As found by where this function is itself; empty without line tables.
    fn get() -> &'static Rooms {
        static ROOMS: OnceLock<Rooms> = OnceLock::new();
        ROOMS.get_or_init(|| {
            let mut file = None;
            let here = words as fn(&[Frame]) -> Words;
            ::backtrace::resolve((here as usize + 1) as *mut c_void, |symbol| {
                // The outermost is the last.
                file = symbol.filename().map(Path::to_owned);
            });
            file.and_then(|file| Rooms::around(&file)).unwrap_or_default()
        })
    }

    /// From where this file is: `.../crates/runtime/src/watch/backtrace.rs`, or, as a package from a
    /// registry, `.../carefree-runtime-0.1.0/src/watch/backtrace.rs`.
    fn around(file: &Path) -> Option<Rooms> {
        if !file.ends_with("src/watch/backtrace.rs") {
            return None;
        }
        let room = file.ancestors().nth(3)?;
        let (rooms, name) = (room.parent()?, room.file_name()?.to_str()?);
        let neighbours = ["context", "reactor", "runtime", "interpose"];
        let mut names: Vec<_> = neighbours.map(|other| name.replace("runtime", other)).into();
        names.push(match name {
            "runtime" => "carefree".to_owned(),
            _ => name.replace("-runtime", ""),
        });
        let folders = names.iter().map(|name| rooms.join(name).join("src")).collect();
        Some(Rooms { spawn: room.join("src/spawn.rs"), folders })
    }

    fn function(&self, name: &str, place: Option<(PathBuf, Option<u32>)>) -> Function {
        let mut name = without_types(name);
        let path = name.trim_start_matches(['<', '_', '&']);
        let of = |crates: &[&str]| crates.iter().any(|start| path.starts_with(start));
        let file = place.as_ref().map(|(file, _)| file.as_path());
        let (whose, module) = match file {
            Some(file) if self.folders.iter().any(|folder| file.starts_with(folder)) => {
                (Whose::Carefree, module(file))
            }
            Some(file) if is_of_std(file) => (Whose::Std, module(file)),
            Some(_) => (Whose::Program, None),
            None if of(&["std::", "core::", "alloc::", "rust_try", "rust_begin_short"]) => {
                (Whose::Std, None)
            }
            None if of(&["carefree_", "carefree::"]) => (Whose::Carefree, None),
            None => (Whose::Program, None),
        };
        let in_spawn = file == Some(&self.spawn);
        let first = in_spawn && matches!(name.as_str(), "live" | "entry")
            || ["spawn::live", "spawn::entry"]
                .iter()
                .any(|first| path.strip_prefix("carefree_runtime::") == Some(first));
        // Line tables have but the last part of a name.
        if let Some(module) = module.filter(|_| !name.contains("::") || name.starts_with('{')) {
            name = format!("{module}::{name}");
        }
        // Lines of other people's code help nobody.
        let place = place.filter(|_| whose == Whose::Program);
        Function { name, place, whose, first, nameless: false }
    }
}

fn is_of_std(file: &Path) -> bool {
    let text = file.to_string_lossy();
    // As it is compiled; as it is where its sources are installed; and what it depends on itself.
    text.starts_with("/rustc/")
        || text.contains("/lib/rustlib/src/rust/library/")
        || text.starts_with("/rust/deps/")
}

/// `core::iter::traits::iterator` for `.../core/src/iter/traits/iterator.rs`.
fn module(file: &Path) -> Option<String> {
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    let source = parts.iter().rposition(|part| part == "src")?;
    let (package, inner) = (parts[..source].last()?, &parts[source + 1..]);
    let package = match package.as_ref() {
        "context" | "reactor" | "runtime" | "interpose" => format!("carefree_{package}"),
        // Without the version.
        other => match other.rsplit_once('-') {
            Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => {
                name.replace('-', "_")
            }
            _ => other.replace('-', "_"),
        },
    };
    let inner = inner.iter().map(|part| part.trim_end_matches(".rs"));
    let inner = inner.filter(|part| !matches!(*part, "mod" | "lib"));
    Some(std::iter::once(package.as_str()).chain(inner).collect::<Vec<_>>().join("::"))
}

/// What is worth a line.
fn shorten(functions: &[Function]) -> Vec<String> {
    let end = functions.iter().position(|function| function.first).unwrap_or(functions.len());
    // Outside the program's outermost function there is what calls a closure.
    let own = functions[..end].iter().rposition(|function| function.whose == Whose::Program);
    // Where nothing is the program's, it is not known to be anybody else's.
    let functions = &functions[..own.map_or(end, |own| own + 1)];
    let mut lines = Vec::new();
    let both =
        |a: &Function, b: &Function| (a.whose == Whose::Program) == (b.whose == Whose::Program);
    for row in functions.chunk_by(both) {
        if row[0].whose == Whose::Program {
            lines.extend(row.iter().map(line));
        } else if let Some((outermost, within)) = row.split_last() {
            lines.push(with_count(outermost, within));
        }
    }
    if lines.len() > FUNCTIONS {
        let left_out = lines.len() - FUNCTIONS;
        let more = format!("… ({left_out} more)");
        lines.splice(FUNCTIONS / 2..FUNCTIONS / 2 + left_out, [more]);
    }
    lines
}

/// A function that others called, and how many they were.
fn with_count(outermost: &Function, within: &[Function]) -> String {
    let of = |whose| within.iter().any(|function| function.whose == whose);
    let whose = match (of(Whose::Std), of(Whose::Carefree)) {
        (true, true) => "std and carefree",
        (_, true) => "carefree",
        _ => "std",
    };
    let count = match within.len() {
        0 => String::new(),
        1 => format!(" (and 1 frame of {whose} within)"),
        count => format!(" (and {count} frames of {whose} within)"),
    };
    narrow(&outermost.name, WIDTH - MARGIN - count.chars().count()) + &count
}

fn line(function: &Function) -> String {
    let mut line = narrow(&function.name, WIDTH - MARGIN);
    if let Some((file, number)) = &function.place {
        let number = number.map(|number| format!(":{number}")).unwrap_or_default();
        let place = format!("{}{number}", file.display());
        line += &format!("\n{INDENT}{}", narrow(&place, WIDTH - INDENT.len()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms() -> Rooms {
        Rooms::around(Path::new("/home/me/carefree/crates/runtime/src/watch/backtrace.rs")).unwrap()
    }

    const SPAWN: &str = "/home/me/carefree/crates/runtime/src/spawn.rs";
    const CORE: &str = "/rustc/59807616/library/core/src/";

    /// From names, and files with lines.
    fn shown(rooms: &Rooms, functions: &[(&str, &str)]) -> Vec<String> {
        let functions: Vec<_> = functions
            .iter()
            .map(|(name, file)| {
                let place = (!file.is_empty()).then(|| (PathBuf::from(file), Some(7)));
                rooms.function(name, place)
            })
            .collect();
        shorten(&functions)
    }

    /// As an optimized program with line tables has them.
    #[test]
    fn what_is_not_the_programs_is_cut_short() {
        let option = &format!("{CORE}option.rs");
        let iterator = &format!("{CORE}iter/traits/iterator.rs");
        let function = &format!("{CORE}ops/function.rs");
        let lines = shown(
            &rooms(),
            &[
                ("__memcpy", "./string/memmove.S"),
                ("copy<u8>", &format!("{CORE}ptr/mod.rs")),
                ("build", "/home/me/carefree/crates/context/src/tls/block.rs"),
                ("spawn<shop::{closure_env#0}, ()>", SPAWN),
                ("{closure#1}", "/home/me/shop/main.rs"),
                ("map<u8>", option),
                ("fold<R, F>", iterator),
                ("collect<Map<R, F>, Vec<u8>>", iterator),
                ("all_at_once<u8>", "/home/me/shop/main.rs"),
                ("next<u8>", option),
                ("main_fiber", "/home/me/shop/main.rs"),
                ("call_once<F, ()>", function),
                ("{closure#0}<F>", "/home/me/carefree/crates/runtime/src/scope.rs"),
                ("catch_unwind<F, ()>", &format!("{CORE}panic.rs")),
                ("live<F, ()>", SPAWN),
                ("entry<F, ()>", SPAWN),
                ("beyond", "/home/me/shop/main.rs"),
            ],
        );
        assert_eq!(
            lines,
            [
                "__memcpy\n             at ./string/memmove.S:7",
                "carefree_runtime::spawn::spawn (and 2 frames of std and carefree within)",
                "{closure#1}\n             at /home/me/shop/main.rs:7",
                "core::iter::traits::iterator::collect (and 2 frames of std within)",
                "all_at_once\n             at /home/me/shop/main.rs:7",
                "core::option::next",
                "main_fiber\n             at /home/me/shop/main.rs:7",
            ]
        );
    }

    /// A program's own function of the same name, in its own file of the same name, is not the
    /// runtime's.
    #[test]
    fn the_first_function_is_ours() {
        let lines = shown(
            &rooms(),
            &[("live", "/home/me/shop/src/spawn.rs"), ("outer", "/home/me/shop/src/spawn.rs")],
        );
        assert_eq!(lines.len(), 2, "{lines:?}");
    }

    /// Without line tables there are whole names.
    #[test]
    fn names_tell_where_there_are_no_files() {
        for rooms in [rooms(), Rooms::default()] {
            let lines = shown(
                &rooms,
                &[
                    ("__nanosleep", ""),
                    ("std::thread::sleep", ""),
                    ("shop::wait", ""),
                    ("0x1234", ""),
                    (
                        "<core::panic::unwind_safe::AssertUnwindSafe<F> as FnOnce<()>>::call_once",
                        "",
                    ),
                    ("__rust_try", ""),
                    ("carefree_runtime::spawn::live::<F, ()>", ""),
                    ("carefree_runtime::spawn::entry::<F, ()>", ""),
                ],
            );
            assert_eq!(lines, ["__nanosleep", "std::thread::sleep", "shop::wait", "0x1234"]);
        }
    }

    /// Where nothing is known to be the program's, nothing is held back.
    #[test]
    fn the_runtimes_own_are_shown_when_there_are_no_others() {
        let lines = shown(
            &rooms(),
            &[("put", "/home/me/carefree/crates/runtime/src/queue.rs"), ("live", SPAWN)],
        );
        assert_eq!(lines, ["carefree_runtime::queue::put"]);
    }

    #[test]
    fn lines_are_narrow_and_few() {
        let name = "a_long_name::".repeat(20) + "f";
        let file = "/home/me/".to_owned() + &"folder/".repeat(30) + "main.rs";
        let functions = vec![(name.as_str(), file.as_str()); 50];
        let lines = shown(&rooms(), &functions);
        assert_eq!(lines.len(), FUNCTIONS + 1);
        assert_eq!(lines[FUNCTIONS / 2], "… (18 more)");
        let (first, place) = lines[0].split_once('\n').unwrap();
        assert_eq!(first.chars().count(), WIDTH - MARGIN);
        assert_eq!(place.chars().count(), WIDTH);
        assert!(place.ends_with("/main.rs:7"), "{place}");
    }

    #[test]
    fn rooms_are_found_in_a_registry_too() {
        let file = "/home/me/registry/src/carefree-runtime-0.1.0/src/watch/backtrace.rs";
        let rooms = Rooms::around(Path::new(file)).unwrap();
        let whose = |file: &str| rooms.function("f", Some((PathBuf::from(file), None))).whose;
        assert_eq!(whose("/home/me/registry/src/carefree-0.1.0/src/lib.rs"), Whose::Carefree);
        assert_eq!(
            whose("/home/me/registry/src/carefree-interpose-0.1.0/src/sleep.rs"),
            Whose::Carefree
        );
        assert_eq!(whose("/home/me/registry/src/ureq-3.3.0/src/lib.rs"), Whose::Program);
        assert!(Rooms::around(Path::new("elsewhere.rs")).is_none());
    }

    #[test]
    fn places_are_those_of_files() {
        let here = place_in_file as fn(u64) -> (String, bool);
        let (name, in_file) = place_in_file(here as usize as u64);
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("{program}+0x")) && in_file, "{name}");
        // SAFETY: asks for a number.
        let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        let (name, in_file) = place_in_file(kernels + 1);
        assert!(name.ends_with("+0x1") && !in_file, "{name}");
        assert_eq!(place_in_file(7), ("0x7".to_owned(), false));
    }

    /// In this program, wherever it was compiled.
    #[test]
    fn our_own_sources_are_known() {
        let rooms = Rooms::get();
        assert!(rooms.spawn.ends_with("runtime/src/spawn.rs"), "{rooms:?}");
        assert!(rooms.folders.iter().all(|folder| folder.is_dir()), "{rooms:?}");
    }
}
